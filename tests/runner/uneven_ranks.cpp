// Ranks with different numbers of batches: requests after one of them has ended its pass.
#include "rank_runner.hpp"

namespace runner_test {
namespace {

/// Each rank reads all records of its own datasets.
class WholeShare : public dl::Parallelism {
 public:
  using Parallelism::Parallelism;
  dl::AxisPlace data_share() const override { return {}; }
};

TEST_CASE("ranks: a request after another rank has ended its pass is obeyed when all passes are over", "[runner]") {
  struct Asking : dl::Callback {
    std::string what, log;
    std::string name() const override { return "asking"; }
    void on_step(const dl::StepEvent& event) override {
      if (event.iteration == 6 && !what.empty()) {  // rank 0 has ended its pass of three
        if (what == "stop") {
          event.runner.request_stop();
        } else if (what == "end") {
          event.runner.end_training("enough");
        } else if (what == "evaluate") {
          event.runner.request_evaluation();
        } else {
          event.runner.request_save();
        }
        what.clear();
      }
    }
    void on_evaluate_begin(const dl::SplitEvent& event) override {
      log += dl::detail::concat("evaluate in epoch ", event.runner.state().train.epoch, ", ");
    }
  };
  const auto run = [](const std::string& what) {
    const auto all = danling_test::run_ranks(2, [&](const dl::Group& group) {
      const Folder folder;
      TinyConfig config(folder);
      config.epochs = 2;
      config.score_name = "none";
      RankRunner<TinyRunner, WholeShare> runner(config, group);
      runner.datasets["train"] = Points{make_points(group.rank() == 0 ? 24 : 64, 0), true};
      runner.metrics = nullptr;
      auto& callback = runner.add(Asking());
      callback.what = group.rank() == 1 ? what : "";
      std::string end = "done";
      try {
        runner.train();
      } catch (const dl::Stopped&) {
        end = "stopped";
      } catch (const std::exception& error) {
        end = error.what();
      }
      const bool saved = group.rank() != 0 || fs::exists(runner.workspace().checkpoint_dir() / "latest.pth");
      return dl::detail::concat(callback.log, end, " at step ", runner.state().train.global_step,
                                saved ? "" : ", not saved");
    });
    return all[0] + " and " + all[1].substr(all[1].rfind(", ") == std::string::npos ? 0 : all[1].rfind(", ") + 2);
  };
  const std::string both = "evaluate in epoch 0, evaluate in epoch 1, ";
  CHECK(run("stop") == "stopped at step 3 and stopped at step 8");
  CHECK(run("end") == "evaluate in epoch 0, done at step 3 and done at step 8");
  CHECK(run("evaluate") ==
        "evaluate in epoch 0, evaluate in epoch 1, evaluate in epoch 1, done at step 6 and done at step 16");
  CHECK(run("save") == both + "done at step 6 and done at step 16");
}

TEST_CASE("ranks: a training split of less than one batch of all processes is refused, with what to change",
          "[runner]") {
  const auto error_with = [](int size) {
    return danling_test::run_ranks(size, [](const dl::Group& group) {
      const Folder folder;
      TinyConfig config(folder);
      config.records = 7;
      config.dataloader.batch_size = group.size() == 1 ? 8 : 4;
      config.dataloader.drop_last = true;
      RankRunner<> runner(config, group);
      return error_of<dl::ConfigError>([&] { runner.train(); });
    });
  };
  const std::string begin =
      "[runner.build_dataloaders] expected at least one batch in split 'train', got fewer records than ";
  const std::string end =
      "dataloader.batch_size, which drop_last leaves out; lower batch_size, or set dataloader.drop_last: false";
  CHECK(error_with(1)[0] == begin + end);
  const std::string both =
      "dataloader.batch_size (a batch of all processes), which drop_last leaves out; lower "
      "batch_size, or set dataloader.drop_last: false";
  danling_test::check_ranks(error_with(2), begin + "2 x " + both);
}

}  // namespace
}  // namespace runner_test
