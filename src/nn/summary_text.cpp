// Formats the summary of a model as text.
#include <vector>

#include <danling/core/format.hpp>
#include <danling/nn/summary.hpp>
#include <danling/telemetry/text.hpp>

namespace danling::inline v0::nn {
namespace {

std::string size_text(std::int64_t bytes) { return format_bytes(static_cast<std::uint64_t>(bytes)); }

using Row = std::vector<std::string>;

Row row_of(const LayerSummary& layer, bool measured) {
  const auto count = [](std::int64_t number) { return number == 0 ? std::string("-") : format_count(number); };
  return {layer.name.empty() ? "(model)" : layer.name,
          layer.type,
          layer.output ? concat("[", join(*layer.output), "]") : "-",
          count(layer.parameters),
          count(layer.trainable),
          measured && layer.flops > 0 ? format_amount(layer.flops) : "-"};
}

}  // namespace

std::string ModelSummary::text() const {
  std::vector<Row> rows = {{"layer", "type", "output", "parameters", "trainable", "FLOPs"}};
  for (const LayerSummary& layer : layers) {
    rows.push_back(row_of(layer, batch_size > 0));
  }
  std::string out = align_columns(rows, {false, false, false, true, true, true}) + "\n";
  out += concat("parameters: ", format_count(parameters), ", trainable: ", format_count(trainable), "\n");
  out += concat("memory: parameters ", size_text(parameter_bytes), ", gradients ", size_text(gradient_bytes),
                ", buffers ", size_text(buffer_bytes),
                batch_size > 0 ? concat(", outputs of a forward pass ", size_text(output_bytes)) : "", "\n");
  if (batch_size > 0) {
    out += concat(
        "FLOPs of a forward pass of ", batch_size, batch_size == 1 ? " sample: " : " samples: ", format_amount(flops),
        other_flops > 0 ? concat(", of these ", format_amount(other_flops), " without parameters") : "", "\n");
  }
  if (!problem.empty()) {
    out += concat("no forward pass: ", problem, "\n");
  }
  return out;
}

}  // namespace danling::inline v0::nn
