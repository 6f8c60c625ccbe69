#include <danling/data/merge.hpp>

#include <string>

#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>

#include <danling/core/error.hpp>
#include <danling/data/collate.hpp>
#include <danling/tensors/nested_tensor.hpp>

#include <data/columns.hpp>

namespace danling::inline v0::data::detail {

namespace {

using Trees = std::vector<const State*>;

bool in_order(std::span<const std::int64_t> order) {
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<std::int64_t>(i)) {
      return false;
    }
  }
  return true;
}

[[noreturn]] void fail_merge(const std::string& path, const std::string& first, const std::string& other) {
  fail<DataError>("data.merge", "expected ", path, " of parts that fit together, got ", first, " and ", other);
}

at::Tensor merge_at(const std::vector<at::Tensor>& parts, std::span<const std::int64_t> order,
                    const std::string& path) {
  const at::Tensor& first = parts.front();
  for (const at::Tensor& part : parts) {
    const bool fits = part.defined() == first.defined() &&
                      (!first.defined() ||
                       (part.dim() > 0 && part.dim() == first.dim() && part.scalar_type() == first.scalar_type() &&
                        NestedTensor::is_nested(part) == NestedTensor::is_nested(first) &&
                        // The longest sequence may differ between nested parts.
                        (NestedTensor::is_nested(part) || part.sizes().slice(1) == first.sizes().slice(1))));
    if (!fits) {
      fail_merge(path, describe(first), describe(part));
    }
  }
  if (!first.defined()) {
    return first;
  }
  at::Tensor joined = at::cat(parts);
  if (in_order(order)) {
    return joined;
  }
  // Only read, and only during this call: a copy to a device leaves pageable memory before it returns.
  const at::Tensor host =
      at::from_blob(const_cast<std::int64_t*>(order.data()), {static_cast<std::int64_t>(order.size())}, at::kLong);
  return joined.index_select(0, host.to(joined.device(), /*non_blocking=*/true));
}

State merge_trees(const Trees& parts, std::span<const std::int64_t> order, const std::string& path) {
  const State& first = *parts.front();
  const auto below = [&](const auto& get) {
    Trees inner;
    for (const State* part : parts) {
      inner.push_back(get(*part));
    }
    return inner;
  };
  for (const State* part : parts) {
    if (part->kind() != first.kind()) {
      fail_merge(path, std::string(first.kind()), std::string(part->kind()));
    }
  }
  if (first.is_tensor()) {
    std::vector<at::Tensor> tensors;
    for (const State* part : parts) {
      tensors.push_back(part->tensor());
    }
    return merge_at(tensors, order, path);
  }
  if (is_column(first)) {
    State::List joined;
    for (const State* part : parts) {
      joined.insert(joined.end(), part->items().begin(), part->items().end());
    }
    if (joined.size() != order.size()) {
      fail_merge(path, concat(order.size(), " samples"), concat(joined.size(), " texts"));
    }
    State::List out;
    for (const std::int64_t i : order) {
      out.push_back(joined[static_cast<std::size_t>(i)]);
    }
    return out;
  }
  if (first.is_list() || first.is_tuple()) {
    State::List items;
    for (std::size_t i = 0; i < first.items().size(); ++i) {
      items.push_back(merge_trees(below([&](const State& part) {
                                    if (part.items().size() != first.items().size()) {
                                      fail_merge(path, concat(first.items().size(), " parts"),
                                                 concat(part.items().size()));
                                    }
                                    return &part.items()[i];
                                  }),
                                  order, concat(path, ".", i)));
    }
    return first.is_tuple() ? State(State::Tuple{std::move(items)}) : State(std::move(items));
  }
  if (first.is_map()) {
    State::Map out;
    for (const auto& [key, value] : first.map()) {
      const std::string name = key.is_string() ? key.string() : std::to_string(key.integer());
      const auto& wanted = key;
      out.set(key, merge_trees(below([&](const State& part) {
                                 const State* found =
                                     part.map().size() == first.map().size() ? part.map().find(wanted) : nullptr;
                                 if (found == nullptr) {
                                   fail_merge(path, concat("a map with ", quote(name)), "one with other names");
                                 }
                                 return found;
                               }),
                               order, concat(path, ".", name)));
    }
    return out;
  }
  for (const State* part : parts) {
    if (!bitwise_equal(*part, first)) {
      fail_merge(path, "one value", "another");
    }
  }
  return first;
}

}  // namespace

at::Tensor merge_tensors(const std::vector<at::Tensor>& parts, std::span<const std::int64_t> order) {
  return merge_at(parts, order, "tensors");
}

Batch merge_default(std::vector<Batch> parts, std::span<const std::int64_t> order) {
  check<DataError>(!parts.empty(), "data.merge", "expected at least one part, got none");
  Batch out;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> targets;
  Trees extras;
  std::vector<std::optional<std::string>> names;
  bool named = false;
  std::int64_t normalizer = 0;
  std::optional<std::int64_t> tokens = 0;
  for (const Batch& part : parts) {
    inputs.push_back(part.input);
    targets.push_back(part.target);
    extras.push_back(&part.extra);
    if (part.loss_normalizer.has_value() != parts.front().loss_normalizer.has_value()) {
      fail_merge("loss_normalizer", "a number", "none");
    }
    normalizer += part.loss_normalizer.value_or(0);
    tokens = tokens && part.num_tokens ? std::optional(*tokens + *part.num_tokens) : std::nullopt;
    named = named || !part.info.entry_keys.empty();
    names.insert(names.end(), part.info.entry_keys.begin(), part.info.entry_keys.end());
    names.resize(names.size() + (part.info.entry_keys.empty() ? static_cast<std::size_t>(part.size()) : 0));
  }
  out.input = merge_at(inputs, order, "input");
  out.target = merge_at(targets, order, "target");
  out.extra = merge_trees(extras, order, "extra");
  if (parts.front().loss_normalizer) {
    out.loss_normalizer = normalizer;
  }
  out.num_tokens = tokens;
  if (named) {
    for (const std::int64_t i : order) {
      out.info.entry_keys.push_back(names[static_cast<std::size_t>(i)]);
    }
  }
  return out;
}

}  // namespace danling::inline v0::data::detail
