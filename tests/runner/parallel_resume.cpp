// Checkpoints of shards: a run goes on with another grid, and on one process.
#include <fstream>

#include "gpt_runner.hpp"

namespace runner_test {
namespace {

/// Trains up to `steps` in `folder`, from where the run there is: `from` steps.
std::vector<dl::State> continue_gpt(const fs::path& folder, const Layout& layout, std::int64_t steps,
                                    std::int64_t from = 0) {
  INFO(layout.name);
  GptTestConfig config;
  layout.set(config);
  config.dataloader.batch_size = 8 / layout.data;
  config.workspace_root = folder.string();
  config.record = true;
  config.auto_resume = !config.resume;
  config.steps = steps;
  config.checkpoint.backend = config.checkpoint.backend == "auto" ? "dcp" : config.checkpoint.backend;
  config.parallel.allow_degree_change = true;
  const auto train = [&](const dl::Group& group) {
    GptTestRunner runner(config, group);
    runner.initialize();
    danling_test::expect(runner.state().train.global_step == from, "a run that goes on");
    runner.train();
    const std::string out = runner.outcome();
    runner.close();
    return out;
  };
  std::vector<std::string> texts;
  if (layout.processes == 1) {
    texts.push_back(train(dl::Group()));
  } else {
    texts = danling_test::run_ranks(layout.processes, train);
  }
  std::vector<dl::State> ranks;
  for (const auto& bytes : texts) {
    INFO((bytes.starts_with("error") ? bytes : ""));
    REQUIRE_FALSE(bytes.starts_with("error"));
    ranks.push_back(dl::unpack_state(bytes));
  }
  return ranks;
}

void check_as(const dl::State& whole, const std::vector<dl::State>& ranks) {
  const auto expected = gather_parameters({whole});
  const auto got = gather_parameters(ranks);
  REQUIRE(got.size() == expected.size());
  for (const auto& [name, tensor] : expected) {
    INFO(name);
    CHECK(torch::allclose(got.at(name), tensor, 1e-5, 1e-7));
  }
  for (const dl::State& rank : ranks) {
    CHECK(rank.at("step").integer() == gpt_updates);
    CHECK(rank.at("results").at("val").number() == Approx(whole.at("results").at("val").number()).epsilon(1e-6));
  }
}

void check_as_one_process(const std::vector<dl::State>& ranks) { check_as(one_process(), ranks); }

TEST_CASE("ParallelRunner: a run goes on with other grids, between checkpoints of shards", "[runner][parallel]") {
  const std::vector<std::string> units{"Block"};
  const Layout one{"one process", 1, grid({})};
  const Layout sharded{"shard x tensor", 4, grid({.shard = 2, .tensor = 2}, units), 2};
  const Layout staged{"shard x pipeline", 4, grid({.shard = 2, .pipeline = 2}, units), 2};
  const Layout sliced{"tensor x pipeline", 4, grid({.pipeline = 2, .tensor = 2})};
  // `batch_size` is of a process, and part of the config: the axes that share out data stay.
  const Folder two, alone;
  continue_gpt(two.path(), sharded, 5);
  continue_gpt(two.path(), staged, 11, 5);
  check_as_one_process(continue_gpt(two.path(), sharded, gpt_updates, 11));
  continue_gpt(alone.path(), sliced, 7);
  continue_gpt(alone.path(), one, 13, 7);
  check_as_one_process(continue_gpt(alone.path(), sliced, gpt_updates, 13));
}

TEST_CASE("ParallelRunner: averages of slices and stages are those of one process, also with other grids",
          "[runner][parallel]") {
  const auto averaged = [](const std::function<void(GptTestConfig&)>& set) {
    return [set](GptTestConfig& config) {
      set(config);
      config.ema.enabled = true;
      config.ema.decay = 0.8;
    };
  };
  GptTestConfig config;
  averaged([](GptTestConfig&) {})(config);
  const dl::State whole = dl::unpack_state(train_gpt(config, dl::Group()));
  CHECK(whole.at("results").at("val").number() != Approx(one_process().at("results").at("val").number()).epsilon(1e-3));
  const Layout sharded{"shard x tensor", 4, averaged(grid({.shard = 2, .tensor = 2}, {"Block"})), 2};
  const Layout staged{"shard x pipeline", 4, averaged(grid({.shard = 2, .pipeline = 2}, {"Block"})), 2};
  const Folder folder;
  continue_gpt(folder.path(), sharded, 5);
  continue_gpt(folder.path(), staged, 11, 5);
  check_as(whole, continue_gpt(folder.path(), sharded, gpt_updates, 11));
}

TEST_CASE("ParallelRunner: a run goes on from a file with slices and stages, and from their shards with files",
          "[runner][parallel]") {
  const Layout files{"one process, files", 1, [](GptTestConfig& config) { config.checkpoint.backend = "file"; }};
  const Layout sliced{"tensor x pipeline", 4, grid({.pipeline = 2, .tensor = 2})};
  const Folder folder;
  continue_gpt(folder.path(), files, 7);
  continue_gpt(folder.path(), sliced, 13, 7);
  check_as_one_process(continue_gpt(folder.path(), files, gpt_updates, 13));
}

TEST_CASE("ParallelRunner: slices and stages go on from a file that is newer than their shards", "[runner][parallel]") {
  const Layout files{"one process, files", 1, [](GptTestConfig& config) { config.checkpoint.backend = "file"; }};
  const Layout sliced{"tensor", 2, grid({.tensor = 2})};
  const Folder folder;
  continue_gpt(folder.path(), sliced, 7);
  continue_gpt(folder.path(), files, 13, 7);
  const Folder damaged;
  fs::copy(folder.path(), damaged.path(), fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  check_as_one_process(continue_gpt(folder.path(), sliced, gpt_updates, 13));

  for (const auto& entry : fs::recursive_directory_iterator(damaged.path())) {
    if (entry.path().extension() == ".pth") {  // inside a tensor: the counters can still be read
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(fs::file_size(entry.path()) / 2));
      file.write("damaged!", 8);
    }
  }
  check_as_one_process(continue_gpt(damaged.path(), sliced, gpt_updates, 7));
}

TEST_CASE("ParallelRunner: one process resumes the newest sound shards of a grid", "[runner][parallel]") {
  const Layout one{"one process, files", 1, [](GptTestConfig& config) { config.checkpoint.backend = "file"; }};
  const Layout sliced{"tensor", 2, grid({.tensor = 2})};
  const Folder folder;
  continue_gpt(folder.path(), sliced, 3);
  continue_gpt(folder.path(), sliced, 5, 3);
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    if (entry.path().filename() == "latest.pointer") {
      std::string newest;
      std::getline(std::ifstream(entry.path()), newest);
      fs::resize_file(entry.path().parent_path() / newest / "__1_0.distcp", 8);
    }
  }
  continue_gpt(folder.path(), one, 7, 5);  // of the save before, at the same step
  bool is_named = false;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    std::ifstream log(entry.path().extension() == ".log" ? entry.path() : fs::path("/dev/null"));
    for (std::string line; std::getline(log, line);) {
      is_named |= line.find("auto_resume: skipped ") != line.npos && line.find("latest.pointer: ") != line.npos;
    }
  }
  CHECK(is_named);
}

