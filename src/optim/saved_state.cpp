#include <optim/saved_state.hpp>

#include <algorithm>
#include <map>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::optim::detail {
namespace {

// Implementation options, which do not affect the mathematics: each program sets them.
constexpr std::string_view execution_keys[] = {"foreach", "capturable", "differentiable", "fused"};

double number_of(const Target& target, const State& value, const std::string& what) {
  if (value.is_tensor()) {
    check<StateError>(value.tensor().numel() == 1, target.where, "expected a number for ", what,
                      ", got a tensor of shape ", shape_text(value.tensor()));
    return value.tensor().item().toDouble();
  }
  check<StateError>(value.is_double() || value.is_integer(), target.where, "expected a number for ", what, ", got ",
                    value.kind());
  return value.number();
}

const State& entry(const Target& target, const State::Map& map, const char* key, const std::string& what) {
  const State* found = map.find(key);
  check<StateError>(found != nullptr, target.where, "expected ", quote(key), " in ", what, ", got none");
  return *found;
}

SavedGroup read_group(const Target& target, const State& saved, std::size_t g,
                      std::span<const std::string_view> options) {
  const std::string what = concat("param_groups[", g, "]");
  check<StateError>(saved.is_map(), target.where, "expected a map for ", what, ", got ", saved.kind());
  SavedGroup out;
  out.options = &saved.map();
  for (const auto& item : saved.map()) {
    const std::string key = item.key.is_string() ? item.key.string() : item.key.text();
    const auto is_key = [&](std::string_view known) { return known == key; };
    const bool known = is_key("lr") || is_key("weight_decay") || is_key("initial_lr") || is_key("params") ||
                       is_key("param_names") || std::any_of(options.begin(), options.end(), is_key) ||
                       std::any_of(std::begin(execution_keys), std::end(execution_keys), is_key);
    check<StateError>(known, target.where, "expected the options of this kind of optimizer in ", what, ", got ",
                      quote(key));
  }
  for (const auto key : options) {
    // Newer options of torch.optim, absent in older states.
    const bool execution =
        std::find(std::begin(execution_keys), std::end(execution_keys), key) != std::end(execution_keys);
    if (!execution && key != "amsgrad" && key != "maximize" && key != "nesterov" && key != "decoupled_weight_decay") {
      entry(target, saved.map(), std::string(key).c_str(), what);
    }
  }
  out.lr = number_of(target, entry(target, saved.map(), "lr", what), what + ".lr");
  if (const State* decay = saved.map().find("weight_decay"); decay != nullptr) {  // Rprop has none
    out.weight_decay = number_of(target, *decay, what + ".weight_decay");
  }
  if (const State* initial = saved.map().find("initial_lr"); initial != nullptr) {
    out.initial_lr = number_of(target, *initial, what + ".initial_lr");
  }
  return out;
}

void check_names(const Target& target, const State::Map& saved, std::size_t g) {
  const State* names = saved.find("param_names");
  const auto& own = target.groups[g].names;
  if (names == nullptr || own.empty()) {
    return;
  }
  const auto& items = names->items();
  check<StateError>(items.size() == own.size(), target.where, "expected ", own.size(), " names in param_groups[", g,
                    "], got ", items.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    check<StateError>(items[i].string() == own[i], target.where, "expected parameter ", quote(own[i]), " at position ",
                      i, " of group ", g, ", got ", quote(items[i].string()));
  }
}

}  // namespace

std::string shape_text(const at::Tensor& tensor) { return concat("[", join(tensor.sizes()), "]"); }

SavedState read_state(const Target& target, const State& state, std::span<const std::string_view> options) {
  check<StateError>(state.is_map(), target.where, "expected a map with state and param_groups, got ", state.kind());
  const State& saved_groups = entry(target, state.map(), "param_groups", "the state");
  const State& saved_params = entry(target, state.map(), "state", "the state");
  check<StateError>(saved_params.is_map(), target.where, "expected a map for state, got ", saved_params.kind());
  const auto& items = saved_groups.items();
  check<StateError>(items.size() == target.groups.size(), target.where, "expected ", target.groups.size(),
                    " parameter groups, got ", items.size());

  SavedState out;
  std::map<std::int64_t, std::size_t> positions;
  std::size_t count = 0;
  for (std::size_t g = 0; g < items.size(); ++g) {
    out.groups.push_back(read_group(target, items[g], g, options));
    const auto& params = entry(target, items[g].map(), "params", concat("param_groups[", g, "]")).items();
    check<StateError>(params.size() == target.groups[g].params.size(), target.where, "expected ",
                      target.groups[g].params.size(), " parameters in group ", g, ", got ", params.size());
    for (const auto& param : params) {
      check<StateError>(positions.emplace(param.integer(), count).second, target.where,
                        "expected each parameter once, got ", param.integer(), " twice");
      ++count;
    }
    check_names(target, items[g].map(), g);
  }
  out.params.resize(count, nullptr);
  for (const auto& item : saved_params.map()) {
    const auto found = item.key.is_string() ? positions.end() : positions.find(item.key.integer());
    check<StateError>(found != positions.end(), target.where,
                      "expected states of the parameters in param_groups, got one of ", item.key.text());
    check<StateError>(item.value.is_map(), target.where, "expected a map for the state of parameter ", item.key.text(),
                      ", got ", item.value.kind());
    if (!item.value.map().empty()) {
      out.params[found->second] = &item.value.map();
    }
  }
  return out;
}

