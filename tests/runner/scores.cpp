// Scores that are not numbers: they are never the best, in memory, in files and after a resume.
#include <nlohmann/json.hpp>

#include "runner/fixture.hpp"

namespace runner_test {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Validates with losses of its own, one per epoch.
class JudgedRunner : public TinyRunner {
 public:
  JudgedRunner(const TinyConfig& config, std::vector<double> losses) : TinyRunner(config), losses_(std::move(losses)) {
    metrics = nullptr;
  }

 protected:
  dl::StepOutput evaluate_step(dl::Batch&) override {
    const auto epoch = static_cast<std::size_t>(state().train.epoch);
    return {.prediction = {}, .loss = torch::tensor(losses_.at(std::min(epoch, losses_.size() - 1)), torch::kDouble)};
  }

 private:
  std::vector<double> losses_;
};

dl::ResultBook book_of(const std::vector<double>& scores, bool higher_is_better = false) {
  dl::ResultBook book;
  book.select("val", "loss", higher_is_better);
  for (const double score : scores) {
    dl::Result result;
    result["val"].set("loss", score);
    book.append(static_cast<std::int64_t>(book.rows().size()), result);
  }
  return book;
}

TEST_CASE("ResultBook: a score that is NaN or infinite is never the best, also where it comes first", "[runner]") {
  const double bad = GENERATE(std::nan(""), infinity, -infinity);
  const bool higher = GENERATE(false, true);
  CAPTURE(bad, higher);
  CHECK(book_of({bad}, higher).best() == nullptr);
  CHECK(book_of({bad}, higher).best_index() == 0);
  CHECK_FALSE(book_of({bad}, higher).best_score());
  CHECK_FALSE(book_of({bad}, higher).is_best());
  CHECK_FALSE(book_of({bad}, higher).is_improved());
  CHECK(book_of({bad}, higher).saved_best() == nullptr);
  const auto book = book_of({bad, 0.5, bad}, higher);
  CHECK(book.best_index() == 1);
  CHECK(*book.best_score() == 0.5);
  CHECK_FALSE(book.is_best());
  CHECK(book.saved_best()->index == 1);
  CHECK(book_of({bad, 0.5}, higher).is_best());
  CHECK(book_of({bad, 0.5}, higher).is_improved());
  dl::ResultBook restored = book_of({}, higher);
  restored.load_state_dict(book.state_dict());
  CHECK(restored.best_index() == 1);
  CHECK_FALSE(restored.is_best());
}

TEST_CASE("ResultBook: a row without a score is not the best because the one before it was", "[runner]") {
  auto book = book_of({0.5});
  CHECK(book.is_best());
  dl::Result other;
  other["train"].set("loss", 0.1);
  book.append(1, other);
  CHECK_FALSE(book.is_best());
  CHECK(*book.latest_score() == 0.5);
  CHECK_FALSE(book.score_of(*book.latest()));
}

TEST_CASE("TorchRunner: an epoch with a score of NaN gives no best state, and counts for patience", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 4;
  config.patience = 3;
  JudgedRunner runner(config, {std::nan("")});
  runner.train();
  runner.write_summary("finished");
  CHECK(runner.close());
  CHECK(runner.state().train.epoch == 3);
  const auto dir = runner.workspace().dir();
  CHECK_FALSE(fs::exists(dir / "best.json"));
  CHECK_FALSE(fs::exists(dir / "checkpoints" / "best.pth"));
  const auto details = nlohmann::json::parse(read_file(dir / "summary.json"))["details"];
  CHECK_FALSE(details.contains("best_index"));
  CHECK_FALSE(details.contains("best"));
  CHECK(details["latest"]["val"]["loss"] == "NaN");
  CHECK(count(logs_of(dir), "(best)") == 0);
}

TEST_CASE("TorchRunner: after a score of NaN, and a resume, the best is the first that is a number", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  const std::vector<double> losses = {std::nan(""), 0.75, infinity};
  { JudgedRunner(config, losses).train(); }
  config.epochs = 3;
  config.auto_resume = true;
  JudgedRunner runner(config, losses);
  CHECK(runner.train().best_index() == 1);
  runner.write_summary("finished");
  CHECK(runner.close());
  const auto dir = runner.workspace().dir();
  CHECK(nlohmann::json::parse(read_file(dir / "best.json"))["index"] == 2);
  CHECK(epoch_of(dir / "checkpoints" / "best.pth") == 2);
  CHECK(nlohmann::json::parse(read_file(dir / "summary.json"))["details"]["best_index"] == 2);
}

TEST_CASE("TorchRunner: by steps the newest state is published as the best until the first evaluation", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 6;
  config.checkpoint.interval = 2;
  std::optional<std::int64_t> published;
  {
    TinyRunner runner(config);
    runner.before_step = [&](TinyRunner& self, std::int64_t done) {
      if (done == 5) {
        self.checkpoint_manager().wait(std::nullopt);
        const auto best = dl::load_file(self.workspace().checkpoint_dir() / "best.pth");
        published = best.at("state").at("train").at("global_step").integer();
      }
    };
    runner.train();
  }
  CHECK(published == 4);
}

TEST_CASE("TorchRunner: a best.pth of before the first evaluation is made anew where the run has a best result since",
          "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 6;
  config.checkpoint.interval = 2;
  const auto files = trained(config) / "checkpoints";
  const auto step_of = [](const fs::path& file) {
    return dl::load_file(file).at("state").at("train").at("global_step").integer();
  };
  CHECK(step_of(files / "best.pth") == 6);
  fs::remove(files / "best.pth");
  fs::copy(files / "ckpt-s000000000002.pth", files / "best.pth");  // as where the process died before it was replaced
  config.auto_resume = true;
  trained(config);
  CHECK(step_of(files / "best.pth") == 6);
}

TEST_CASE("TorchRunner: a run by steps that evaluates nothing has no best state", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.steps = 6;
  config.checkpoint.interval = 2;
  config.evaluate_splits = std::vector<std::string>();
  CHECK_FALSE(fs::exists(trained(config) / "checkpoints" / "best.pth"));
}

TEST_CASE("EarlyStopping: rows without a score do not count, and a run that can have none is warned of", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 6;
  config.patience = 2;
  config.evaluate_splits = std::vector<std::string>();
  std::vector<std::string> warnings;
  TinyRunner runner(config);
  collect_warnings(runner, warnings);
  runner.train();
  CHECK(runner.state().train.epoch == 6);
  CHECK(warnings ==
        std::vector<std::string>{"patience ends no run without a split to evaluate, which its score would be of"});
}

}  // namespace runner_test
