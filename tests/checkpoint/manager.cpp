// What a manager leaves on disk, in which order, and after failures.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <set>
#include <thread>

#include <ATen/ATen.h>

#include <danling/checkpoint/file.hpp>
#include <danling/checkpoint/file_manager.hpp>
#include <danling/formats/file.hpp>

#include <support/child.hpp>
#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

using danling::CheckpointError;
using danling::CheckpointOptions;
using danling::CheckpointRequest;
using danling::FileCheckpointManager;

// A run whose whole state is a number and a model of one tensor.
struct CountingRun {
  std::int64_t step = 0;
  std::int64_t size = 4;

  State model() const {
    State out;
    out["model"]["weight"] = at::full({size}, static_cast<double>(step), at::kFloat);
    out["model"]["updates"] = at::scalar_tensor(step, at::kLong);
    out["ema"] = nullptr;
    return out;
  }
  State full() const {
    State out = model();
    out["state"]["step"] = step;
    return out;
  }
  FileCheckpointManager manager(CheckpointOptions options) {
    return FileCheckpointManager(
        std::move(options), [this] { return full(); }, [this] { return model(); });
  }
};

CheckpointRequest epoch_request(std::int64_t epoch) {
  CheckpointRequest out;
  out.epoch = epoch;
  return out;
}

CheckpointRequest last_request(std::int64_t epoch) {
  CheckpointRequest out = epoch_request(epoch);
  out.last_step = true;
  return out;
}

std::set<std::string> names_in(const std::filesystem::path& directory) {
  std::set<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    out.insert(entry.path().filename().string());
  }
  return out;
}

std::int64_t step_in(const std::filesystem::path& path) {
  return danling::load_file(path).at("state").at("step").integer();
}

ino_t inode_of(const std::filesystem::path& path) {
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_ino;
}

void damage(const std::filesystem::path& path) {
  // In place, so that every other name of the file sees it too.
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('x');
  REQUIRE(file.good());
}

using Names = std::set<std::string>;

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