double read_number(const Target& target, const SavedGroup& group, const char* key, double fallback) {
  const State* found = group.options->find(key);
  return found == nullptr ? fallback : number_of(target, *found, key);
}

std::pair<double, double> read_pair(const Target& target, const SavedGroup& group, const char* key) {
  const State& found = entry(target, *group.options, key, "the group");
  const bool pair = (found.is_tuple() || found.is_list()) && found.items().size() == 2;
  check<StateError>(pair, target.where, "expected two numbers for ", key, ", got ", found.kind());
  return {number_of(target, found.items()[0], key), number_of(target, found.items()[1], key)};
}

bool read_flag(const Target& target, const SavedGroup& group, const char* key, bool fallback) {
  const State* found = group.options->find(key);
  if (found == nullptr) {
    return fallback;
  }
  check<StateError>(found->is_bool(), target.where, "expected a bool for ", key, ", got ", found->kind());
  return found->boolean();
}

void expect_keys(const Target& target, const std::string& param, const State::Map& state,
                 std::span<const std::string_view> known) {
  for (const auto& item : state) {
    const bool found = item.key.is_string() && std::find(known.begin(), known.end(), item.key.string()) != known.end();
    check<StateError>(found, target.where, "expected the state of ", param, " to hold ",
                      join(std::vector(known.begin(), known.end())), ", got ", item.key.text());
  }
}

at::Tensor read_buffer(const Target& target, const std::string& param_name, const State::Map& state, const char* key,
                       const at::Tensor& param, bool required, std::optional<at::ScalarType> dtype) {
  const State* found = state.find(key);
  if (found == nullptr || found->is_null()) {
    check<StateError>(!required, target.where, "expected ", key, " in the state of ", param_name, ", got none");
    return {};
  }
  check<StateError>(found->is_tensor(), target.where, "expected a tensor for ", key, " of ", param_name, ", got ",
                    found->kind());
  const at::Tensor& saved = found->tensor();
  check<StateError>(saved.sizes() == param.sizes(), target.where, "expected ", key, " of ", param_name, " with shape ",
                    shape_text(param), ", got ", shape_text(saved));
  const at::NoGradGuard no_grad;
  at::Tensor copy =
      at::empty_like(param, param.options().dtype(dtype.value_or(param.scalar_type())).requires_grad(false));
  copy.copy_(saved);
  return copy;
}

double read_scalar(const Target& target, const std::string& param_name, const State::Map& state, const char* key) {
  return number_of(target, entry(target, state, key, concat("the state of ", param_name)),
                   concat(key, " of ", param_name));
}

double read_step(const Target& target, const std::string& param_name, const State::Map& state, const char* key) {
  const std::string what = concat(key, " of ", param_name);
  const State* found = state.find(key);
  check<StateError>(found != nullptr, target.where, "expected ", key, " in the state of ", param_name, ", got none");
  const double steps = number_of(target, *found, what);
  check<StateError>(steps >= 0, target.where, "expected a number of updates for ", what, ", got ", steps);
  return steps;
}

State write_state(const std::vector<ParamGroup>& groups, State::Map per_param,
                  const std::function<State::Map(std::size_t group)>& options) {
  State::List list;
  std::int64_t number = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const ParamGroup& group = groups[g];
    State::Map out;
    if (!group.names.empty()) {
      out.set("param_names", State::List(group.names.begin(), group.names.end()));
    }
    for (const auto& option : options(g)) {
      out.set(option.key, option.value);
    }
    if (group.initial_lr) {
      out.set("initial_lr", *group.initial_lr);
    }
    State::List params;
    for (std::size_t i = 0; i < group.params.size(); ++i) {
      params.emplace_back(number++);
    }
    out.set("params", std::move(params));
    list.emplace_back(std::move(out));
  }
  return State::Map{{"state", std::move(per_param)}, {"param_groups", std::move(list)}};
}

}  // namespace danling::inline v0::optim::detail
