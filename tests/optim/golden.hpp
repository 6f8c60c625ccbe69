// Reads the golden numbers that tests/golden/optim_numbers.py computed in Python, as tensors and states.
#pragma once

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <danling/state/state.hpp>

#include <support/catch.hpp>

namespace danling_test {

using Json = nlohmann::json;

inline const Json& optim_numbers() {
  static const Json document = [] {
    std::ifstream file(std::string(DANLING_SOURCE_DIR) + "/tests/golden/optim_numbers.json");
    REQUIRE(file.good());
    return Json::parse(file);
  }();
  return document;
}

inline at::ScalarType dtype_of(const std::string& name) {
  static const std::map<std::string, at::ScalarType> known = {
      {"float32", at::kFloat}, {"float64", at::kDouble}, {"bfloat16", at::kBFloat16}, {"float16", at::kHalf}};
  return known.at(name);
}

/// Tolerance between two computations of the same update: Python's plain path rounds after each operation.
struct Tolerance {
  double relative;
  double absolute;
};
inline Tolerance tolerance_of(const std::string& dtype) {
  static const std::map<std::string, Tolerance> table = {
      {"float32", {2e-6, 1e-6}}, {"float64", {1e-13, 1e-13}}, {"bfloat16", {3e-2, 3e-2}}, {"float16", {4e-3, 4e-3}}};
  return table.at(dtype);
}

inline at::Tensor tensor_of(const Json& numbers, at::ScalarType dtype, at::IntArrayRef shape) {
  return at::tensor(numbers.get<std::vector<double>>(), at::TensorOptions().dtype(at::kDouble)).to(dtype).view(shape);
}

inline const std::vector<std::vector<std::int64_t>>& golden_shapes() {
  static const std::vector<std::vector<std::int64_t>> shapes = {{7, 11}, {5}, {2, 2}};
  return shapes;
}

/// Parameters that require gradients, from lists of numbers.
inline std::vector<at::Tensor> golden_params(const Json& numbers, at::ScalarType dtype) {
  std::vector<at::Tensor> out;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    out.push_back(tensor_of(numbers[i], dtype, golden_shapes()[i]).set_requires_grad(true));
  }
  return out;
}

/// Gives each parameter its gradient of one step; null is none.
inline void set_grads(std::vector<at::Tensor>& params, const Json& grads) {
  for (std::size_t i = 0; i < params.size(); ++i) {
    params[i].mutable_grad() =
        grads[i].is_null() ? at::Tensor() : tensor_of(grads[i], params[i].scalar_type(), golden_shapes()[i]);
  }
}

inline void check_params(const std::vector<at::Tensor>& params, const Json& expected, const std::string& dtype) {
  const auto [relative, absolute] = tolerance_of(dtype);
  for (std::size_t i = 0; i < params.size(); ++i) {
    const at::Tensor want = tensor_of(expected[i], at::kDouble, golden_shapes()[i]);
    CAPTURE(i);
    CHECK(at::allclose(params[i].detach().to(at::kDouble), want, relative, absolute));
  }
}

/// The state that tree() of the script wrote.
inline danling::State state_of(const Json& json) {
  using danling::State;
  if (json.is_object() && json.contains("tensor")) {
    return tensor_of(json["tensor"], dtype_of(json["dtype"].get<std::string>()),
                     json["shape"].get<std::vector<std::int64_t>>());
  }
  if (json.is_object() && json.contains("map")) {
    State::Map map;
    for (const auto& item : json["map"]) {
      const danling::Key key =
          item[0].is_string() ? danling::Key(item[0].get<std::string>()) : danling::Key(item[0].get<std::int64_t>());
      map.set(key, state_of(item[1]));
    }
    return map;
  }
  if (json.is_object()) {
    const bool tuple = json.contains("tuple");
    State::List items;
    for (const auto& item : json[tuple ? "tuple" : "list"]) {
      items.push_back(state_of(item));
    }
    return tuple ? State(State::Tuple{items}) : State(items);
  }
  if (json.is_boolean()) {
    return json.get<bool>();
  }
  if (json.is_number_integer()) {
    return json.get<std::int64_t>();
  }
  if (json.is_number()) {
    return json.get<double>();
  }
  return json.is_null() ? State() : State(json.get<std::string>());
}

/// Checks that two states have the same keys in the same order, kinds, dtypes and shapes, and numbers within the
/// tolerance of `dtype`. An integer may replace a double. `fused` may differ, since it only selects kernels.
inline void check_same_state(const danling::State& got, const danling::State& want, const std::string& dtype,
                             const std::string& path = "") {
  CAPTURE(path);
  if (want.is_integer() && (got.is_double() || got.is_integer())) {
    CHECK(got.number() == want.number());
    return;
  }
  REQUIRE(std::string(got.kind()) == want.kind());
  if (want.is_map()) {
    std::vector<std::string> got_keys, want_keys;
    for (const auto& item : got.map()) {
      got_keys.push_back(item.key.text());
    }
    for (const auto& item : want.map()) {
      want_keys.push_back(item.key.text());
    }
    REQUIRE(got_keys == want_keys);
    for (const auto& item : want.map()) {
      if (item.key.text() != "'fused'") {
        check_same_state(got.at(item.key), item.value, dtype, path + "." + item.key.text());
      }
    }
  } else if (want.is_list() || want.is_tuple()) {
    REQUIRE(got.items().size() == want.items().size());
    for (std::size_t i = 0; i < want.items().size(); ++i) {
      check_same_state(got.items()[i], want.items()[i], dtype, path + "[" + std::to_string(i) + "]");
    }
  } else if (want.is_tensor()) {
    const auto [relative, absolute] = tolerance_of(dtype);
    CHECK(got.tensor().scalar_type() == want.tensor().scalar_type());
    CHECK(got.tensor().sizes() == want.tensor().sizes());
    CHECK(at::allclose(got.tensor().to(at::kDouble), want.tensor().to(at::kDouble), relative, absolute));
  } else if (want.is_double()) {
    CHECK(got.number() == want.number());
  } else if (want.is_string()) {
    CHECK(got.string() == want.string());
  } else if (want.is_bool()) {
    CHECK(got.boolean() == want.boolean());
  } else {
    CHECK(want.is_null());
  }
}

}  // namespace danling_test
