// The learning rate finder.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include <danling/runner/finders.hpp>
#include <danling/workspace/files.hpp>

#include <runner/finder.hpp>
#include <runner/finder_files.hpp>

namespace danling::inline v0 {
namespace {

constexpr auto find_lr_name = "runner.find_lr";
constexpr int most_skips = 40;  // a loss scale that starts too high is halved that often

// Sets the rates of all groups in proportion to those of the first update, which schedules store as initial_lr.
class GrowingRate {
 public:
  explicit GrowingRate(optim::Optimizer& optimizer) : optimizer_(optimizer) {
    const auto base = [](const optim::ParamGroup& group) { return group.initial_lr.value_or(group.lr); };
    const double first = base(optimizer.param_groups().front());
    for (const auto& group : optimizer.param_groups()) {
      shares_.push_back(first > 0 ? base(group) / first : 1.0);
    }
  }
  void set(double lr) {
    for (std::size_t i = 0; i < shares_.size(); ++i) {
      optimizer_.param_groups()[i].lr = lr * shares_[i];
    }
  }

 private:
  optim::Optimizer& optimizer_;
  std::vector<double> shares_;
};

}  // namespace

LearningRateReport TorchRunnerBase::find_lr() { return find_lr(config().find_lr); }

LearningRateReport TorchRunnerBase::find_lr(const FindLrOptions& options) {
  check<ConfigError>(options.min > 0 && options.min < options.max, find_lr_name,
                     "expected find_lr.min above 0 and below find_lr.max, got ", options.min, " and ", options.max);
  check<ConfigError>(options.steps >= 2, find_lr_name, "expected find_lr.steps of at least 2, got ", options.steps);
  detail::check_picture(options.svg, "find_lr.svg", find_lr_name);
  Internals::Finder finder(*this, find_lr_name);
  services().called_tools.insert("find_lr");
  LearningRateReport report;
  finder.run([&] {
    Learner& learner = finder.select(options.model);
    learner.scheduler = nullptr;  // it would set the rate
    GrowingRate rate(*learner.optimizer);
    const double factor = std::pow(options.max / options.min, 1.0 / static_cast<double>(options.steps - 1));
    double lr = options.min;
    double average = 0.0;
    double correction = 1.0;
    double lowest = 0.0;
    for (std::int64_t step = 0; step < options.steps && !finder.stopped(); ++step, lr *= factor) {
      rate.set(lr);
      Internals::Finder::Update update;
      for (int tries = 0; tries < most_skips && !update.updated && !finder.stopped(); ++tries) {
        update = finder.update();  // repeats while gradients overflow or no target counts
      }
      if (finder.stopped()) {
        return;
      }
      report.diverged = !std::isfinite(update.loss) || !update.updated;
      check<NonFiniteError>(!report.diverged || step > 0, find_lr_name,
                            "expected a finite loss and gradients at the first learning rate, got a loss of ",
                            update.loss);
      if (report.diverged) {
        return;
      }
      average = options.smoothing * average + (1 - options.smoothing) * update.loss;
      correction *= options.smoothing;
      const double smoothed = average / (1 - correction);
      report.points.push_back({lr, update.loss, smoothed});
      // Relative to the absolute value, since a loss may be negative. From the third update on, as in Lightning.
      report.diverged = step > 1 && smoothed > lowest + (options.divergence - 1) * std::abs(lowest);
      if (report.diverged) {
        return;
      }
      lowest = step == 0 ? smoothed : std::min(lowest, smoothed);
    }
  });
  report.find_suggestions();
  if (!options.svg.empty() && is_main_process()) {
    write_atomic(options.svg, report.svg());
  }
  return report;
}

}  // namespace danling::inline v0
