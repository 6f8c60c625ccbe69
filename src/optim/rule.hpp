// Elementwise optimizers as data: the options, state, checks and update rule of each.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <danling/optim/options.hpp>

#include <optim/fused_kernels.hpp>
#include <optim/rules/kernels.hpp>
#include <optim/rules/lists.hpp>

namespace danling::inline v0::optim::detail {

inline constexpr std::size_t max_buffers = 3, max_scalars = 2, max_constants = 12;

/// The update that a group's options select.
struct Variant {
  rules::Kernel kernel;
  /// The buffers that it uses, as indices into Rule::buffers.
  std::vector<std::uint8_t> buffers;
  /// Computes the constants. `count`: number of updates, including this one. Advances a parameter's scalars.
  void (*constants)(const OptimizerOptions&, double count, double* scalars, double* out);
  /// The same update by operations on tensors.
  void (*update)(rules::List& params, const rules::List& grads, rules::List* buffers, const OptimizerOptions&,
                 const rules::Number& count, rules::Number* scalars);
};

struct Rule {
  std::string_view name;
  OptimizerOptions defaults;
  /// The options of a saved group in the order of torch.optim.
  std::vector<std::string_view> saved_options;
  /// Names in torch.optim's state. Buffers have the shape of their parameter; scalars are one number per parameter.
  std::array<const char*, max_buffers> buffers;
  std::array<const char*, max_scalars> scalars = {};
  /// The state includes the number of updates.
  bool counts = true;
  /// torch.optim creates the state in the constructor, not at the first update.
  bool eager = false;
  Variant (*variant)(const OptimizerOptions&);
  /// Initial value of a buffer or scalar.
  double (*first_value)(const OptimizerOptions&, std::size_t buffer) = nullptr;
  double (*first_scalar)(const OptimizerOptions&, std::size_t scalar) = nullptr;
  /// Checks beyond the ranges of single options. Returns an error text, or an empty one.
  std::string (*contradiction)(const OptimizerOptions&) = nullptr;
  std::optional<FusedKernel> fused = std::nullopt;

  /// Returns `given` with this rule's defaults. @throws ConfigError for options out of range or of other optimizers.
  OptimizerOptions complete(const OptimizerOptions& given) const;
};

const Rule& sgd_rule();
const Rule& asgd_rule();
const Rule& rprop_rule();
const Rule& lion_rule();
const Rule& adadelta_rule();
const Rule& adagrad_rule();
const Rule& rmsprop_rule();
const Rule& adam_rule();
const Rule& adamw_rule();
const Rule& adamax_rule();
const Rule& nadam_rule();
const Rule& radam_rule();

}  // namespace danling::inline v0::optim::detail
