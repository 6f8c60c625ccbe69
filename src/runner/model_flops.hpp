// Floating-point operations of the model: counted in the first training step, reported as rates.
#pragma once

#include <cstdint>
#include <memory>

#include <danling/core/result.hpp>
#include <danling/runner/callback.hpp>
#include <danling/runner/logging_options.hpp>
#include <danling/telemetry/loop_telemetry.hpp>

namespace danling::inline v0 {
namespace nn {
class FlopCounter;
}
namespace detail {

/// Listens to steps until it has counted one.
class ModelFlops : public Callback {
 public:
  ModelFlops(const PerformanceConfig& config, CallbackList& callbacks);
  ~ModelFlops() override;

  std::string name() const override { return "performance"; }
  void on_train_begin(const SplitEvent&) override;
  void on_step(const StepEvent& event) override;
  void on_train_end(const SplitEvent&) override { drop(); }
  void on_stop(const StopEvent&) override { drop(); }
  void on_exception(const ExceptionEvent&) override { drop(); }

  /// True when it must count a step, since the config does not set the model's FLOPs.
  bool is_needed() const;
  /// Adds tflops, mfu_pct, hw_tflops and hfu_pct (DanLing's names).
  void add_rates(Result& result, const LoopCounts& counts, bool training) const;

 private:
  void drop();

  const PerformanceConfig& config_;
  CallbackList& callbacks_;
  std::unique_ptr<nn::FlopCounter> counter_;
  double counted_per_sample_ = 0.0, counted_per_token_ = 0.0;  // in training
  bool done_ = false;
};

}  // namespace detail
}  // namespace danling::inline v0
