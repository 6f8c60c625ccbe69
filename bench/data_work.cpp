#include "data_work.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <danling/data/loader.hpp>

#include "tables.hpp"

namespace bench {

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
void normalize(const std::uint8_t* __restrict from, float* __restrict to, std::size_t count, float scale, float shift) {
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = static_cast<float>(from[i]) * scale + shift;
  }
}

namespace {

using danling::Batch;
using danling::data::Loader;
using danling::data::LoaderOptions;
constexpr std::chrono::microseconds kPause{1000};

// Arithmetic that no compiler can shorten: about 3 us per round.
std::uint64_t busy(std::int64_t rounds) {
  std::uint64_t x = 88172645463325252ULL;
  for (std::int64_t i = 0; i < rounds * 1000; ++i) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
  }
  return x;
}

void busy_or_asleep(std::int64_t rounds) {
  if (rounds == 0) {
    std::this_thread::sleep_for(kPause);
  } else {
    const std::uint64_t x = busy(rounds);
    keep(&x);
  }
}

// Number of rounds that keep a core busy for this time, by the fastest of many tries: other work only adds time.
std::int64_t rounds_for(double seconds) {
  double shortest = 1.0;
  for (int i = 0; i < 50; ++i) {
    shortest = std::min(shortest, seconds_of([] { busy_or_asleep(50); }));
  }
  return std::max<std::int64_t>(static_cast<std::int64_t>(seconds / (shortest / 50) + 0.5), 1);
}

/// Records that each cost `rounds` to read.
struct Costly {
  std::int64_t records;
  std::int64_t rounds;
  std::int64_t size() const { return records; }
  Batch get_batch(std::span<const std::int64_t> indices) {
    at::Tensor input = at::empty({static_cast<std::int64_t>(indices.size())}, at::kLong);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      busy_or_asleep(rounds);
      input.mutable_data_ptr<std::int64_t>()[i] = indices[i];
    }
    return {.input = input};
  }
};

// Reads all records of an epoch once.
double read_epoch(Loader<Batch>& loader, std::int64_t records) {
  std::int64_t seen = 0;
  const double taken = seconds_of([&] {
    for (Batch& batch : loader) {
      seen += batch.size();
    }
  });
  if (seen != records) {
    give_up("expected " + std::to_string(records) + " samples, got " + std::to_string(seen));
  }
  return taken;
}

constexpr std::int64_t kSamples = 16;

[[noreturn]] void serve(std::FILE* in, std::FILE* out) {
  at::set_num_threads(1);
  long records = 0;
  long rounds = 0;
  while (std::fscanf(in, "%ld %ld", &records, &rounds) == 2) {
    Loader<Batch> loader(Costly{records, rounds}, {.batch_size = kSamples, .shuffle = true});
    read_epoch(loader, records);
    std::fprintf(out, "ok\n");
    std::fflush(out);
  }
  std::_Exit(0);
}

}  // namespace

Processes::Processes() {
  for (auto& process : processes_) {
    int to[2];
    int from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) {
      give_up("expected two pipes, got none");
    }
    std::fflush(stdout);
    process.id = fork();
    if (process.id < 0) {
      give_up("expected to fork");
    }
    if (process.id == 0) {
      close(to[1]);
      close(from[0]);
      for (const auto& earlier : processes_) {  // otherwise it would not see the end of its input
        if (earlier.to != nullptr) {
          fclose(earlier.to);
        }
      }
      serve(fdopen(to[0], "r"), fdopen(from[1], "w"));
    }
    close(to[0]);
    close(from[1]);
    process.to = fdopen(to[1], "w");
    process.from = fdopen(from[0], "r");
  }
}

Processes::~Processes() {
  for (auto& process : processes_) {
    std::fclose(process.to);
    std::fclose(process.from);
    waitpid(process.id, nullptr, 0);
  }
}

double Processes::read(std::int64_t records, std::int64_t rounds) {
  return seconds_of([&] {
    for (auto& process : processes_) {
      std::fprintf(process.to, "%ld %ld\n", static_cast<long>(records / 2), static_cast<long>(rounds));
      std::fflush(process.to);
    }
    for (auto& process : processes_) {
      char line[16];
      if (std::fgets(line, sizeof line, process.from) == nullptr) {
        give_up("expected an answer from a process, got none");
      }
    }
  });
}

void measure_workers(Processes& processes, int rounds, bool quick) {
  const std::int64_t records = quick ? 128 : 512;
  const auto measure = [&](const std::string& title, std::int64_t cost) {
    const auto loader = [&](std::int64_t num_workers) {
      auto made =
          std::make_shared<Loader<Batch>>(Costly{records, cost}, LoaderOptions{.batch_size = kSamples,
                                                                               .shuffle = true,
                                                                               .num_workers = num_workers,
                                                                               .persistent_workers = num_workers > 0});
      return [made, records] { return read_epoch(*made, records); };
    };
    Table table;
    table.title = title;
    table.contestants = {{.name = "one thread", .time = loader(0)},
                         {.name = "two workers", .time = loader(2)},
                         {.name = "two processes, each half of the records on one thread",
                          .time = [&, cost] { return processes.read(records, cost); }}};
    table.targets.push_back({.of = 1, .to = {2}, .least = 0.95});
    run(table, rounds);
  };
  const std::string samples = std::to_string(records) + " samples, ";
  measure(samples + "a transform that is busy for 1 ms per sample", rounds_for(1e-3));
  measure(samples + "a transform that sleeps for 1 ms per sample", 0);
}

