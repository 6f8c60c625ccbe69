// Construction, masks, indices and shapes against DanLing in Python: tests/golden/nested_shapes.py writes the cases.
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include <torch/torch.h>

#include <danling/tensors/nested_tensor.hpp>

#include <support/catch.hpp>

namespace nested_golden_shapes {
namespace {

using danling::NestedTensor;
using torch::indexing::Ellipsis;
using torch::indexing::None;
using torch::indexing::Slice;
using GoldenOperation = std::function<at::Tensor(const NestedTensor&)>;

at::Tensor golden_tensor(const nlohmann::json& text) {
  return torch::tensor(text["values"].get<std::vector<double>>()).view(text["shape"].get<std::vector<std::int64_t>>());
}

NestedTensor golden_batch(const nlohmann::json& shapes) {
  std::vector<at::Tensor> elements;
  for (const auto& text : shapes) {
    const auto shape = text.get<std::vector<std::int64_t>>();
    elements.push_back(torch::arange(c10::multiply_integers(shape), torch::kFloat)
                           .mul(static_cast<double>(elements.size() + 1))
                           .view(shape));
  }
  return NestedTensor(elements);
}

const std::map<std::string, GoldenOperation>& golden_operations() {
  static const std::map<std::string, GoldenOperation> operations = {
      {"tensor", [](const auto& x) { return x.tensor(); }},
      {"mask", [](const auto& x) { return x.mask(); }},
      {"concat", [](const auto& x) { return x.concat(); }},
      {"first", [](const auto& x) { return x[0]; }},
      {"last", [](const auto& x) { return x[-1]; }},
      {"batch_slice", [](const auto& x) { return x.index({Slice(None, 2)}); }},
      {"batch_step", [](const auto& x) { return x.index({Slice(None, None, 2)}); }},
      {"batch_list", [](const auto& x) { return x.index({torch::tensor({x.batch_size() - 1, std::int64_t{0}})}); }},
      {"batch_tensor", [](const auto& x) { return x.index({torch::tensor({0, 0})}); }},
      {"slice_from", [](const auto& x) { return x.index({Slice(), Slice(1)}); }},
      {"slice_to", [](const auto& x) { return x.index({Slice(), Slice(None, -1)}); }},
      {"slice_last", [](const auto& x) { return x.index({Slice(), Slice(-2)}); }},
      {"slice_step", [](const auto& x) { return x.index({Slice(), Slice(None, None, 2)}); }},
      {"slice_both", [](const auto& x) { return x.index({Slice(), Slice(1), Slice(None, 2)}); }},
      {"slice_ellipsis", [](const auto& x) { return x.index({Ellipsis, Slice(None, 2)}); }},
      {"position_last", [](const auto& x) { return x.index({Ellipsis, 0}); }},
      {"new_dim", [](const auto& x) { return x.index({Slice(), None}); }},
      {"mask_values", [](const auto& x) { return x.index({x > 3}); }},
      {"mask_padded", [](const auto& x) { return x.index({x.tensor() > 3}); }},
      {"transpose", [](const auto& x) { return x.transpose(1, 2); }},
      {"permute", [](const auto& x) { return x.permute({0, 3, 1, 2}); }},
      {"permute_ragged", [](const auto& x) { return x.permute({0, 2, 1, 3}); }},
      {"mT", [](const auto& x) { return x.mT(); }},
      {"unsqueeze_1", [](const auto& x) { return x.unsqueeze(1); }},
      {"unsqueeze_last", [](const auto& x) { return x.unsqueeze(-1); }},
      {"squeeze", [](const auto& x) { return x.unsqueeze(2).squeeze(2); }},
      {"unflatten", [](const auto& x) { return x.unflatten(2, {2, 2}); }},
      {"view", [](const auto& x) { return x.view({x.batch_size(), -1, 2, 2}); }},
      {"reshape", [](const auto& x) { return x.reshape({x.batch_size(), -1}); }},
      {"flatten", [](const auto& x) { return x.flatten(1); }},
      {"flip_1", [](const auto& x) { return x.flip({1}); }},
      {"flip_last", [](const auto& x) { return x.flip({-1}); }},
      {"roll_1", [](const auto& x) { return x.roll(1, 1); }},
      {"roll_last", [](const auto& x) { return x.roll(-2, x.dim() - 1); }},
      {"rot90", [](const auto& x) { return x.rot90(1, {1, 2}); }},
      {"cat_0", [](const auto& x) { return torch::cat({x, x}, 0); }},
      {"cat_1", [](const auto& x) { return torch::cat({x, x}, 1); }},
      {"cat_last", [](const auto& x) { return torch::cat({x, x}, -1); }},
      {"stack_1", [](const auto& x) { return torch::stack({x, x}, 1); }},
      {"stack_2", [](const auto& x) { return torch::stack({x, x}, 2); }},
      {"hstack", [](const auto& x) { return torch::hstack({x, x}); }},
      {"narrow", [](const auto& x) { return x.narrow(1, 0, 1); }},
      {"pad_last", [](const auto& x) { return torch::constant_pad_nd(x, {1, 2}, 9); }},
      {"pad_two", [](const auto& x) { return torch::constant_pad_nd(x, {0, 1, 2, 0}, 9); }},
      {"chunk_1", [](const auto& x) { return x.chunk(2, 1)[0]; }},
      {"chunk_last", [](const auto& x) { return x.chunk(2, -1)[1]; }},
      {"expand", [](const auto& x) { return x.unsqueeze(2).expand({-1, -1, 3, -1}); }},
      {"diff_last", [](const auto& x) { return x.diff(1, -1); }},
      {"nested_like", [](const auto& x) -> at::Tensor { return x.nested_like(x.tensor() + 1); }},
      {"from_mask", [](const auto& x) -> at::Tensor { return NestedTensor::from_tensor_mask(x.tensor(), x.mask()); }},
      {"sequence_first", [](const auto& x) { return NestedTensor(x.elements(), {.batch_first = false}).tensor(); }},
      {"sequence_first_mask", [](const auto& x) { return NestedTensor(x.elements(), {.batch_first = false}).mask(); }},
      {"padding", [](const auto& x) { return NestedTensor(x.elements(), {.padding_value = -1}).tensor(); }},
      {"mask_value", [](const auto& x) { return NestedTensor(x.elements(), {.mask_value = true}).mask(); }},
  };
  return operations;
}

TEST_CASE("NestedTensor: golden cases of construction, indices and shapes", "[nested][golden]") {
  std::ifstream file(DANLING_SOURCE_DIR "/tests/golden/data/nested_shapes.json");
  const auto golden = nlohmann::json::parse(file);
  std::set<std::string> seen;
  for (const auto& one : golden["cases"]) {
    const auto name = one["operation"].get<std::string>(), batch = one["batch"].get<std::string>();
    INFO(name << " of " << batch);
    seen.insert(name);
    const at::Tensor got = golden_operations().at(name)(golden_batch(golden["batches"][batch]));
    if (one.contains("tensor")) {
      REQUIRE_FALSE(NestedTensor::is_nested(got));
      const at::Tensor expected = golden_tensor(one["tensor"]);
      CHECK(got.sizes() == expected.sizes());
      CHECK(got.to(torch::kDouble).equal(expected.to(torch::kDouble)));
      continue;
    }
    REQUIRE(NestedTensor::is_nested(got));
    const auto elements = NestedTensor(got).elements();
    REQUIRE(elements.size() == one["elements"].size());
    for (std::size_t at = 0; at < elements.size(); ++at) {
      const at::Tensor expected = golden_tensor(one["elements"][at]);
      INFO("element " << at << ": " << elements[at].sizes() << " for " << expected.sizes());
      CHECK(elements[at].sizes() == expected.sizes());
      CHECK(elements[at].to(torch::kDouble).equal(expected.to(torch::kDouble)));
    }
  }
  CHECK(seen.size() == golden_operations().size());
}

}  // namespace
}  // namespace nested_golden_shapes
