// The files that a run writes, and runs that write none.
#include <danling/checkpoint/manager.hpp>

#include "fixture.hpp"

namespace runner_test {
namespace {

std::size_t files_in(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::recursive_directory_iterator(folder), fs::recursive_directory_iterator()));
}

/// Keeps the last state of each name in memory.
class MemoryManager : public dl::CheckpointManager {
 public:
  using States = std::map<std::string, dl::State>;
  MemoryManager(States& states, std::function<dl::State()> make) : states_(states), make_(std::move(make)) {}

  bool save_checkpoint(const dl::CheckpointRequest& request) override {
    states_[request.name] = copy_of(make_());
    return true;
  }
  void save_model_checkpoint(const std::string& name) override { states_[name] = copy_of(make_().at("model")); }
  dl::State load_checkpoint(const fs::path& path) override { return states_.at(path.stem().string()); }
  std::optional<dl::ValidCheckpoint> load_newest_valid() override { return load_newest_valid_from({}, {}); }
  std::optional<dl::ValidCheckpoint> load_newest_valid_from(const fs::path&, const dl::CheckpointFilter&) override {
    const auto found = states_.find("latest");
    return found == states_.end() ? std::nullopt : std::optional(dl::ValidCheckpoint{"latest", found->second, {}});
  }
  bool close(std::optional<double>) override { return true; }

 private:
  static dl::State copy_of(const dl::State& state) {
    const Folder folder;
    dl::save_file(state, folder.path() / "copy.pth");
    return dl::load_file(folder.path() / "copy.pth");
  }
  States& states_;
  std::function<dl::State()> make_;
};

TEST_CASE("record: evaluation and inference do not change the files of a finished run", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  const auto dir = trained(config);
  std::map<std::string, std::string> before;
  const auto contents = [&] {
    std::map<std::string, std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(dir)) {
      out[entry.path().string()] = entry.is_regular_file() ? read_file(entry.path()) : "";
    }
    return out;
  };
  before = contents();
  SECTION("fresh") {}
  SECTION("resumed") { config.auto_resume = true; }
  SECTION("with its weights") { config.pretrained = (dir / "checkpoints" / "model.pth").string(); }
  SECTION("from an older state") { config.resume = (dir / "checkpoints" / "ckpt-e000001.pth").string(); }
  TinyRunner runner(config);
  runner.evaluate();
  CHECK(runner.infer("val").size(0) == 20);
  runner.write_summary("finished");
  CHECK(runner.close());
  CHECK(contents() == before);
}

TEST_CASE("record: a second runner evaluates a run while it trains", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  TinyRunner runner(config);
  int evaluated = 0;
  runner.before_step = [&](TinyRunner& self, std::int64_t done) {
    if (done == 8) {
      self.checkpoint_manager().wait(std::nullopt);  // the save of the first epoch
      TinyConfig other = config;
      other.auto_resume = true;
      TinyRunner beside(other);
      CHECK(beside.evaluate().number("val.loss") != nullptr);
      CHECK(beside.state().train.epoch == 1);
      CHECK(beside.close());
      ++evaluated;
    }
  };
  runner.train();
  CHECK(evaluated == 1);
}

TEST_CASE("record: with record: false a run has the same results and writes nothing", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 3;
  SECTION("by epochs") {}
  SECTION("by steps") {
    config.epochs.reset();
    config.steps = 15;
  }
  std::string recorded;
  {
    TinyRunner runner(config);
    recorded = runner.train().latest()->result.text(9);
  }
  const auto files = files_in(folder.path());
  config.record = false;
  TinyRunner runner(config);
  const auto id = runner.id();
  std::vector<std::string> lines;
  runner.logger().set_sink([&](dl::LogLevel, std::string_view text) { lines.emplace_back(text); });
  CHECK(runner.train().latest()->result.text(9) == recorded);
  CHECK(runner.id() == id);
  runner.test();
  runner.save_checkpoint();
  runner.write_summary("finished");
  CHECK(runner.close());
  CHECK(files_in(folder.path()) == files);
  REQUIRE_FALSE(lines.empty());
  CHECK_THAT(lines.back(), ContainsSubstring(config.epochs ? "epoch 3/3" : "step 15"));
}

TEST_CASE("record: the log has the lines from before training", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  trained(config);
  config.epochs = 2;
  config.auto_resume = true;
  TinyRunner runner(config);
  runner.evaluate();
  runner.train();
  CHECK(runner.close());
  CHECK_THAT(read_file(runner.workspace().log_file()), ContainsSubstring("resumed ") && ContainsSubstring("epoch 2/2"));
}

TEST_CASE("set_checkpoint_manager: the manager of the program saves and loads the states", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 3;
  config.record = false;
  MemoryManager::States states;
  class Own : public TinyRunner {
   public:
    Own(const TinyConfig& options, MemoryManager::States& states) : TinyRunner(options) {
      set_checkpoint_manager(std::make_unique<MemoryManager>(states, [this] { return state_dict(); }));
    }
  };
  {
    Own whole(config, states);
    whole.train();
  }
  const auto reference = states.at("latest");
  states.clear();
  {
    Own stopped(config, states);
    train_until(stopped, 10);
  }
  config.auto_resume = true;
  Own resumed(config, states);
  resumed.train();
  CHECK(resumed.state().train.epoch == 3);
  CHECK(dl::first_difference(reference, states.at("latest")) == "");
  CHECK_FALSE(fs::exists(folder.path() / "lin"));
  CHECK(
      error_of<dl::StateError>([&] { resumed.set_checkpoint_manager(nullptr); }) ==
      "[runner.set_checkpoint_manager] expected a call from a constructor or from init_checkpoint_manager, got one at "
      "another time");
}

TEST_CASE("checkpoint.load_only: a run needs no writable directory", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  fs::path latest;
  double loss = 0;
  {
    TinyRunner runner(config);
    runner.train();
    loss = *runner.evaluate().number("val.loss");
    CHECK(runner.close());
    latest = runner.workspace().checkpoint_dir() / "latest.pth";
  }
  const auto in_the_way = folder.path() / "file";
  std::ofstream(in_the_way) << "no folder";
  config.workspace_root = (in_the_way / "runs").string();
  config.resume = latest.string();
  {
    TinyRunner refused(config);
    CHECK_THROWS_AS(refused.train(), dl::ConfigError);
  }
  config.checkpoint.load_only = true;
  config.epochs = 2;
  TinyRunner runner(config);
  CHECK(*runner.evaluate().number("val.loss") == loss);
  runner.train();
  CHECK(runner.state().train.epoch == 2);
  runner.write_summary("finished");
  CHECK(runner.close());
}

}  // namespace
}  // namespace runner_test