void measure_waits(int rounds, bool quick) {
  const std::int64_t steps = quick ? 50 : 200;
  std::printf("\n%-72s %12s %26s\n", "waiting for data, steps of 4 ms", "of the step", "min .. max");
  const std::int64_t step = rounds_for(4e-3);
  // A step on the host occupies a core; during a step on a device the host sleeps.
  const auto run_step = [step](bool on_device) {
    on_device ? std::this_thread::sleep_for(4 * kPause) : busy_or_asleep(step);
  };
  const auto measure = [&](const std::string& name, std::int64_t num_workers, std::int64_t cost, bool on_device,
                           double limit) {
    std::vector<double> shares;
    for (int round = 0; round < rounds; ++round) {
      Loader<Batch> loader(Costly{steps * kSamples, cost},
                           {.batch_size = kSamples, .shuffle = true, .num_workers = num_workers});
      loader.start_epoch(0);
      bool more = loader.next();  // not timed: no step could hide the first batch
      double waited = 0;
      const double taken = seconds_of([&] {
        while (more) {
          run_step(on_device);
          waited += seconds_of([&] { more = loader.next(); });
        }
      });
      shares.push_back(100 * waited / taken);
    }
    const auto [low, high] = std::minmax_element(shares.begin(), shares.end());
    record_value("waiting for data, steps of 4 ms: " + name, median(shares), "% of the step");
    char range[64];
    std::snprintf(range, sizeof range, "%.3f %% .. %.3f %%", *low, *high);
    std::printf("  %-70s %10.3f %% %26s%s\n", name.c_str(), median(shares), range,
                limit == 0               ? ""
                : median(shares) < limit ? "  less than 1 %: met"
                                         : "  less than 1 %: MISSED");
    std::fflush(stdout);
  };
  // Half of a step: 125 us for each of 16 samples.
  const std::int64_t half = rounds_for(125e-6);
  measure("batches of 2 ms, the host busy with the step, no workers", 0, half, false, 0);
  measure("batches of 2 ms, the host busy with the step, 1 worker", 1, half, false, 1);
  measure("batches of 2 ms, the host busy with the step, 2 workers", 2, half, false, 1);
  measure("batches of 2 ms, a device busy with the step, 1 worker", 1, half, true, 1);
  measure("batches of 2 ms, a device busy with the step, 2 workers", 2, half, true, 1);
}

namespace {

std::atomic<std::int64_t> live{0};
std::atomic<std::int64_t> most{0};

/// Batches of a megabyte; counts those that are alive.
struct Counted {
  std::int64_t size() const { return 64 * 16; }
  Batch get_batch(std::span<const std::int64_t> indices) {
    constexpr std::int64_t bytes = 1 << 20;
    void* memory = std::malloc(bytes);
    const std::int64_t now = ++live;
    for (std::int64_t seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    const auto count = static_cast<std::int64_t>(indices.size());
    return {.input = at::from_blob(
                memory, {count, bytes / count},
                [](void* data) {
                  --live;
                  std::free(data);
                },
                at::kByte)};
  }
};

}  // namespace

void measure_memory(bool quick) {
  std::printf("\n%-72s %12s %12s\n", "batches of 1 MB that live at the same time, the current one included", "at most",
              "bound");
  for (const std::int64_t num_workers : {0, 1, 2}) {
    for (const std::int64_t prefetch : {1, 2, 4, 8}) {
      if (num_workers == 0 && prefetch > 1) {
        continue;
      }
      LoaderOptions options = {.batch_size = 16, .num_workers = num_workers};
      if (num_workers > 0) {
        options.prefetch_factor = prefetch;
      }
      most = 0;
      Loader<Batch> loader(Counted{}, options);
      for (Batch& batch : loader) {
        keep(batch.input.const_data_ptr());
        std::this_thread::sleep_for(std::chrono::milliseconds(quick ? 1 : 3));  // lets workers read ahead
      }
      const std::int64_t bound = num_workers * prefetch + 1;
      const std::string name =
          num_workers == 0 ? std::string("no workers")
                           : std::to_string(num_workers) + " workers, prefetch_factor " + std::to_string(prefetch);
      std::printf("  %-70s %12ld %12ld%s\n", name.c_str(), static_cast<long>(most.load()), static_cast<long>(bound),
                  most <= bound ? "  met" : "  MISSED");
    }
  }
  std::fflush(stdout);
}

}  // namespace bench
