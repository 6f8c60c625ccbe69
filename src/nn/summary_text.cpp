// Formats the summary of a model as text.
#include <array>
#include <cstdio>
#include <vector>

#include <danling/core/format.hpp>
#include <danling/nn/summary.hpp>
#include <danling/telemetry/text.hpp>

namespace danling::inline v0::nn {
namespace {

// 25.1 k
std::string scaled(std::int64_t number, std::string_view unit) {
  constexpr std::array<const char*, 6> prefixes = {"", "k", "M", "G", "T", "P"};
  auto value = static_cast<double>(number);
  std::size_t prefix = 0;
  while (value >= 999.5 && prefix + 1 < prefixes.size()) {
    value /= 1000;
    ++prefix;
  }
  std::array<char, 32> text = {};
  std::snprintf(text.data(), text.size(), prefix == 0 ? "%.0f" : "%.3g", value);
  const std::string both = concat(prefixes[prefix], unit);
  return concat(text.data(), both.empty() ? "" : " ", both);
}

using Row = std::vector<std::string>;

Row row_of(const LayerSummary& layer, bool measured) {
  const auto count = [](std::int64_t number) { return number == 0 ? std::string("-") : format_count(number); };
  return {layer.name.empty() ? "(model)" : layer.name,
          layer.type,
          layer.output ? concat("[", join(*layer.output), "]") : "-",
          count(layer.parameters),
          count(layer.trainable),
          measured && layer.flops > 0 ? scaled(layer.flops, "") : "-"};
}

}  // namespace

std::string ModelSummary::text() const {
  std::vector<Row> rows = {{"layer", "type", "output", "parameters", "trainable", "FLOPs"}};
  for (const LayerSummary& layer : layers) {
    rows.push_back(row_of(layer, batch_size > 0));
  }
  std::string out = align_columns(rows, {false, false, false, true, true, true}) + "\n";
  out += concat("parameters: ", format_count(parameters), ", trainable: ", format_count(trainable), "\n");
  out += concat("memory: parameters ", scaled(parameter_bytes, "B"), ", gradients ", scaled(gradient_bytes, "B"),
                ", buffers ", scaled(buffer_bytes, "B"),
                batch_size > 0 ? concat(", outputs of a forward pass ", scaled(output_bytes, "B")) : "", "\n");
  if (batch_size > 0) {
    out += concat("FLOPs of a forward pass of ", batch_size,
                  batch_size == 1 ? " sample: " : " samples: ", scaled(flops, ""),
                  other_flops > 0 ? concat(", of these ", scaled(other_flops, ""), " without parameters") : "", "\n");
  }
  if (!problem.empty()) {
    out += concat("no forward pass: ", problem, "\n");
  }
  return out;
}

}  // namespace danling::inline v0::nn
