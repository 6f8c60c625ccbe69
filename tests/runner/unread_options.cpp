// Options that nothing reads, or that cannot act: of one of several models, of loss terms, of early stopping.
#include "models.hpp"
#include "parse.hpp"
#include "terms_runner.hpp"

namespace runner_test {
namespace {

using Texts = std::vector<std::string>;

std::string gan_refusal(const TinyConfig& config) {
  GanRunner runner(config);
  return error_of<dl::ConfigError>([&] { runner.train(); });
}

TEST_CASE("optim, sched: options of one of several models without a type are errors", "[runner]") {
  const Folder folder;
  TinyConfig config = gan_config(folder);
  config.sched.models["generator"].warmup_steps = 3;
  CHECK(gan_refusal(config) ==
        "[runner.check_sched] expected sched.generator.type with 'sched.generator.warmup_steps', got none, so that no "
        "scheduler is built; set sched.generator.type, or leave them out");
  config.sched = {};
  config.optim.type.reset();
  config.optim.lr.reset();
  config.optim.models = {};
  config.optim.models["generator"].type = "sgd";
  config.optim.models["discriminator"].lr = 0.1;
  CHECK(gan_refusal(config) ==
        "[runner.check_optim] expected optim.discriminator.type with 'optim.discriminator.lr', got none, so that no "
        "optimizer is built; set optim.discriminator.type, or leave them out");
}

TEST_CASE("sched: options of a model beside a type of all models, or beside a schedule of the program", "[runner]") {
  struct Own : GanRunner {
    explicit Own(const TinyConfig& config) : GanRunner(config) {
      optimizers["generator"] =
          dl::optim::sgd(models["generator"].as<torch::nn::Sequential>()->parameters(), {.lr = 0.1});
      schedulers["generator"] = std::make_shared<dl::optim::StepLR>(*optimizers["generator"], 5);
    }
  };
  const Folder folder;
  TinyConfig config = gan_config(folder);
  config.sched.type = "cosine";
  config.sched.models["generator"].warmup_steps = 3;
  Texts warnings;
  GanRunner typed(config);
  collect_warnings(typed, warnings);
  typed.initialize();
  CHECK(warnings == Texts{});
  config.optim.models.erase("generator");
  config.sched.type.reset();
  Own own(config);
  collect_warnings(own, warnings);
  own.initialize();
  CHECK(warnings == Texts{"expected no options for the scheduler that the program set, got "
                          "'sched.generator.warmup_steps', which danling ignores"});
}

TEST_CASE("optim.freeze: several models that are frozen whole are an error", "[runner]") {
  const Folder folder;
  TinyConfig config = gan_config(folder);
  config.optim.freeze = Texts{"."};
  CHECK(gan_refusal(config) ==
        "[runner.train] expected a model with parameters to train, got none that optim.freeze leaves");
}

TEST_CASE("min_delta: without patience it is refused", "[runner]") {
  CHECK(error_of_options("--min_delta", "0.1") == "[config.validate] expected 'patience' with 'min_delta', got none");
  RunnerConfig config;
  parse_options(config, "--min_delta", "0.1", "--patience", "3");
}

TEST_CASE("losses: a term that begins at the end of the run, and weights that are all 0, are warnings", "[runner]") {
  const Folder folder;
  const auto warnings_of = [&](const std::vector<std::pair<std::string, std::string>>& keys) {
    TinyConfig config(folder);
    config.epochs = 2;  // 14 steps
    for (const auto& [key, value] : keys) {
      dl::set_option(config, key, value);
    }
    TermsRunner runner(config);
    Texts warnings;
    collect_warnings(runner, warnings);
    runner.initialize();
    return warnings;
  };
  const std::pair<std::string, std::string> linear{"losses.size.schedule", "linear"};
  CHECK(warnings_of({linear, {"losses.size.begin", "12"}}) == Texts{});  // its second step is the last of the run
  CHECK(warnings_of({linear, {"losses.size.begin", "13"}}) ==
        Texts{"losses.size.begin 13 is not before the last step of the run (14 steps): the weight stays 0.0"});
  CHECK(warnings_of({linear, {"losses.size.begin", "99"}, {"losses.size.length", "5"}, {"losses.size.from", "0.25"}}) ==
        Texts{"losses.size.begin 99 is not before the last step of the run (14 steps): the weight stays 0.25"});
  CHECK(warnings_of({{"losses.size.weight", "0"}}) == Texts{});
  CHECK(warnings_of({{"losses.size.weight", "0"}, {"losses.ce.weight", "0"}}) ==
        Texts{"losses: the weights of all terms (ce, size) are 0: nothing is learnt"});
  CHECK(warnings_of({linear, {"losses.ce.weight", "0"}}) == Texts{});
}

}  // namespace
}  // namespace runner_test
