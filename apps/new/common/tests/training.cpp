// Short trainings: the model learns, and a run that was stopped resumes without a difference.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>

#include <danling/runner/callback.hpp>
#include <danling/runner/stopped.hpp>

#include "config.hpp"
#include "runner.hpp"

namespace {

namespace fs = std::filesystem;

const fs::path folder = fs::temp_directory_path() / ("@NAME@-tests-" + std::to_string(getpid()));

/// The defaults of the program, in a directory of the test.
Config quiet_config(const std::string& run) {
  Config config;
  config.console = false;
  at::set_num_threads(1);  // small models compute faster so, also beside other programs
  config.workspace_root = (folder / run).string();
  return config;
}

/// Trains with the defaults; the accuracy on validation data reaches 0.9.
bool learns() {
  Runner runner(quiet_config("learns"));
  runner.train();
  const auto& result = runner.results().latest()->result;
  const double loss = result.at("val.loss"), accuracy = result.at("val.acc");
  std::printf("val loss %.4f, val acc %.4f\n", loss, accuracy);
  return accuracy >= 0.9;
}

/// Asks for a stop in the middle of an epoch, as Ctrl-C would.
struct StopAfter : danling::Callback {
  explicit StopAfter(std::int64_t updates) : left(updates) {}
  void on_step(const danling::StepEvent& event) override {
    if (--left == 0) {
      event.runner.request_stop();
    }
  }
  std::int64_t left;
};

/// Trains four epochs in one go, and again with a stop on the way: both runs end with the same weights.
bool resumes() {
  Config config = quiet_config("whole");
  config.epochs = 4;
  Runner whole(config);
  whole.train();

  config.workspace_root = (folder / "parts").string();
  config.auto_resume = true;
  bool stopped = false;
  try {
    Runner first(config);
    first.add(StopAfter(whole.state().train.global_step / 2 + 1));
    first.train();
  } catch (const danling::Stopped&) {
    stopped = true;
  }
  Runner second(config);
  second.train();

  const auto expected = whole.model.named_state(), found = second.model.named_state();
  bool same = expected.size() == found.size();
  for (std::size_t i = 0; same && i < expected.size(); ++i) {
    same = at::equal(expected[i].second, found[i].second);
  }
  std::printf("%s, the weights are %s\n", stopped ? "stopped and resumed" : "not stopped",
              same ? "the same" : "different");
  return stopped && same;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string test = argc > 1 ? argv[1] : "";
  const bool passed = test == "learns" ? learns() : test == "resumes" ? resumes() : false;
  fs::remove_all(folder);
  std::puts(passed ? "passed" : "failed");
  return passed ? 0 : 1;
}
