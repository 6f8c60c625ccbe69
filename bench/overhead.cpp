// Time that the runner adds to a training step of a bare LibTorch loop: ./dev bench overhead [--quick] [--part a|b|c].
//
//   (a) Paired: the runner, a bare loop and the same bare loop again (the control) in one process, a few steps each in
//       turn, with the same optimizer code, batches and allocator settings and bit-equal losses. Each of the six orders
//       occurs equally often, so that no loop benefits from its predecessor.
//   (b) As users write it: torch::optim in one process, the runner with default settings in another.
//   (c) Peers: the time that frameworks in Python add to a plain loop in Python, next to that of (a), in one run.
// `./dev bench steps` counts the instructions and allocations that the runner adds.
#include "overhead.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <stdexcept>

#include "peers.hpp"
#include "results.hpp"

namespace bench {

double median(std::vector<double> values) { return median_interval(std::move(values)).middle; }

std::vector<std::vector<double>> rows_of(const std::string& command, std::size_t columns) {
  std::FILE* const pipe = popen(command.c_str(), "r");
  std::vector<double> numbers;
  double number = 0;
  while (pipe != nullptr && std::fscanf(pipe, "%lf", &number) == 1) {
    numbers.push_back(number);
  }
  const bool good = pipe != nullptr && pclose(pipe) == 0;
  if (!good || numbers.empty() || numbers.size() % columns != 0) {
    give_up("a measured process failed or printed no results: " + command);
  }
  std::vector<std::vector<double>> rows;
  for (std::size_t i = 0; i < numbers.size(); i += columns) {
    rows.emplace_back(numbers.begin() + static_cast<std::ptrdiff_t>(i),
                      numbers.begin() + static_cast<std::ptrdiff_t>(i + columns));
  }
  return rows;
}

}  // namespace bench

namespace {

void measure(bench::Place& place, bool quick, const std::string& part) {
  const auto all_works = [&](auto&& each, bench::Level level) {
    for (const std::int64_t hidden : quick ? std::vector<std::int64_t>{32} : std::vector<std::int64_t>{32, 128}) {
      for (const char* optim : {"sgd", "adamw"}) {
        each({optim, hidden, level});
      }
    }
  };
  if (part.empty() || part == "a") {
    std::printf(
        "(a) one process, a few steps of each loop in turn, same optimizer code, one thread; differences to the "
        "control\n");
    for (const bench::Level level : {bench::Level::nothing, bench::Level::files, bench::Level::sinks}) {
      all_works([&](const bench::Work& work) { paired(place, work, quick ? 1 : 12, quick ? 6 : 48); }, level);
    }
  }
  if (part.empty() || part == "b") {
    std::printf("(b) as a user would write it, each in its own process\n");
    all_works(
        [&](const bench::Work& work) {
          quick ? as_a_user(place, work, 1, 20, 120) : as_a_user(place, work, 11, 200, 2200);
        },
        bench::Level::nothing);
  }
  if (part.empty() || part == "c") {
    peers(place, quick);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments[0] == "--paired") {
    return bench::child_paired(arguments);
  }
  if (!arguments.empty() && arguments[0] == "--user") {
    return bench::child_user(arguments);
  }
  bench::begin_results("overhead", argc, argv);
  arguments.assign(argv + 1, argv + argc);
  const auto option = std::find(arguments.begin(), arguments.end(), "--part");
  const std::string part = option == arguments.end() || option + 1 == arguments.end() ? "" : *(option + 1);
  const auto folder = std::filesystem::temp_directory_path() / ("danling-bench-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  setvbuf(stdout, nullptr, _IOLBF, 0);
  bench::Place place{argv[0], folder.string()};
  int status = 1;
  try {
    measure(place, bench::is_quick(), part);
    status = place.equal ? bench::finish() : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
  }
  std::filesystem::remove_all(folder);
  if (!place.equal) {
    std::fprintf(stderr, "error: the loops did not do the same work; the figures above are invalid\n");
  }
  return status;
}
