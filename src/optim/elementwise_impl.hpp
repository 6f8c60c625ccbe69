// State of elementwise optimizers, and the routes of their updates.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/optim/elementwise.hpp>

#include <optim/plan.hpp>
#include <optim/rule.hpp>
#include <optim/spans.hpp>

namespace danling::inline v0::optim {

struct ElementwiseOptimizer::Impl {
  /// State of one parameter.
  struct Slot {
    at::Tensor param;
    std::array<at::Tensor, detail::max_buffers> buffers;  // undefined until the first gradient
    at::Tensor master;                                    // float32 copy, with master_weights
    double count = 0;                                     // updates; negative while only the device knows the number
    std::array<double, detail::max_scalars> scalars = {};
    at::Tensor device_count;                                     // float32, if the device must know the number
    std::array<at::Tensor, detail::max_scalars> device_scalars;  // float64, with a negative count
    bool overlaps = false;                                       // shares memory with an earlier parameter of the group
    std::uint32_t number = 0;
    bool begun = false;  // has a state
  };

  enum class Route : std::uint8_t {
    skip,   // no gradient
    pass,   // one pass over memory
    fused,  // LibTorch's kernel on CUDA
    lists,  // one operation at a time
  };

  struct Group {
    OptimizerOptions options;  // complete; lr and weight_decay are set from the ParamGroup
    detail::Variant variant;
    std::vector<Slot> slots;
    std::vector<Route> routes;
    bool by_kernels = false;  ///< uses LibTorch's kernels: a route other than `pass` and `skip`
  };

  explicit Impl(const detail::Rule& given) : rule(given) {}

  const detail::Rule& rule;
  std::vector<Group> groups;
  detail::SpanList spans;

  // elementwise.cpp
  [[gnu::noinline]] void begin(const Group& group, Slot& slot) const;
  at::ScalarType state_dtype(const Group& group, const Slot& slot) const;
  /// The number of updates so far. Waits for the device if only the device knows it.
  static double known_count(const Slot& slot);
  [[gnu::noinline]] static void to_host(Slot& slot);
  /// Returns whether the state includes the number of updates: stochastic rounding depends on it.
  bool counted(const Group& group) const { return rule.counts || *group.options.stochastic_rounding; }
  /// Returns whether an update depends on the number of updates: a first momentum is not dampened.
  bool uses_count(const Group& group) const {
    return counted(group) || (group.options.dampening.value_or(0) != 0 && *group.options.momentum != 0);
  }

  // elementwise_update.cpp
  void route(ElementwiseOptimizer& self, std::size_t g, bool on_device);
  void update(ElementwiseOptimizer& self, double grad_divisor);
  void update(ElementwiseOptimizer& self, const GradScale& scale);

 private:
  using Members = std::vector<std::size_t>;
  void add_spans(Group& group, double grad_divisor);
  void run_fused(Group& group, double grad_divisor) const;
  void run_fused(Group& group, const GradScale& scale) const;
  void run_lists(Group& group, double grad_divisor) const;
  void run_lists(Group& group, const GradScale& scale) const;
  void run_list(Group& group, const Members& members, double grad_divisor, const detail::DeviceScale* scale) const;
  /// `first`: for SGD, whose first momentum is not dampened.
  void call_fused(Group& group, const Members& members, std::vector<at::Tensor> grads,
                  const detail::OptionalTensor& grad_scale, const detail::OptionalTensor& found_inf, bool first) const;
  void count_on_device(Group& group, const Members& members) const;
};

}  // namespace danling::inline v0::optim
