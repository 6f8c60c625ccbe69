#include <danling/state/state.hpp>

#include <cstring>

#include <c10/core/ScalarType.h>

namespace danling::inline v0 {
namespace {

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return "an undefined tensor";
  }
  return concat(c10::toString(tensor.scalar_type()), " [", join(tensor.sizes()), "]");
}

std::string describe(const State& value) {
  if (value.is_bool()) {
    return to_text(value.boolean());
  }
  if (value.is_integer()) {
    return to_text(value.integer());
  }
  if (value.is_double()) {
    return to_text(value.number());
  }
  if (value.is_string()) {
    return quote(value.string());
  }
  if (value.is_tensor()) {
    return describe(value.tensor());
  }
  return value.kind();
}

bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

std::string tensor_difference(const at::Tensor& a, const at::Tensor& b);

/// Compares tensors without a storage, such as NestedTensors, part by part. The batch is the first dimension or the
/// second.
std::string parts_difference(const at::Tensor& a, const at::Tensor& b) {
  const auto parts_of = [](const at::Tensor& tensor) {
    try {
      return tensor.unbind(0);
    } catch (const std::exception&) {
      return tensor.unbind(1);
    }
  };
  const std::vector<at::Tensor> left = parts_of(a), right = parts_of(b);
  for (std::size_t i = 0; i < left.size() && i < right.size(); ++i) {
    if (const auto text = tensor_difference(left[i], right[i]); !text.empty()) {
      return concat("in part ", i, ", ", text);
    }
  }
  return left.size() == right.size() ? std::string() : concat(left.size(), " and ", right.size(), " parts");
}

std::string tensor_difference(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) {
    return concat(describe(a), " and ", describe(b));
  }
  if (!a.defined()) {
    return {};
  }
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) {
    return concat(describe(a), " and ", describe(b));
  }
  if (a.has_storage() != b.has_storage()) {
    return concat(describe(a), " and ", describe(b), ", of which one is nested");
  }
  if (!a.has_storage()) {
    return parts_difference(a, b);
  }
  const at::Tensor left = a.detach().cpu().resolve_conj().resolve_neg().contiguous();
  const at::Tensor right = b.detach().cpu().resolve_conj().resolve_neg().contiguous();
  const auto bytes = static_cast<std::size_t>(left.numel()) * left.element_size();
  if (bytes == 0 || std::memcmp(left.const_data_ptr(), right.const_data_ptr(), bytes) == 0) {
    return {};
  }
  const auto width = left.element_size();
  const auto* p = static_cast<const char*>(left.const_data_ptr());
  const auto* q = static_cast<const char*>(right.const_data_ptr());
  std::size_t element = 0;
  while (std::memcmp(p + element * width, q + element * width, width) == 0) {
    ++element;
  }
  return concat(describe(a), " that differ first at element ", element);
}

std::string difference(const State& a, const State& b, const std::string& path);

std::string list_difference(const State::List& a, const State::List& b, const std::string& path) {
  if (a.size() != b.size()) {
    return concat(path, ": ", a.size(), " and ", b.size(), " items");
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (auto text = difference(a[i], b[i], concat(path, "[", i, "]")); !text.empty()) {
      return text;
    }
  }
  return {};
}

std::string map_difference(const State::Map& a, const State::Map& b, const std::string& path) {
  auto left = a.begin();
  auto right = b.begin();
  for (; left != a.end() && right != b.end(); ++left, ++right) {
    if (left->key != right->key) {
      return concat(path, ": keys ", left->key.text(), " and ", right->key.text());
    }
    const std::string name = left->key.is_string() ? left->key.string() : left->key.text();
    if (auto text = difference(left->value, right->value, path.empty() ? name : concat(path, ".", name));
        !text.empty()) {
      return text;
    }
  }
  if (a.size() != b.size()) {
    return concat(path, ": ", a.size(), " and ", b.size(), " keys");
  }
  return {};
}

std::string difference(const State& a, const State& b, const std::string& path) {
  if (a.value().index() != b.value().index()) {
    return concat(path, ": ", describe(a), " and ", describe(b));
  }
  if (a.is_map()) {
    return map_difference(a.map(), b.map(), path);
  }
  if (a.is_list() || a.is_tuple()) {
    return list_difference(a.items(), b.items(), path);
  }
  if (a.is_tensor()) {
    const auto text = tensor_difference(a.tensor(), b.tensor());
    return text.empty() ? text : concat(path, ": ", text);
  }
  const bool equal = a.is_null() || (a.is_bool() && a.boolean() == b.boolean()) ||
                     (a.is_integer() && a.integer() == b.integer()) ||
                     (a.is_double() && same_bits(a.number(), b.number())) ||
                     (a.is_string() && a.string() == b.string()) || (a.is_bytes() && a.bytes() == b.bytes());
  return equal ? std::string() : concat(path, ": ", describe(a), " and ", describe(b));
}

}  // namespace

bool bitwise_equal(const State& a, const State& b) { return first_difference(a, b).empty(); }

std::string first_difference(const State& a, const State& b) { return difference(a, b, ""); }

State clone(const State& state, std::optional<at::Device> device) {
  if (state.is_tensor()) {
    const at::Tensor& tensor = state.tensor();
    return !tensor.defined() ? tensor
                             : tensor.detach().to(device.value_or(tensor.device()), tensor.scalar_type(),
                                                  /*non_blocking=*/false, /*copy=*/true);
  }
  if (state.is_list() || state.is_tuple()) {
    State::List items;
    for (const auto& item : state.items()) {
      items.push_back(clone(item, device));
    }
    return state.is_list() ? State(std::move(items)) : State(State::Tuple{std::move(items)});
  }
  if (state.is_map()) {
    State::Map map;
    for (const auto& entry : state.map()) {
      map.set(entry.key, clone(entry.value, device));
    }
    return map;
  }
  return state;
}

}  // namespace danling::inline v0
