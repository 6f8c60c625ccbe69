#include <danling/data/collate_nested.hpp>

#include <algorithm>

#include <danling/core/error.hpp>
#include <danling/data/collate.hpp>
#include <danling/tensors/nested_tensor.hpp>

namespace danling::inline v0::data {
namespace {

at::Tensor nest_tensors(const detail::Parts<at::Tensor>& parts, const std::string& path) {
  const at::Tensor& first = *parts.front();
  std::vector<at::Tensor> elements;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const at::Tensor& own = *parts[i];
    const bool fits = own.defined() && first.defined() && own.dim() == first.dim() &&
                      own.scalar_type() == first.scalar_type() && own.device() == first.device();
    if (!fits) {
      detail::fail_collate(path, i, concat("of ", detail::describe(first), ", but for the sizes,"),
                           detail::describe(own));
    }
    elements.push_back(own);
  }
  return NestedTensor(elements);
}

bool sizes_differ(const detail::Parts<at::Tensor>& parts) {
  return std::any_of(parts.begin(), parts.end(), [&](const at::Tensor* part) {
    return part->defined() && parts.front()->defined() && part->sizes() != parts.front()->sizes();
  });
}

/// True if there is one entry per token; must not depend on the lengths of one batch.
bool have_lengths_of(const detail::Parts<at::Tensor>& parts, const detail::Parts<at::Tensor>& inputs) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i]->defined() || parts[i]->dim() == 0 || parts[i]->size(0) != inputs[i]->size(0)) {
      return false;
    }
  }
  return true;
}

/// Throws with the first target that is not a sequence: targets of different sizes must be.
void expect_lengths(const detail::Parts<at::Tensor>& targets, const detail::Parts<at::Tensor>& inputs) {
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (!have_lengths_of({targets[i]}, {inputs[i]})) {
      throw CollateError(
          i, concat("[data.collate] expected target of the length of its input ", detail::describe(*inputs[i]),
                    ", or of one shape in all samples, got ", detail::describe(*targets[i]), " in sample ", i));
    }
  }
}

/// Nests maps of tensors entry by entry; collates everything else as usual.
State nest_extra(const detail::Parts<State>& parts, const detail::Parts<at::Tensor>& inputs, const std::string& path) {
  const State& first = *parts.front();
  const auto all = [&](const auto& holds) {
    return std::all_of(parts.begin(), parts.end(), [&](const State* part) { return holds(*part); });
  };
  if (all([](const State& part) { return part.is_tensor(); })) {
    detail::Parts<at::Tensor> tensors;
    for (const State* part : parts) {
      tensors.push_back(&part->tensor());
    }
    return sizes_differ(tensors) || have_lengths_of(tensors, inputs) ? nest_tensors(tensors, path)
                                                                     : detail::collate_parts(tensors, path);
  }
  const auto has_all_keys = [&](const State& part) {
    return part.is_map() && part.map().size() == first.map().size() &&
           std::all_of(first.map().begin(), first.map().end(),
                       [&](const auto& entry) { return part.map().find(entry.key) != nullptr; });
  };
  if (!first.is_map() || !all(has_all_keys)) {
    return detail::collate_parts(parts, path);  // reports the difference, if there is one
  }
  State::Map out;
  for (const auto& entry : first.map()) {
    detail::Parts<State> values;
    for (const State* part : parts) {
      values.push_back(part->map().find(entry.key));
    }
    const std::string name = entry.key.is_string() ? entry.key.string() : std::to_string(entry.key.integer());
    out.set(entry.key, nest_extra(values, inputs, detail::below(path, name)));
  }
  return out;
}

}  // namespace

Batch collate_nested(std::vector<Sample> samples) {
  check<DataError>(!samples.empty(), "data.collate", "expected at least one sample, got none");
  detail::Parts<at::Tensor> inputs, targets;
  detail::Parts<State> extras;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Sample& sample = samples[i];
    if (!sample.input.defined() || sample.input.dim() == 0) {
      detail::fail_collate("input", i, "a tensor of shape [L, ...]", detail::describe(sample.input));
    }
    inputs.push_back(&sample.input);
    targets.push_back(&sample.target);
    extras.push_back(&sample.extra);
  }
  const bool sequences = have_lengths_of(targets, inputs);
  if (!sequences && sizes_differ(targets)) {
    expect_lengths(targets, inputs);
  }
  Batch batch;
  batch.input = nest_tensors(inputs, "input");
  batch.target = sequences ? nest_tensors(targets, "target") : detail::collate_parts(targets, "target");
  batch.extra = nest_extra(extras, inputs, "extra");
  batch.num_tokens = NestedTensor(batch.input).concat().size(0);
  return batch;  // the criterion knows which targets it ignores
}

}  // namespace danling::inline v0::data
