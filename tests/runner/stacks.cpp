// `stack` of the config: the parallelism that it builds.
#include <danling/runner/stacks.hpp>

#include "fixture.hpp"
#include "parse.hpp"

namespace runner_test {
namespace {

class Counting : public dl::Parallelism {
 public:
  using Parallelism::Parallelism;
  std::string_view name() const override { return "counting"; }
  void prepare(dl::ModelHandle& model, at::Device device) override {
    ++prepared;
    Parallelism::prepare(model, device);
  }
  int prepared = 0;
};

TEST_CASE("stack: a name that the program registered builds its parallelism, given identity and config", "[runner]") {
  if (!dl::stacks().contains("counting")) {
    dl::stacks().add("counting", [](const dl::ProcessIdentity& identity, const dl::RunnerConfig& config) {
      CHECK(identity.world_size == 1);
      CHECK(config.epochs == 1);
      return std::make_unique<Counting>(identity);
    });
  }
  const Folder folder;
  TinyConfig config(folder);
  parse_options(config, "--stack", "Counting", "--epochs", "1");
  CHECK(config.stack == "counting");
  CHECK(config.stack_name() == "counting");
  TinyRunner runner(config);
  CHECK(runner.parallelism().name() == "single");  // until initialize()
  runner.train();
  CHECK(dynamic_cast<Counting&>(runner.parallelism()).prepared == 1);
  CHECK(runner.results().rows().size() == 1);
}

TEST_CASE("stack: auto, torch and ddp are one process, and an unknown name is an error", "[runner]") {
  for (const std::string name : {"auto", "torch", "ddp"}) {
    const Folder folder;
    TinyConfig config(folder);
    config.stack = name;
    config.epochs = 1;
    TinyRunner runner(config);
    runner.initialize();
    CHECK(runner.parallelism().name() == "single");
    CHECK(config.stack_name() == "ddp");
  }
  CHECK_THAT(error_of_options("--stack", "ddq"), StartsWith("[config.parse] expected one of auto, ddp, torch"));
}

TEST_CASE("set_parallelism: several processes without a group of them are an error", "[runner]") {
  struct Alone : TinyRunner {
    using TinyRunner::TinyRunner;
    void init_distributed() override {
      dl::ProcessIdentity identity;
      identity.world_size = 2;
      set_parallelism(std::make_unique<Counting>(identity));
    }
  };
  const Folder folder;
  Alone runner{TinyConfig(folder)};
  CHECK(error_of<dl::DistributedError>([&] { runner.initialize(); }) ==
        "[runner.set_parallelism] expected a group of the 2 processes that the launcher started, got one of 1; "
        "construct it with dl::Group::connect(identity)");
}

}  // namespace
}  // namespace runner_test
