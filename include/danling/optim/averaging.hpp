// Averages of a model's weights over its updates: exponential (EMA) and equal (SWA).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/optim/averaging_options.hpp>
#include <danling/state/state.hpp>

namespace torch::nn {
class Module;
}

namespace danling::inline v0::optim {

/// The number of updates before an equal average begins, in a run of `total` updates.
/// @throws ConfigError for a fraction above 1, and for a share of a run without a known length
std::int64_t first_update(const SWAOptions& options, std::optional<std::int64_t> total);

/// An average of a model's parameters, with copies of its buffers (torch.optim.swa_utils.AveragedModel). Stores
/// tensors, not a second module: `apply()` moves them into the model for an evaluation, `restore()` moves them out.
/// Neither copies, and parameters keep their identity, so optimizers and graphs stay valid.
///
/// Averages of bfloat16 and float16 parameters are float32, since small steps vanish in 8 or 11 bits; `apply()` then
/// converts a copy. Parameters without gradients (frozen) are not averaged and take no memory. Tied parameters are
/// averaged once. Integer buffers are copied.
class WeightAverage {
 public:
  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

  /// Exponential: average = decay * average + (1 - decay) * weights. The first update copies the weights.
  /// @param state  parameters and buffers by their names in the model's state
  /// @param parameters  the parameters among them
  /// @throws ConfigError for an option out of range
  WeightAverage(NamedTensors state, const NamedTensors& parameters, const EMAOptions& options);
  /// Equal average of every `interval`-th update after `start`. @param total  updates of the run, for a `start` below 1
  WeightAverage(NamedTensors state, const NamedTensors& parameters, const SWAOptions& options,
                std::optional<std::int64_t> total = std::nullopt);
  WeightAverage(const torch::nn::Module& model, const EMAOptions& options);
  WeightAverage(const torch::nn::Module& model, const SWAOptions& options,
                std::optional<std::int64_t> total = std::nullopt);
  WeightAverage(WeightAverage&&) = default;
  WeightAverage& operator=(WeightAverage&& other) noexcept;  ///< restores the model's weights first
  WeightAverage(const WeightAverage&) = delete;
  WeightAverage& operator=(const WeightAverage&) = delete;
  ~WeightAverage();  ///< restores the model's weights

  /// Adds the model's weights to the average, if `start` and `interval` select this update. Call it after each update
  /// of the model. One pass over the parameters; does not wait for the device. With a flag on a device, one operation
  /// per tensor.
  /// @param found_inf  number on the device, nonzero if the update was skipped: the average then does not change
  /// @return true if this update was selected. @throws StateError while the average is applied
  bool update(const at::Tensor& found_inf = {});

  /// Number of averaged weights. Waits for the device after an update with a flag.
  std::int64_t count() const;
  /// Number of updates, including those that `start` and `interval` did not select.
  std::int64_t updates() const { return updates_; }
  /// Number of updates before the first average.
  std::int64_t start() const { return start_; }
  void set_start(std::int64_t start) { start_ = start; }
  /// Returns whether there is an average; before that, apply() changes nothing.
  bool has_average() const { return averaged_; }

  /// Swaps the model's tensors and the averages; other tensors that share memory with the model's do not change. A
  /// second call changes nothing. Does not wait for the device.
  void apply();
  /// Swaps them back; does nothing unless the averages are applied.
  void restore();
  bool is_applied() const { return applied_; }
  /// Makes apply() and restore() copy values instead of exchanging memory, for models whose memory other code reads.
  /// Needs memory for one more copy of the weights. Call it while the averages are not applied.
  void set_copies_on_apply(bool copies) { copies_on_apply_ = copies; }

  /// The averages under the names of the model's state, applied or not; they share memory with this object. A parameter
  /// that is not averaged is the model's tensor.
  State weights() const;
  /// The model's weights, whether the averages are applied or not.
  State model_weights() const;

  /// {"weights": ..., "n_averaged": ..., "updates": ..., "left_out": names of parameters that are not averaged yet}
  State state_dict() const;
  /// Copies values. Without `n_averaged`, weights count as one average, and null weights as none.
  /// @throws StateError and changes nothing for weights that do not fit the model's.
  void load_state_dict(const State& state);

 private:
  struct Entry {
    at::Tensor model;  // the parameter or buffer
    bool is_parameter = false;
    bool moves = false;        // true: averaged; false: copied
    at::Tensor average = {};   // undefined for a parameter that is not averaged
    at::Tensor narrowed = {};  // the average in the model's dtype, until the next update
    at::Tensor saved = {};     // the model's memory while the average is applied
  };
  struct List {  // of one device and one pair of dtypes
    bool moves;
    std::vector<at::Tensor> averages, values;
  };

  WeightAverage(NamedTensors state, const NamedTensors& parameters, bool use_buffers);
  const at::Tensor& own(const Entry& entry) const { return entry.saved.defined() ? entry.saved : entry.model; }
  void join(Entry& entry) const;
  void join_all();
  void build_lists();
  double weight() const;
  at::Tensor weight_on_device(const at::Tensor& found_inf);

  std::vector<std::pair<std::string, std::size_t>> names_;  // of the entries, in the order of the state
  std::vector<Entry> entries_;
  std::vector<List> lists_;
  std::optional<double> decay_;  // absent: equal average
  double warmup_ = 0;
  std::int64_t start_ = 0, interval_ = 1, updates_ = 0, count_ = 0;
  at::Tensor device_count_;  // float64, replaces count_ after the first update with a flag
  bool use_buffers_ = false, averaged_ = false, applied_ = false, copies_on_apply_ = false;
};

}  // namespace danling::inline v0::optim
