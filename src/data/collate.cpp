#include <danling/data/collate.hpp>

#include <algorithm>
#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <data/batch_memory.hpp>

namespace danling::inline v0::data {

CollateError::~CollateError() = default;

namespace detail {

namespace {

template <class T>
at::Tensor tensor_of(const std::vector<T>& values, at::ScalarType type) {
  at::Tensor out = at::empty({static_cast<std::int64_t>(values.size())}, type);
  std::copy(values.begin(), values.end(), out.mutable_data_ptr<T>());
  return out;
}

std::string names_of(const State::Map& map) {
  std::vector<std::string> names;
  for (const auto& entry : map) {
    names.push_back(entry.key.is_string() ? entry.key.string() : std::to_string(entry.key.integer()));
  }
  return join(names);
}

// All parts have the kind of the first one, so `get` can read them.
template <class Get>
auto values_of(const Parts<State>& parts, const Get& get) {
  std::vector<std::remove_cvref_t<decltype(get(*parts.front()))>> values;
  values.reserve(parts.size());
  for (const State* part : parts) {
    values.push_back(get(*part));
  }
  return values;
}

State collate_items(const Parts<State>& parts, const std::string& path) {
  const State& first = *parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (parts[i]->items().size() != first.items().size()) {
      fail_collate(path, i, concat(first.items().size(), " parts"), concat(parts[i]->items().size()));
    }
  }
  State::List items;
  items.reserve(first.items().size());
  for (std::size_t place = 0; place < first.items().size(); ++place) {
    items.push_back(
        collate_part(parts, below(path, place), [place](const State& part) { return &part.items()[place]; }));
  }
  return first.is_tuple() ? State(State::Tuple{std::move(items)}) : State(std::move(items));
}

State collate_maps(const Parts<State>& parts, const std::string& path) {
  const State::Map& first = parts.front()->map();
  State::Map out;
  for (const auto& entry : first) {
    const auto& key = entry.key;
    Parts<State> values;
    values.reserve(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const State::Map& map = parts[i]->map();
      const State* value = map.size() == first.size() ? map.find(key) : nullptr;
      if (value == nullptr) {
        fail_collate(path, i, concat("a map of [", names_of(first), "]"), concat("one of [", names_of(map), "]"));
      }
      values.push_back(value);
    }
    out.set(key, collate_parts(values, below(path, key.is_string() ? key.string() : std::to_string(key.integer()))));
  }
  if (first.size() == 0) {
    for (std::size_t i = 1; i < parts.size(); ++i) {
      if (parts[i]->map().size() != 0) {
        fail_collate(path, i, "an empty map", concat("one of [", names_of(parts[i]->map()), "]"));
      }
    }
  }
  return out;
}

}  // namespace

void fail_collate(const std::string& path, std::size_t sample, const std::string& expected, const std::string& got) {
  throw CollateError(sample, concat("[data.collate] expected ", path.empty() ? "" : path + " ", expected,
                                    " as in sample 0, got ", got, " in sample ", sample));
}

std::string below(const std::string& path, std::string_view name) {
  return path.empty() ? std::string(name) : concat(path, ".", name);
}

std::string below(const std::string& path, std::size_t index) { return below(path, std::to_string(index)); }

at::Tensor collate_parts(const Parts<at::Tensor>& parts, const std::string& path) {
  const at::Tensor& first = *parts.front();
  std::vector<at::Tensor> tensors;
  tensors.reserve(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const at::Tensor& tensor = *parts[i];
    const bool alike = tensor.defined() == first.defined() &&
                       (!first.defined() || (tensor.scalar_type() == first.scalar_type() &&
                                             tensor.sizes() == first.sizes() && tensor.device() == first.device()));
    if (!alike) [[unlikely]] {
      const bool elsewhere = tensor.defined() && first.defined() && tensor.device() != first.device();
      fail_collate(path, i, concat(describe(first), elsewhere ? concat(" on ", first.device().str()) : ""),
                   concat(describe(tensor), elsewhere ? concat(" on ", tensor.device().str()) : ""));
    }
    tensors.push_back(tensor);
  }
  if (!first.defined()) {
    return {};
  }
  const bool plain = std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
    return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() && !tensor.is_conj() &&
           !tensor.is_neg() && !tensor.is_quantized() && !tensor.requires_grad();
  });
  if (!plain) {
    return at::stack(tensors);
  }
  std::vector<std::int64_t> sizes = first.sizes().vec();
  sizes.insert(sizes.begin(), static_cast<std::int64_t>(tensors.size()));
  at::Tensor out = empty_batch(sizes, first.options());
  return at::stack_out(out, tensors);
}

at::Tensor numbers(const std::vector<bool>& values) { return tensor_of(values, at::kBool); }
at::Tensor numbers(const std::vector<std::int64_t>& values) { return tensor_of(values, at::kLong); }
at::Tensor numbers(const std::vector<double>& values) { return tensor_of(values, at::kDouble); }
at::Tensor numbers(const std::vector<float>& values) { return tensor_of(values, at::kFloat); }

State collate_parts(const Parts<State>& parts, const std::string& path) {
  const State& first = *parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (std::strcmp(parts[i]->kind(), first.kind()) != 0) {
      fail_collate(path, i, first.kind(), parts[i]->kind());
    }
  }
  if (first.is_tensor()) {
    return collate_part(parts, path, [](const State& part) { return &part.tensor(); });
  }
  if (first.is_bool()) {
    return numbers(values_of(parts, [](const State& part) { return part.boolean(); }));
  }
  if (first.is_integer()) {
    return numbers(values_of(parts, [](const State& part) { return part.integer(); }));
  }
  if (first.is_double()) {
    return numbers(values_of(parts, [](const State& part) { return part.number(); }));
  }
  if (first.is_list() || first.is_tuple()) {
    return collate_items(parts, path);
  }
  if (first.is_map()) {
    return collate_maps(parts, path);
  }
  if (first.is_null()) {
    return {};
  }
  return State::List(values_of(parts, [](const State& part) { return part; }));  // texts, bytes
}

}  // namespace detail

}  // namespace danling::inline v0::data
