#include <runner/shard_states.hpp>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include <danling/core/error.hpp>
#include <danling/optim/optimizer.hpp>

#include <runner/averages.hpp>
#include <runner/optimizer_numbers.hpp>

namespace danling::inline v0 {
namespace {

using Names = std::map<const c10::TensorImpl*, std::string>;

/// Prefix of parameter names, such as "optimizer.state."; "" for the model.
struct Prefix {
  std::string model;
  std::string_view rest;
  bool is_optimizer = false;
};

/// The model and kind of a path; empty if it belongs to neither a model nor an optimizer.
std::optional<Prefix> prefix_of(std::string_view path) {
  Prefix out;
  if (path.starts_with("models.")) {
    path.remove_prefix(7);
    const auto dot = path.find('.');
    if (dot == std::string_view::npos) {
      return std::nullopt;
    }
    out.model = path.substr(0, dot);
    path.remove_prefix(dot + 1);
  }
  for (const std::string_view kind : {"model.", "ema.", "swa.", "optimizer.state."}) {
    if (path.starts_with(kind)) {
      out.rest = path.substr(kind.size());
      out.is_optimizer = kind.starts_with("optimizer");
      return out;
    }
  }
  return std::nullopt;
}

std::vector<at::Tensor> params_in_order(const optim::Optimizer& optimizer) {
  std::vector<at::Tensor> out;
  for (const auto& group : optimizer.param_groups()) {
    out.insert(out.end(), group.params.begin(), group.params.end());
  }
  return out;
}

Names names_of(const NamedTensors& trained) {
  Names out;
  for (const auto& [name, tensor] : trained) {
    out.emplace(tensor.unsafeGetTensorImpl(), name);
  }
  return out;
}

std::vector<std::string> names_in_order(const optim::Optimizer& optimizer, const Names& names) {
  std::vector<std::string> out;
  for (const at::Tensor& param : params_in_order(optimizer)) {
    const auto found = names.find(param.unsafeGetTensorImpl());
    check<StateError>(found != names.end(), "runner.state_dict",
                      "expected an optimizer of the model's parameters with checkpoint.backend: dcp, got one of "
                      "another tensor; set optim.type, or build it from iter_optimizer_named_parameters()");
    out.push_back(found->second);
  }
  return out;
}

/// Names of parameters without dimensions. As rows they have one row, or none if another rank has the value.
std::set<std::string> without_dimensions(const ModelHandle& handle) {
  std::set<std::string> out;
  for (const auto& [name, tensor] : handle.named_parameters()) {
    if (tensor.dim() == 0) {
      out.insert(name);
    }
  }
  return out;
}

/// An entry of an optimizer's state with values of the sizes of `like`; empty if `like` is empty.
State resized(const State& entry, at::IntArrayRef sizes) {
  State out{State::Map()};
  for (const auto& item : entry.map()) {
    const bool has_values = item.value.is_tensor() && !detail::is_number_of_parameter(item.key.string());
    const bool is_empty = c10::multiply_integers(sizes) == 0;
    out.map().set(item.key, !has_values ? item.value
                            : is_empty  ? State(at::empty(sizes, item.value.tensor().options()))
                                        : State(item.value.tensor().reshape(sizes)));
  }
  return out;
}

}  // namespace

// ---- models ---------------------------------------------------------------------------------------------------------

State TorchRunnerBase::Internals::ShardStates::of_model(const ModelHandle& handle) const {
  if (!handle) {
    return {};
  }
  std::map<std::string, at::Tensor> trained;
  for (const auto& [name, tensor] : runner_.parallelism().trained_parameters(handle)) {
    trained.emplace(name, tensor);
  }
  const State kept = Averages(const_cast<TorchRunnerBase&>(runner_)).trained_weights(handle);  // during an evaluation
  State out{State::Map()};
  for (const auto& [name, tensor] : handle.named_state()) {
    const auto found = trained.find(name);
    at::Tensor own = found == trained.end() ? tensor : found->second;
    if (const State* weights = kept.is_map() ? kept.find(name) : nullptr) {
      const at::Tensor part = runner_.parallelism().local_tensor(own, weights->tensor());
      own = part.numel() == own.numel() ? part.reshape(own.sizes()) : part;
    }
    const bool lacks_scalar = tensor.dim() == 0 && own.numel() == 0;  // another rank has it
    if (!lacks_scalar) {
      out[name] = own.detach().reshape(tensor.dim() == 0 ? at::IntArrayRef() : own.sizes());
    }
  }
  return out;
}

void TorchRunnerBase::Internals::ShardStates::load_model(const ModelHandle& handle, const State& state) const {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> trained;
  for (const auto& [name, tensor] : runner_.parallelism().trained_parameters(handle)) {
    trained.emplace(name, tensor);
  }
  for (const auto& [name, tensor] : handle.named_state()) {
    const auto found = trained.find(name);
    at::Tensor own = found == trained.end() ? tensor : found->second;
    if (tensor.dim() == 0 && own.numel() == 0) {
      continue;  // another rank has it
    }
    const State* saved = state.find(name);
    check<CheckpointError>(saved != nullptr && saved->is_tensor(), "runner.load_checkpoint", "expected ", quote(name),
                           " in the checkpoint's model, got none");
    at::Tensor values = saved->tensor();
    if (tensor.dim() == 0) {  // one row, which one rank has
      check<CheckpointError>(values.numel() == 1, "runner.load_checkpoint", "expected ", quote(name),
                             " of one value, got [", join(values.sizes()), "]");
      values = values.reshape({1}).narrow(0, 0, own.numel());
    }
    if (values.sizes() != own.sizes() && tensor.dim() > 0) {
      const auto place = runner_.parallelism().shard_of(tensor);
      check<CheckpointError>(place && values.sizes() == at::IntArrayRef(place->sizes), "runner.load_checkpoint",
                             "expected ", quote(name), " of [", join(own.sizes()), "] or the whole, got [",
                             join(values.sizes()), "]");
      for (std::size_t dim = 0; dim < place->own.size(); ++dim) {
        values = values.narrow(static_cast<std::int64_t>(dim), place->offsets[dim], place->own[dim]);
      }
    }
    own.copy_(values.reshape(own.sizes()));
  }
  runner_.parallelism().parameters_changed();
}

// ---- optimizers -----------------------------------------------------------------------------------------------------

bool TorchRunnerBase::Internals::ShardStates::is_named(const State& optimizer) {
  return optimizer.find("groups") != nullptr;
}

State TorchRunnerBase::Internals::ShardStates::of_optimizer(const ModelHandle& handle,
                                                            const optim::Optimizer& optimizer) const {
  const auto names = names_in_order(optimizer, names_of(runner_.parallelism().trained_parameters(handle)));
  const auto params = params_in_order(optimizer);
  const std::set<std::string> scalars = without_dimensions(handle);
  const State indexed = optimizer.state_dict();
  State out = indexed;
  State state{State::Map()};
  if (const State* entries = indexed.find("state"); entries != nullptr && entries->is_map()) {
    for (const auto& entry : entries->map()) {
      const auto at = static_cast<std::size_t>(entry.key.integer());
      if (params.at(at).numel() > 0) {  // else another rank has the values
        state[names.at(at)] = scalars.contains(names.at(at)) ? resized(entry.value, {}) : entry.value;
      }
    }
  }
  out["state"] = std::move(state);
  State groups{State::Map()};
  std::int64_t number = 0;
  std::size_t at = 0;
  State::List options;
  for (const State& group : indexed.at("param_groups").list()) {
    for (std::size_t i = 0; i < group.at("params").list().size(); ++i) {
      groups[names.at(at++)] = number;
    }
    State plain = group;
    plain.map().erase("params");
    plain.map().erase("param_names");
    options.push_back(std::move(plain));
    ++number;
  }
  out["param_groups"] = std::move(options);
  out["groups"] = std::move(groups);
  return out;
}

State TorchRunnerBase::Internals::ShardStates::named_optimizer(const ModelHandle& handle, const State& file) const {
  std::map<std::string, std::pair<at::Tensor, at::Tensor>>
      own;  // by name: parameter, and the part that this rank trains
  for (const auto& [name, trained] : runner_.parallelism().trained_parameters(handle)) {
    own[name].second = trained;
  }
  for (const auto& [name, parameter] : handle.named_parameters()) {
    own[name].first = parameter;
  }
  const auto part_of = [&](const std::string& name, const at::Tensor& whole) {
    const auto& [parameter, trained] = own.at(name);
    const auto place = runner_.parallelism().shard_of(parameter);
    if (!place || whole.dim() == 0 || whole.sizes() != at::IntArrayRef(place->sizes)) {
      return whole;
    }
    at::Tensor part = whole;
    for (std::size_t dim = 0; dim < place->own.size(); ++dim) {
      part = part.narrow(static_cast<std::int64_t>(dim), place->offsets[dim], place->own[dim]);
    }
    return part.reshape(trained.sizes()).clone();
  };
  State out = file, entries{State::Map()}, groups{State::Map()};
  const State& states = file.at("state");
  std::int64_t number = 0;
  for (const State& group : file.at("param_groups").list()) {
    const auto& params = group.at("params").list();
    const State* const names = group.find("param_names");
    check<CheckpointError>(names != nullptr && names->list().size() == params.size(), "runner.load_checkpoint",
                           "expected the names of parameters in the optimizer of a file, for ranks with slices or "
                           "stages of the model, got none; put 'optimizer' into checkpoint.exclude_from_loading to "
                           "continue without its state");
    for (std::size_t i = 0; i < params.size(); ++i) {
      const std::string name = names->list()[i].string();
      groups[name] = number;
      const State* const saved = states.is_map() ? states.map().find(params[i].integer()) : nullptr;
      const auto known = own.find(name);
      if (saved == nullptr || known == own.end() || known->second.second.numel() == 0) {
        continue;
      }
      State entry{State::Map()};
      for (const auto& item : saved->map()) {
        entry.map().set(item.key, item.value.is_tensor() ? State(part_of(name, item.value.tensor())) : item.value);
      }
      entries[name] = std::move(entry);
    }
    ++number;
  }
  out["state"] = std::move(entries);
  out["groups"] = std::move(groups);
  return out;
}

void TorchRunnerBase::Internals::ShardStates::load_optimizer(const ModelHandle& handle, optim::Optimizer& optimizer,
                                                             const State& any) const {
  const State state = is_named(any) ? any : named_optimizer(handle, any);
  const auto names = names_in_order(optimizer, names_of(runner_.parallelism().trained_parameters(handle)));
  const auto params = params_in_order(optimizer);
  const State own = optimizer.state_dict();
  State out = state;
  out.map().erase("groups");
  const std::set<std::string> scalars = without_dimensions(handle);
  State entries{State::Map()};
  for (std::size_t at = 0; at < names.size(); ++at) {
    if (const State* saved = state.at("state").find(names[at])) {
      entries.map().set(static_cast<std::int64_t>(at),
                        scalars.contains(names[at]) ? resized(*saved, params[at].sizes()) : *saved);
    }
  }
  out["state"] = std::move(entries);
  const auto& saved_groups = state.at("param_groups").list();
  const auto& own_groups = own.at("param_groups").list();
  check<CheckpointError>(saved_groups.size() == own_groups.size(), "runner.load_checkpoint", "expected ",
                         own_groups.size(), " groups of parameters in the checkpoint's optimizer, got ",
                         saved_groups.size());
  State::List groups;
  std::size_t at = 0;
  for (std::size_t number = 0; number < own_groups.size(); ++number) {
    State group = saved_groups[number];
    group["params"] = own_groups[number].at("params");
    if (const State* own_names = own_groups[number].find("param_names")) {
      group["param_names"] = *own_names;
    }
    for (std::size_t i = 0; i < own_groups[number].at("params").list().size(); ++i, ++at) {
      const State* saved = state.at("groups").find(names.at(at));
      check<CheckpointError>(saved != nullptr && saved->integer() == static_cast<std::int64_t>(number),
                             "runner.load_checkpoint", "expected ", quote(names[at]), " in group ", number,
                             " of the checkpoint's optimizer, got ",
                             saved == nullptr ? std::string("none") : to_text(saved->integer()));
    }
    groups.push_back(std::move(group));
  }
  out["param_groups"] = std::move(groups);
  optimizer.load_state_dict(out);
}

// ---- places ---------------------------------------------------------------------------------------------------------

std::map<std::string, NamedTensors> TorchRunnerBase::Internals::ShardStates::names() const {
  std::map<std::string, NamedTensors> out;
  const auto add = [&](const std::string& model, const ModelHandle& handle) {
    if (handle) {
      out.emplace(model, handle.named_state());
    }
  };
  add("", runner_.model);
  for (const auto& [name, handle] : runner_.models) {
    add(name, handle);
  }
  return out;
}

const std::map<std::string, TorchRunnerBase::Internals::ShardStates::Parts>&
TorchRunnerBase::Internals::ShardStates::parts() const {
  if (!std::exchange(is_listed_, true)) {
    for (const auto& [model, tensors] : names()) {
      for (const auto& [name, tensor] : tensors) {
        known_[model].emplace(name, true);
        if (const auto place = runner_.parallelism().shard_of(tensor)) {
          parts_[model].emplace(name, Part{*place, place->own});
        }
      }
    }
  }
  return parts_;
}

TorchRunnerBase::Internals::ShardStates::Found TorchRunnerBase::Internals::ShardStates::find(
    std::string_view path) const {
  const auto prefix = prefix_of(path);
  parts();
  if (!prefix) {
    return {};
  }
  std::string_view name = prefix->rest;
  const auto& known = known_[prefix->model];
  const bool is_known = known.contains(name);
  if (!is_known && prefix->is_optimizer) {
    name = name.substr(0, std::min(name.rfind('.'), name.size()));
  }
  if (!is_known && !known.contains(name)) {
    // A file numbers the parameters of an optimizer: all are read, and named_optimizer() takes this rank's shards.
    const bool is_number = prefix->is_optimizer && name.find_first_not_of("0123456789") == std::string_view::npos;
    return {.is_known = is_number};
  }
  const auto& parts = parts_[prefix->model];
  const auto found = parts.find(name);
  return {.part = found == parts.end() ? nullptr : &found->second};
}

ShardedState TorchRunnerBase::Internals::ShardStates::with_places(State state) const {
  ShardedState out;
  const bool is_main = runner_.is_main_process();
  const std::function<void(const State&, const std::string&)> visit = [&](const State& tree, const std::string& path) {
    if (tree.is_map()) {
      for (const auto& entry : tree.map()) {
        visit(entry.value,
              concat(path, path.empty() ? "" : ".", entry.key.is_string() ? entry.key.string() : entry.key.text()));
      }
    } else if (tree.is_tensor()) {
      const Found found = find(path);
      if (found.part != nullptr && tree.tensor().sizes() == at::IntArrayRef(found.part->own) &&
          tree.tensor().dim() > 0) {
        out.places.emplace(path, ShardPlace{found.part->place.sizes, found.part->place.offsets});
      }
    }
  };
  visit(state, "");
  if (!is_main) {  // only the main process adds the rest
    State own{State::Map()};
    const auto keep = [](const State& from, State& to) {
      for (const char* key : {"model", "ema", "swa", "optimizer"}) {
        if (const State* part = from.find(key); part != nullptr && part->is_map()) {
          to[key] = *part;
        }
      }
    };
    keep(state, own);
    if (const State* models = state.find("models"); models != nullptr && models->is_map()) {
      for (const auto& entry : models->map()) {
        State part{State::Map()};
        keep(entry.value, part);
        own["models"][entry.key] = std::move(part);
      }
    }
    state = std::move(own);
  }
  out.state = std::move(state);
  return out;
}

std::optional<ShardBox> TorchRunnerBase::Internals::ShardStates::box_of(const std::string& path,
                                                                        at::IntArrayRef sizes) const {
  const Found found = find(path);
  if (!found.is_known) {
    return std::nullopt;  // in another stage
  }
  if (found.part == nullptr || at::IntArrayRef(found.part->place.sizes) != sizes) {
    return ShardBox();
  }
  return ShardBox{found.part->place.offsets, found.part->own};
}

}  // namespace danling::inline v0
