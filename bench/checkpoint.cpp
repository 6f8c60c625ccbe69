// Checkpoints compared with plain writing and with Python, in one run:
// ./dev bench checkpoint [--dir DIR] [--megabytes N] [--tensors N] [--rounds N] [--quick].
//
// In every round each contestant saves or loads once, always in the same order; a ratio is the median of the ratios per
// round. Every save writes a new file; loads read files that are in the page cache. Loads use fresh memory, as in a new
// process: the allocator returns all freed memory to the system. Python runs bench/checkpoint_peers.py in the
// interpreter of DANLING_PYTHON.
#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>

#include <danling/checkpoint/file.hpp>
#include <danling/checkpoint/file_manager.hpp>
#include <danling/checkpoint/weights.hpp>

#include "peers.hpp"
#include "results.hpp"
#include "tables.hpp"

namespace {

namespace dl = danling;
namespace fs = std::filesystem;
using bench::give_up;
using bench::median;
using bench::Peers;
using bench::seconds_of;

const std::string control = ", control";

struct Options {
  fs::path directory = fs::temp_directory_path();
  std::int64_t megabytes = 500;
  std::int64_t tensors = 100;
  int rounds = 9;
};

// Anonymous memory of a process in megabytes.
double anonymous(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string word; status >> word;) {
    if (word == "RssAnon:") {
      double kilobytes = 0;
      status >> kilobytes;
      return kilobytes * 1024 / 1e6;
    }
  }
  return 0;
}

