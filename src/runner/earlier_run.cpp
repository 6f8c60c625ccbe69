#include <runner/earlier_run.hpp>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

#include <danling/core/error.hpp>
#include <danling/workspace/files.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr std::string_view index_mark = "\n    \"index\": ";  // in latest.json and best.json
constexpr std::string_view without_best_mark = "\n        \"rounds_without_best\": ";
constexpr std::string_view unsaved_best_mark = "\n        \"unsaved_best\": ";  // in the details of summary.json

}  // namespace

// Reads the number that follows the last `mark` in a file.
std::optional<EarlierRun::Number> EarlierRun::number_in(const char* name, std::string_view mark) const {
  const auto file = directory_ / name;
  std::error_code missing;
  if (!std::filesystem::exists(file, missing)) {
    return std::nullopt;
  }
  const std::string text = read_text(file);
  const auto at = text.rfind(mark);
  if (at == std::string::npos) {
    return std::nullopt;
  }
  const auto rest = std::string_view(text).substr(at + mark.size());
  Number out{};
  const auto [after, error] = std::from_chars(rest.data(), rest.data() + rest.size(), out.value);
  if (error != std::errc()) {
    const auto key = mark.substr(mark.find('"') + 1);
    logger_.warning(
        concat("auto_resume: expected in ", file.string(), " a number of ", quote(key.substr(0, key.find('"'))),
               ", got ", quote(rest.substr(0, std::min(rest.find_first_of(",\n"), std::size_t{40}))), "; ignores it"));
    return std::nullopt;
  }
  out.decimal = after != rest.data() + rest.size() && *after == '.';
  return out;
}

std::optional<std::int64_t> EarlierRun::index_in(const char* file, std::string_view mark, bool by_epochs) const {
  const auto number = number_in(file, mark);
  return number ? std::optional(number->value + (by_epochs && number->decimal ? 1 : 0)) : std::nullopt;
}

bool EarlierRun::has_finished_status() const {
  const auto file = directory_ / "summary.json";
  std::error_code missing;
  return std::filesystem::exists(file, missing) &&
         read_text(file).find("\n    \"status\": \"finished\"") != std::string::npos;
}

bool EarlierRun::is_done(const RunBoundary& boundary) const {
  const bool by_epochs = boundary.epochs.has_value();
  const auto counted = has_finished_status()
                           ? number_in("summary.json", by_epochs ? "\n    \"epoch\": " : "\n    \"global_step\": ")
                           : std::nullopt;
  const auto done = counted ? std::optional(counted->value) : index_in("latest.json", index_mark, by_epochs);
  if (!done) {
    return true;
  }
  if (*done >= boundary.epochs.value_or(boundary.steps)) {
    return true;
  }
  // With min_delta the best result may be newer than the last improvement.
  const auto recorded = has_finished_status() ? number_in("summary.json", without_best_mark) : std::nullopt;
  const auto without_best = recorded    ? recorded->value
                            : by_epochs ? *done - index_in("best.json", index_mark, by_epochs).value_or(0)
                                        : 0;
  return without_best > 0 && static_cast<double>(without_best) >= boundary.patience;
}

bool EarlierRun::is_complete(const RunBoundary& boundary) const {
  if (!has_finished_status() || !is_done(boundary)) {
    return false;
  }
  const bool by_epochs = boundary.epochs.has_value();
  const auto unsaved = index_in("summary.json", unsaved_best_mark, by_epochs);
  return !unsaved || unsaved != index_in("latest.json", index_mark, by_epochs);
}

std::int64_t EarlierRun::last_global_step() const {
  return number_in("metrics.jsonl", ",\"global_step\":").value_or(Number{}).value;
}

std::int64_t EarlierRun::last_epoch() const {
  return number_in("metrics.jsonl", ",\"epoch\":").value_or(Number{}).value;
}

}  // namespace danling::inline v0::detail
