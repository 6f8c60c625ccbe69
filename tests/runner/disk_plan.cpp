// The disk space of the checkpoints of a run, logged before they are written.
#include "runner/disk_plan.hpp"

#include "fixture.hpp"

namespace runner_test {

namespace detail = dl::detail;

TEST_CASE("states_kept: the history of the interval, latest, previous and best", "[runner]") {
  CHECK(detail::states_kept({.boundary = 30}) == 30);
  CHECK(detail::states_kept({.done = 10, .boundary = 30}) == 20);
  // 10, 20, 30; the best may lie between.
  CHECK(detail::states_kept({.boundary = 30, .interval = 10}) == 4);
  // The last save, of 34, is not a multiple of the interval.
  CHECK(detail::states_kept({.boundary = 34, .interval = 10}) == 5);
  // Two of the history, previous and best.
  CHECK(detail::states_kept({.boundary = 30, .keep_latest_k = 2}) == 4);
  CHECK(detail::states_kept({.boundary = 30, .keep_latest_k = 2, .keep_best_k = 3}) == 7);
  CHECK(detail::states_kept({.boundary = 2, .keep_latest_k = 5}) == 2);
  // Never by the interval: latest and best.
  CHECK(detail::states_kept({.boundary = 30, .interval = 0}) == 2);
}

TEST_CASE("optimizer_bytes: the size of the optimizer's state, now or after its first update", "[runner]") {
  const auto group = [](const char* key, const dl::State& value) {
    dl::State state;
    dl::State options;
    options[key] = value;
    state["state"] = dl::State::Map();
    state["param_groups"] = dl::State::List{options};
    return state;
  };
  const dl::State betas = dl::State::List{0.9, 0.999};
  CHECK(detail::optimizer_bytes(group("betas", betas), 100) == 200);
  auto amsgrad = group("betas", betas);
  amsgrad["param_groups"].list()[0]["amsgrad"] = true;
  CHECK(detail::optimizer_bytes(amsgrad, 100) == 300);
  CHECK(detail::optimizer_bytes(group("momentum", 0.9), 100) == 100);
  CHECK(detail::optimizer_bytes(group("momentum", 0.0), 100) == 0);
  CHECK_FALSE(detail::optimizer_bytes(group("rho", 0.9), 100));
  auto held = group("rho", 0.9);
  held["state"]["0"]["square"] = torch::zeros({3, 5});
  CHECK(detail::optimizer_bytes(held, 100) == 60);
}

TEST_CASE("TorchRunner: the log has the disk space of the checkpoints, and no line without checkpoints", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 3;
  std::string text;
  const auto train = [&] {
    TinyRunner runner(config);
    runner.logger().set_sink([&](dl::LogLevel, std::string_view line) { text += std::string(line) + "\n"; });
    runner.train();
  };
  SECTION("with checkpoints") {
    train();
    // (4 * 8 + 8 + 8 * 3 + 3) parameters of 4 bytes, three times with AdamW, and 20 KiB of others, in three states;
    // model.pth and model.safetensors.
    CHECK_THAT(text, ContainsSubstring("checkpoints: about 62.9 KiB by the end, 3 states of 20.8 KiB; "));
  }
  SECTION("nothing is recorded") {
    config.record = false;
    train();
    CHECK(count(text, "checkpoints: ") == 0);
  }
  SECTION("nothing is saved") {
    config.checkpoint.load_only = true;
    train();
    CHECK(count(text, "checkpoints: ") == 0);
  }
  SECTION("nothing is left to do") {
    train();
    text.clear();
    config.auto_resume = true;
    train();
    CHECK(count(text, "checkpoints: ") == 0);
  }
}

TEST_CASE("TorchRunner: a disk with too little space for the checkpoints is a warning at the start", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = std::int64_t{1} << 44;
  std::vector<std::string> warnings;
  TinyRunner runner(config);
  collect_warnings(runner, warnings);
  train_until(runner, 0);
  REQUIRE(warnings.size() == 1);
  const std::string& warning = warnings.front();
  // 2^44 states of 21,284 bytes.
  CHECK_THAT(warning, StartsWith("checkpoints: about 332.6 PiB by the end, 17592186044416 states of 20.8 "
                                 "KiB, and " +
                                 runner.workspace().checkpoint_dir().string() + " has "));
  CHECK_THAT(warning, EndsWith(" left; free some space, or set checkpoint.keep_latest_k or a longer "
                               "checkpoint.interval"));
  CHECK(runner.close());
}

}  // namespace runner_test
