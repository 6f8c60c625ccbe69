// Checkpoints in shards: names, retention, agreement of the ranks, failures, and processes that are killed.
#include <danling/checkpoint/sharded_manager.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>

#include <danling/checkpoint/weights.hpp>
#include <danling/distributed/group.hpp>
#include <danling/formats/detail/dcp_reader.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>
#include <support/temp_dir.hpp>

namespace sharded_manager {
namespace {

namespace fs = std::filesystem;
using danling::CheckpointError;
using danling::CheckpointOptions;
using danling::CheckpointRequest;
using danling::Group;
using danling::ShardBox;
using danling::ShardedState;
using danling::State;
using danling_test::error_of;
using danling_test::TempDir;
using Manager = danling::TorchDistributedCheckpointManager;

constexpr std::int64_t kRows = 1001;

// A run of several ranks whose whole state is its step: rows of a weight, a step, and state of each rank alone.
struct ShardedRun {
  explicit ShardedRun(const Group& ranks) : group(ranks) {}

  Group group;
  std::int64_t step = 0;
  bool throws = false;

  std::int64_t begin() const { return std::min((kRows + group.size() - 1) / group.size() * group.rank(), kRows); }
  std::int64_t count() const { return std::min((kRows + group.size() - 1) / group.size(), kRows - begin()); }

  ShardedState model() const {
    ShardedState out;
    out.state["model"]["weight"] = at::full({count(), 3}, static_cast<double>(step), at::kFloat);
    out.places["model.weight"] = {{kRows, 3}, {begin(), 0}};
    out.state["model"]["bias"] = at::full({3}, static_cast<double>(step), at::kFloat);
    return out;
  }
  ShardedState full() const {
    danling::detail::check<CheckpointError>(!throws, "test.state", "expected a state, got none");
    ShardedState out = model();
    out.state["state"]["train"] = State::Map{{"epoch", step}, {"global_step", 10 * step}, {"micro_step", 10 * step}};
    out.state["ranks"][group.rank()] = step + group.rank();
    return out;
  }
  Manager manager(CheckpointOptions options) {
    return Manager(
        std::move(options), group, [this] { return full(); }, [this] { return model(); },
        [this](const std::string& path, at::IntArrayRef) {
          return std::optional(path == "model.weight" ? ShardBox{{begin(), 0}, {count(), 3}} : ShardBox{});
        });
  }
  // Saves the epoch's end.
  CheckpointRequest next() {
    ++step;
    CheckpointRequest out;
    out.epoch = step - 1;
    out.global_step = 10 * step;
    return out;
  }
};

std::int64_t step_of(const State& state) {
  const std::int64_t step = state.at("state").at("train").at("epoch").integer();
  const at::Tensor& weight = state.at("model").at("weight").tensor();
  danling::detail::check<CheckpointError>(weight.numel() == 0 || (weight == step).all().item<bool>(), "test.state",
                                          "expected the weight of step ", step, ", got another one");
  return step;
}

std::set<std::string> pointers_in(const fs::path& directory) {
  std::set<std::string> out;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() == ".pointer") {
      out.insert(entry.path().stem().string());
    }
  }
  return out;
}

std::size_t saves_in(const fs::path& directory) {
  return static_cast<std::size_t>(std::count_if(fs::directory_iterator(directory), fs::directory_iterator(),
                                                [](const auto& entry) { return entry.is_directory(); }));
}