TEST_CASE("FileCheckpointManager: two sound checkpoints in different files after two saves", "[checkpoint]") {
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

TEST_CASE("FileCheckpointManager: a damaged newest file is named and the one before is used", "[checkpoint]") {
  const danling_test::TempDir directory;
  CountingRun run;
  auto manager = run.manager({.directory = directory.path(), .interval = 1});
  CHECK_FALSE(manager.newest_sound());
  for (int epoch = 0; epoch < 3; ++epoch) {
    run.step = epoch + 1;
    manager.save_checkpoint(epoch_request(epoch));
  }
  const auto sound = manager.newest_sound();
  REQUIRE(sound);
  CHECK(sound->path == directory / "latest.pth");
  CHECK(sound->state.at("state").at("step").integer() == 3);
  CHECK(sound->skipped.empty());

  damage(directory / "latest.pth");
  const std::string reason = error_of<CheckpointError>([&] { manager.load_checkpoint(directory / "latest.pth"); });
  CHECK(reason == danling::concat("[checkpoint.read] expected a complete zip archive, got ",
                                  std::filesystem::file_size(directory / "latest.pth"),
                                  " bytes without an end: the file was cut off (file '",
                                  (directory / "latest.pth").string(), "')"));
  const auto older = manager.newest_sound();
  REQUIRE(older);
  CHECK(older->path == directory / "previous.pth");
  CHECK(older->state.at("state").at("step").integer() == 2);
  REQUIRE(older->skipped.size() == 1);
  CHECK(older->skipped[0].path == directory / "latest.pth");
  CHECK(older->skipped[0].reason == reason);

  // The damaged file must not push out the sound one that the run went on from.
  CHECK(manager.close());
  auto resumed = run.manager({.directory = directory.path(), .interval = 1});
  run.step = 4;
  resumed.save_checkpoint(epoch_request(3));
  CHECK(step_in(directory / "latest.pth") == 4);
  CHECK(step_in(directory / "previous.pth") == 2);
}

TEST_CASE("FileCheckpointManager: history is tried after latest and previous; without any sound one all are told",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  CountingRun run;
  auto manager = run.manager({.directory = directory.path(), .interval = 1});
  for (int epoch = 0; epoch < 3; ++epoch) {
    run.step = epoch + 1;
    manager.save_checkpoint(epoch_request(epoch));
  }
  damage(directory / "latest.pth");
  damage(directory / "previous.pth");
  const auto sound = manager.newest_sound();
  REQUIRE(sound);
  CHECK(sound->path == directory / "ckpt-e000001.pth");
  CHECK(sound->skipped.size() == 2);  // ckpt-e000003 and ckpt-e000002 are names of the same two files

  damage(directory / "ckpt-e000001.pth");
  const std::string text = error_of<CheckpointError>([&] { manager.newest_sound(); });
  CHECK_THAT(text, ContainsSubstring("[checkpoint.newest] expected a sound checkpoint in '" +
                                     directory.path().string() + "', got 3 that cannot be read:\n  [checkpoint.read]"));
  CHECK_THAT(text, ContainsSubstring("ckpt-e000001.pth"));
}

TEST_CASE("FileCheckpointManager: a failing save leaves earlier checkpoints whole and is counted", "[checkpoint]") {
  const danling_test::TempDir directory;
  CountingRun run;
  auto manager = run.manager({.directory = directory.path(), .interval = 1});
  run.step = 1;
  manager.save_checkpoint(epoch_request(0));
  run.step = 2;
  manager.save_checkpoint(epoch_request(1));
  const auto before = names_in(directory.path());

  // A file system that is full: the kernel refuses to let files grow beyond the limit.
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  rlimit limit = old_limit;
  limit.rlim_cur = 1 << 20;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  run.step = 3;
  run.size = 1 << 20;
  const std::string text = error_of<CheckpointError>([&] { manager.save_checkpoint(epoch_request(2)); });
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  std::signal(SIGXFSZ, old_handler);

  CHECK(text == "[checkpoint.write] expected to write '" + (directory / "latest.pth").string() +
                    "', got errno 27 (File too large)");
  CHECK(names_in(directory.path()) == before);
  CHECK(step_in(directory / "latest.pth") == 2);
  CHECK(step_in(directory / "previous.pth") == 1);
  CHECK(manager.checkpoint_health().error_count == 1);
  CHECK(manager.checkpoint_health().first_error == text);
  CHECK(manager.checkpoint_health().last_failed_target == "ckpt-e000003");

  manager.save_checkpoint(epoch_request(2));
  CHECK(step_in(directory / "latest.pth") == 3);
  CHECK(manager.checkpoint_health().error_count == 1);
}

// A run that dies between the names goes on from `latest`: what is named after it would never be made.
TEST_CASE("FileCheckpointManager: history and best have their names, and old ones are gone, before latest has",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  std::filesystem::create_directories(directory / "latest.pth" / "in the way");
  CountingRun run;
  run.step = 1;
  auto manager = run.manager({.directory = directory.path(), .interval = 1, .keep_latest_k = 1});
  auto request = epoch_request(0);
  request.is_best = true;
  const std::string text = error_of<CheckpointError>([&] { manager.save_checkpoint(request); });
  CHECK(text == "[checkpoint.write] expected to rename the new file to '" + (directory / "latest.pth").string() +
                    "', got errno 21 (Is a directory)");
  CHECK(step_in(directory / "ckpt-e000001.pth") == 1);
  CHECK(step_in(directory / "best.pth") == 1);
  CHECK_THROWS_AS(manager.save_checkpoint(epoch_request(1)), CheckpointError);
  CHECK_FALSE(std::filesystem::exists(directory / "ckpt-e000001.pth"));
}

TEST_CASE("FileCheckpointManager: a state that cannot be written is named by its key and changes nothing",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  State state = State::Map{{"step", 1}};
  FileCheckpointManager manager(
      {.directory = directory.path(), .interval = 1}, [&] { return state; }, [&] { return state; });
  manager.save_checkpoint(epoch_request(0));
  state["model"]["weight"] = at::eye(2).to_sparse();
  CHECK(error_of<CheckpointError>([&] { manager.save_checkpoint(epoch_request(1)); }) ==
        "[checkpoint.write] expected a dense tensor, got layout sparse and dtype Float on cpu (key 'model.weight')");
  CHECK(danling::load_file(directory / "latest.pth").at("step").integer() == 1);
  CHECK(names_in(directory.path()) == Names{"latest.pth", "ckpt-e000001.pth"});
  state["model"]["weight"] = at::Tensor();
  CHECK(error_of<CheckpointError>([&] { manager.save_checkpoint(epoch_request(1)); }) ==
        "[checkpoint.write] expected a dense tensor, got an undefined one (key 'model.weight')");
}

TEST_CASE("FileCheckpointManager: a directory that cannot be made is an error, not a crash", "[checkpoint]") {
  const danling_test::TempDir directory;
  danling_test::write_file(directory / "file", "in the way");
  CountingRun run;
  auto manager = run.manager({.directory = directory / "file" / "checkpoints", .interval = 1});
  const std::string text = error_of<CheckpointError>([&] { manager.save_checkpoint(epoch_request(0)); });
  CHECK_THAT(text, ContainsSubstring("[checkpoint.write] expected to write checkpoint 'ckpt-e000001', got "));
  CHECK_THAT(text, ContainsSubstring("Not a directory"));
  CHECK(manager.checkpoint_health().error_count == 1);
}

TEST_CASE("FileCheckpointManager: temporaries of a process that died are removed, those of a living one are not",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  danling_test::write_file(directory / ".latest.pth.tmp-1-0", "half a checkpoint");
  const danling::formats::AtomicFile living(directory / "other.pth");
  CountingRun run;
  auto manager = run.manager({.directory = directory.path(), .interval = 1});
  manager.save_checkpoint(epoch_request(0));
  CHECK(names_in(directory.path()) == Names{"latest.pth", "ckpt-e000001.pth", living.temporary().filename().string()});
}

TEST_CASE("FileCheckpointManager: killed at any moment, two sound checkpoints of neighbouring saves remain",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  for (int round = 0; round < 20; ++round) {
    const auto where = directory / std::to_string(round);
    {
      danling_test::Child child([&](const auto& ready) {
        CountingRun run;
        run.size = 20000;
        auto manager = run.manager({.directory = where, .interval = 1, .keep_latest_k = 1});
        for (std::int64_t epoch = 0;; ++epoch) {
          run.step = epoch;
          manager.save_checkpoint(epoch_request(epoch));
          if (epoch == 1) {
            ready();
          }
        }
        return 0;
      });
      child.wait_ready();
      ::usleep(static_cast<useconds_t>(700 * round));
      child.send(SIGKILL);
      CHECK(child.wait() == -SIGKILL);
    }
    const auto latest = step_in(where / "latest.pth");
    CHECK(inode_of(where / "latest.pth") != inode_of(where / "previous.pth"));
    // Between the two renames `previous` is still the one before the one before.
    const auto previous = step_in(where / "previous.pth");
    CHECK((previous == latest - 1 || previous == latest - 2));

    // The next process goes on and clears what the killed one left.
    CountingRun run;
    auto manager = run.manager({.directory = where, .interval = 1, .keep_latest_k = 1});
    REQUIRE(manager.newest_sound());
    CHECK(manager.newest_sound()->state.at("state").at("step").integer() == latest);
    run.step = latest + 1;
    manager.save_checkpoint(epoch_request(latest + 1));
    CHECK(step_in(where / "previous.pth") == latest);
    for (const auto& name : names_in(where)) {
      CHECK(name.front() != '.');
    }
  }
}

// As a runner writes them.
State run_state(std::int64_t epoch, std::int64_t step) {
  State out;
  out["state"]["train"]["epoch"] = epoch;
  out["state"]["train"]["global_step"] = step;
  out["state"]["train"]["micro_step"] = step;
  out["state"]["step"] = step;
  out["model"]["weight"] = at::full({4}, static_cast<double>(step), at::kFloat);
  return out;
}

TEST_CASE("FileCheckpointManager: the fallback goes by the counters in the files, not by their times", "[checkpoint]") {
  const danling_test::TempDir directory;
  State state;
  FileCheckpointManager manager(
      {.directory = directory.path(), .interval = 4}, [&] { return state; }, [&] { return state; });
  for (std::int64_t epoch = 0; epoch < 14; ++epoch) {
    state = run_state(epoch + 1, 10 * (epoch + 1));
    auto request = epoch_request(epoch);
    request.is_best = epoch == 9;  // off the interval
    request.force = epoch == 12;   // 13, which becomes `previous`
    request.last_step = epoch == 13;
    manager.save_checkpoint(request);
  }
  const auto now = std::filesystem::file_time_type::clock::now();
  const std::vector<std::pair<std::string, std::int64_t>> order = {{"latest", 140},       {"previous", 130},
                                                                   {"ckpt-e000012", 120}, {"best", 100},
                                                                   {"ckpt-e000008", 80},  {"ckpt-e000004", 40}};
  int hours = 0;
  for (const auto& [name, step] : order) {
    std::filesystem::last_write_time(manager.path_of(name), now - std::chrono::hours(100 - hours++));
  }
  for (const auto& [name, step] : order) {
    const auto sound = manager.newest_sound();
    REQUIRE(sound);
    CHECK(sound->path == manager.path_of(name));
    CHECK(sound->state.at("state").at("step").integer() == step);
    damage(manager.path_of(name));
  }
}

TEST_CASE("FileCheckpointManager: a best state that could not be saved is saved with the next one", "[checkpoint]") {
  const danling_test::TempDir directory;
  CountingRun run;
  CheckpointOptions options{.directory = directory.path(), .interval = 1};
  SECTION("synchronous") {}
  SECTION("asynchronous") { options.async_mode = danling::AsyncMode::async; }
  auto manager = run.manager(options);
  run.step = 1;
  auto first = epoch_request(0);
  first.is_best = true;
  manager.save_checkpoint(first);
  CHECK(manager.close());
  auto second = run.manager(options);
  // Nothing can take the names of the best and of the history.
  std::filesystem::remove(manager.path_of("best"));
  std::filesystem::create_directories(directory / "best.pth" / "in the way");
  std::filesystem::create_directories(directory / "ckpt-e000002.pth" / "in the way");
  run.step = 2;
  auto request = epoch_request(1);
  request.is_best = true;
  try {
    second.save_checkpoint(request);
    while (!second.has_failure()) {
      ::usleep(1000);
    }
    second.throw_failure();
    FAIL("expected an error");
  } catch (const CheckpointError& error) {
    CHECK(std::string(error.what()) == "[checkpoint.write] expected to rename the new file to '" +
                                           (directory / "ckpt-e000002.pth").string() +
                                           "', got errno 21 (Is a directory)");
  }
  CHECK(second.checkpoint_health().failing.contains("best"));
  std::filesystem::remove_all(directory / "best.pth");
  std::filesystem::remove_all(directory / "ckpt-e000002.pth");
  run.step = 3;
  second.save_checkpoint(epoch_request(2));
  CHECK(second.wait());
  CHECK(second.checkpoint_health().failing.empty());
  CHECK(step_in(directory / "best.pth") == 2);
  CHECK(step_in(directory / "ckpt-e000002.pth") == 2);
  CHECK(step_in(directory / "latest.pth") == 3);
  CHECK(step_in(directory / "ckpt-e000003.pth") == 3);
}

TEST_CASE("FileCheckpointManager: a checkpoint of the history that is saved late takes its place among newer ones",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  CountingRun run;
  auto manager = run.manager({.directory = directory.path(), .interval = 1, .keep_latest_k = 2});
  const auto save = [&](std::int64_t epoch) {
    run.step = epoch;
    manager.save_checkpoint(epoch_request(epoch - 1));
  };
  save(1);
  save(2);
  std::filesystem::create_directories(directory / "ckpt-e000003.pth" / "in the way");
  CHECK_THROWS_AS(save(3), CheckpointError);
  SECTION("before the next") {
    std::filesystem::remove_all(directory / "ckpt-e000003.pth");
    save(4);
    CHECK(names_in(directory.path()) ==
          std::set<std::string>{"latest.pth", "previous.pth", "ckpt-e000003.pth", "ckpt-e000004.pth"});
    CHECK(step_in(directory / "ckpt-e000003.pth") == 3);
  }
  SECTION("behind the next") {
    save(4);
    std::filesystem::remove_all(directory / "ckpt-e000003.pth");
    save(5);
    CHECK(names_in(directory.path()) ==
          std::set<std::string>{"latest.pth", "previous.pth", "ckpt-e000004.pth", "ckpt-e000005.pth"});
  }
  CHECK(manager.close());
  CHECK(manager.checkpoint_health().failing.empty());
}

TEST_CASE("FileCheckpointManager: a last save whose best name failed is made good when the disk is waited for",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  CountingRun run;
  run.step = 1;
  auto manager = run.manager({.directory = directory.path(), .interval = 1, .async_mode = danling::AsyncMode::async});
  std::filesystem::create_directories(directory / "best.pth" / "in the way");
  auto request = last_request(0);
  request.is_best = true;
  manager.save_checkpoint(request);
  while (!manager.has_failure()) {
    ::usleep(1000);
  }
  std::filesystem::remove_all(directory / "best.pth");
  CHECK_THROWS_AS(manager.wait(), CheckpointError);  // it is told all the same
  CHECK(manager.checkpoint_health().failing.empty());
  CHECK(step_in(directory / "best.pth") == 1);
  CHECK(manager.close());
}

TEST_CASE("FileCheckpointManager: a directory that is removed under a save is made anew by that save", "[checkpoint]") {
  const danling_test::TempDir directory;
  const auto where = directory / "checkpoints";
  CountingRun run;
  run.size = 4 << 20;
  auto manager = run.manager({.directory = where, .interval = 1});
  manager.save_checkpoint(epoch_request(0));
  const std::string notice = "[checkpoint.write] expected the directory '" + where.string() +
                             "', got none: it was removed, and the earlier checkpoints in it are gone; made anew";
  for (int round = 0; round < 10; ++round) {
    std::thread remover([&] {
      const auto writes = [&] {
        std::error_code gone;
        for (const auto& entry : std::filesystem::directory_iterator(where, gone)) {
          if (entry.path().filename().string().starts_with('.')) {
            return true;
          }
        }
        return false;
      };
      for (int i = 0; i < 1000 && !writes(); ++i) {
        std::this_thread::yield();
      }
      std::error_code late;
      std::filesystem::rename(where, directory / std::to_string(round), late);
    });
    manager.save_checkpoint(epoch_request(round + 1));
    remover.join();
    const auto health = manager.checkpoint_health();
    CHECK(health.failing.empty());
    CHECK(health.error_count == 0);
    const bool noticed = manager.has_notice();
    CHECK(manager.take_notice() == (noticed ? notice : ""));
  }
}

TEST_CASE("FileCheckpointManager: a directory that was removed is made anew, and the loss is told", "[checkpoint]") {
  const danling_test::TempDir directory;
  const auto where = directory / "checkpoints";
  CountingRun run;
  auto manager = run.manager({.directory = where, .interval = 1, .keep_latest_k = 2});
  for (int epoch = 0; epoch < 5; ++epoch) {
    run.step = epoch + 1;
    if (epoch == 2) {
      std::filesystem::remove_all(where);
    }
    manager.save_checkpoint(epoch_request(epoch));
    CHECK_FALSE(manager.has_failure());
    CHECK(manager.has_notice() == (epoch == 2));
    if (epoch == 2) {
      CHECK(manager.take_notice() ==
            "[checkpoint.write] expected the directory '" + where.string() +
                "', got none: it was removed, and the earlier checkpoints in it are gone; made anew");
      CHECK(names_in(where) == Names{"latest.pth", "ckpt-e000003.pth"});
      // Another manager is still kept out.
      auto other = run.manager({.directory = where, .interval = 1});
      CHECK_THROWS_AS(other.save_checkpoint(epoch_request(0)), danling::StateError);
    }
  }
  CHECK(manager.checkpoint_health().failing.empty());
  CHECK(manager.checkpoint_health().error_count == 0);
  CHECK(names_in(where) == Names{"latest.pth", "previous.pth", "ckpt-e000004.pth", "ckpt-e000005.pth"});
}

TEST_CASE("FileCheckpointManager: a directory that was removed is told too where an earlier save is made good first",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  const auto where = directory / "checkpoints";
  CountingRun run;
  auto manager = run.manager({.directory = where, .interval = 1});
  run.step = 1;
  manager.save_checkpoint(epoch_request(0));
  std::filesystem::create_directories(where / "ckpt-e000002.pth" / "in the way");
  run.step = 2;
  CHECK_THROWS_AS(manager.save_checkpoint(epoch_request(1)), CheckpointError);
  std::filesystem::remove_all(where);
  run.step = 3;
  manager.save_checkpoint(epoch_request(2));
  CHECK(names_in(where) == std::set<std::string>{"latest.pth", "ckpt-e000002.pth", "ckpt-e000003.pth"});
  CHECK(manager.take_notice() == "[checkpoint.write] expected the directory '" + where.string() +
                                     "', got none: it was removed, and the earlier checkpoints in it are gone; made "
                                     "anew");
  CHECK_FALSE(manager.has_notice());
  CHECK(manager.checkpoint_health().error_count == 1);
}

TEST_CASE("FileCheckpointManager: where another took the place of a removed directory, no save goes into it",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  const auto where = directory / "checkpoints";
  CountingRun run;
  auto manager = run.manager({.directory = where, .interval = 1});
  manager.save_checkpoint(epoch_request(0));
  std::filesystem::remove_all(where);
  CountingRun other_run;
  other_run.step = 7;
  auto other = other_run.manager({.directory = where, .interval = 1});
  other.save_checkpoint(epoch_request(0));
  for (int epoch = 1; epoch < 3; ++epoch) {
    CHECK(error_of<CheckpointError>([&] { manager.save_checkpoint(epoch_request(epoch)); }) ==
          "[checkpoint.lock] expected '" + where.string() +
              "' to be free, got another manager that saves into it; close that one, or save elsewhere");
  }
  CHECK(names_in(where) == std::set<std::string>{"latest.pth", "ckpt-e000001.pth"});
  CHECK(step_in(where / "latest.pth") == 7);
}

}  // namespace
