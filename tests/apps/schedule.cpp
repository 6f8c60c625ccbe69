// danling schedule.
#include <apps/command.hpp>

namespace {

using danling_test::read_file;
using danling_test::run_danling;
using danling_test::TempDir;

std::string config_in(const TempDir& directory, const std::string& text, const std::string& name = "config.yaml") {
  const auto path = directory / name;
  std::ofstream(path) << text;
  return path.string();
}

TEST_CASE("schedule: draws the rates of any program's config", "[apps]") {
  const TempDir directory;
  const auto config = config_in(directory, R"(
hidden: 12
mine: {deep: [1, 2]}
steps: 40
optim: {type: mine, lr: 1.0, secret: 3, param_groups: [{pattern: head, lr: 0.5, other: 1}]}
sched: {type: step, step_size: 10, gamma: 0.5}
)");
  const auto drawn = run_danling({"schedule", config, "--width", "52", "--height", "5"});
  CHECK(drawn.err.empty());
  REQUIRE(drawn.code == 0);
  CHECK(drawn.out.starts_with(
      "step over 40 steps: learning rate 1 at first, 1 at most (step 1), 0.125 at last\n   * lr 1.0   o lr 0.5\n"));
  // A quarter of the columns at each height: a full, a half, ...
  CHECK(drawn.out.find("1 +**********") != std::string::npos);
  for (std::size_t begin = 0; begin < drawn.out.size();) {
    const std::size_t end = drawn.out.find('\n', begin);
    CHECK((begin == 0 || end - begin <= 52));
    begin = end + 1;
  }
}

TEST_CASE("schedule: several models, each with its own schedule", "[apps]") {
  const TempDir directory;
  const auto config = config_in(directory, R"(
epochs: 4
optim: {type: adam, critic: {lr: 0.5}}
scheduler:
  type: linear
  interval: epoch
  final_lr: 0
  min_lr: 0
  warmup_steps: 0
  cooldown_steps: 0
  critic: {final_lr: 0.25}
)");
  const auto both = run_danling({"schedule", config});
  CHECK(both.out.find("linear over 4 epochs: learning rate 0.00075 at first, 0.00075 at most (epoch 1), 0 at last\n") ==
        0);
  CHECK(both.out.find("critic: linear over 4 epochs: learning rate 0.4375 at first, 0.4375 at most (epoch 1), 0.25 at "
                      "last\n") != std::string::npos);
  const auto one = run_danling({"schedule", config, "--model", "critic", "--total_steps", "2"});
  CHECK(one.out.find("critic: linear over 2 epochs: learning rate 0.375 at first, 0.375 at most (epoch 1), 0.25 at "
                     "last\n") == 0);
}

TEST_CASE("schedule: a metric drives a schedule that needs one", "[apps]") {
  const TempDir directory;
  const auto config =
      config_in(directory, "optim: {lr: 0.5}\nsched: {type: reduce_on_plateau, factor: 0.5, patience: 0}\n");
  CHECK(run_danling({"schedule", config}).out ==
        "reduce_on_plateau: learning rate 0.5 at first, then by a metric; --metrics LIST draws it\n");
  CHECK(run_danling({"schedule", config, "--metrics", "3,2,2,2"})
            .out.starts_with("reduce_on_plateau over 5 epochs: learning rate 0.5 at first, 0.125 at last\n"));
  CHECK(run_danling({"schedule", config, "--metrics", "3,x"}).err ==
        "[danling schedule] expected numbers with commas for --metrics, got '3,x'\n");
}

TEST_CASE("schedule: writes a picture", "[apps]") {
  const TempDir directory;
  const auto config =
      config_in(directory, "steps: 30\noptim: {lr: 1}\nsched: {type: cosine, critic: {type: linear}}\n");
  const auto written = run_danling({"schedule", config, "--svg", (directory / "a.svg").string()});
  CHECK(written.code == 0);
  CHECK(written.out.empty());
  CHECK(read_file(directory / "a.svg").starts_with("<svg "));
  CHECK(read_file(directory / "a-critic.svg").find("critic: linear over 30 steps") != std::string::npos);
}

TEST_CASE("schedule: what it cannot draw is one line", "[apps]") {
  const TempDir directory;
  const auto error = [&](const std::string& text, const std::vector<std::string>& options = {}) {
    std::vector<std::string> words = {"schedule", config_in(directory, text)};
    words.insert(words.end(), options.begin(), options.end());
    const auto result = run_danling(words);
    CHECK(result.code == 2);
    return result.err;
  };
  CHECK(error("epochs: 3\noptim: {lr: 1}\nsched: {type: cosine}\n") ==
        "[danling schedule] expected --total_steps N, since the config sets epochs, whose number of steps depends on "
        "the data, got none\n");
  CHECK(error("optim: {lr: 1}\nsched: {type: cosine}\n") ==
        "[danling schedule] expected --total_steps N, since the config sets no number of steps, got none\n");
  CHECK(error("steps: 3\nsched: {type: cosine}\n") == "[danling schedule] expected optim.lr in the config, got none\n");
  CHECK(error("steps: 3\noptim: {lr: 1}\nsched: {type: cosine, step_size: 3}\n") ==
        "[sched] expected options of cosine (total_steps, final_lr_ratio, final_lr, min_lr, warmup_steps, "
        "cooldown_steps, scaling), got 'step_size'\n");
  CHECK(error("steps: x\noptim: {lr: 1}\nsched: {type: cosine}\n")
            .starts_with("[danling schedule] expected a whole number for 'steps' in "));
  CHECK(error("steps: 3\noptim: {lr: 1}\n").starts_with("[danling schedule] expected sched.type in "));
  CHECK(error("steps: 3\noptim: {lr: 1}\nsched: {type: cosine}\n", {"--model", "critic"}) ==
        "[danling schedule] expected a model that has a section in sched or optim, got 'critic'\n");
  CHECK(run_danling({"schedule", (directory / "none.yaml").string()})
            .err.starts_with("[danling schedule] expected a config to read, got "));
}

}  // namespace
