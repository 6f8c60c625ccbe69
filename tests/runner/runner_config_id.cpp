// RunnerConfig: the options that the id of a run depends on.
#include "fixture.hpp"
#include "parse.hpp"

namespace runner_test {
namespace {

TEST_CASE("RunnerConfig: the id depends on the computation of a run, not on its length, place or logs", "[runner]") {
  CHECK(danling::canonical_yaml(RunnerConfig()) ==
        "accum_steps: 1\n"
        "deterministic: false\n"
        "flush_denormals: false\n"
        "optim:\n"
        "  fused: true\n"
        "skip_nonfinite_grad: false\n"
        "stack: ddp\n");
  RunnerConfig config;
  const std::string id = danling::config_id(config);
  parse_options(config, "--stack", "torch", "--epochs", "3", "--workspace_root", "/x", "--lineage", "a", "--experiment",
                "b", "--name", "c", "--auto_resume", "--resume", "d", "--pretrained", "e", "--checkpoint.dir_name", "f",
                "--checkpoint.interval", "2", "--log", "false", "--log_interval", "5", "--console", "no", "--device",
                "cpu", "--num_threads", "2", "--allocator", "system", "--score_name", "acc", "--score_split", "val",
                "--patience", "4", "--test_splits", "test", "--test_with", "best", "--checkpoint.export_with", "best");
  CHECK(danling::config_id(config) == id);
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"seed", "1"},
                                                        {"deterministic", "true"},
                                                        {"accum_steps", "2"},
                                                        {"optim.lr", "0.1"},
                                                        {"sched.type", "linear"},
                                                        {"dataloader.batch_size", "8"},
                                                        {"dataloader.train.shuffle", "false"},
                                                        {"dataloader.in_order", "false"},
                                                        {"precision", "bf16"},
                                                        {"max_grad_norm", "1"},
                                                        {"train_splits", "train"},
                                                        {"optim.fused", "false"}}) {
    CAPTURE(key);
    RunnerConfig other;
    danling::set_option(other, key, value);
    CHECK(danling::config_id(other) != id);
  }
}

TEST_CASE("RunnerConfig: sched.monitor takes part in the id", "[runner]") {
  RunnerConfig config;
  const std::string id = danling::config_id(config);
  parse_options(config, "--sched.monitor", "val.acc");
  CHECK(config.sched.monitor == "val.acc");
  CHECK(danling::config_id(config) != id);
}

TEST_CASE("RunnerConfig: the case of optim.type and sched.type takes no part in the id", "[runner]") {
  RunnerConfig config;
  parse_options(config, "--optim.type", "adamW", "--sched.type", "Cosine");
  RunnerConfig other;
  parse_options(other, "--optim.type", "adamw", "--sched.type", "cosine");
  CHECK(danling::canonical_yaml(config) == danling::canonical_yaml(other));
}

TEST_CASE("RunnerConfig: workers and prefetching take no part in the id", "[runner]") {
  RunnerConfig config;
  const std::string id = danling::config_id(config);
  parse_options(config, "--dataloader.num_workers", "2", "--dataloader.prefetch_factor", "3",
                "--dataloader.persistent_workers", "true", "--dataloader.pin_memory", "true",
                "--dataloader.snapshot_every_n_steps", "4", "--dataloader.val.num_workers", "1");
  CHECK(danling::config_id(config) == id);
}

TEST_CASE("RunnerConfig: score_mode is min or max, in any case, and takes no part in the id", "[runner]") {
  RunnerConfig config;
  const std::string id = danling::config_id(config);
  parse_options(config, "--score_mode", "MAX");
  CHECK(config.score_mode == "max");
  CHECK(danling::config_id(config) == id);
  CHECK(error_of_options("--score_mode", "lower") ==
        "[config.parse] expected one of min, max for 'score_mode', got 'lower' (command line)");
}

struct UserConfig : RunnerConfig {
  struct Data : danling::Section {
    std::string root = "data";
    void fields(danling::Fields& f) override { f("root", root, "directory of the images").non_semantic(); }
  } data;
  int hidden = 128;
  UserConfig() {
    optim.type = "sgd";
    optim.lr = 0.1;
  }
  void fields(danling::Fields& f) override {
    f("hidden", hidden, "hidden units").at_least(1);
    f("data", data, "the data");
  }
};

TEST_CASE("RunnerConfig: fields of a derived config take part in parse, print, id, differences and help", "[runner]") {
  UserConfig config;
  parse_options(config, "--hidden", "64", "--data.root", "/d", "--epochs", "2");
  CHECK(config.hidden == 64);
  CHECK(config.epochs == 2);
  CHECK(danling::to_yaml(danling::changed_entries(danling::to_tree(config), danling::to_tree(UserConfig()))) ==
        "epochs: 2\nhidden: 64\ndata:\n  root: /d\n");
  CHECK_THAT(danling::canonical_yaml(config), ContainsSubstring("hidden: 64\n"));
  CHECK_THAT(danling::canonical_yaml(config), !ContainsSubstring("root"));
  CHECK(
      danling::describe(danling::find_differences(danling::semantic_tree(config), danling::semantic_tree(UserConfig())),
                        "in the checkpoint", "here") == "  hidden: 64 in the checkpoint, 128 here\n");
  CHECK(error_of<ConfigError>([&] { danling::load_text(config, "hiden: 3\n", "a.yaml"); }) ==
        "[config.parse] expected a known key, got 'hiden' (file 'a.yaml', line 1); did you mean 'hidden'?");
  const std::string help = danling::help(config, "mnist", 100);
  CHECK_THAT(help, ContainsSubstring("Options of this program\n  --hidden integer"));
  CHECK_THAT(help, ContainsSubstring("--optim.lr number"));
  CHECK_THAT(help, ContainsSubstring("learning rate; unset") || ContainsSubstring("(default: 0.1)"));
}

}  // namespace
}  // namespace runner_test
