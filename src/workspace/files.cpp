#include <danling/workspace/files.hpp>

#include <sys/stat.h>

#include <cmath>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>
#include <danling/core/round.hpp>
#include <danling/formats/file.hpp>

namespace danling::inline v0 {
namespace {

nlohmann::ordered_json json_of(double value, int digits) {
  if (std::isnan(value)) {
    return "NaN";
  }
  if (std::isinf(value)) {
    return value < 0 ? "-Infinity" : "Infinity";
  }
  // Of a number below 0.1 as many digits from its first: else a loss of 7e-10 would be 0, and no worse than one of
  // 6e-10.
  if (const double size = std::abs(value); size < 0.1 && size > 0) {
    digits += -1 - static_cast<int>(std::floor(std::log10(size)));
  }
  return round_to(value, digits);
}

nlohmann::ordered_json json_of(const Result& result, int digits) {
  auto out = nlohmann::ordered_json::object();
  for (const auto& [name, value] : result) {
    if (const auto* number = std::get_if<double>(&value)) {
      out[name] = json_of(*number, digits);
    } else if (const auto* list = std::get_if<std::vector<double>>(&value)) {
      auto& items = out[name] = nlohmann::ordered_json::array();
      for (const double item : *list) {
        items.push_back(json_of(item, digits));
      }
    } else if (const auto* array = std::get_if<Result::Array>(&value)) {
      out[name] = nlohmann::ordered_json::parse(array->text([&](double item) { return json_of(item, digits).dump(); }));
    } else {
      out[name] = json_of(std::get<Result>(value), digits);
    }
  }
  return out;
}

}  // namespace

std::filesystem::path ensure_dir(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  check<Error>(!error || std::filesystem::is_directory(directory), "workspace.ensure_dir", "expected a directory ",
               quote(directory.string()), " that exists or can be created, got errno ", error.value(), " (",
               error.message(), ")");
  return directory;
}

void write_atomic(const std::filesystem::path& path, std::string_view text) {
  formats::replace_file(path, text, formats::FileErrors::of<Error>("workspace.write"));
}

DiskUsage disk_usage(const std::filesystem::path& directory) {
  DiskUsage out;
  std::set<std::pair<dev_t, ino_t>> seen;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    struct stat status{};
    if (lstat(entry->path().c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
      ++out.files;
      out.bytes += seen.emplace(status.st_dev, status.st_ino).second ? static_cast<std::uint64_t>(status.st_size) : 0;
    }
  }
  return out;
}

std::string read_text(const std::filesystem::path& path) {
  return formats::read_to_end(path, formats::FileErrors::of<Error>("workspace.read"));
}

std::string to_json(const Result& result, int digits) {
  return json_of(result, digits).dump(4, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace danling::inline v0
