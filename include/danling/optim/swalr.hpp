// Learning rate for averaged weights: anneals to a constant rate.
#pragma once

#include <cstdint>
#include <string_view>

#include <danling/optim/scheduler.hpp>

namespace danling::inline v0::optim {

/// Anneals the rates from those at construction to `swa_lr` in `anneal_epochs` steps, then keeps them
/// (torch.optim.swa_utils.SWALR).
class SWALR final : public Scheduler {
 public:
  /// @param anneal_strategy  `cos` or `linear`
  /// @throws ConfigError for a negative rate or number, and for an unknown strategy
  SWALR(Optimizer& optimizer, double swa_lr, std::int64_t anneal_epochs = 10, std::string_view anneal_strategy = "cos");

 private:
  void compute(std::vector<double>& lrs, std::optional<double> metric) override;
  double share(std::int64_t step) const;

  double swa_lr_;
  std::int64_t anneal_epochs_;
  bool linear_;
};

}  // namespace danling::inline v0::optim
