#include <telemetry/external_run.hpp>

#include <algorithm>
#include <iterator>
#include <span>
#include <variant>

#include <danling/core/format.hpp>
#include <danling/formats/detail/checksum.hpp>

#include <formats/utf8.hpp>

namespace danling::inline v0::detail {

std::string external_run_key(const RunInfo& run) {
  return formats::to_hex(formats::hash128(std::as_bytes(std::span(run.id)))).substr(0, 12);
}

std::string external_run_id(const RunInfo& run) {
  std::string digits;
  std::copy_if(run.timestamp.begin(), run.timestamp.end(), std::back_inserter(digits),
               [](char c) { return c >= '0' && c <= '9'; });
  digits.resize(20, '0');
  return external_run_key(run) + digits;
}

std::string series_of(const ScalarRecord& record, const std::vector<std::string>& train_splits) {
  const bool both = record.mode == "evaluate" &&
                    std::find(train_splits.begin(), train_splits.end(), record.split) != train_splits.end();
  return record.split + (record.iteration ? "_step" : both ? "_evaluate" : "");
}

std::vector<std::pair<std::string, double>> flat_values(const Result& result) {
  std::vector<std::pair<std::string, double>> out;
  for (const auto& [name, value] : result) {
    if (const auto* number = std::get_if<double>(&value)) {
      out.emplace_back(name, *number);
    } else if (const auto* list = std::get_if<std::vector<double>>(&value)) {
      for (std::size_t i = 0; i < list->size(); ++i) {
        out.emplace_back(concat(name, '/', i), (*list)[i]);
      }
    } else if (const auto* nested = std::get_if<Result>(&value)) {
      for (const auto& [path, element] : flat_values(*nested)) {
        out.emplace_back(concat(name, '/', path), element);
      }
    }
  }
  return out;
}

std::vector<std::pair<std::string, double>> named_values(const ScalarRecord& record,
                                                         const std::vector<std::string>& train_splits) {
  std::vector<std::pair<std::string, double>> out;
  if (record.iteration && record.mode != "train") {
    return out;
  }
  const std::string series = series_of(record, train_splits);
  for (const auto& [name, value] : flat_values(record.telemetry)) {
    out.emplace_back(formats::valid_utf8(concat("telemetry/", series, '/', name)), value);
  }
  for (const auto& [name, value] : flat_values(record.values)) {
    out.emplace_back(formats::valid_utf8(concat(series, '/', name)), value);
  }
  return out;
}

std::string_view cut_utf8(std::string_view text, std::size_t bytes) {
  std::size_t end = std::min(bytes, text.size());
  while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) {
    --end;
  }
  return text.substr(0, end);
}

}  // namespace danling::inline v0::detail
