#include "scale_counts.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <danling/distributed/group.hpp>
#include <danling/runner/parallelism.hpp>

#include <distributed/store_client.hpp>
#include <distributed/store_server.hpp>

#include "ddp_ranks.hpp"
#include "peers.hpp"
#include "tables.hpp"

namespace bench::scale {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Bytes and calls of reads and writes of this process, including sockets.
struct Traffic {
  double written = 0.0, reads = 0.0, writes = 0.0;
};
Traffic traffic() {
  Traffic out;
  std::ifstream file("/proc/self/io");
  std::string name;
  double value = 0.0;
  while (file >> name >> value) {
    out.written = name == "wchar:" ? value : out.written;
    out.reads = name == "syscr:" ? value : out.reads;
    out.writes = name == "syscw:" ? value : out.writes;
  }
  if (name.empty()) {
    give_up("expected to read /proc/self/io, got nothing; the counts need a Linux kernel with task I/O accounting");
  }
  return out;
}

double cpu_seconds() {
  rusage used = {};
  getrusage(RUSAGE_SELF, &used);
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return of(used.ru_utime) + of(used.ru_stime);
}

int sockets() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    count += std::filesystem::read_symlink(entry.path(), ignored).string().starts_with("socket:") ? 1 : 0;
  }
  return count;
}

using Call = std::function<void(const danling::Group& group)>;

Counts count(int ranks, int calls, const Call& call) {
  std::barrier all(ranks);
  Counts out;
  danling::Group::run_threads(ranks, [&](danling::Group& group) {
    call(group);
    all.arrive_and_wait();
    Traffic before;
    double cpu = 0.0;
    Clock::time_point begin;
    if (group.rank() == 0) {
      before = traffic();
      cpu = cpu_seconds();
      begin = Clock::now();
    }
    all.arrive_and_wait();
    for (int i = 0; i < calls; ++i) {
      call(group);
    }
    all.arrive_and_wait();
    if (group.rank() == 0) {
      const Traffic after = traffic();
      const double each = 1.0 / (static_cast<double>(ranks) * calls);
      out = {(after.written - before.written) * each, (after.writes - before.writes) * each,
             seconds_since(begin) / calls, (cpu_seconds() - cpu) * each};
    }
    all.arrive_and_wait();
  });
  return out;
}

/// One tensor per rank, reused between calls.
at::Tensor& tensor_of(double bytes) {
  thread_local at::Tensor tensor;
  const auto numel = static_cast<std::int64_t>(bytes / 4);
  if (!tensor.defined() || tensor.numel() != numel) {
    tensor = at::ones({numel});
  }
  return tensor;
}

struct Report {
  double seconds = 0.0, joined = 0.0, split = 0.0, reads = 0.0;
  int sockets = 0;
};

/// Joins, reports, and keeps the group until this process is killed.
void join(int rank, int ranks, int port, int pipe) {
  danling::ProcessIdentity identity;
  identity.rank = identity.local_rank = rank;
  identity.world_size = identity.local_world_size = ranks;
  identity.master_address = "127.0.0.1";
  identity.master_port = port;
  identity.launcher = "torchrun";
  Report out;
  const Traffic before = traffic();
  const auto begin = Clock::now();
  const danling::Group group = danling::Group::connect(identity);
  out.seconds = seconds_since(begin);
  group.barrier();
  const Traffic joined = traffic();
  const danling::Group second = group.split(0, rank);
  group.barrier();
  const Traffic split = traffic();
  out.joined = joined.written - before.written;
  out.split = split.written - joined.written;
  out.reads = split.reads - joined.reads;
  out.sockets = sockets();
  group.barrier();
  while (write(pipe, &out, sizeof out) == sizeof out) {
    pause();
  }
}

}  // namespace

Counts count_agreement(int ranks, int calls) {
  const std::string packet(1 + sizeof(danling::StepPacket), 'u');
  return count(ranks, calls, [&](const danling::Group& group) { group.all_gather(packet); });
}

Counts count_sum(int ranks, double bytes, int calls) {
  return count(ranks, calls, [&](const danling::Group& group) { group.start_all_reduce(tensor_of(bytes)).wait(); });
}

Counts count_rows(int ranks, double bytes, int calls) {
  return count(ranks, calls, [&](const danling::Group& group) { group.all_gather(tensor_of(bytes)); });
}