TEST_CASE("ParallelRunner: a run that begins from a checkpoint of shards of another adopts its history",
          "[runner][parallel]") {
  const Folder first, second;
  const Layout layout{"shard x tensor", 4, grid({.shard = 2, .tensor = 2}, {"Block"}), 2};
  continue_gpt(first.path(), layout, 12);
  fs::path pointer;
  for (const auto& entry : fs::recursive_directory_iterator(first.path())) {
    pointer = entry.path().filename() == "latest.pointer" ? entry.path() : pointer;
  }
  REQUIRE_FALSE(pointer.empty());
  Layout resumed = layout;
  resumed.set = [&](GptTestConfig& config) {
    layout.set(config);
    config.resume = pointer.string();
  };
  check_as_one_process(continue_gpt(second.path(), resumed, gpt_updates, 12));
}

TEST_CASE("ParallelRunner: a grid of another shape is refused unless the config allows it", "[runner][parallel]") {
  const Folder folder;
  continue_gpt(folder.path(), {"tensor", 2, grid({.tensor = 2})}, 3);
  GptTestConfig config;
  config.workspace_root = folder.path().string();
  config.record = true;
  config.auto_resume = true;
  config.steps = 6;
  config.checkpoint.backend = "dcp";
  CHECK(error_of<dl::ConfigError>([&] {
          GptTestRunner runner(config, dl::Group());
          runner.train();
        }) ==
        "[runner.load_checkpoint] expected the axes of the checkpoint, tensor 2, got one process; set "
        "parallel.allow_degree_change to continue with others");
  config.checkpoint.backend = "file";
  config.parallel.axes.tensor = 2;
  const auto texts = danling_test::run_ranks(2, [&](const dl::Group& group) {
    return error_of<dl::ConfigError>([&] {
      GptTestRunner runner(config, group);
      runner.train();
    });
  });
  danling_test::check_ranks(texts,
                            "[runner.init_checkpoint_manager] expected 'checkpoint.backend: dcp', or auto, where ranks "
                            "have slices or stages of the model, got file");
}

}  // namespace
}  // namespace runner_test
