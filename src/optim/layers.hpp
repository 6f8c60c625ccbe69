// Rules of layerwise optimizers, and their common parts.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <danling/optim/optimizer.hpp>
#include <danling/optim/options.hpp>

#include <optim/known_options.hpp>
#include <optim/rules/layerwise_kernels.hpp>
#include <optim/saved_state.hpp>
#include <tensors/workers.hpp>

namespace danling::inline v0::optim::detail {

/// A parameter with its state.
struct Layer {
  at::Tensor param;
  std::vector<at::Tensor> state = {};  ///< empty before the first update
  at::Tensor master = {};              ///< float32 copy, with master_weights
  double count = 0;                    ///< updates; negative while only the device knows the number
  at::Tensor device_count = {};        ///< float32; set while `count` is negative
  std::uint32_t number = 0;            ///< index among all parameters of the optimizer
  bool overlaps = false;               ///< shares memory with another parameter of its group
};

/// A parameter to update on the host, with its gradient. Contiguous, of dtypes with a kernel.
struct LayerUpdate {
  Layer* layer;
  at::Tensor grad;
  double divisor;
  std::uint32_t rounding = 0;

  rules::Type param_type() const;
  rules::Type grad_type() const;
  rules::Type state_type() const;
  float* master() const { return layer->master.defined() ? layer->master.mutable_data_ptr<float>() : nullptr; }
};

/// The same as tensors on any device, in float32 instead of two-byte dtypes. An update replaces them.
struct LayerTensors {
  at::Tensor param, grad;
  std::vector<at::Tensor> state;
  at::Tensor count;  ///< float64, on the host or with the parameter
};

struct NamedState {
  const char* key;
  std::vector<std::int64_t> sizes;
};

class LayerRule {
 public:
  virtual ~LayerRule() = default;

  virtual const KnownOptions& options() const = 0;
  std::string_view name() const { return options().optimizer; }
  /// @throws ConfigError for options out of range. `options` are complete.
  virtual void validate(const OptimizerOptions& options) const = 0;
  virtual std::vector<NamedState> layout(const at::Tensor& param) const = 0;
  /// Returns whether the state of two-byte parameters is float32 even without master weights.
  virtual bool has_wide_state() const { return false; }

  /// Updates on the host; `layer->count` includes this update. `parallel`: uses several threads, with the same bits.
  virtual void update(const OptimizerOptions& options, const LayerUpdate& item, bool parallel) const = 0;
  /// The same for any device and layout, without a device wait. `dtype`: of the parameter or its float32 copy.
  virtual void update(const OptimizerOptions& options, LayerTensors& layer, at::ScalarType dtype) const = 0;

  /// The options in torch's state layout.
  virtual State::Map write(const OptimizerOptions& options) const = 0;
  virtual std::vector<std::string_view> saved_keys() const = 0;
  virtual void read(const Target& target, const SavedGroup& group, OptimizerOptions& options) const = 0;
};

const LayerRule& lamb_rule();
const LayerRule& adafactor_rule();

// ---- helpers of rules -----------------------------------------------------------------------------------------------

/// Elements of the part that one thread processes; a larger parameter uses all threads.
inline constexpr std::int64_t part_size = std::int64_t{1} << 16;
inline constexpr std::int64_t large_size = std::int64_t{1} << 18;

/// Calls `body(i)` for each part i below `count`.
template <class Body>
void for_parts(std::int64_t count, bool parallel, const Body& body) {
  const auto some = [&body](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      body(i);
    }
  };
  if (parallel) {
    tensors::for_each_range(count, /*grain=*/2, some);
  } else {
    some(0, count);
  }
}

/// 1 - beta^count
at::Tensor bias_correction(double beta, const at::Tensor& count);

}  // namespace danling::inline v0::optim::detail
