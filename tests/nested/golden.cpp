// Reductions, scans and softmax against DanLing's NestedTensor: tests/golden/nested_reductions.py made the numbers.
#include <fstream>
#include <map>
#include <optional>

#include <nlohmann/json.hpp>

#include <nested/per_element.hpp>

namespace nested_golden {
namespace {

using danling::NestedTensor;
using torch::Tensor;
using GoldenJson = nlohmann::json;
using GoldenDims = std::vector<std::int64_t>;

/// NaN is null in the file.
Tensor golden_numbers(const GoldenJson& numbers) {
  std::vector<double> out;
  for (const GoldenJson& number : numbers) {
    out.push_back(number.is_null() ? NAN : number.get<double>());
  }
  return torch::tensor(out, torch::kDouble);
}
Tensor golden_tensor(const GoldenJson& part) { return golden_numbers(part[1]).view(part[0].get<GoldenDims>()); }

std::optional<Tensor> call_golden(const std::string& name, const Tensor& x, const GoldenDims& dims, bool keepdim) {
  using Multiple = Tensor (*)(const Tensor&, torch::IntArrayRef, bool);
  using Single = Tensor (*)(const Tensor&, std::int64_t, bool);
  static const std::map<std::string, Multiple> multiple = {
      {"sum", [](const Tensor& t, torch::IntArrayRef d, bool k) { return t.sum(d, k); }},
      {"mean", [](const Tensor& t, torch::IntArrayRef d, bool k) { return t.mean(d, k); }},
      {"amax", [](const Tensor& t, torch::IntArrayRef d, bool k) { return t.amax(d, k); }},
      {"amin", [](const Tensor& t, torch::IntArrayRef d, bool k) { return t.amin(d, k); }},
      {"logsumexp", [](const Tensor& t, torch::IntArrayRef d, bool k) { return t.logsumexp(d, k); }},
      {"var", [](const Tensor& t, torch::IntArrayRef d, bool k) { return t.var(d, true, k); }},
      {"std", [](const Tensor& t, torch::IntArrayRef d, bool k) { return t.std(d, true, k); }},
      {"nansum", [](const Tensor& t, torch::IntArrayRef d, bool k) { return t.nansum(d, k); }},
      {"any", [](const Tensor& t, torch::IntArrayRef d, bool k) { return (t > 1).any(d, k); }},
      {"all", [](const Tensor& t, torch::IntArrayRef d, bool k) { return (t < 1).all(d, k); }}};
  static const std::map<std::string, Single> single = {
      {"prod", [](const Tensor& t, std::int64_t d, bool k) { return t.prod(d, k); }},
      {"argmax", [](const Tensor& t, std::int64_t d, bool k) { return t.argmax(d, k); }},
      {"argmin", [](const Tensor& t, std::int64_t d, bool k) { return t.argmin(d, k); }},
      {"max", [](const Tensor& t, std::int64_t d, bool k) { return std::get<0>(t.max(d, k)); }},
      {"min", [](const Tensor& t, std::int64_t d, bool k) { return std::get<0>(t.min(d, k)); }},
      {"median", [](const Tensor& t, std::int64_t d, bool k) { return std::get<0>(t.median(d, k)); }},
      {"cumsum", [](const Tensor& t, std::int64_t d, bool) { return t.cumsum(d); }},
      {"cumprod", [](const Tensor& t, std::int64_t d, bool) { return t.cumprod(d); }},
      {"cummax", [](const Tensor& t, std::int64_t d, bool) { return std::get<0>(t.cummax(d)); }},
      {"cummin", [](const Tensor& t, std::int64_t d, bool) { return std::get<0>(t.cummin(d)); }},
      {"sort", [](const Tensor& t, std::int64_t d, bool) { return std::get<0>(t.sort(d)); }},
      {"argsort", [](const Tensor& t, std::int64_t d, bool) { return t.argsort(d); }},
      {"softmax", [](const Tensor& t, std::int64_t d, bool) { return t.softmax(d); }},
      {"log_softmax", [](const Tensor& t, std::int64_t d, bool) { return t.log_softmax(d); }}};
  if (const auto found = multiple.find(name); found != multiple.end()) {
    return found->second(x, dims, keepdim);
  }
  const auto found = single.find(name);
  return found == single.end() ? std::nullopt : std::optional(found->second(x, dims.front(), keepdim));
}

TEST_CASE("NestedTensor: reductions and scans are those of DanLing", "[nested]") {
  std::ifstream file(std::string(DANLING_SOURCE_DIR) + "/tests/golden/nested_reductions.json");
  const GoldenJson document = GoldenJson::parse(file);
  std::map<std::string, std::vector<Tensor>> batches;
  for (const GoldenJson& entry : document) {
    if (entry.contains("elements")) {
      for (const GoldenJson& part : entry["elements"]) {
        batches[entry["batch"]].push_back(golden_tensor(part));
      }
    }
  }
  int cases = 0;
  for (const GoldenJson& entry : document) {
    if (entry.contains("elements")) {
      continue;
    }
    const std::vector<Tensor>& elements = batches.at(entry["batch"]);
    const bool keepdim = entry.value("keepdim", false);
    const GoldenDims dims = entry["dim"].is_array() ? entry["dim"].get<GoldenDims>() : GoldenDims{entry["dim"]};
    INFO(entry["name"] << " over " << entry["dim"] << (keepdim ? ", kept" : "") << " of " << entry["batch"]);
    const NestedTensor x(elements, {.requires_grad = true});
    const auto got = call_golden(entry["name"], x, dims, keepdim);
    REQUIRE(got.has_value());
    ++cases;
    REQUIRE(NestedTensor::is_nested(*got) == entry.contains("nested"));
    if (entry.contains("nested")) {
      const auto parts = NestedTensor(*got).elements();
      REQUIRE(parts.size() == entry["nested"].size());
      for (std::size_t i = 0; i < parts.size(); ++i) {
        CHECK(per_element::close(parts[i].to(torch::kDouble), golden_tensor(entry["nested"][i]), 1e-9, 1e-9));
      }
    } else {
      CHECK(per_element::close(got->to(torch::kDouble), golden_tensor(entry["plain"]), 1e-9, 1e-9));
    }
    if (entry.contains("gradients")) {
      per_element::loss_of(*got).backward();
      const auto gradients = NestedTensor(x.grad()).elements();
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        CHECK(per_element::close(gradients[i].flatten(), golden_numbers(entry["gradients"][i]), 1e-8, 1e-8));
      }
    }
  }
  CHECK(cases > 150);
}

}  // namespace
}  // namespace nested_golden
