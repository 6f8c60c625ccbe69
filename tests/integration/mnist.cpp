// The example as a user runs it: real processes, real files, real signals.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include <danling/checkpoint/file.hpp>

#include <support/catch.hpp>
#include <support/python.hpp>
#include <support/temp_dir.hpp>

namespace integration {

namespace dl = danling;
namespace fs = std::filesystem;
using danling_test::read_file;
using danling_test::TempDir;

/// A running command; ended with its test.
class Process {
 public:
  /// The example, without a command of its own.
  Process(std::vector<std::string> arguments, const fs::path& log, const fs::path& directory,
          const std::vector<std::string>& command = {DANLING_MNIST_BINARY}) {
    arguments.insert(arguments.begin(), command.begin(), command.end());
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      if (chdir(directory.c_str()) != 0 || freopen(log.c_str(), "w", stdout) == nullptr || dup2(1, 2) < 0) {
        _exit(126);
      }
      for (const int number : {SIGTERM, SIGINT}) {
        signal(number, SIG_DFL);
      }
      alarm(280);  // less than ctest's limit
      std::vector<char*> argv;
      for (auto& argument : arguments) {
        argv.push_back(argument.data());
      }
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  ~Process() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      wait();
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void send(int number) const { REQUIRE(::kill(pid_, number) == 0); }
  /// The exit code, or minus the signal.
  int wait() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  bool ended() {
    siginfo_t info = {};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
  }

 private:
  pid_t pid_ = -1;
};

struct Ended {
  int code;
  std::string output;
};

/// Runs the example in `dir` to its end.
Ended run(const TempDir& dir, std::vector<std::string> arguments) {
  const auto log = dir / "output.txt";
  Process process(std::move(arguments), log, dir.path());
  const int code = process.wait();
  return {code, read_file(log)};
}

#ifdef DANLING_COMMAND_BINARY
/// Runs the example in `dir` by several processes.
Ended launch(const TempDir& dir, int processes, std::vector<std::string> arguments) {
  const auto log = dir / "output.txt";
  Process process(std::move(arguments), log, dir.path(),
                  {DANLING_COMMAND_BINARY, "launch", "-n", std::to_string(processes), "--", DANLING_MNIST_BINARY});
  const int code = process.wait();
  return {code, read_file(log)};
}
#endif

/// The only run below a workspace.
fs::path run_dir(const fs::path& root) {
  std::vector<fs::path> found;
  for (const auto& lineage : fs::directory_iterator(root)) {
    for (const auto& run : fs::directory_iterator(lineage.path())) {
      found.push_back(run.path());
    }
  }
  REQUIRE(found.size() == 1);
  return found.front();
}

std::string without_telemetry(const fs::path& file) {
  std::string out;
  std::istringstream in(read_file(file));
  for (std::string line; std::getline(in, line);) {
    auto json = nlohmann::ordered_json::parse(line);
    json.erase("telemetry");
    out += json.dump() + "\n";
  }
  return out;
}

/// The files in which a resumed run must equal an uninterrupted one.
struct Trace {
  dl::State latest;
  std::string model, metrics;
};

Trace trace_of(const fs::path& dir) {
  Trace trace;
  trace.latest = dl::load_file(dir / "checkpoints" / "latest.pth");
  trace.latest.map().erase("runner");  // holds the workspace's folder
  trace.model = read_file(dir / "checkpoints" / "model.pth");
  trace.metrics = without_telemetry(dir / "metrics.jsonl");
  return trace;
}

void check_same(const Trace& a, const Trace& b) {
  CHECK(dl::first_difference(a.latest, b.latest) == "");
  CHECK(a.model == b.model);
  CHECK(a.metrics == b.metrics);
}

TEST_CASE("mnist: its defaults reach 98 % on the test images and end with a table and the run's path", "[mnist]") {
  const TempDir dir;
  const auto ended = run(dir, {});
  INFO(ended.output);
  REQUIRE(ended.code == 0);
  const auto path = run_dir(dir / "experiments");
  const auto summary = nlohmann::json::parse(read_file(path / "summary.json"));
  CHECK(summary["status"] == "finished");
  CHECK(summary["details"]["test"]["test"]["acc"].get<double>() >= 0.98);
  CHECK_THAT(ended.output, ContainsSubstring("run: experiments/"));
  CHECK_THAT(ended.output, ContainsSubstring("test"));
  // Held out: 1,437 training images less a tenth; the test images take no part in the choice of the best.
  const auto best = nlohmann::json::parse(read_file(path / "best.json"));
  CHECK(best.contains("val"));
  CHECK_FALSE(best.contains("test"));
}

#ifdef DANLING_COMMAND_BINARY
TEST_CASE("mnist: two processes under danling launch train as one and print one table", "[mnist]") {
  const TempDir dir;
  const auto [code, output] = launch(dir, 2, {});
  INFO(output);
  REQUIRE(code == 0);
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    CHECK(line.starts_with("[0] "));
  }
  CHECK_THAT(output, ContainsSubstring("[0] │ test  │ epoch 20 (last"));
  const auto summary = nlohmann::json::parse(read_file(run_dir(dir / "experiments") / "summary.json"));
  CHECK(summary["status"] == "finished");
  CHECK(summary["details"]["test"]["test"]["acc"].get<double>() >= 0.97);
}

TEST_CASE("mnist: one process and four write the same model and metrics with virtual ranks", "[mnist]") {
  std::vector<Trace> traces;
  for (const int processes : {1, 4}) {
    const TempDir dir;
    const auto [code, output] = launch(
        dir, processes,
        {"--deterministic", "true", "--parallel.virtual_ranks", "4", "--epochs", "2", "--dataloader.batch_size", "16"});
    INFO(output);
    REQUIRE(code == 0);
    traces.push_back(trace_of(run_dir(dir / "experiments")));
  }
  CHECK(traces[0].model == traces[1].model);
  CHECK(traces[0].metrics == traces[1].metrics);
}
#endif

TEST_CASE("mnist: the same seed twice gives the same model.pth, another seed another", "[mnist]") {
  const TempDir dir;
  std::vector<std::string> models;
  for (const auto* seed : {"3", "3", "4"}) {
    const auto root = "run" + std::to_string(models.size());
    REQUIRE(run(dir, {"--epochs=2", "--seed", seed, "--workspace_root", root}).code == 0);
    models.push_back(read_file(run_dir(dir / root) / "checkpoints" / "model.pth"));
  }
  CHECK(models[0] == models[1]);
  CHECK(models[0] != models[2]);
}

TEST_CASE("mnist: twenty epochs in one go equal a run stopped by SIGTERM again and again", "[mnist]") {
  const TempDir dir;
  const std::vector<std::string> common = {"--epochs=20", "--channels=4"};
  auto whole_arguments = common;
  whole_arguments.insert(whole_arguments.end(), {"--workspace_root", "whole"});
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE(run(dir, whole_arguments).code == 0);
  const auto whole_time = std::chrono::steady_clock::now() - begin;
  auto arguments = common;
  arguments.insert(arguments.end(), {"--workspace_root", "parts", "--auto_resume", "true"});
  int stops = 0;
  for (int attempt = 0;; ++attempt) {
    Process process(arguments, dir / "parts.txt", dir.path());
    // At a moment that no one chose, wherever the run then is: up to 1.5 times what the whole one took on this machine.
    // Where others keep the machine busier by now, the thirteenth may run to its end.
    const auto stop = std::chrono::steady_clock::now() + whole_time * (attempt + 1) / 8;
    while ((attempt == 12 || std::chrono::steady_clock::now() < stop) && !process.ended()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (!process.ended()) {
      process.send(attempt % 2 == 0 ? SIGTERM : SIGINT);
    }
    const int code = process.wait();
    INFO(read_file(dir / "parts.txt"));
    if (code == 0) {
      break;
    }
    // Before the handlers are set, the signal ends the process itself.
    const int number = attempt % 2 == 0 ? SIGTERM : SIGINT;
    REQUIRE((code == 128 + number || code == -number));
    stops += code > 0 ? 1 : 0;
    if (code > 0) {
      const auto summary = nlohmann::json::parse(read_file(run_dir(dir / "parts") / "summary.json"));
      CHECK(summary["status"] == "stopped");
    }
  }
  CHECK(stops >= 1);
  check_same(trace_of(run_dir(dir / "whole")), trace_of(run_dir(dir / "parts")));
}

TEST_CASE("mnist: ten epochs extended to twenty equal twenty in one go, without a schedule on the boundary",
          "[mnist]") {
  const TempDir dir;
  const auto arguments = [](const std::string& root, const std::string& epochs) {
    return std::vector<std::string>{"--channels=4",       "--sched.type=constant",    "--sched.warmup_steps=0",
                                    "--log_interval=10",  "--sched.cooldown_steps=0", "--workspace_root=" + root,
                                    "--epochs=" + epochs, "--auto_resume=true"};
  };
  REQUIRE(run(dir, arguments("whole", "20")).code == 0);
  REQUIRE(run(dir, arguments("parts", "10")).code == 0);
  REQUIRE(run(dir, arguments("parts", "20")).code == 0);
  check_same(trace_of(run_dir(dir / "whole")), trace_of(run_dir(dir / "parts")));
}

/// One line, which says it; earlier checkpoints as they were.
void check_one_line(const Ended& ended, int code, const std::string& text) {
  INFO(ended.output);
  CHECK(ended.code == code);
  const auto at = ended.output.find("error: ");
  REQUIRE(at != std::string::npos);
  CHECK_THAT(ended.output, ContainsSubstring(text));
  CHECK(std::count(ended.output.begin() + static_cast<std::ptrdiff_t>(at), ended.output.end(), '\n') == 1);
}

TEST_CASE("mnist: what is wrong ends with one clear line, a code, and earlier checkpoints as they were", "[mnist]") {
  const TempDir dir;
  REQUIRE(run(dir, {"--epochs=1"}).code == 0);
  const auto latest = run_dir(dir / "experiments") / "checkpoints" / "latest.pth";
  const auto before = read_file(latest);

  check_one_line(run(dir, {"--epcohs=1"}), 2, "expected a known key, got 'epcohs'");
  danling_test::write_file(dir / "a.yaml", "epochs: 1\noptim:\n  lrr: 0.1\n");
  check_one_line(run(dir, {"--config", "a.yaml"}), 2, "a.yaml', line 3");
  check_one_line(run(dir, {"--epochs=many"}), 2, "epochs");
  check_one_line(run(dir, {"--fsdp.enabled=true"}), 2, "fsdp");
  check_one_line(run(dir, {"--dataloader.tarin.shuffle=false"}), 2, "did you mean 'train'?");

  fs::create_directories(dir / "data");
  for (const auto& file : fs::directory_iterator(fs::path(DANLING_SOURCE_DIR) / "examples/mnist/data")) {
    fs::copy_file(file.path(), dir / "data" / file.path().filename());
  }
  const auto images = dir / "data" / "train-images-idx3-ubyte.gz";
  fs::resize_file(images, fs::file_size(images) / 2);
  check_one_line(run(dir, {"--data.root=data"}), 1, "train-images-idx3-ubyte.gz");
  check_one_line(run(dir, {"--data.root=nowhere"}), 1, "nowhere");

  danling_test::write_file(dir / "file", "not a folder");
  check_one_line(run(dir, {"--workspace_root=file/below"}), 2, "file/below");
  check_one_line(run(dir, {"--epochs=2", "--channels=4", "--resume", latest.string()}), 2,
                 "channels is 16 in the checkpoint and 4 here");
  check_one_line(
      run(dir, {"--epochs=2", "--channels=4", "--checkpoint.exclude_from_loading=runner", "--resume", latest.string()}),
      1, "expected weights of the same architecture");
  CHECK(read_file(latest) == before);
}

TEST_CASE("mnist: help lists the program's own options and those of the runner", "[mnist]") {
  const TempDir dir;
  const auto ended = run(dir, {"--help"});
  CHECK(ended.code == 0);
  for (const auto* option :
       {"--channels", "--data.root", "--epochs", "--steps", "--seed", "--optim.lr", "--dataloader.batch_size",
        "--workspace_root", "--resume", "--auto_resume", "--checkpoint.interval", "--sched.type",
        "--sched.warmup_steps", "--sched.cooldown_steps"}) {
    CHECK_THAT(ended.output, ContainsSubstring(option));
  }
  CHECK_FALSE(fs::exists(dir / "experiments"));
}

TEST_CASE("mnist: steps, batch size, intervals and a full resume work from the command line", "[mnist]") {
  const TempDir dir;
  auto ended = run(dir, {"--steps=100", "--dataloader.batch_size=32", "--checkpoint.interval=10", "--sched.type=linear",
                         "--optim.lr=0.002", "--channels=4"});
  INFO(ended.output);
  REQUIRE(ended.code == 0);
  const auto path = run_dir(dir / "experiments");
  for (const auto* name : {"ckpt-s000000000010.pth", "ckpt-s000000000020.pth", "ckpt-s000000000100.pth"}) {
    CHECK(fs::exists(path / "checkpoints" / name));
  }
  ended = run(dir, {"--steps=120", "--dataloader.batch_size=32", "--checkpoint.interval=10", "--sched.type=linear",
                    "--optim.lr=0.002", "--channels=4", "--resume", (path / "checkpoints" / "latest.pth").string()});
  INFO(ended.output);
  CHECK(ended.code == 0);
  CHECK(dl::load_file(path / "checkpoints" / "latest.pth").at("state").at("train").at("global_step").integer() == 120);
}

TEST_CASE("README: its program is examples/quickstart, word for word", "[readme]") {
  const fs::path root = DANLING_SOURCE_DIR;
  const auto program = read_file(root / "examples" / "quickstart" / "main.cpp");
  CHECK_THAT(read_file(root / "README.md"), ContainsSubstring("```cpp\n" + program + "```"));
}

TEST_CASE("mnist: Python reads the weights", "[mnist]") {
  if (danling_test::python_with_torch().empty()) {
    WARN("skipped: no Python with torch (set DANLING_PYTHON)");
    return;
  }
  const TempDir dir;
  REQUIRE(run(dir, {"--epochs=1"}).code == 0);
  const auto model = run_dir(dir / "experiments") / "checkpoints" / "model.pth";
  const auto command = danling_test::python_with_torch() + " -c \"import torch; s = torch.load('" + model.string() +
                       "', weights_only=True)['model']; assert list(s) == ['conv1.weight', 'conv1.bias', "
                       "'conv2.weight', 'conv2.bias', 'fc.weight', 'fc.bias'], list(s); "
                       "assert s['fc.weight'].shape == (10, 1568)\"";
  CHECK(std::system(command.c_str()) == 0);
}

}  // namespace integration
