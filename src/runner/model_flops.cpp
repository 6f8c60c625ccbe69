#include <runner/model_flops.hpp>

#include <optional>

#include <nn/flop_counter.hpp>

namespace danling::inline v0::detail {
namespace {

// A backward pass computes two matrix products for each one of the forward pass.
constexpr double training_per_forward = 3.0;

/// 0 if unknown.
double total(double per_token, double per_sample, const LoopCounts& counts) {
  return per_token > 0 && counts.tokens > 0 ? per_token * static_cast<double>(counts.tokens)
                                            : per_sample * static_cast<double>(counts.samples);
}

}  // namespace

ModelFlops::ModelFlops(const PerformanceConfig& config, CallbackList& callbacks)
    : config_(config), callbacks_(callbacks) {}
ModelFlops::~ModelFlops() = default;

bool ModelFlops::is_needed() const { return !config_.model_flops_per_sample && !config_.model_flops_per_token; }

void ModelFlops::on_train_begin(const SplitEvent&) {
  if (!done_) {
    counter_.reset();  // one counter at a time
    counter_ = std::make_unique<nn::FlopCounter>();
  }
}

void ModelFlops::drop() { counter_.reset(); }

void ModelFlops::on_step(const StepEvent& event) {
  if (counter_ != nullptr && event.samples > 0) {
    const double counted = training_per_forward * static_cast<double>(counter_->count());
    counted_per_sample_ = counted / static_cast<double>(event.samples);
    counted_per_token_ = event.tokens > 0 ? counted / static_cast<double>(event.tokens) : 0.0;
    counter_.reset();
    done_ = true;
    callbacks_.end_steps(*this);
  }
}

void ModelFlops::add_rates(Result& result, const LoopCounts& counts, bool training) const {
  if (!(counts.seconds > 0)) {
    return;
  }
  const double share = training ? 1.0 : 1.0 / training_per_forward;
  const auto add = [&](double operations, const char* rate, const char* utilization) {
    if (operations > 0) {
      const double per_second = share * operations / counts.seconds;
      result.set(rate, per_second / 1e12);
      if (config_.peak_flops) {
        result.set(utilization, 100.0 * per_second / *config_.peak_flops);
      }
    }
  };
  const double per_sample = config_.model_flops_per_sample.value_or(is_needed() ? counted_per_sample_ : 0.0);
  // Sequences of the first batch may be shorter or longer than later ones.
  const double per_token = config_.model_flops_per_token.value_or(is_needed() ? counted_per_token_ : 0.0);
  add(total(per_token, per_sample, counts), "tflops", "mfu_pct");
  add(total(config_.hardware_flops_per_token.value_or(0.0), config_.hardware_flops_per_sample.value_or(0.0), counts),
      "hw_tflops", "hfu_pct");
}

}  // namespace danling::inline v0::detail
