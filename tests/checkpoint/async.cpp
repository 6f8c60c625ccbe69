// Saves on a thread of their own: what they write, what is dropped, what waits, how failures are told.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <danling/checkpoint/file.hpp>
#include <danling/checkpoint/file_manager.hpp>
#include <danling/checkpoint/weights.hpp>

#include <checkpoint/save_thread.hpp>
#include <checkpoint/staging.hpp>

#include <support/child.hpp>
#include <support/error.hpp>
#include <support/file_size_limit.hpp>
#include <support/temp_dir.hpp>

namespace {

using danling::State;
using danling_test::error_of;

State counted_state(std::int64_t step, std::int64_t size = 4) {
  State out;
  out["model"]["weight"] = at::full({size}, static_cast<double>(step), at::kFloat);
  out["state"]["step"] = step;
  return out;
}

// A save that the test lets go on by hand.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void wait_for_arrival() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ > 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int arrived_ = 0;
};

std::int64_t saved_step(const std::filesystem::path& path) {
  return danling::load_file(path).at("state").at("step").integer();
}

TEST_CASE("StagingBuffer: a copy keeps values, aliases, views and kinds, and does not see later changes",
          "[checkpoint]") {
  State state;
  const at::Tensor base = at::arange(12, at::kFloat).reshape({3, 4});
  state["base"] = base;
  state["column"] = base.select(1, 2);
  state["transposed"] = base.t();
  state["scalar"] = at::scalar_tensor(3, at::kLong);
  state["empty"] = at::empty({0, 5}, at::kHalf);
  state["conjugate"] = at::conj(at::complex(at::ones({2}), at::ones({2})));
  state["trained"] = at::ones({3}).set_requires_grad(true);
  state["list"] = State::List{1, 2.5, "text", at::full({2}, 7, at::kByte), State::Tuple{{true, nullptr}}};
  const State expected = danling::clone(state);

  danling::StagingBuffer buffer;
  const State copy = buffer.stage(state, /*pinned=*/false);
  {
    const c10::NoGradGuard no_grad;
    base.fill_(-1);
    state["trained"].tensor().fill_(-1);
    state["scalar"].tensor().fill_(-1);
  }
  CHECK(danling::first_difference(copy, expected) == "");
  CHECK(copy.at("column").tensor().is_alias_of(copy.at("base").tensor()));
  CHECK(copy.at("column").tensor().strides().vec() == std::vector<std::int64_t>{4});
  CHECK(copy.at("transposed").tensor().is_alias_of(copy.at("base").tensor()));
  CHECK_FALSE(copy.at("scalar").tensor().is_alias_of(copy.at("base").tensor()));
  CHECK(copy.at("conjugate").tensor().is_conj());
  CHECK(copy.at("trained").tensor().requires_grad());
  CHECK_FALSE(copy.at("base").tensor().is_alias_of(base));
}

TEST_CASE("StagingBuffer: the same memory serves states of the same size, and a larger one", "[checkpoint]") {
  danling::StagingBuffer buffer;
  const void* first = buffer.stage(counted_state(1, 1000), false).at("model").at("weight").tensor().const_data_ptr();
  const void* second = buffer.stage(counted_state(2, 1000), false).at("model").at("weight").tensor().const_data_ptr();
  CHECK(first == second);
  const State larger = buffer.stage(counted_state(3, 100000), false);
  CHECK(larger.at("model").at("weight").tensor().equal(at::full({100000}, 3.0)));
  const State smaller = buffer.stage(counted_state(4, 10), false);
  CHECK(smaller.at("model").at("weight").tensor().equal(at::full({10}, 4.0)));
}