Counts count_requests_of_parts(int ranks, int calls) {
  const std::vector<at::Tensor> parts(static_cast<std::size_t>(ranks), at::ones({1}));
  return count(ranks, calls, [&](const danling::Group& group) { group.all_to_all(parts); });
}

Measured measure_link(int times) {
  Measured out{.alpha = 1.0, .bandwidth = 0.0};
  danling::Group::run_threads(2, [&](danling::Group& group) {
    at::Tensor small = at::zeros({512}, at::kByte);
    at::Tensor large = at::zeros({16 << 20}, at::kByte);
    const auto pass = [&](at::Tensor& there, at::Tensor& back) {
      if (group.rank() == 0) {
        group.send(there, 1);
        group.recv(back, 1);
      } else {
        group.recv(there, 0);
        group.send(back, 0);
      }
    };
    // The minimum of several medians: other programs use the cores too.
    for (int batch = 0; batch < 5; ++batch) {
      std::vector<double> trips, transfers;
      for (int i = 0; i < times; ++i) {
        const auto begin = Clock::now();
        pass(small, small);
        trips.push_back(seconds_since(begin) / 2);
      }
      for (int i = 0; i < 8; ++i) {
        const auto begin = Clock::now();
        pass(large, small);
        transfers.push_back(seconds_since(begin));
      }
      if (group.rank() == 0) {
        out.alpha = std::min(out.alpha, median(trips));
        out.bandwidth = std::max(out.bandwidth, static_cast<double>(large.nbytes()) / median(transfers));
      }
    }
  });
  return out;
}

double measure_store(int clients, double seconds) {
  auto listening = danling::detail::listen_at("127.0.0.1", 0);
  const int port = danling::detail::port_of(listening);
  const danling::detail::StoreServer server(std::move(listening));
  std::vector<double> rates(static_cast<std::size_t>(clients), 0.0);
  std::vector<std::thread> threads;
  for (double& rate : rates) {
    threads.emplace_back([&] {
      using namespace std::chrono_literals;
      danling::detail::StoreClient client("127.0.0.1", port, Clock::now() + 30s, 30s);
      double requests = 0.0;
      const auto begin = Clock::now();
      for (; seconds_since(begin) < seconds; ++requests) {
        client.check({"verdict"});
      }
      rate = requests / seconds_since(begin);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  double sum = 0.0;
  for (const double rate : rates) {
    sum += rate;
  }
  return sum;
}

Joined count_join(int ranks, Mesh mesh) {
  const int port = free_port();
  std::vector<pid_t> processes;
  std::vector<int> pipes;
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (pipe(ends) != 0) {
      give_up("expected a pipe, got none");
    }
    const pid_t process = fork();
    if (process < 0) {
      give_up("expected to fork a rank, got no process");
    }
    if (process == 0) {
      close(ends[0]);
      setenv("GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER", mesh == Mesh::plain ? "0" : "1", 1);
      setenv("GLOO_ENABLE_STORE_V2_API", mesh == Mesh::batched ? "1" : "0", 1);
      try {
        join(rank, ranks, port, ends[1]);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      }
      _exit(1);
    }
    close(ends[1]);
    processes.push_back(process);
    pipes.push_back(ends[0]);
  }
  Joined out;
  bool complete = true;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    Report report;
    complete = read(pipes[at], &report, sizeof report) == sizeof report && complete;
    close(pipes[at]);
    out.seconds = std::max(out.seconds, report.seconds);
    (rank == 0 ? out.sockets : out.others) = std::max(rank == 0 ? 0 : out.others, report.sockets);
    if (rank == 0) {
      out.store_bytes = report.joined;
      out.split_bytes = report.split;
      out.split_reads = report.reads;
    }
  }
  for (std::size_t left = processes.size(); left > 0; --left) {  // rank 0 last: the others use its store
    kill(processes[left - 1], SIGKILL);
    waitpid(processes[left - 1], nullptr, 0);
  }
  if (!complete) {
    give_up("expected all ranks to join, got one that did not; its error is above");
  }
  return out;
}

double generator_state_bytes() {
  return static_cast<double>(at::detail::getDefaultCPUGenerator().get_state().nbytes());
}

}  // namespace bench::scale
