#include "telemetry/external_run.hpp"

#include <algorithm>
#include <span>

#include <danling/formats/checksum.hpp>

#include "formats/utf8.hpp"

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

std::vector<std::pair<std::string, double>> named_values(const ScalarRecord& record) {
  std::vector<std::pair<std::string, double>> out;
  const auto add = [&](const Result& result, bool telemetry) {
    for (auto& [name, value] : result.flatten("/")) {
      if (!telemetry || name != "timestamp") {
        out.emplace_back(valid_utf8(record.split + "/" + name), value);
      }
    }
  };
  add(record.telemetry, true);
  add(record.values, false);
  return out;
}

std::string valid_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t size = formats::utf8_sequence(text);
    out += size == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(0, size);
    text.remove_prefix(std::max<std::size_t>(size, 1));
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
