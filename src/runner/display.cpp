#include <runner/display.hpp>

#include <algorithm>

#include <danling/core/error.hpp>
#include <danling/runner/base_runner.hpp>
#include <danling/telemetry/text.hpp>

namespace danling::inline v0::detail {
namespace {

void show_into(std::vector<std::pair<std::string, std::string>>& out, const Result& result, const std::string& prefix) {
  constexpr std::size_t most = 4;
  for (const auto& [name, value] : result) {
    const std::string path = prefix.empty() ? name : concat(prefix, ".", name);
    if (const auto* number = std::get_if<double>(&value)) {
      if (path != "lr") {
        out.emplace_back(path, format_number(*number));
      }
    } else if (const auto* list = std::get_if<std::vector<double>>(&value)) {
      std::string text;
      for (std::size_t i = 0; i < std::min(list->size(), most); ++i) {
        text += concat(i == 0 ? "[" : ", ", format_number((*list)[i]));
      }
      out.emplace_back(path, text + (list->size() > most ? ", ...]" : "]"));
    } else if (const auto* array = std::get_if<Result::Array>(&value)) {
      // Displays a small matrix in full, a curve by its shape.
      constexpr std::size_t most_of_array = 16;
      out.emplace_back(path, array->values.size() <= most_of_array ? array->text(format_number)
                                                                   : concat(join(array->shape, " x "), " values"));
    } else {
      show_into(out, std::get<Result>(value), path);
    }
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> display_numbers(const Result& result) {
  std::vector<std::pair<std::string, std::string>> out;
  show_into(out, result, "");
  return out;
}

std::string place_in_run(const BaseRunner& runner) {
  const auto& train = runner.state().train;
  const auto epochs = runner.epochs();
  const bool ended = epochs && train.epoch >= *epochs;
  return concat(!epochs ? ""
                : ended ? concat("after epoch ", train.epoch, ", ")
                        : concat("in epoch ", train.epoch + 1, ", "),
                "at step ", train.global_step);
}

}  // namespace danling::inline v0::detail
