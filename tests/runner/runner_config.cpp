// RunnerConfig: names, values and contradictions.
#include "fixture.hpp"
#include "parse.hpp"

namespace runner_test {
namespace {

TEST_CASE("RunnerConfig: saves are asynchronous by default, and each of DanLing's modes is accepted", "[runner]") {
  RunnerConfig config;
  CHECK(config.checkpoint.async_enabled);
  parse_options(config, "--checkpoint.async_enabled", "false", "--checkpoint.async_mode", "async_with_pinned_mem");
  CHECK_FALSE(config.checkpoint.async_enabled);
  CHECK(config.checkpoint.async_mode == "async_with_pinned_mem");
  CHECK(error_of_options("--checkpoint.async_mode", "pinned") ==
        "[config.parse] expected one of disabled, async, async_with_pinned_mem for 'checkpoint.async_mode', got "
        "'pinned' (command line)");
  CHECK(error_of_options("--checkpoint.on_error", "ignore") ==
        "[config.parse] expected one of continue, stop for 'checkpoint.on_error', got 'ignore' (command line)");
}

TEST_CASE("RunnerConfig: names are accepted in any case, and average: none is a name, not null", "[runner]") {
  RunnerConfig config;
  parse_options(config, "--checkpoint.async_mode", "Disabled", "--precision", "BFloat16", "--checkpoint.export_dtype",
                "float", "--metrics.type", "multiclass", "--metrics.num_classes", "3", "--metrics.average", "None");
  CHECK(config.checkpoint.async_mode == "disabled");
  CHECK(config.precision == "bfloat16");
  CHECK(config.checkpoint.export_dtype == "float");
  CHECK(config.metrics.average == danling::metrics::Average::none);
  RunnerConfig other;
  parse_options(other, "--device", "CUDA:1", "--optim.type", "AdamW", "--sched.interval", "Epoch", "--sched.scaling",
                "NUMERICAL", "--checkpoint.on_error", "Stop", "--checkpoint.backend", "FILE", "--stack", "DDP",
                "--allocator", "System", "--metrics.mode", "Stream", "--metrics.scores", "Logits");
  CHECK(other.device == "cuda:1");
  CHECK(other.optim.type == "adamw");
  CHECK(other.sched.interval == "epoch");
  CHECK(other.sched.scaling == "numerical");
  CHECK(other.checkpoint.on_error == "stop");
  CHECK(other.checkpoint.backend == "file");
  CHECK(other.stack == "ddp");
  CHECK(other.allocator == "system");
  CHECK(other.metrics.mode == danling::metrics::Mode::stream);
  CHECK(other.metrics.scores == danling::metrics::Scores::logits);
  CHECK_THAT(error_of_options("--precision", "FP8"), ContainsSubstring("not available: fp8"));
}

TEST_CASE("RunnerConfig: optimizer and scheduler are other names of optim and sched", "[runner]") {
  RunnerConfig config;
  parse_options(config, "--optimizer.lr", "0.5", "--scheduler.type", "linear");
  CHECK(config.optim.lr == 0.5);
  CHECK(config.sched.type == "linear");
  for (const auto& [given, meaning] : std::vector<std::pair<std::string, std::string>>{{"bfloat16", "bf16"},
                                                                                       {"float32", "fp32"},
                                                                                       {"Float16", "fp16"},
                                                                                       {"half", "fp16"},
                                                                                       {"float64", "fp64"},
                                                                                       {"double", "fp64"}}) {
    parse_options(config, "--precision", given.c_str());
    CHECK(config.precision_name() == meaning);
  }
  CHECK(config.stack_name() == "ddp");
}

TEST_CASE("RunnerConfig: contradicting or impossible options are errors", "[runner]") {
  CHECK(error_of_options("--epochs", "3", "--steps", "5") ==
        "[config.validate] expected at most one of 'steps' and 'epochs', got steps 5 and epochs 3");
  CHECK(error_of_options("--accum_steps", "0") ==
        "[config.parse] expected a value of at least 1 for 'accum_steps', got 0 (command line)");
  CHECK(error_of_options("--device", "gpu") ==
        "[config.validate] expected auto, cpu, cuda or cuda:<index> for 'device', got 'gpu'");
  CHECK(error_of_options("--device", "cuda:") ==
        "[config.validate] expected auto, cpu, cuda or cuda:<index> for 'device', got 'cuda:'");
  CHECK(error_of_options("--optim.betas", "0.9") ==
        "[config.parse] expected a list of two numbers or null for 'optim.betas', got a list of 1 (command line)");
  CHECK(error_of_options("--optim.param_groups", "[{lr: 1}]") ==
        "[config.validate] expected a pattern for 'optim.param_groups[0]', got none");
  CHECK(error_of_options("--optim.param_groups", "[{pattern: a, betas: [0.9]}]") ==
        "[config.parse] expected a list of two numbers or null for 'optim.param_groups[0].betas', got a list of 1 "
        "(command line)");
  CHECK(error_of_options("--sched.final_lr", "1e-5", "--sched.final_lr_ratio", "0.1") ==
        "[config.validate] expected at most one of 'sched.final_lr_ratio' and 'sched.final_lr', got both");
  CHECK(error_of_options("--dataloader.batch_size", "0") ==
        "[config.parse] expected a value of at least 1 for 'dataloader.batch_size', got 0 (command line)");
  CHECK(error_of_options("--max_grad_norm", "0") ==
        "[config.parse] expected a value above 0 for 'max_grad_norm', got 0.0 (command line)");
  CHECK(error_of_options("--lr", "3") ==
        "[config.parse] expected a known key, got 'lr' (command line); did you mean 'optim.lr'?");
}

TEST_CASE("RunnerConfig: options of optim and sched that nothing reads are errors or warnings", "[runner]") {
  RunnerConfig config;
  CHECK(config.check_optim(false).empty());
  CHECK(config.check_sched(false).empty());
  parse_options(config, "--sched.warmup_steps", "3", "--sched.interval", "epoch", "--optim.lr", "1");
  CHECK(error_of<ConfigError>([&] { (void)config.check_sched(false); }) ==
        "[runner.check_sched] expected sched.type with 'sched.warmup_steps', 'sched.interval', got none, so that no "
        "scheduler is built; set sched.type, or leave them out");
  CHECK(error_of<ConfigError>([&] { (void)config.check_optim(false); }) ==
        "[runner.check_optim] expected optim.type with 'optim.lr', got none, so that no optimizer is built; set "
        "optim.type, or leave them out");
  CHECK(config.check_sched(true) ==
        "expected no options for the scheduler that the program set, got 'sched.warmup_steps', which danling ignores");
  parse_options(config, "--sched.type", "cosine", "--optim.type", "sgd");
  CHECK(config.check_sched(false).empty());
  CHECK(config.check_optim(false).empty());
  CHECK(config.check_optim(true) ==
        "expected no options for the optimizer that the program set, got 'optim.type', 'optim.lr', which danling "
        "ignores");
}

}  // namespace
}  // namespace runner_test
