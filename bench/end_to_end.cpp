// One epoch of 60,000 images, from the start of the process to its saved checkpoint: ./dev bench end_to_end [--quick].
//
// Contestants are whole programs: danling's (end_to_end_danling.cpp) twice, the second as control, a loop over LibTorch
// (end_to_end_libtorch.cpp), and those of end_to_end_peers.py. They read the same files and train the same net with one
// thread, in turn; each round begins with another. Reports wall time, CPU time, peak memory, the time until the first
// step has ended, and the loss of the trained net. Fails when steps, samples or losses of the programs differ.
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "peers.hpp"
#include "results.hpp"

namespace {

namespace fs = std::filesystem;

constexpr int batch_size = 64;
constexpr int absent = 77;                 // exit status of end_to_end_peers.py without the framework
constexpr double tolerance = 0.1;          // of the loss: programs shuffle differently
constexpr std::uintmax_t least = 400'000;  // bytes of a checkpoint: the net has 101,770 numbers

/// Writes images and labels like MNIST's: ten blurred shapes in noise. A tenth of the labels is random, so that the
/// loss of a trained net is far from 0.
void write_images(const fs::path& folder, std::uint32_t count) {
  std::mt19937 random(1);
  const auto in_unit = [&] { return static_cast<double>(random()) / 4294967296.0; };
  std::array<std::array<double, 49>, 10> shapes;
  for (auto& shape : shapes) {
    std::generate(shape.begin(), shape.end(), [&] { return 160 * in_unit(); });
  }
  std::ofstream images(folder / "train-images-idx3-ubyte", std::ios::binary);
  std::ofstream labels(folder / "train-labels-idx1-ubyte", std::ios::binary);
  const auto big_endian = [](std::ofstream& out, std::uint32_t number) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      out.put(static_cast<char>(number >> shift));
    }
  };
  for (const std::uint32_t number : {2051U, count, 28U, 28U}) {
    big_endian(images, number);
  }
  for (const std::uint32_t number : {2049U, count}) {
    big_endian(labels, number);
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto label = static_cast<std::size_t>(random() % 10);
    for (std::size_t row = 0; row < 28; ++row) {
      for (std::size_t column = 0; column < 28; ++column) {
        const bool border = row < 4 || row >= 24 || column < 4 || column >= 24;
        const double pixel = border ? 0 : shapes[label][row / 4 * 7 + column / 4] + 95 * in_unit();
        images.put(static_cast<char>(static_cast<std::uint8_t>(pixel)));
      }
    }
    labels.put(static_cast<char>(random() % 10 == 0 ? random() % 10 : label));
  }
  if (!images.flush() || !labels.flush()) {
    bench::give_up("expected to write images to " + folder.string());
  }
}

/// One run of a program. `first_step` is the time since the start; the program reports the last four.
struct Run {
  double wall = 0, cpu = 0, mebibytes = 0, first_step = 0;
  double steps = 0, samples = 0, loss = 0;
};

struct Measure {
  const char* name;
  const char* unit;
  double Run::* number;
};
constexpr std::array<Measure, 4> measures = {{{"wall time", "s", &Run::wall},
                                              {"CPU time", "s", &Run::cpu},
                                              {"peak memory", "MiB", &Run::mebibytes},
                                              {"time to the first step", "s", &Run::first_step}}};

struct Contestant {
  std::string title;
  std::vector<std::string> command;  ///< without the folders
  std::vector<Run> runs = {};
  bool out = false;  ///< absent or failed
};

double now() {
  timespec time = {};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

std::string last_line(const fs::path& path) {
  std::ifstream in(path);
  std::string last;
  for (std::string line; std::getline(in, line);) {
    last = line.empty() ? last : line;
  }
  return last;
}

/// Files of at least `least` bytes that a program has written.
bool has_checkpoint(const fs::path& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.file_size() >= least) {
      return true;
    }
  }
  return false;
}