// The peak anonymous memory of a process while `work` runs.
double peak_anonymous(pid_t process, const std::function<void()>& work) {
  std::atomic<bool> done{false};
  double peak = anonymous(process);
  std::thread watcher([&] {
    while (!done) {
      peak = std::max(peak, anonymous(process));
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
  });
  work();
  done = true;
  watcher.join();
  return peak;
}

/// One row of the table.
struct Contestant {
  std::string name;
  pid_t process;
  std::function<double()> run;     ///< runs once, returns seconds
  std::function<void()> clean_up;  ///< after each run, not timed
  std::vector<double> seconds = {};
  double extra_memory = 0;  ///< megabytes at the peak of a run, without the memory that stays
  std::string failure = {};

  void once(bool count) {
    if (!failure.empty()) {
      return;
    }
    try {
      const double taken = run();
      clean_up();
      if (count) {
        seconds.push_back(taken);
      }
    } catch (const std::exception& error) {
      failure = error.what();
    }
  }

  void measure_memory() {
    if (!failure.empty()) {
      return;
    }
    const double peak = peak_anonymous(process, [&] { run(); });
    extra_memory = std::max(0.0, peak - anonymous(process));
    clean_up();
  }
};

/// Records the time of other rows divided by that of `name`; its control is the row that repeats it.
void record_ratios(const std::string& title, const std::string& name, const std::vector<Contestant>& rows) {
  const auto find = [&](const std::string& wanted) {
    return std::find_if(rows.begin(), rows.end(), [&](const Contestant& row) { return row.name == wanted; });
  };
  const auto ratios = [&](const Contestant& to) {
    std::vector<double> out;
    for (std::size_t i = 0; i < to.seconds.size(); ++i) {
      out.push_back(to.seconds[i] / find(name)->seconds[i]);
    }
    return bench::median_interval(out);
  };
  const auto again = find(name + control);
  for (const Contestant& row : rows) {
    if (row.failure.empty()) {
      bench::record_value(title + ": " + row.name, 1e3 * median(row.seconds), "ms");
    }
    if (row.failure.empty() && !row.name.starts_with("danling")) {
      bench::record({.name = title + ": " + name + " to " + row.name,
                     .of = ratios(row),
                     .control = again == rows.end() ? std::nullopt : std::optional(ratios(*again))});
    }
  }
}

void print_table(const char* title, const char* baseline, const std::vector<Contestant>& rows, double megabytes) {
  std::printf("%-46s %9s %17s %7s %9s %11s\n", title, "seconds", "min .. max", "GB/s", baseline, "extra MB");
  for (const auto& row : rows) {
    if (!row.failure.empty() || row.seconds.empty()) {
      std::printf("%-46s not measured: %s\n", row.name.c_str(), row.failure.c_str());
      bench::gaps().push_back(row.name);
      continue;
    }
    const auto [low, high] = std::minmax_element(row.seconds.begin(), row.seconds.end());
    std::string ratio = "-";
    if (rows.front().failure.empty()) {
      std::vector<double> ratios;
      for (std::size_t i = 0; i < row.seconds.size(); ++i) {
        ratios.push_back(rows.front().seconds[i] / row.seconds[i]);
      }
      char text[16];
      std::snprintf(text, sizeof text, "%.2f", median(ratios));
      ratio = text;
    }
    std::printf("%-46s %9.3f %8.3f ..%6.3f %7.2f %9s %11.1f\n", row.name.c_str(), median(row.seconds), *low, *high,
                megabytes / 1e3 / median(row.seconds), ratio.c_str(), row.extra_memory);
  }
}

void write_plainly(const dl::State& state, const fs::path& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  for (const auto& entry : state.map()) {
    const at::Tensor& tensor = entry.value.tensor();
    const char* data = static_cast<const char*>(tensor.const_data_ptr());
    for (std::size_t left = tensor.nbytes(); left > 0;) {
      const ssize_t done = write(file, data, left);
      if (done < 0) {
        give_up("write failed");
      }
      data += done;
      left -= static_cast<std::size_t>(done);
    }
  }
  if (fsync(file) != 0 || close(file) != 0) {
    give_up("fsync failed");
  }
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--quick") {
      options.megabytes = 8;
      options.tensors = 10;
      options.rounds = 1;
      continue;
    }
    const std::string value = ++i < argc ? argv[i] : "";
    if (value.empty()) {
      give_up("expected a value of " + name);
    } else if (name == "--dir") {
      options.directory = value;
    } else if (name == "--megabytes") {
      options.megabytes = std::stol(value);
    } else if (name == "--tensors") {
      options.tensors = std::stol(value);
    } else if (name == "--rounds") {
      options.rounds = std::stoi(value);
    } else {
      give_up("unknown option " + name);
    }
  }
  if (options.megabytes < 1 || options.tensors < 1 || options.rounds < 1) {
    give_up("usage: bench_checkpoint [--dir DIR] [--megabytes N] [--tensors N] [--rounds N] [--quick]");
  }
  return options;
}

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options) {
    std::string name = (options.directory / "danling-bench-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
      give_up("expected to create a directory in " + options.directory.string());
    }
    folder_ = name;
    const std::int64_t elements = options.megabytes * 1'000'000 / 4 / options.tensors;
    for (std::int64_t i = 0; i < options.tensors; ++i) {
      state_["tensor" + std::to_string(i)] = at::randn({elements});
    }
    megabytes_ = static_cast<double>(elements * options.tensors) * 4 / 1e6;
    dl::save_file(state_, at("danling.pth"));
    dl::save_safetensors(state_, at("danling.safetensors"));
    if (const std::string python = bench::python_of_peers(DANLING_PYTHON); !python.empty()) {
      peers_.emplace(python, DANLING_SOURCE_DIR "/bench/checkpoint_peers.py", std::vector{at("danling.pth")});
    }
    add_savers();
    add_waits();
    add_loaders();
  }
  ~Bench() {
    peers_.reset();
    manager_.reset();
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void run() {
    for (int round = 0; round <= options_.rounds; ++round) {  // round 0 is a warm-up
      for (auto* group : {&savers_, &loaders_}) {
        // The first contestant, too, then finds memory and disk as a contestant of its kind leaves them.
        group->back().once(false);
        for (auto& contestant : *group) {
          sync_file_system();
          contestant.once(round > 0);
        }
      }
      for (int repeat = 0; repeat < 5; ++repeat) {  // short runs, so repeated
        for (auto& contestant : waits_) {
          contestant.once(round > 0);
        }
      }
    }
    for (auto* group : {&savers_, &waits_, &loaders_}) {
      for (auto& contestant : *group) {
        contestant.measure_memory();
      }
    }
    std::printf("%.0f MB of float32 in %ld tensors, %d rounds, %u cores, in %s\n", megabytes_,
                static_cast<long>(options_.tensors), options_.rounds, std::thread::hardware_concurrency(),
                options_.directory.c_str());
    print_table("save, including the sync to disk", "of plain", savers_, megabytes_);
    print_table("time that training waits, after the first save", "of memcpy", waits_, megabytes_);
    print_table("load", "of torch", loaders_, megabytes_);
    record_ratios("save", "danling::save_file", savers_);
    record_ratios("wait of training", "danling::FileCheckpointManager, async", waits_);
    record_ratios("load", "danling::load_file, verified", loaders_);
  }

  // Checks that the contestants' files hold the same tensors.
  void check() {
    const auto compare = [&](const dl::State& loaded, const std::string& name) {
      dl::State ordered;  // safetensors files have another order
      for (const auto& entry : state_.map()) {
        ordered[entry.key.string()] = loaded.at(entry.key.string());
      }
      const std::string difference = loaded.map().size() == state_.map().size() ? dl::first_difference(ordered, state_)
                                                                                : "another number of tensors";
      if (!difference.empty()) {
        give_up(name + " holds other tensors: " + difference);
      }
    };
    compare(dl::load_file(at("danling.pth")), "danling.pth");
    compare(dl::load_weights(at("danling.safetensors")), "danling.safetensors");
    if (peers_) {
      for (const auto& name : peer_files_) {
        peers_->ask("check " + name + " " + at("peer." + name));
      }
      compare(dl::load_file(at("peer.torch")), "the file of torch.save");
    }
    std::printf("all files hold the same tensors\n");
  }

 private:
  std::string at(const std::string& name) const { return (folder_ / name).string(); }

  void sync_file_system() const {
    const int directory = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    syncfs(directory);
    close(directory);
  }

  void add_saver(const std::string& name, const std::function<void(const std::string&)>& save) {
    savers_.push_back({name, getpid(), [=, this] { return seconds_of([&] { save(at("new")); }); },
                       [this] { fs::remove(at("new")); }});
  }

  void add_peer_saver(const std::string& name, const std::string& command) {
    savers_.push_back({name, peers_->process(), [=, this] { return peers_->ask("save " + command + " " + at("new")); },
                       [this] { fs::remove_all(at("new")); }});
    try {
      peers_->ask("save " + command + " " + at("peer." + command));
      peer_files_.push_back(command);
    } catch (const std::exception&) {  // the contestant's row shows the error
    }
  }

  /// Ends of names: a contestant, and its control except with --quick.
  static std::vector<std::string> ends_of_names() {
    return bench::is_quick() ? std::vector<std::string>{""} : std::vector<std::string>{"", control};
  }

  void add_savers() {
    add_saver("write + fsync", [this](const std::string& path) { write_plainly(state_, path); });
    for (const std::string& more : ends_of_names()) {
      add_saver("danling::save_file" + more, [this](const std::string& path) { dl::save_file(state_, path); });
    }
    add_saver("danling::save_safetensors", [this](const std::string& path) { dl::save_safetensors(state_, path); });
    if (peers_) {
      add_peer_saver("torch.save + fsync", "torch");
      add_peer_saver("safetensors save_file + fsync", "safetensors");
      add_peer_saver("torch.distributed.checkpoint.save, synced", "dcp");
    }
  }

  // The manager keeps its copy of the state between saves; waiting for the disk is not timed.
  void add_waits() {
    const auto bytes = static_cast<std::size_t>(megabytes_ * 1e6);
    from_.assign(bytes, 1);
    to_.assign(bytes, 2);
    waits_.push_back({"one memcpy of the bytes", getpid(),
                      [=, this] { return seconds_of([&] { std::memcpy(to_.data(), from_.data(), bytes); }); }, [] {}});
    manager_.emplace(
        dl::CheckpointOptions{.directory = at("checkpoints"), .async_mode = "async"}, [this] { return state_; },
        [this] { return state_; });
    for (const std::string& more : ends_of_names()) {
      waits_.push_back({"danling::FileCheckpointManager, async" + more, getpid(),
                        [this] { return seconds_of([&] { manager_->save_checkpoint({.force = true}); }); },
                        [this] { manager_->wait(); }});
    }
    if (peers_) {
      waits_.push_back({"clone() of each tensor in Python", peers_->process(), [this] { return peers_->ask("copy"); },
                        [this] { peers_->ask("release"); }});
    }
  }

  void add_loader(const std::string& name, const std::function<dl::State()>& load) {
    loaders_.push_back({name, getpid(), [=, this] { return seconds_of([&] { loaded_ = load(); }); },
                        [this] { loaded_ = dl::State(); }});
  }

  void add_peer_loader(const std::string& name, const std::string& command, const std::string& file) {
    loaders_.push_back({name, peers_->process(), [=, this] { return peers_->ask("load " + command + " " + at(file)); },
                        [this] { peers_->ask("release"); }});
  }

  void add_loaders() {
    if (peers_) {
      add_peer_loader("torch.load, not verified", "torch", "peer.torch");
    }
    for (const std::string& more : ends_of_names()) {
      add_loader("danling::load_file, verified" + more, [this] { return dl::load_file(at("danling.pth")); });
    }
    if (peers_) {
      add_loader("danling::load_file of torch.save's, verified", [this] { return dl::load_file(at("peer.torch")); });
    }
    add_loader("danling::load_safetensors", [this] { return dl::load_safetensors(at("danling.safetensors")); });
    if (peers_) {
      add_peer_loader("torch.load of save_file's, not verified", "torch", "danling.pth");
      add_peer_loader("torch.load(mmap=True), a read of every page", "torch_mmap", "peer.torch");
      add_peer_loader("safetensors load_file, a read of every page", "safetensors", "peer.safetensors");
      add_peer_loader("torch.distributed.checkpoint.load", "dcp", "peer.dcp");
    }
  }

  Options options_;
  fs::path folder_;
  dl::State state_;
  dl::State loaded_;
  double megabytes_ = 0;
  std::optional<Peers> peers_;
  std::vector<std::string> peer_files_;
  std::vector<char> from_;
  std::vector<char> to_;
  std::optional<dl::FileCheckpointManager> manager_;
  std::vector<Contestant> savers_;
  std::vector<Contestant> waits_;
  std::vector<Contestant> loaders_;
};

}  // namespace

int main(int argc, char** argv) {
  // For both processes: freed large blocks return to the system, so that every load starts in the same state.
  mallopt(M_MMAP_THRESHOLD, 128 * 1024);
  setenv("MALLOC_MMAP_THRESHOLD_", "131072", 1);
  bench::begin_results("checkpoint", argc, argv);
  try {
    Bench bench(parse(argc, argv));
    bench.run();
    bench.check();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return bench::finish();
}