TEST_CASE("TorchDistributedCheckpointManager: names, history and retention, with and without a thread",
          "[checkpoint][sharded]") {
  for (const std::string mode : {"disabled", "async", "async_with_pinned_mem"}) {
    for (const int size : {1, 3}) {
      CAPTURE(mode, size);
      const TempDir directory;
      Group::run_threads(size, [&](Group& group) {
        ShardedRun run(group);
        auto manager = run.manager({.directory = directory.path(),
                                    .interval = 1,
                                    .keep_latest_k = 2,
                                    .export_safetensors = true,
                                    .async_mode = mode});
        for (int i = 0; i < 5; ++i) {
          CheckpointRequest request = run.next();
          request.is_best = i == 1;
          request.last_step = i == 4;
          danling_test::expect(manager.save_checkpoint(request), "a save");
        }
        danling_test::expect(manager.close(), "the end of all saves");
        danling_test::expect(manager.checkpoint_health().success_count == 6, "six successes");
        danling_test::expect(manager.checkpoint_health().failing.empty(), "no failure");
      });
      CHECK(pointers_in(directory.path()) ==
            std::set<std::string>{"latest", "previous", "best", "ckpt-e000004", "ckpt-e000005", "model"});
      CHECK(saves_in(directory.path()) == 4);  // steps 2, 4 and 5, and the model
      CHECK(step_of(danling::load_sharded(directory.path() / "latest")) == 5);
      CHECK(step_of(danling::load_sharded(directory.path() / "previous.pointer")) == 4);
      CHECK(step_of(danling::load_sharded(directory.path() / "best")) == 2);
      CHECK(danling::load_sharded(directory.path() / "model").map().size() == 1);
      const State weights = danling::load_weights(directory.path() / "model.safetensors");
      CHECK(at::equal(weights.at("weight").tensor(), at::full({kRows, 3}, 5.0, at::kFloat)));
      CHECK(at::equal(weights.at("bias").tensor(), at::full({3}, 5.0, at::kFloat)));
    }
  }
}

TEST_CASE("TorchDistributedCheckpointManager: exports each model and average, as FileCheckpointManager names them",
          "[checkpoint][sharded]") {
  const TempDir directory;
  const auto weights = [](double value, at::ScalarType dtype = at::kFloat) {
    return State(State::Map{{"w.model.b", at::full({2}, value, dtype)}});
  };
  ShardedState exported;
  exported.state["ema"] = weights(1);
  exported.state["models"]["net"] = State::Map{{"model", weights(2)}, {"ema", weights(3)}};
  exported.state["models"]["wave"] = State::Map{{"model", weights(4, at::kComplexDouble)}};
  Manager manager(
      {.directory = directory.path(), .export_safetensors = true}, Group(), [&] { return exported; },
      [&] { return exported; });
  manager.save_model_checkpoint();
  CHECK(manager.close());
  std::map<std::string, double> found;
  for (const auto& entry : fs::directory_iterator(directory.path())) {
    if (entry.path().extension() == ".safetensors") {
      found[entry.path().filename().string()] =
          danling::load_weights(entry.path()).at("w.model.b").tensor()[0].item<double>();
    }
  }
  CHECK(found == std::map<std::string, double>{
                     {"model-ema.safetensors", 1}, {"model-net.safetensors", 2}, {"model-net-ema.safetensors", 3}});
}

TEST_CASE("TorchDistributedCheckpointManager: another number of processes resumes", "[checkpoint][sharded]") {
  for (const int writers : {1, 2, 3, 4}) {
    const TempDir directory;
    const int port = danling_test::free_port();
    const auto texts = danling_test::run_processes(writers, [&](int rank) {
      ShardedRun run(Group::connect(danling_test::identity_of_rank(rank, writers, port)));
      auto manager = run.manager({.directory = directory.path(), .interval = 1, .async_mode = "async"});
      manager.save_checkpoint(run.next());
      manager.save_checkpoint(run.next());
      return std::string(manager.close() ? "saved" : "not saved");
    });
    CHECK(texts == std::vector<std::string>(static_cast<std::size_t>(writers), "saved"));
    for (const int readers : {1, 2, 3, 4}) {
      CAPTURE(writers, readers);
      Group::run_threads(readers, [&](Group& group) {
        ShardedRun run(group);
        auto manager = run.manager({.directory = directory.path(), .interval = 1});
        const auto found = manager.load_newest_valid();
        danling_test::expect(found && step_of(found->state) == 2, "step 2");
        danling_test::expect(found->state.at("model").at("weight").tensor().size(0) == run.count(), "its rows");
        danling_test::expect(found->state.at("ranks").map().size() == static_cast<std::size_t>(writers), "all ranks'");
        danling_test::expect(found->skipped.empty(), "nothing skipped");
      });
    }
  }
}