/// Runs a program: COMMAND DATA FOLDER. It writes `first_step steps samples loss` to FOLDER/result.txt. Returns nothing
/// if its framework is absent.
std::optional<Run> execute(const Contestant& contestant, const fs::path& data, const fs::path& folder) {
  fs::remove_all(folder);
  fs::create_directories(folder);
  std::vector<std::string> command = contestant.command;
  command.insert(command.end(), {data.string(), folder.string()});
  std::vector<char*> argv;
  for (auto& argument : command) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  const std::string output = (folder / "output.txt").string();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t process = -1;
  const double begin = now();
  const int failed = posix_spawnp(&process, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  rusage usage = {};
  if (failed != 0 || wait4(process, &status, 0, &usage) != process) {
    bench::give_up("expected to start " + command.front());
  }
  Run run;
  run.wall = now() - begin;
  run.cpu = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  run.mebibytes = static_cast<double>(usage.ru_maxrss) / 1024;
  if (WIFEXITED(status) && WEXITSTATUS(status) == absent) {
    std::printf("  absent: %s: %s\n", contestant.title.c_str(), last_line(output).c_str());
    return {};
  }
  std::ifstream result(folder / "result.txt");
  if (status != 0 || !(result >> run.first_step >> run.steps >> run.samples >> run.loss)) {
    bench::give_up(contestant.title + " failed: " + last_line(output));
  }
  run.first_step -= begin;
  if (!has_checkpoint(folder)) {
    bench::give_up(contestant.title + " saved no checkpoint");
  }
  return run;
}

std::vector<double> numbers(const std::vector<Run>& runs, double Run::* number) {
  std::vector<double> out;
  for (const Run& run : runs) {
    out.push_back(run.*number);
  }
  return out;
}

/// Quotients of two programs, by rounds.
bench::Interval quotient(const Contestant& of, const Contestant& to, double Run::* number) {
  std::vector<double> out;
  for (std::size_t i = 0; i < std::min(of.runs.size(), to.runs.size()); ++i) {
    out.push_back(of.runs[i].*number / to.runs[i].*number);
  }
  return bench::median_interval(out);
}

/// All programs must do as many steps over as many samples.
void check_work(const Contestant& contestant, const Run& run, std::uint32_t images) {
  const double steps = std::ceil(static_cast<double>(images) / batch_size);
  if (run.steps != steps || run.samples != static_cast<double>(images)) {
    bench::give_up(contestant.title + ": expected " + std::to_string(steps) + " steps over " + std::to_string(images) +
                   " samples, got " + std::to_string(run.steps) + " over " + std::to_string(run.samples));
  }
}

/// All programs must reach the loss of the first, nearly.
void compare_losses(const std::vector<Contestant>& contestants) {
  const double loss = bench::median_interval(numbers(contestants.front().runs, &Run::loss)).middle;
  double apart = 0;
  for (const Contestant& contestant : contestants) {
    for (const Run& run : contestant.runs) {
      apart = std::max(apart, std::abs(run.loss - loss) / loss);
      if (!(apart <= tolerance)) {
        bench::give_up(contestant.title + ": expected a loss near " + std::to_string(loss) + ", got " +
                       std::to_string(run.loss));
      }
    }
  }
  std::printf("equal work: %.0f steps over %.0f samples each; losses at most %.1f %% apart\n",
              contestants.front().runs.front().steps, contestants.front().runs.front().samples, 100 * apart);
  bench::record_check("loss of the trained net on 1,000 images", loss, contestants.size(), apart, tolerance);
}

/// Prints and records medians with 95 % intervals, and quotients to danling, the first.
void print(const std::vector<Contestant>& contestants) {
  const Contestant& ours = contestants[0];
  const Contestant& control = contestants[1];
  for (const Measure& measure : measures) {
    std::printf("\n%-36s %31s %34s\n", measure.name, measure.unit, "to danling's, same round");
    for (const Contestant& contestant : contestants) {
      const bench::Interval of = bench::median_interval(numbers(contestant.runs, measure.number));
      const bench::Interval to = quotient(contestant, ours, measure.number);
      std::printf("  %-34s %9.2f [%8.2f, %8.2f] %16.2f [%5.2f, %5.2f]\n", contestant.title.c_str(), of.middle, of.low,
                  of.high, to.middle, to.low, to.high);
      bench::record_value(contestant.title + ": " + measure.name, of.middle, measure.unit);
      if (&contestant != &ours && &contestant != &control) {
        bench::record({.name = std::string(measure.name) + ", " + contestant.title + " to danling (C++)",
                       .of = to,
                       .control = quotient(control, ours, measure.number),
                       .headline = measure.number == &Run::wall || measure.number == &Run::mebibytes});
      }
    }
  }
  std::printf("\nloss of the trained net on 1,000 images\n");
  for (const Contestant& contestant : contestants) {
    const bench::Interval loss = bench::median_interval(numbers(contestant.runs, &Run::loss));
    std::printf("  %-34s %9.4f [%8.4f, %8.4f]\n", contestant.title.c_str(), loss.middle, loss.low, loss.high);
    bench::record_value(contestant.title + ": loss", loss.middle, "");
  }
}

std::vector<Contestant> make_contestants(const fs::path& programs) {
  const std::string danling = (programs / "end_to_end_danling").string();
  std::vector<Contestant> contestants = {{"danling (C++)", {danling}},
                                         {"danling (C++), control", {danling}},
                                         {"loop over LibTorch", {(programs / "end_to_end_libtorch").string()}}};
  const std::string python = bench::python_of_peers(DANLING_PYTHON);
  const std::array<std::array<const char*, 2>, 4> peers = {{{"plain", "PyTorch, DataLoader"},
                                                            {"gather", "PyTorch, gathered batches"},
                                                            {"lightning", "Lightning"},
                                                            {"danling", "DanLing (Python)"}}};
  for (const auto& [name, title] : peers) {
    if (python.empty()) {
      std::printf("  absent: %s: DANLING_PYTHON names no interpreter\n", title);
    } else {
      contestants.push_back({title, {python, "-W", "ignore", DANLING_SOURCE_DIR "/bench/end_to_end_peers.py", name}});
    }
  }
  return contestants;
}

void measure(const fs::path& programs, const fs::path& folder) {
  const std::uint32_t images = bench::is_quick() ? 6'432 : 60'000;  // the last batch is half a batch
  const int rounds = bench::is_quick() ? 1 : 9;
  const fs::path data = folder / "data";
  fs::create_directories(data);
  write_images(data, images);
  std::printf(
      "one epoch of %u images, 784-128-10, batch %d, AdamW, one thread, from process start to checkpoint; %d rounds\n",
      images, batch_size, rounds);
  std::vector<Contestant> contestants = make_contestants(programs);
  // The first round only reads the files of all programs, and finds the absent ones. --quick keeps its numbers.
  for (int round = bench::is_quick() ? 1 : 0; round <= rounds; ++round) {
    std::fprintf(stderr, "round %d of %d\n", round, rounds);
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      Contestant& contestant = contestants[(i + static_cast<std::size_t>(round)) % contestants.size()];
      if (contestant.out) {
        continue;
      }
      const std::optional<Run> run = execute(contestant, data, folder / "run");
      contestant.out = !run;
      if (run) {
        check_work(contestant, *run, images);
      }
      if (run && round > 0) {
        contestant.runs.push_back(*run);
      }
    }
  }
  std::erase_if(contestants, [](const Contestant& contestant) { return contestant.out; });
  compare_losses(contestants);
  print(contestants);
}

}  // namespace

int main(int argc, char** argv) {
  bench::begin_results("end_to_end", argc, argv);
  setvbuf(stdout, nullptr, _IOLBF, 0);
  setenv("OMP_NUM_THREADS", "1", 1);
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  const fs::path folder = fs::temp_directory_path() / ("danling-bench-" + std::to_string(getpid()));
  int status = 1;
  try {
    measure(fs::absolute(argv[0]).parent_path(), folder);
    status = bench::finish();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
  }
  fs::remove_all(folder);
  return status;
}
