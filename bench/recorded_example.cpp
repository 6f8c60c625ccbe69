#include "recorded_example.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "recorded_ratios.hpp"
#include "recorded_work.hpp"
#include "tables.hpp"

namespace bench::recorded {
namespace {

namespace fs = std::filesystem;

/// Returns whether the run in this folder replayed most of its steps, by its log: "compile: 480 of 560 steps replayed".
bool replayed(const fs::path& run) {
  for (const auto& entry : fs::recursive_directory_iterator(run)) {
    std::ifstream in(entry.path());
    for (std::string line; entry.path().extension() == ".log" && std::getline(in, line);) {
      const auto at = line.find("compile: ");
      long replays = 0;
      long steps = 0;
      if (at != std::string::npos &&
          std::sscanf(line.c_str() + at, "compile: %ld of %ld steps replayed", &replays, &steps) == 2) {
        return 2 * replays > steps;
      }
    }
  }
  return false;
}

struct Variant {
  std::string name, option;
  std::vector<double> seconds = {};
};

/// The folder of the only run under `root`.
fs::path run_under(const fs::path& root) {
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (entry.path().filename() == "results.json") {
      return entry.path().parent_path();
    }
  }
  give_up("expected results.json of the example under " + root.string() + ", found none");
}

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// Results and weights of a run, without its id, its time and the metadata of its files.
std::string outcome(const fs::path& run) {
  const std::string results = read_file(run / "results.json");
  const std::string weights = read_file(run / "checkpoints/model.safetensors");
  const std::size_t begin = results.find("\"results\"");
  std::uint64_t header = 0;
  if (begin == std::string::npos || weights.size() < sizeof header) {
    give_up("expected results and weights of the example in " + run.string() + ", found none");
  }
  std::memcpy(&header, weights.data(), sizeof header);
  return results.substr(begin) + weights.substr(std::min<std::size_t>(sizeof header + header, weights.size()));
}

}  // namespace

void run_example(const fs::path& program, const fs::path& folder, std::optional<int> chosen_rounds, bool quick) {
  const fs::path example = (program.parent_path() / "../examples/mnist/mnist").lexically_normal();
  if (!fs::exists(example)) {
    give_up("expected the example in " + example.string() + ", found none; build it by ./dev build mnist");
  }
  std::vector<Variant> variants = {{"eager", ""}, {"eager, control", ""}, {"recorded", " --compile.enable=true"}};
  std::string expected;
  const fs::path root = folder / "example";
  const int rounds = quick ? 1 : chosen_rounds.value_or(12);
  for (int round = -1; round < rounds; ++round) {  // round -1 is a warm-up that reads files from disk
    for (const std::size_t i : order_of_round(variants.size(), static_cast<std::size_t>(round + 1))) {
      Variant& variant = variants[i];
      const std::string command = "exec '" + example.string() + "' --workspace_root='" + root.string() + "'" +
                                  variant.option + (quick ? " --epochs=4" : "") + " > /dev/null";
      int status = 0;
      const double taken = seconds_of([&] { status = std::system(command.c_str()); });
      if (status != 0) {
        give_up("the example failed: " + command);
      }
      if (round >= 0) {
        variant.seconds.push_back(taken);
      }
      const fs::path run = run_under(root);
      const std::string found = outcome(run);
      expected = expected.empty() ? found : expected;
      if (found != expected) {
        give_up("expected results and weights of the first run of the example, got others of: " + variant.name);
      }
      if (!variant.option.empty() && !replayed(run)) {
        give_up("the example with compile.enable replayed no steps");
      }
      fs::remove_all(root);
    }
  }
  std::printf("\nexamples/mnist, %s, from start to end; %d round%s; results and weights bit-equal\n",
              quick ? "4 epochs" : "20 epochs", rounds, rounds == 1 ? "" : "s");
  const std::vector<double>& base = variants.back().seconds;
  for (const Variant& variant : variants) {
    const auto [low, high] = std::minmax_element(variant.seconds.begin(), variant.seconds.end());
    std::printf("  %-36s %8.3f s %16.3f .. %.3f s   %s\n", variant.name.c_str(), median(variant.seconds), *low, *high,
                times(ratios(base, variant.seconds)).c_str());
  }
}

}  // namespace bench::recorded