TEST_CASE("TorchDistributedCheckpointManager: a damaged newest checkpoint is named, and the one before used by all",
          "[checkpoint][sharded]") {
  for (const std::string damage : {"rank", "missing", "manifest", "unfinished"}) {
    CAPTURE(damage);
    const TempDir directory;
    Group::run_threads(3, [&](Group& group) {
      ShardedRun run(group);
      auto manager = run.manager({.directory = directory.path(), .interval = 1, .keep_latest_k = 1});
      manager.save_checkpoint(run.next());
      manager.save_checkpoint(run.next());
      manager.close();
    });
    const fs::path latest = danling::resolve_sharded(directory.path() / "latest");
    const fs::path part = latest / "__1_0.distcp";
    if (damage == "rank") {
      std::fstream file(part, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(1500);
      file.put('\x7f');
    } else if (damage == "missing") {
      fs::remove(part);
    } else if (damage == "manifest") {
      fs::resize_file(latest / "manifest.json", 40);
    } else {
      fs::remove(latest / "manifest.json");
    }
    Group::run_threads(2, [&](Group& group) {
      ShardedRun run(group);
      auto manager = run.manager({.directory = directory.path(), .interval = 1, .keep_latest_k = 1});
      const auto found = manager.load_newest_valid();
      danling_test::expect(found && step_of(found->state) == 1, "step 1");
      danling_test::expect(found->skipped.size() == 1 && found->skipped[0].path == latest, "the damaged one");
      const std::string& reason = found->skipped[0].reason;
      const std::string where = damage == "rank" || damage == "missing" ? "__1_0.distcp"
                                : damage == "manifest"                  ? "manifest.json"
                                                                        : "the save was not completed";
      danling_test::expect(reason.find(where) != std::string::npos, where + " in " + reason);
      // The damaged one does not become `previous`.
      run.step = 1;
      manager.save_checkpoint(run.next());
      manager.close();
    });
    CHECK(step_of(danling::load_sharded(directory.path() / "latest")) == 2);
    CHECK(step_of(danling::load_sharded(directory.path() / "previous")) == 1);
  }
}

TEST_CASE(
    "TorchDistributedCheckpointManager: a model alone and a first save that was killed are nothing to resume from",
    "[checkpoint][sharded]") {
  for (const bool killed : {false, true}) {
    const TempDir directory;
    Group::run_threads(2, [&](Group& group) {
      ShardedRun run(group);
      auto manager = run.manager({.directory = directory.path(), .interval = 1});
      killed ? static_cast<void>(manager.save_checkpoint(run.next())) : manager.save_model_checkpoint();
      manager.close();
    });
    if (killed) {
      for (const auto& name : pointers_in(directory.path())) {
        fs::remove(directory.path() / (name + ".pointer"));
      }
      for (const auto& entry : fs::directory_iterator(directory.path())) {
        entry.is_directory() && fs::remove(entry.path() / "manifest.json");
      }
    }
    CAPTURE(killed);
    CHECK(saves_in(directory.path()) == 1);
    Group::run_threads(2, [&](Group& group) {
      ShardedRun run(group);
      auto manager = run.manager({.directory = directory.path(), .interval = 1});
      danling_test::expect(!manager.load_newest_valid(), "nothing");
    });
  }
}

TEST_CASE("TorchDistributedCheckpointManager: a rank that cannot make its state fails the save on all, by name",
          "[checkpoint][sharded]") {
  const TempDir directory;
  Group::run_threads(3, [&](Group& group) {
    ShardedRun run(group);
    auto manager = run.manager({.directory = directory.path(), .interval = 1, .async_mode = "async"});
    run.throws = group.rank() == 1;
    const std::string error = error_of<CheckpointError>([&] { manager.save_checkpoint(run.next()); });
    danling_test::expect(error == (group.rank() == 1 ? "[test.state] expected a state, got none"
                                                     : "rank 1: [test.state] expected a state, got none"),
                         "the rank's error, got " + error);
    run.throws = false;
    manager.save_checkpoint(run.next());
    danling_test::expect(manager.wait(), "the next save");
    danling_test::expect(manager.checkpoint_health().failing.empty(), "no failure left");
    manager.close();
  });
  CHECK(step_of(danling::load_sharded(directory.path() / "latest")) == 2);
}

TEST_CASE("TorchDistributedCheckpointManager: a rank whose disk refuses fails the save on all, and the next succeeds",
          "[checkpoint][sharded]") {
  for (const std::string mode : {"disabled", "async"}) {
    CAPTURE(mode);
    const TempDir directory;
    Group::run_threads(2, [&](Group& group) {
      ShardedRun run(group);
      auto manager = run.manager({.directory = directory.path(), .interval = 1, .async_mode = mode});
      manager.save_checkpoint(run.next());
      manager.wait();
      group.barrier();
      // A file with the name of the next save's directory: nobody can write into it.
      const std::string before = danling::resolve_sharded(directory.path() / "latest").filename().string();
      std::string blocked = before;
      blocked.replace(0, 12, "ckpt-e000002");
      blocked.replace(blocked.find("-g"), 14, "-g000000000020");
      blocked.back() = '2';
      if (group.rank() == 0) {
        std::ofstream(directory.path() / blocked) << "a file";
      }
      group.barrier();
      const std::string error = error_of<CheckpointError>([&] {
        manager.save_checkpoint(run.next());
        manager.wait();
      });
      danling_test::expect(error.find("rank 0: ") == 0 && error.find(blocked) != std::string::npos,
                           "an error of rank 0, got " + error);
      danling_test::expect(manager.checkpoint_health().failing.contains("latest"), "a failure on record");
      group.barrier();
      if (group.rank() == 0) {
        fs::remove(directory.path() / blocked);
      }
      group.barrier();
      manager.save_checkpoint(run.next());
      danling_test::expect(manager.close(), "the next save");
      danling_test::expect(manager.checkpoint_health().failing.empty(), "no failure left");
    });
    CHECK(step_of(danling::load_sharded(directory.path() / "latest")) == 3);
    CHECK(step_of(danling::load_sharded(directory.path() / "previous")) == 1);
  }
}

TEST_CASE("TorchDistributedCheckpointManager: a full disk of one process fails the save on all",
          "[checkpoint][sharded]") {
  for (const std::string mode : {"disabled", "async"}) {
    CAPTURE(mode);
    const TempDir directory;
    const int port = danling_test::free_port();
    const auto texts = danling_test::run_processes(3, [&](int rank) {
      ShardedRun run(Group::connect(danling_test::identity_of_rank(rank, 3, port)));
      auto manager = run.manager({.directory = directory.path(), .interval = 1, .async_mode = mode});
      manager.save_checkpoint(run.next());
      manager.wait();
      rlimit limit = {};
      getrlimit(RLIMIT_FSIZE, &limit);
      rlimit full = limit;
      full.rlim_cur = rank == 1 ? 1000 : limit.rlim_cur;
      setrlimit(RLIMIT_FSIZE, &full);
      const std::string error = error_of<CheckpointError>([&] {
        manager.save_checkpoint(run.next());
        manager.wait();
      });
      setrlimit(RLIMIT_FSIZE, &limit);
      manager.save_checkpoint(run.next());
      manager.close();
      return error.substr(0, 35) + (error.find("File too large") != std::string::npos ? "...File too large" : error);
    });
    const std::string expected = "rank 1: [checkpoint.write] expected...File too large";
    CHECK(texts == std::vector<std::string>(3, expected));
    CHECK(step_of(danling::load_sharded(directory.path() / "latest")) == 3);
    CHECK(step_of(danling::load_sharded(directory.path() / "previous")) == 1);
    CHECK(saves_in(directory.path()) == 2);
  }
}

TEST_CASE("TorchDistributedCheckpointManager: a run adopts the history and the best of an earlier directory",
          "[checkpoint][sharded]") {
  const TempDir directory;
  Group::run_threads(2, [&](Group& group) {
    ShardedRun run(group);
    auto manager = run.manager({.directory = directory.path() / "before", .interval = 1});
    for (int i = 0; i < 4; ++i) {
      CheckpointRequest request = run.next();
      request.is_best = i == 1;
      manager.save_checkpoint(request);
    }
    manager.close();
    auto next = run.manager({.directory = directory.path() / "after", .interval = 1});
    const auto problems = next.adopt(directory.path() / "before", {.step_mode = false, .progress = 3, .best = 2});
    danling_test::expect(problems.empty(), "no problem");
    run.step = 3;
    next.save_checkpoint(run.next());
    next.close();
    danling_test::expect(next.best_checkpoint()->exists, "a best one");
  });
  CHECK(pointers_in(directory.path() / "after") ==
        std::set<std::string>{"best", "ckpt-e000001", "ckpt-e000002", "ckpt-e000003", "ckpt-e000004", "latest"});
  CHECK(step_of(danling::load_sharded(directory.path() / "after/best")) == 2);
  fs::remove_all(directory.path() / "before");
  CHECK(step_of(danling::load_sharded(directory.path() / "after/ckpt-e000003")) == 3);
}

TEST_CASE("TorchDistributedCheckpointManager: another manager that saves into the directory is refused on all ranks",
          "[checkpoint][sharded]") {
  const TempDir directory;
  ShardedRun one{Group()};
  auto first = one.manager({.directory = directory.path(), .interval = 1});
  first.save_checkpoint(one.next());
  Group::run_threads(2, [&](Group& group) {
    ShardedRun run(group);
    auto manager = run.manager({.directory = directory.path(), .interval = 1});
    const std::string error = error_of<danling::StateError>([&] { manager.save_checkpoint(run.next()); });
    danling_test::expect(error.find("got another manager that saves into it") != std::string::npos,
                         "a lock, got " + error);
  });
}

// Processes that save in a loop until they are killed.
TEST_CASE("TorchDistributedCheckpointManager: two sound checkpoints survive kills at any moment",
          "[checkpoint][sharded][kill]") {
  const TempDir directory;
  std::int64_t reached = 0;
  for (int round = 0; round < 6; ++round) {
    const int size = 1 + round % 3;
    const int port = danling_test::free_port();
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < size; ++rank) {
      const pid_t pid = fork();
      REQUIRE(pid >= 0);
      if (pid == 0) {
        alarm(60);
        try {
          at::set_num_threads(1);
          ShardedRun run(Group::connect(danling_test::identity_of_rank(rank, size, port)));
          auto manager = run.manager({.directory = directory.path(),
                                      .interval = 1,
                                      .keep_latest_k = 2,
                                      .async_mode = round % 2 == 0 ? "async" : "disabled"});
          if (const auto found = manager.load_newest_valid()) {
            run.step = step_of(found->state);
          }
          for (;;) {
            manager.save_checkpoint(run.next());
          }
        } catch (const std::exception&) {
        }
        _exit(0);
      }
      ranks.push_back(pid);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1200 + 137 * round));
    for (const pid_t pid : ranks) {
      kill(pid, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(round));
    }
    for (const pid_t pid : ranks) {
      waitpid(pid, nullptr, 0);
    }
    ShardedRun run{Group()};
    auto manager = run.manager({.directory = directory.path(), .interval = 1});
    const auto found = manager.load_newest_valid();
    if (!found) {
      continue;  // killed before the first save
    }
    CAPTURE(round, size);
    for (const auto& skipped : found->skipped) {  // nothing but saves that were not completed
      CHECK(skipped.reason.find("the save was not completed") != std::string::npos);
    }
    CHECK(step_of(found->state) >= reached);
    reached = step_of(found->state);
    if (reached > 1) {
      CHECK(step_of(danling::load_sharded(directory.path() / "previous")) < reached);
    }
  }
  CHECK(reached > 2);
}

}  // namespace
}  // namespace sharded_manager
