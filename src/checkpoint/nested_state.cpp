#include <checkpoint/nested_state.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <danling/core/error.hpp>
#include <danling/tensors/nested_tensor.hpp>

namespace danling::inline v0 {
namespace {

constexpr std::string_view marker = "nested_tensor";
constexpr std::array<std::string_view, 5> parts_of_nested = {"values", "offsets", "shapes", marker, "padding_value"};
constexpr std::int64_t version_of_nested = 1;

bool has_nested(const State& state) {
  if (state.is_map()) {
    for (const auto& entry : state.map()) {
      if (has_nested(entry.value)) {
        return true;
      }
    }
  } else if (state.is_list() || state.is_tuple()) {
    for (const State& item : state.items()) {
      if (has_nested(item)) {
        return true;
      }
    }
  }
  return state.is_tensor() && NestedTensor::is_nested(state.tensor());
}

State to_map(const NestedTensor& tensor) {
  std::vector<std::int64_t> sizes;
  std::int64_t rank = 0;
  for (const auto& shape : tensor.shapes()) {
    rank = static_cast<std::int64_t>(shape.size());
    sizes.insert(sizes.end(), shape.begin(), shape.end());
  }
  const std::vector<std::int64_t> ragged = tensor.ragged_dims();
  std::vector<std::int64_t> layout = {version_of_nested, tensor.batch_first() ? 1 : 0, tensor.mask_value() ? 1 : 0,
                                      static_cast<std::int64_t>(ragged.size())};
  layout.insert(layout.end(), ragged.begin(), ragged.end());
  State::Map out;
  out.set("values", tensor.concat().detach());
  out.set("offsets", tensor.offsets().cpu());
  out.set("shapes", at::tensor(sizes, at::kLong).view({tensor.batch_size(), rank}));
  out.set(marker, at::tensor(layout, at::kLong));
  out.set("padding_value", at::tensor(tensor.padding_value(), at::kDouble));
  return out;
}

State convert(const State& state) {
  if (state.is_map()) {
    State::Map out;
    for (const auto& entry : state.map()) {
      out.set(entry.key, convert(entry.value));
    }
    return out;
  }
  if (state.is_list() || state.is_tuple()) {
    State::List out;
    for (const State& item : state.items()) {
      out.push_back(convert(item));
    }
    return state.is_list() ? State(std::move(out)) : State(State::Tuple{std::move(out)});
  }
  return state.is_tensor() && NestedTensor::is_nested(state.tensor()) ? to_map(NestedTensor(state.tensor())) : state;
}

/// `read(name)` returns one of the five tensors, undefined if it is missing.
template <class Read>
at::Tensor from_map(const std::string& key, const Read& read) {
  constexpr const char* where = "checkpoint.read";
  const auto expect = [&](bool condition, const auto&... parts) {
    check<CheckpointError>(condition, where, "expected ", parts..., " (key ", quote(key), ")");
  };
  const at::Tensor layout = read(marker), shapes = read("shapes"), offsets = read("offsets"), values = read("values"),
                   padding = read("padding_value");
  for (const at::Tensor* whole : {&layout, &shapes, &offsets}) {
    expect(whole->defined() && whole->scalar_type() == at::kLong, "int64 tensors that describe a NestedTensor");
  }
  expect(values.defined() && padding.defined() && padding.numel() == 1 && padding.scalar_type() == at::kDouble,
         "the values and the padding value of a NestedTensor");
  const at::Tensor flat = layout.contiguous();
  const auto* number = flat.const_data_ptr<std::int64_t>();
  const std::int64_t count = flat.numel();
  expect(flat.dim() == 1 && count >= 4 && number[3] >= 0 && count == 4 + number[3] && shapes.dim() == 2,
         "a NestedTensor's layout of 4 numbers and its ragged dimensions");
  expect(number[0] == version_of_nested, "a NestedTensor of version ", version_of_nested, ", got one of version ",
         number[0], "; read it with a newer danling");
  std::vector<std::vector<std::int64_t>> sizes;
  const at::Tensor host = shapes.contiguous();
  for (std::int64_t element = 0; element < host.size(0); ++element) {
    const auto* row = host.const_data_ptr<std::int64_t>() + element * host.size(1);
    sizes.emplace_back(row, row + host.size(1));
  }
  const auto fail = [&](const std::string& why) {
    return CheckpointError(
        concat("[checkpoint.read] expected a valid NestedTensor, got one with (key ", quote(key), "): ", why));
  };
  try {
    NestedTensor out = NestedTensor::from_concatenated(values, sizes,
                                                       {.batch_first = number[1] != 0,
                                                        .padding_value = *padding.const_data_ptr<double>(),
                                                        .mask_value = number[2] != 0,
                                                        .ragged_dims = std::vector(number + 4, number + count)});
    expect(out.offsets().cpu().equal(offsets), "offsets that fit the shapes of a NestedTensor");
    return out;
  } catch (const DataError& error) {
    throw fail(error.what());
  } catch (const c10::Error& error) {  // the product of the sizes overflows int64
    throw fail(error.what_without_backtrace());
  }
}

bool is_nested_map(const State::Map& map) {
  return map.size() == parts_of_nested.size() && map.find(marker) != nullptr && map.find("values") != nullptr;
}

State restore(State state, const std::string& key) {
  if (state.is_list() || state.is_tuple()) {
    State::List out;
    for (const State& item : state.items()) {
      out.push_back(restore(item, key));
    }
    return state.is_list() ? State(std::move(out)) : State(State::Tuple{std::move(out)});
  }
  if (!state.is_map()) {
    return state;
  }
  if (is_nested_map(state.map())) {
    return from_map(key, [&](std::string_view name) {
      const State* found = state.find(name);
      return found != nullptr && found->is_tensor() ? found->tensor() : at::Tensor();
    });
  }
  State::Map out;
  for (const auto& entry : state.map()) {
    const std::string name = entry.key.is_string() ? entry.key.string() : entry.key.text();
    out.set(entry.key, restore(entry.value, key.empty() ? name : concat(key, ".", name)));
  }
  return out;
}

bool has_marker(const State& state) {
  if (state.is_map()) {
    for (const auto& entry : state.map()) {
      if ((entry.key.is_string() && entry.key.string().ends_with(marker)) || has_marker(entry.value)) {
        return true;
      }
    }
  } else if (state.is_list() || state.is_tuple()) {
    for (const State& item : state.items()) {
      if (has_marker(item)) {
        return true;
      }
    }
  }
  return false;
}

/// Joins "x.values", "x.offsets" and the others of a flat map to "x".
State join_names(const State::Map& flat) {
  State::Map out;
  for (const auto& entry : flat) {
    const std::string name = entry.key.is_string() ? entry.key.string() : std::string();
    const std::size_t dot = name.rfind('.');
    const std::string key = dot == name.npos ? "" : name.substr(0, dot);
    const bool is_part =
        dot != name.npos && flat.find(concat(key, ".", marker)) != nullptr &&
        std::find(parts_of_nested.begin(), parts_of_nested.end(), name.substr(dot + 1)) != parts_of_nested.end();
    if (!is_part) {
      out.set(entry.key, entry.value);
    } else if (name.substr(dot + 1) == marker) {
      out.set(key, from_map(key, [&](std::string_view part) {
                const State* found = flat.find(concat(key, ".", part));
                return found != nullptr && found->is_tensor() ? found->tensor() : at::Tensor();
              }));
    }
  }
  return out;
}

}  // namespace

State encode_nested(const State& state) { return has_nested(state) ? convert(state) : state; }

State decode_nested(State state) {
  if (!has_marker(state)) {
    return state;
  }
  return restore(state.is_map() ? join_names(state.map()) : std::move(state), "");
}

}  // namespace danling::inline v0
