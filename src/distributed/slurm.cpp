#include <distributed/slurm.hpp>

#include <algorithm>
#include <charconv>

namespace danling::inline v0::detail {
namespace {

std::optional<int> number_of(std::string_view text) {
  int value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && stop == text.data() + text.size() && value >= 0 ? std::optional(value) : std::nullopt;
}

/// Removes the leading digits of `text` and returns them.
std::string_view take_digits(std::string_view& text) {
  const std::size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view digits = text.substr(0, count);
  text.remove_prefix(count);
  return digits;
}

bool take(std::string_view& text, char wanted) {
  const bool there = !text.empty() && text.front() == wanted;
  text.remove_prefix(there ? 1 : 0);
  return there;
}

/// Reads `[01-03,7]` after its first bracket; returns the first number as written, with leading zeros.
std::optional<std::string_view> take_ranges(std::string_view& text) {
  std::optional<std::string_view> first;
  do {
    const std::string_view low = take_digits(text);
    if (low.empty() || (take(text, '-') && take_digits(text).empty())) {
      return std::nullopt;
    }
    first = first.value_or(low);
  } while (take(text, ','));
  return take(text, ']') ? first : std::nullopt;
}

}  // namespace

std::optional<std::string> first_slurm_host(std::string_view list) {
  std::string host;
  while (!list.empty() && list.front() != ',') {
    if (take(list, '[')) {
      const auto number = take_ranges(list);
      if (!number) {
        return std::nullopt;
      }
      host += *number;
    } else if (list.front() == ']') {
      return std::nullopt;
    } else {
      host += list.front();
      list.remove_prefix(1);
    }
  }
  return host.empty() ? std::nullopt : std::optional(host);
}

std::optional<int> slurm_tasks_on_node(std::string_view list, int node) {
  while (!list.empty()) {
    const auto tasks = number_of(take_digits(list));
    std::optional<int> nodes = 1;
    if (take(list, '(')) {
      if (!take(list, 'x')) {
        return std::nullopt;
      }
      nodes = number_of(take_digits(list));
      if (!take(list, ')')) {
        return std::nullopt;
      }
    }
    if (!tasks || !nodes || (!list.empty() && !take(list, ','))) {
      return std::nullopt;
    }
    if (node < *nodes) {
      return tasks;
    }
    node -= *nodes;
  }
  return std::nullopt;
}

int slurm_port(std::uint64_t job, std::uint64_t step) {
  return static_cast<int>(15000 + (job % 10000 + step % 10000 * 1009) % 10000);
}

}  // namespace danling::inline v0::detail
