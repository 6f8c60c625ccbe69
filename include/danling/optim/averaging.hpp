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

/// The update after which an equal average begins, in a run of `total` updates.
/// @throws ConfigError for a fraction above 1, and for a share of a run without a length
std::int64_t first_update(const SWAOptions& options, std::optional<std::int64_t> total);

/// An average of a model's parameters, with copies of its buffers (torch.optim.swa_utils.AveragedModel). It holds
/// tensors, not a second module: `apply()` puts them into the model for an evaluation, and `restore()` takes them out
/// again. Neither copies, and parameters keep their identity, so optimizers and graphs stay valid.
///
/// Averages of bfloat16 and float16 parameters are float32, since their small steps vanish in 8 or 11 bits; `apply()`
/// then converts a copy. Parameters without gradients (frozen ones) are not averaged and take no memory. Tied
/// parameters are averaged once. Integer buffers are copied.
class WeightAverage {
 public:
  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

  /// Exponential: average = decay * average + (1 - decay) * weights. The first update copies the weights.
  /// @param state  parameters and buffers, by their names in the model's state
  /// @param parameters  those of them that are parameters
  /// @throws ConfigError for an option out of range
  WeightAverage(NamedTensors state, const NamedTensors& parameters, const EMAOptions& options);
  /// Equal, of every `interval`-th update after `start`. @param total  updates of the run, for a `start` below 1
  WeightAverage(NamedTensors state, const NamedTensors& parameters, const SWAOptions& options,
                std::optional<std::int64_t> total = std::nullopt);
  WeightAverage(const torch::nn::Module& model, const EMAOptions& options);
  WeightAverage(const torch::nn::Module& model, const SWAOptions& options,
                std::optional<std::int64_t> total = std::nullopt);
  WeightAverage(WeightAverage&&) = default;
  WeightAverage& operator=(WeightAverage&&) = default;
  WeightAverage(const WeightAverage&) = delete;
  WeightAverage& operator=(const WeightAverage&) = delete;
  ~WeightAverage();  ///< puts the model's own weights back

  /// Takes the model's weights into the average, if `start` and `interval` ask for this update. Call it after each
  /// update of the model: one pass over the parameters, without a device wait. On a device where a flag may skip the
  /// update, an operation per tensor.
  /// @param found_inf  number on the device that is not 0 after an update that was skipped: the average then stays
  /// @return whether they asked for it. @throws StateError while the average is applied
  bool update(const at::Tensor& found_inf = {});

  /// Number of averaged weights. Waits for the device after an update with a flag.
  std::int64_t count() const;
  /// Number of updates, also of those that `start` and `interval` left out.
  std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }
  std::int64_t start() const { return start_; }
  void set_start(std::int64_t start) { start_ = start; }
  /// Whether there is an average; before that, apply() changes nothing.
  bool has_average() const { return averaged_; }

  /// Exchanges the model's tensors and the averages; other tensors that share memory with the model's stay. A second
  /// call changes nothing. No device wait.
  void apply();
  void restore();
  bool is_applied() const { return applied_; }
  /// apply() and restore() then copy values, with memory for one more copy: for tensors whose memory others read.
  void set_keeps_memory(bool keeps) { keeps_memory_ = keeps; }

  /// The averages under the names of the model's state, whether applied or not; they share memory with this object. A
  /// parameter that is not averaged is the model's.
  State weights() const;
  /// The model's own tensors, whether the averages are applied or not.
  State model_weights() const;

  /// {"weights": ..., "n_averaged": ..., "updates": ..., "left_out": names of parameters that are not averaged yet}
  State state_dict() const;
  /// Copies values. `n_averaged` may be missing: then weights count as one, and none as no average.
  /// @throws StateError and changes nothing for weights that do not fit the model's.
  void load_state_dict(const State& state);

 private:
  struct Entry {
    at::Tensor model;  // the variable itself
    bool is_parameter = false;
    bool moves = false;        // averaged, else copied
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
  std::optional<double> decay_;  // none: equal
  double warmup_ = 0;
  std::int64_t start_ = 0, interval_ = 1, updates_ = 0, count_ = 0;
  at::Tensor device_count_;  // float64, beside the flag: replaces count_ once an update had one
  bool use_buffers_ = false, averaged_ = false, applied_ = false, keeps_memory_ = false;
};

}  // namespace danling::inline v0::optim
