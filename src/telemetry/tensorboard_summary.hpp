// TensorBoardSummary: builds TensorBoard's Summary messages, including the data for its plugins.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/core/result.hpp>
#include <danling/formats/detail/protobuf.hpp>
#include <danling/telemetry/sink.hpp>

namespace danling::inline v0::detail {

/// A Summary: the values of one step. Source: tensorboard/compat/proto/{summary,histogram,tensor}.proto and
/// tensorboard/plugins/hparams/{api,plugin_data}.proto
class TensorBoardSummary {
 public:
  bool empty() const { return summary_.bytes().empty(); }
  const formats::ProtobufWriter& message() const { return summary_; }

  void scalar(std::string_view tag, double value);
  /// Adds the numbers and lists of `result` as `<prefix>/<name>`.
  void scalars(const std::string& prefix, const Result& result);
  void histogram(std::string_view tag, const Histogram& histogram);
  void text(std::string_view tag, std::string_view markdown);
  void image(const ImageRecord& image);
  /// Adds the parameters; those that parse as finite numbers or booleans are stored as such.
  void session_start(const std::vector<std::pair<std::string, std::string>>& hparams, double time);
  void session_end(bool success, double time);

 private:
  void value(std::string_view tag, int field, const formats::ProtobufWriter& content, std::string_view plugin = {},
             const std::string& plugin_data = {});
  void session(std::string_view tag, int field, const formats::ProtobufWriter& info);

  formats::ProtobufWriter summary_;
};

}  // namespace danling::inline v0::detail
