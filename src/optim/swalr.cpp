#include <danling/optim/swalr.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <danling/core/error.hpp>

namespace danling::inline v0::optim {

SWALR::SWALR(Optimizer& optimizer, double swa_lr, std::int64_t anneal_epochs, std::string_view anneal_strategy)
    : Scheduler(optimizer), swa_lr_(swa_lr), anneal_epochs_(anneal_epochs), linear_(anneal_strategy == "linear") {
  constexpr const char* where = "scheduler.build";
  check<ConfigError>(swa_lr >= 0 && std::isfinite(swa_lr), where, "expected swa_lr of 0 or more, got ", swa_lr);
  check<ConfigError>(anneal_epochs >= 0, where, "expected anneal_epochs of 0 or more, got ", anneal_epochs);
  check<ConfigError>(linear_ || anneal_strategy == "cos", where, "expected anneal_strategy cos or linear, got ",
                     quote(anneal_strategy));
  start();
}

// The fraction of the way to swa_lr.
double SWALR::share(std::int64_t step) const {
  const double progress =
      std::clamp(static_cast<double>(step) / static_cast<double>(std::max<std::int64_t>(anneal_epochs_, 1)), 0.0, 1.0);
  return linear_ ? progress : (1 - std::cos(std::numbers::pi * progress)) / 2;
}

// Starts from the previous rates, as torch does, to follow rates that the program changes.
void SWALR::compute(std::vector<double>& lrs, std::optional<double>) {
  const std::int64_t step = anneal_epochs_ == 0 ? std::max<std::int64_t>(last_epoch(), 1) : last_epoch();
  const double before = share(step - 1);
  const double now = share(step);
  for (double& lr : lrs) {
    const double initial = before == 1 ? swa_lr_ : (lr - before * swa_lr_) / (1 - before);
    lr = swa_lr_ * now + initial * (1 - now);
  }
}

}  // namespace danling::inline v0::optim
