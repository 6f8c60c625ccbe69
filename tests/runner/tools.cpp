// Options of tools where nothing would act on them: in programs without dl::run, and without their switch.
#include <danling/nn/summary.hpp>

#include "hosted.hpp"
#include "parse.hpp"
#include "printed.hpp"

namespace runner_test {
namespace {

std::string refusal(const std::string& operation, const std::string& call, const std::string& key) {
  return dl::detail::concat("[", operation, "] expected a call of ", call, "() before training with '", key,
                            "' set, got none; dl::run calls it instead of training");
}

TEST_CASE("summary, find_lr, find_batch_size: training without dl::run is refused and writes nothing", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  TinyConfig pushing = hosted(folder);
  std::string call, key;
  SECTION("summary") {
    call = "summarize", key = "summary";
    config.summary = pushing.summary = true;
  }
  SECTION("find_lr") {
    call = key = "find_lr";
    config.find_lr.enabled = pushing.find_lr.enabled = true;
  }
  SECTION("find_batch_size") {
    call = key = "find_batch_size";
    config.find_batch_size.enabled = pushing.find_batch_size.enabled = true;
  }
  TinyRunner runner(config);
  CHECK(error_of<dl::ConfigError>([&] { runner.train(); }) == refusal("runner.train", call, key));
  HostedRunner host(pushing);
  CHECK(error_of<dl::ConfigError>([&] { host.train_on_batch(pushed(0)); }) ==
        refusal("runner.train_on_batch", call, key));
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("summary, find_lr, find_batch_size: a program that calls the tool itself may train afterwards", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.summary = true;
  config.find_lr.enabled = true;
  TinyRunner runner(config);
  CHECK(runner.summarize().flops > 0);
  CHECK(error_of<dl::ConfigError>([&] { runner.train(); }) == refusal("runner.train", "find_lr", "find_lr"));
  runner.find_lr({.steps = 3});
  runner.train();
  CHECK(runner.state().train.epoch == 1);
  const Folder other;
  TinyConfig sizes(other);
  sizes.epochs = 1;
  sizes.find_batch_size.enabled = true;
  TinyRunner sized(sizes);
  sized.find_batch_size({.max = 2, .steps = 1});
  sized.train();
  CHECK(sized.state().train.epoch == 1);
}

TEST_CASE("parse: options of a tool without its switch are refused, defaults of the program are not", "[runner]") {
  CHECK(error_of_options("--find_lr.steps", "200") ==
        "[config.validate] expected 'find_lr' with 'find_lr.steps', got none");
  CHECK(error_of_options("--find_lr.svg", "x.svg") ==
        "[config.validate] expected 'find_lr' with 'find_lr.svg', got none");
  CHECK(error_of_options("--find_batch_size.max", "64") ==
        "[config.validate] expected 'find_batch_size' with 'find_batch_size.max', got none");
  CHECK(error_of_options("--pretrained_strict", "false") ==
        "[config.validate] expected 'pretrained' with 'pretrained_strict', got none");
  RunnerConfig config;
  parse_options(config, "--find_lr", "--find_lr.steps", "200", "--pretrained_strict", "false", "--pretrained", "x.pth");
  CHECK(config.find_lr.steps == 200);
  RunnerConfig program;
  program.find_lr.steps = 300;
  program.pretrained_strict = false;
  parse_options(program, "--steps", "10");
  CHECK(program.find_lr.steps == 300);
}

template <class Runner>
int code_of(std::vector<std::string> words) {
  words.insert(words.begin(), "program");
  std::vector<char*> arguments;
  for (auto& word : words) {
    arguments.push_back(word.data());
  }
  int code = -1;
  (void)printed_by([&] { code = dl::run<Runner, TinyConfig>(static_cast<int>(arguments.size()), arguments.data()); });
  return code;
}

TEST_CASE("run: a tool that finds nothing returns 1, and one without an optimizer 2", "[runner]") {
  struct Bare : TinyRunner {
    explicit Bare(const TinyConfig& config) : TinyRunner(without_optimizer(config)) {}
    static TinyConfig without_optimizer(TinyConfig config) {
      config.optim = dl::OptimConfig();
      return config;
    }
  };
  const Folder folder;
  const std::string root = folder.path().string();
  CHECK(code_of<TinyRunner>({"--find_batch_size", "--find_batch_size.memory_limit", "10", "--epochs", "1",
                             "--workspace_root", root}) == dl::exit_failure);
  CHECK(code_of<Bare>({"--find_lr", "--epochs", "1", "--workspace_root", root}) == dl::exit_config);
  CHECK(code_of<Bare>({"--epochs", "1", "--record", "false"}) == dl::exit_config);
  CHECK(fs::is_empty(folder.path()));
}

}  // namespace
}  // namespace runner_test