TEST_CASE("StagingBuffer: a copy that is split over threads is whole", "[checkpoint]") {
#ifdef __SANITIZE_THREAD__
  WARN("skipped: the thread sanitizer does not see how OpenMP's runtime orders threads");
  return;
#endif
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  danling::State::Map tensors;
  for (const std::int64_t size : {1, 3'000'001, 5, 700'000}) {
    tensors["t" + std::to_string(size)] = at::arange(size, at::kInt);
  }
  danling::StagingBuffer buffer;
  const State copy = buffer.stage(State(tensors), /*pinned=*/false);
  for (const auto& [name, tensor] : tensors) {
    CHECK(copy.at(name).tensor().equal(tensor.tensor()));
  }
  at::set_num_threads(before);
}

TEST_CASE("SaveThread: a waiting save that nobody relies on gives way to a newer one", "[checkpoint]") {
  danling::SaveThread thread;
  Gate gate;
  std::vector<std::int64_t> written;
  const auto work = [&](const State& state, const std::exception_ptr&) {
    if (written.empty()) {
      gate.pass();
    }
    written.push_back(state.at("state").at("step").integer());
  };
  for (std::int64_t step = 1; step <= 4; ++step) {
    thread.save(counted_state(step), false, /*reliable=*/false, work);
    if (step == 1) {
      gate.wait_for_arrival();
    }
  }
  CHECK_FALSE(thread.wait(0.01));
  gate.open();
  CHECK(thread.wait(std::nullopt));
  CHECK(written == std::vector<std::int64_t>{1, 4});
}

TEST_CASE("SaveThread: a waiting save that is relied on is written, and the next one waits for its turn",
          "[checkpoint]") {
  danling::SaveThread thread;
  Gate gate;
  std::vector<std::int64_t> written;
  const auto work = [&](const State& state, const std::exception_ptr&) {
    if (written.empty()) {
      gate.pass();
    }
    written.push_back(state.at("state").at("step").integer());
  };
  thread.save(counted_state(1), false, true, work);
  gate.wait_for_arrival();
  thread.save(counted_state(2), false, true, work);
  std::atomic<bool> returned{false};
  std::thread third([&] {
    thread.save(counted_state(3), false, false, work);
    returned = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK_FALSE(returned);
  gate.open();
  third.join();
  CHECK(thread.wait(std::nullopt));
  CHECK(written == std::vector<std::int64_t>{1, 2, 3});
}

TEST_CASE("FileCheckpointManager: asynchronous saves write what synchronous ones write, byte for byte",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  std::int64_t step = 0;
  const at::Tensor weight = at::zeros({1000});
  const auto state = [&] {
    State out = counted_state(step);
    out["model"]["weight"] = weight;
    return out;
  };
  for (const auto mode : {"disabled", "async", "async_with_pinned_mem"}) {
    danling::FileCheckpointManager manager(
        {.directory = directory / mode, .interval = 1, .keep_latest_k = 2, .async_mode = mode}, state, state);
    for (step = 1; step <= 20; ++step) {
      weight.fill_(static_cast<double>(step));
      danling::CheckpointRequest request;
      request.epoch = step - 1;
      request.is_best = step == 7;
      request.last_step = step == 20;
      manager.save_checkpoint(request);
      weight.fill_(-1);  // what training does meanwhile
    }
    CHECK(manager.close());
    CHECK(manager.checkpoint_health().error_count == 0);
  }
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory / "disabled")) {
    const auto name = entry.path().filename();
    CAPTURE(name.string());
    CHECK(danling_test::read_file(directory / "async" / name) == danling_test::read_file(entry.path()));
    CHECK(danling_test::read_file(directory / "async_with_pinned_mem" / name) == danling_test::read_file(entry.path()));
    ++files;
  }
  CHECK(files == 6);  // latest, previous, best, model and two of the history
  CHECK(saved_step(directory / "async" / "best.pth") == 7);
  CHECK(danling::load_file(directory / "async" / "ckpt-e000019.pth")
            .at("model")
            .at("weight")
            .tensor()
            .equal(at::full({1000}, 19.0)));
}

TEST_CASE("FileCheckpointManager: the weights of a model and of its EMA are exported as safetensors too",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  State model;
  model["model"]["layer"]["weight"] = at::arange(6, at::kFloat).reshape({2, 3});
  model["ema"]["layer.weight"] = at::ones({2, 3});
  const auto state = [&] { return model; };
  const auto save = [&](const std::string& name, std::optional<std::string> dtype) {
    danling::FileCheckpointManager manager({.directory = directory / name,
                                            .export_dtype = std::move(dtype),
                                            .export_safetensors = true,
                                            .async_mode = "async"},
                                           state, state);
    manager.save_checkpoint({.last_step = true});
    CHECK(manager.close());
    CHECK(manager.checkpoint_health().error_count == 0);
    return manager.checkpoint_health().last_successful_aliases;
  };
  CHECK(save("plain", std::nullopt) == std::vector<std::string>{"model", "model.safetensors", "model-ema.safetensors"});
  const State weights = danling::load_safetensors(directory / "plain" / "model.safetensors");
  CHECK(weights.map().size() == 1);
  CHECK(weights.at("layer.weight").tensor().equal(model.at("model").at("layer").at("weight").tensor()));
  CHECK(danling::load_safetensors(directory / "plain" / "model-ema.safetensors")
            .at("layer.weight")
            .tensor()
            .equal(at::ones({2, 3})));
  save("half", "fp16");
  CHECK(danling::load_safetensors(directory / "half" / "model.safetensors").at("layer.weight").tensor().scalar_type() ==
        at::kHalf);

  model["model"]["phase"] = at::ones({2}, at::kComplexDouble);  // a type that safetensors does not have
  CHECK(save("complex", std::nullopt) == std::vector<std::string>{"model", "model-ema.safetensors"});
  CHECK(danling::load_file(directory / "complex" / "model.pth").at("model").at("phase").tensor().scalar_type() ==
        at::kComplexDouble);
}

TEST_CASE("FileCheckpointManager: a failed asynchronous save is counted, thrown once, and made good by the next",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  std::int64_t step = 1;
  std::int64_t size = 4;
  const auto state = [&] { return counted_state(step, size); };
  danling::FileCheckpointManager manager({.directory = directory.path(), .interval = 1, .async_mode = "async"}, state,
                                         state);
  manager.save_checkpoint({});
  CHECK(manager.wait());
  CHECK_FALSE(manager.has_failure());

  std::optional<danling_test::FileSizeLimit> full(1 << 20);
  step = 2;
  size = 1 << 20;
  manager.save_checkpoint({.epoch = 1});
  const std::string text = error_of<danling::CheckpointError>([&] { manager.wait(); });
  CHECK(text == "[checkpoint.write] expected to write '" + (directory / "latest.pth").string() +
                    "', got errno 27 (File too large)");
  CHECK_FALSE(manager.has_failure());
  CHECK(manager.wait());
  CHECK(manager.checkpoint_health().error_count == 1);
  CHECK(manager.checkpoint_health().failing == std::map<std::string, std::string>{{"latest", text}});
  CHECK(manager.checkpoint_health().last_failed_target == "ckpt-e000002");
  manager.save_checkpoint({.epoch = 1});
  while (!manager.has_failure()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(error_of<danling::CheckpointError>([&] { manager.throw_failure(); }) == text);
  full.reset();
  CHECK(saved_step(directory / "latest.pth") == 1);

  manager.save_checkpoint({.epoch = 1});
  CHECK(manager.close());
  CHECK(manager.checkpoint_health().error_count == 2);
  CHECK(manager.checkpoint_health().failing.empty());
  CHECK(saved_step(directory / "latest.pth") == 2);
  CHECK(saved_step(directory / "previous.pth") == 1);
}

TEST_CASE("FileCheckpointManager: no memory for the copy is a failed save, and the next one succeeds", "[checkpoint]") {
  const danling_test::TempDir directory;
  std::int64_t step = 1;
  State large = counted_state(0);
  // 2^62 bytes that nobody touches: a view of one element, its storage said to be as large as that.
  large["model"]["weight"] = at::zeros({1});
  large["model"]["weight"].tensor().storage().set_nbytes(std::size_t{1} << 62);
  const auto state = [&] { return step == 2 ? large : counted_state(step); };
  danling::FileCheckpointManager manager({.directory = directory.path(), .interval = 1, .async_mode = "async"}, state,
                                         state);
  manager.save_checkpoint({});
  step = 2;
  CHECK_THAT(error_of<danling::CheckpointError>([&] { manager.save_checkpoint({.epoch = 1}); }),
             ContainsSubstring("[checkpoint.write] expected memory for a copy of the state, got "));
  step = 3;
  manager.save_checkpoint({.epoch = 2});
  CHECK(manager.close());
  CHECK(manager.checkpoint_health().error_count == 1);
  CHECK(saved_step(directory / "latest.pth") == 3);
  CHECK(saved_step(directory / "previous.pth") == 1);
}

TEST_CASE("FileCheckpointManager: wait and close give up after their timeout and say so", "[checkpoint]") {
  const danling_test::TempDir directory;
  // Opening a pipe for reading hangs until somebody writes, as a dead file server does.
  REQUIRE(::mkfifo((directory / "log").c_str(), 0600) == 0);
  const auto state = [] { return counted_state(1); };
  danling::FileCheckpointManager manager(
      {.directory = directory / "checkpoints", .interval = 1, .async_mode = "async", .sync_first = directory / "log"},
      state, state);
  manager.save_checkpoint({});
  CHECK_FALSE(manager.wait(0.05));
  CHECK_FALSE(manager.close(0.05));
  const int writer = ::open((directory / "log").c_str(), O_WRONLY);
  REQUIRE(writer >= 0);
  // A pipe cannot be brought to disk: the save fails, which is no reason to hang.
  CHECK_THAT(error_of<danling::CheckpointError>([&] { manager.close(); }),
             ContainsSubstring("[checkpoint.write] expected to sync '" + (directory / "log").string()));
  ::close(writer);
  CHECK(manager.close());
}

TEST_CASE("FileCheckpointManager: a manager that gave up waiting can be destroyed while its thread hangs",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  REQUIRE(::mkfifo((directory / "log").c_str(), 0600) == 0);
  const auto state = [] { return counted_state(1); };
  {
    danling::FileCheckpointManager manager(
        {.directory = directory / "checkpoints", .interval = 1, .async_mode = "async", .sync_first = directory / "log"},
        state, state);
    manager.save_checkpoint({});
    CHECK_FALSE(manager.wait(0.05));
  }
  const int writer = ::open((directory / "log").c_str(), O_WRONLY);  // lets the thread end
  REQUIRE(writer >= 0);
  ::close(writer);
}

TEST_CASE("FileCheckpointManager: a name that is no file name, or given by itself, is refused", "[checkpoint]") {
  const danling_test::TempDir directory;
  const auto state = [] { return counted_state(1); };
  danling::FileCheckpointManager manager({.directory = directory / "inside", .interval = 1}, state, state);
  for (const auto& name : {std::string(), std::string("../evil"), std::string(".hidden"), std::string("a\nb"),
                           std::string("latest\0x", 8)}) {
    CHECK(error_of<danling::ConfigError>([&] { manager.save_model_checkpoint(name); }) ==
          "[checkpoint.save] expected a name for a file, without folders, got " + danling::detail::quote(name));
  }
  CHECK(error_of<danling::ConfigError>([&] { manager.save_checkpoint({.name = "../../evil", .force = true}); }) ==
        "[checkpoint.save] expected a name for a file, without folders, got '../../evil'");
  for (const std::string name : {"previous", "ckpt-e000099"}) {
    CHECK(error_of<danling::ConfigError>([&] { manager.save_checkpoint({.name = name, .force = true}); }) ==
          "[checkpoint.save] expected a name other than the reserved ones (previous, ckpt-...), got '" + name + "'");
  }
  CHECK_FALSE(std::filesystem::exists(directory / "inside"));
}

TEST_CASE("FileCheckpointManager: a second manager on a directory is refused until the first is closed or killed",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  const auto state = [] { return counted_state(1); };
  const auto make = [&] {
    return danling::FileCheckpointManager({.directory = directory.path(), .interval = 1}, state, state);
  };
  auto first = make();
  first.save_checkpoint({});
  auto second = make();
  CHECK(error_of<danling::StateError>([&] { second.save_checkpoint({}); }) ==
        "[checkpoint.lock] expected '" + directory.path().string() +
            "' to be free, got another manager that saves into it; close that one, or save elsewhere");
  CHECK(second.load_newest_valid()->path == directory / "latest.pth");  // reading is free
  CHECK(first.close());
  second.save_checkpoint({});
  CHECK(second.close());

  danling_test::Child child([&](const auto& ready) {
    auto manager = make();
    manager.save_checkpoint({});
    ready();
    ::pause();
    return 0;
  });
  child.wait_ready();
  auto third = make();
  CHECK_THROWS_AS(third.save_checkpoint({}), danling::StateError);
  child.send(SIGKILL);
  CHECK(child.wait() == -SIGKILL);
  third.save_checkpoint({});
}

TEST_CASE("FileCheckpointManager: killed at any moment of asynchronous saves, two valid checkpoints remain",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  for (int round = 0; round < 20; ++round) {
    const auto where = directory / std::to_string(round);
    danling_test::Child child([&](const auto& ready) {
      std::int64_t step = 0;
      const auto state = [&] { return counted_state(step, 20000); };
      danling::FileCheckpointManager manager(
          {.directory = where, .interval = 1, .keep_latest_k = 1, .async_mode = "async"}, state, state);
      for (;; ++step) {
        manager.save_checkpoint({.epoch = step});
        if (step == 4) {
          manager.wait();
          ready();
        }
      }
      return 0;
    });
    child.wait_ready();
    ::usleep(static_cast<useconds_t>(700 * round));
    child.send(SIGKILL);
    CHECK(child.wait() == -SIGKILL);
    CHECK(saved_step(where / "latest.pth") > saved_step(where / "previous.pth"));
    CHECK_FALSE(std::filesystem::equivalent(where / "latest.pth", where / "previous.pth"));
  }
}

}  // namespace
