#include <telemetry/tensorboard_summary.hpp>

#include <charconv>
#include <cmath>
#include <cstddef>
#include <variant>

#include <danling/core/error.hpp>

#include <formats/utf8.hpp>

namespace danling::inline v0::detail {
namespace {

using formats::ProtobufWriter;

// Fields of Summary.Value.
constexpr int simple_value = 2, image_value = 4, histo = 5, tensor = 8;

// Enum values of types.proto and summary.proto.
constexpr int dt_float = 1, dt_string = 7, data_class_tensor = 2;

// A google.protobuf.Value.
ProtobufWriter struct_value(const std::string& text) {
  ProtobufWriter out;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && std::isfinite(number)) {
    out.number(2, number);
  } else if (text == "true" || text == "false") {
    out.integer(4, text == "true" ? 1 : 0);
  } else {
    out.text(3, formats::valid_utf8(text));
  }
  return out;
}

}  // namespace

void TensorBoardSummary::value(std::string_view tag, int field, const ProtobufWriter& content, std::string_view plugin,
                               const std::string& plugin_data) {
  ProtobufWriter value;
  value.text(1, formats::valid_utf8(tag)).message(field, content);
  if (!plugin.empty()) {
    ProtobufWriter data, metadata;
    data.text(1, plugin);
    if (!plugin_data.empty()) {
      data.text(2, plugin_data);
    }
    value.message(9, metadata.message(1, data).integer(4, data_class_tensor));
  }
  summary_.message(1, value);
}

void TensorBoardSummary::scalar(std::string_view tag, double number) {
  ProtobufWriter value;
  value.text(1, formats::valid_utf8(tag)).number32(simple_value, static_cast<float>(number));
  summary_.message(1, value);
}

void TensorBoardSummary::scalars(const std::string& prefix, const Result& result) {
  for (const auto& [name, value] : result) {
    const std::string tag = concat(prefix, "/", name);
    if (const auto* number = std::get_if<double>(&value)) {
      scalar(tag, *number);
    } else if (const auto* list = std::get_if<std::vector<double>>(&value)) {
      for (std::size_t i = 0; i < list->size(); ++i) {
        scalar(concat(tag, "/", i), (*list)[i]);
      }
    } else if (const auto* nested = std::get_if<Result>(&value)) {
      scalars(tag, *nested);
    }
  }
}

void TensorBoardSummary::histogram(std::string_view tag, const Histogram& histogram) {
  ProtobufWriter limits, counts;
  for (const double limit : histogram.limits) {
    limits.packed(limit);
  }
  for (const std::int64_t count : histogram.counts) {
    counts.packed(static_cast<double>(count));
  }
  ProtobufWriter out;
  out.number(1, histogram.min).number(2, histogram.max).number(3, static_cast<double>(histogram.count));
  out.number(4, histogram.sum).number(5, histogram.sum_of_squares).message(6, limits).message(7, counts);
  value(tag, histo, out);
}

void TensorBoardSummary::text(std::string_view tag, std::string_view markdown) {
  ProtobufWriter out;
  out.integer(1, dt_string).message(2, {}).text(8, formats::valid_utf8(markdown));
  value(tag, tensor, out, "text");
}

void TensorBoardSummary::image(const ImageRecord& image) {
  ProtobufWriter out;
  out.integer(1, image.height).integer(2, image.width).integer(3, image.channels).text(4, image.png);
  value(image.name, image_value, out);
}

void TensorBoardSummary::session(std::string_view tag, int field, const ProtobufWriter& info) {
  ProtobufWriter data;
  data.message(field, info);
  // The plugin reads only the metadata, so the value is a tensor without elements.
  ProtobufWriter shape, none;
  none.integer(1, dt_float).message(2, shape.message(2, {}));
  value(tag, tensor, none, "hparams", data.bytes());
}

void TensorBoardSummary::session_start(const std::vector<std::pair<std::string, std::string>>& hparams, double time) {
  ProtobufWriter info;
  for (const auto& [name, text] : hparams) {
    ProtobufWriter entry;
    entry.text(1, formats::valid_utf8(name)).message(2, struct_value(text));
    info.message(1, entry);
  }
  session("_hparams_/session_start_info", 3, info.number(5, time));
}

void TensorBoardSummary::session_end(bool success, double time) {
  ProtobufWriter info;
  info.integer(1, success ? 1 : 2).number(2, time);
  session("_hparams_/session_end_info", 4, info);
}

}  // namespace danling::inline v0::detail
