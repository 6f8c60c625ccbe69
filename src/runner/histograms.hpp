// Histograms of weights and gradients, for the sinks that show them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <danling/runner/callback.hpp>

namespace danling::inline v0::detail {

/// Copies weights and gradients every `interval` updates; the sink's thread counts the bins.
class Histograms : public Callback {
 public:
  explicit Histograms(std::int64_t interval) : interval_(interval) {}

  std::string name() const override { return "histograms"; }
  void on_gradients(const GradientsEvent& event) override;
  void on_restore(const RestoreEvent&) override { last_.clear(); }

 private:
  std::int64_t interval_;
  std::map<std::string, std::int64_t> last_;  // last step by model
  bool has_warned_ = false;
};

}  // namespace danling::inline v0::detail
