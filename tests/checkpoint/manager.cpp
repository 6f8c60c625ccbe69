// Which files a manager writes, under which names, and what is in them.
#include <filesystem>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include "counting_run.hpp"

namespace checkpoint_test {

TEST_CASE("should_persist and history_name: the interval counts epochs or steps done", "[checkpoint]") {
  CheckpointRequest request = epoch_request(11);
  CHECK(danling::should_persist(request, 1));
  CHECK(danling::should_persist(request, 4));
  CHECK_FALSE(danling::should_persist(request, 5));
  CHECK_FALSE(danling::should_persist(request, 0));
  CHECK(danling::history_name(request, 4) == "ckpt-e000012");
  CHECK(danling::history_name(request, 5) == std::nullopt);

  request.step_mode = true;
  CHECK_FALSE(danling::should_persist(request, 1));  // no step is done yet
  request.global_step = 12000;
  CHECK(danling::history_name(request, 500) == "ckpt-s000000012000");
  CHECK_FALSE(danling::should_persist(request, 7));

  // Forced saves and the last step are due at any time, but have a place in the history only on the interval.
  request.force = true;
  CHECK(danling::should_persist(request, 7));
  CHECK(danling::history_name(request, 7) == std::nullopt);
  request.force = false;
  request.last_step = true;
  CHECK(danling::should_persist(request, 0));
}

TEST_CASE("FileCheckpointManager: saves on the interval, keeps the file before and the newest history",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  CountingRun run;
  auto manager = run.manager({.directory = directory / "checkpoints", .interval = 2, .keep_latest_k = 2});
  CHECK_FALSE(std::filesystem::exists(directory / "checkpoints"));
  for (int epoch = 0; epoch < 8; ++epoch) {
    run.step = epoch + 1;
    manager.save_checkpoint(epoch_request(epoch));
  }
  CHECK(names_in(directory / "checkpoints") ==
        Names{"latest.pth", "previous.pth", "ckpt-e000006.pth", "ckpt-e000008.pth"});
  CHECK(step_in(manager.path_of("latest")) == 8);
  CHECK(step_in(manager.path_of("previous")) == 6);
  CHECK(step_in(manager.path_of("ckpt-e000006")) == 6);
  CHECK(manager.checkpoint_health().error_count == 0);
  CHECK(manager.checkpoint_health().last_successful_target == "ckpt-e000008");
  CHECK(manager.checkpoint_health().last_successful_aliases ==
        std::vector<std::string>{"latest", "ckpt-e000008", "previous"});
}

TEST_CASE("FileCheckpointManager: needs a directory", "[checkpoint]") {
  const auto state = [] { return State(); };
  CHECK(
      danling_test::error_of<danling::ConfigError>([&] { danling::FileCheckpointManager manager({}, state, state); }) ==
      "[checkpoint.options] expected a directory for the checkpoints, got none; set CheckpointOptions::directory");
}

TEST_CASE("FileCheckpointManager: two valid checkpoints in different files after two saves", "[checkpoint]") {
  const danling_test::TempDir directory;
  CountingRun run;
  auto manager = run.manager({.directory = directory.path(), .interval = 1, .keep_latest_k = 1});
  for (int epoch = 0; epoch < 3; ++epoch) {
    run.step = epoch + 1;
    CheckpointRequest request = epoch_request(epoch);
    request.is_best = true;
    manager.save_checkpoint(request);
  }
  // Every name but one is the newest file: without `previous` a single bad sector would lose the run.
  CHECK(inode_of(directory / "latest.pth") == inode_of(directory / "best.pth"));
  CHECK(inode_of(directory / "latest.pth") == inode_of(directory / "ckpt-e000003.pth"));
  CHECK(inode_of(directory / "latest.pth") != inode_of(directory / "previous.pth"));
  CHECK(step_in(directory / "latest.pth") == 3);
  CHECK(step_in(directory / "previous.pth") == 2);
}

TEST_CASE("FileCheckpointManager: best follows the score, also off the interval", "[checkpoint]") {
  const danling_test::TempDir directory;
  CountingRun run;
  auto manager = run.manager({.directory = directory.path(), .interval = 100});
  const std::vector<bool> best = {false, true, false};
  for (int epoch = 0; epoch < 3; ++epoch) {
    run.step = epoch + 1;
    CheckpointRequest request = epoch_request(epoch);
    request.is_best = best[static_cast<std::size_t>(epoch)];
    manager.save_checkpoint(request);
  }
  CHECK(names_in(directory.path()) == Names{"latest.pth", "best.pth"});
  CHECK(step_in(directory / "best.pth") == 2);

  CheckpointRequest request = epoch_request(3);
  request.is_best = true;
  request.save_best = false;
  run.step = 4;
  manager.save_checkpoint(request);
  CHECK(step_in(directory / "best.pth") == 2);
}

TEST_CASE("FileCheckpointManager: the last step saves the model alone too, with the same bytes each time",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  CountingRun run;
  run.step = 5;
  for (const char* name : {"a", "b"}) {
    run.manager({.directory = directory / name}).save_checkpoint(last_request(4));
    CHECK(names_in(directory / name) == Names{"latest.pth", "model.pth"});
  }
  const State model = danling::load_file(directory / "a" / "model.pth");
  CHECK(danling::first_difference(model, run.model()) == "");
  CHECK(danling_test::read_file(directory / "a" / "model.pth") ==
        danling_test::read_file(directory / "b" / "model.pth"));
}

TEST_CASE("FileCheckpointManager: last_save_model_only makes the last save a model, other names alike",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  CountingRun run;
  auto manager = run.manager({.directory = directory.path(), .interval = 1, .last_save_model_only = true});
  run.step = 1;
  manager.save_checkpoint(epoch_request(0));
  run.step = 2;
  manager.save_checkpoint(last_request(1));
  CHECK(danling::load_file(directory / "latest.pth").find("state") == nullptr);
  CHECK(inode_of(directory / "latest.pth") == inode_of(directory / "model.pth"));
  CHECK(step_in(directory / "previous.pth") == 1);

  CheckpointRequest seed = last_request(0);
  seed.name = "seed";
  seed.force = true;
  manager.save_checkpoint(seed);
  CHECK(danling::load_file(directory / "seed.pth").find("state") == nullptr);
  CHECK(std::filesystem::exists(directory / "seed.pth"));
}

TEST_CASE("FileCheckpointManager: export_dtype casts floating-point tensors of models only", "[checkpoint]") {
  const danling_test::TempDir directory;
  CountingRun run;
  run.step = 3;
  auto manager = run.manager({.directory = directory.path(), .export_dtype = "BF16"});
  manager.save_checkpoint(last_request(0));
  const State model = danling::load_file(directory / "model.pth").at("model");
  CHECK(model.at("weight").tensor().scalar_type() == at::kBFloat16);
  CHECK(model.at("weight").tensor().to(at::kFloat).equal(at::full({4}, 3.0)));
  CHECK(model.at("updates").tensor().scalar_type() == at::kLong);
  CHECK(danling::load_file(directory / "latest.pth").at("model").at("weight").tensor().scalar_type() == at::kFloat);
  for (const char* alias : {"fp16", "half", "float16"}) {
    CHECK(danling::export_state(run.model(), alias).at("model").at("weight").tensor().scalar_type() == at::kHalf);
  }
  CHECK(
      error_of<danling::ConfigError>([&] { run.manager({.directory = directory.path(), .export_dtype = "int8"}); }) ==
      "[checkpoint.export_dtype] expected one of bf16, bfloat16, double, float, float16, float32, float64, fp16, fp32, "
      "fp64, half, got 'int8'");
  CHECK(error_of<danling::ConfigError>([&] { run.manager({.directory = directory.path(), .keep_latest_k = -1}); }) ==
        "[checkpoint.keep_latest_k] expected 0 or more, got -1");
}

TEST_CASE("export_state: tied weights stay one tensor", "[checkpoint]") {
  State state;
  const at::Tensor weight = at::ones({2, 2});
  state["encoder"] = weight;
  state["decoder"] = weight.alias();
  const State cast = danling::export_state(state, "float16");
  CHECK(cast.at("encoder").tensor().is_alias_of(cast.at("decoder").tensor()));
}

TEST_CASE("FileCheckpointManager: load_only saves nothing, and nothing is saved after close", "[checkpoint]") {
  const danling_test::TempDir directory;
  CountingRun run;
  auto reader = run.manager({.directory = directory / "none", .interval = 1, .load_only = true});
  reader.save_checkpoint(last_request(0));
  reader.save_model_checkpoint();
  CHECK_FALSE(std::filesystem::exists(directory / "none"));

  auto manager = run.manager({.directory = directory.path(), .interval = 1});
  CHECK(manager.close());
  CHECK(manager.close());
  CHECK(error_of<danling::StateError>([&] { manager.save_checkpoint(epoch_request(0)); }) ==
        "[checkpoint.save] expected no save after close, got one");
}

TEST_CASE("FileCheckpointManager: retention goes on where an earlier process stopped", "[checkpoint]") {
  const danling_test::TempDir directory;
  CountingRun run;
  for (int epoch = 0; epoch < 5; ++epoch) {
    // A new manager each time, as after a restart. The third one resumed from the first checkpoint: numbers repeat.
    run.manager({.directory = directory.path(), .interval = 1, .keep_latest_k = 2})
        .save_checkpoint(epoch_request(epoch < 2 ? epoch + 8 : epoch));
  }
  CHECK(names_in(directory.path()) == Names{"latest.pth", "previous.pth", "ckpt-e000004.pth", "ckpt-e000005.pth"});
}

}  // namespace checkpoint_test
