// Reads and writes the state layout of torch.optim, for all optimizers.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <danling/optim/optimizer.hpp>

namespace danling::inline v0::optim::detail {

std::string shape_text(const at::Tensor& tensor);

/// A group's entries in a saved state, checked against the optimizer's group.
struct SavedGroup {
  const State::Map* options = nullptr;
  double lr = 0;
  double weight_decay = 0;
  std::optional<double> initial_lr;
};

/// A parsed saved state; points into its source tree.
struct SavedState {
  std::vector<SavedGroup> groups;
  /// One per parameter in the order of groups; null for a parameter without state.
  std::vector<const State::Map*> params;
};

/// Properties of the optimizer that reads the state.
struct Target {
  std::string where;  // "AdamW.load_state_dict"
  const std::vector<ParamGroup>& groups;
  std::function<std::string(std::size_t group, std::size_t index)> describe;
};

/// @throws StateError when groups, parameters or options do not match. `options`: the keys besides lr and weight_decay.
SavedState read_state(const Target& target, const State& state, std::span<const std::string_view> options);

double read_number(const Target& target, const SavedGroup& group, const char* key, double fallback);
std::pair<double, double> read_pair(const Target& target, const SavedGroup& group, const char* key);
bool read_flag(const Target& target, const SavedGroup& group, const char* key, bool fallback);

/// @throws StateError for a key of a parameter's state that is not in `known`.
void expect_keys(const Target& target, const std::string& param, const State::Map& state,
                 std::span<const std::string_view> known);
inline void expect_keys(const Target& target, const std::string& param, const State::Map& state,
                        std::initializer_list<std::string_view> known) {
  expect_keys(target, param, state, std::span(known.begin(), known.size()));
}

/// A copy of the tensor at `key` with the device and layout of `param`, and its dtype unless another is given.
/// Undefined if it is missing and not `required`.
at::Tensor read_buffer(const Target& target, const std::string& param_name, const State::Map& state, const char* key,
                       const at::Tensor& param, bool required, std::optional<at::ScalarType> dtype = std::nullopt);

/// The number at `key`, stored as a number or in a one-element tensor. Waits for its device.
double read_scalar(const Target& target, const std::string& param_name, const State::Map& state, const char* key);

/// The number of updates at `key`, a scalar tensor or a number. Waits for its device.
double read_step(const Target& target, const std::string& param_name, const State::Map& state, const char* key);

/// {"state": per_param, "param_groups": [{options..., "initial_lr", "params"}]}; `options(g)` returns the options of
/// group g.
State write_state(const std::vector<ParamGroup>& groups, State::Map per_param,
                  const std::function<State::Map(std::size_t group)>& options);

}  // namespace danling::inline v0::optim::detail
