#include "verify_resume_names.hpp"

#include <algorithm>
#include <charconv>

namespace danling_command {
namespace {

// Returns the position of `-g<12 digits>-q`, or npos.
std::size_t mark_of_save(std::string_view name) {
  const auto step = name.rfind("-g");
  const auto rest = step == std::string_view::npos ? step : name.find("-q", step);
  return rest != std::string_view::npos && rest == step + 14 &&
                 std::all_of(name.begin() + static_cast<std::ptrdiff_t>(step + 2),
                             name.begin() + static_cast<std::ptrdiff_t>(rest),
                             [](char c) { return c >= '0' && c <= '9'; })
             ? step
             : std::string_view::npos;
}

}  // namespace

std::string name_of(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

bool is_save_name(std::string_view name) {
  return !name.starts_with(".") && name.find('.') == std::string_view::npos &&
         mark_of_save(name) != std::string_view::npos;
}

std::string save_of(const std::string& path) {
  for (std::size_t from = 0; from < path.size();) {
    const auto end = std::min(path.find('/', from), path.size());
    if (is_save_name(std::string_view(path).substr(from, end - from))) {
      return path.substr(0, end);
    }
    from = end + 1;
  }
  return {};
}

bool is_checkpoint(const std::string& path) {
  return (path.ends_with(".pth") || path.ends_with(".pointer")) && !name_of(path).starts_with(".");
}

bool is_history(const std::string& path) { return is_checkpoint(path) && name_of(path).starts_with("ckpt-"); }

bool is_latest(const std::string& path) { return is_checkpoint(path) && name_of(path).starts_with("latest."); }

bool is_previous(const std::string& path) { return is_checkpoint(path) && name_of(path).starts_with("previous."); }

bool is_model(const std::string& path) { return is_checkpoint(path) && name_of(path).starts_with("model."); }

bool is_temporary(const std::string& path) {
  const auto name = name_of(path);
  return name.starts_with(".") && name.find(".tmp-") != std::string::npos;
}

int rank_of_file(std::string_view name) {
  for (const std::string_view start : {"__", "report-", "failed-"}) {
    const auto at = name.find(start);
    if (at == std::string_view::npos) {
      continue;
    }
    int rank = 0;
    const auto from = name.data() + at + start.size();
    if (std::from_chars(from, name.data() + name.size(), rank).ec == std::errc()) {
      return rank;
    }
  }
  return -1;
}

}  // namespace danling_command
