// JSON lines as records: nested data that a user's function converts to samples.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include <danling/data/dataset_adapter.hpp>
#include <danling/formats/json_lines.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

/// The records of a JSON lines file, read on access. Copies share the file. Several threads may read at a time.
class JsonLines {
 public:
  /// Scans the whole file once for line ends. @throws DataError when it cannot be read.
  explicit JsonLines(const std::filesystem::path& path, const formats::JsonOptions& options = {})
      : file_(std::make_shared<const formats::JsonLinesFile>(path, options)) {}

  std::int64_t size() const { return file_->size(); }
  /// Returns one line as a tree. @throws DataError with file and line for invalid JSON: see `formats::parse_json`.
  State get(std::int64_t index) const;
  /// Returns `file` and `line`.
  State source_info(std::int64_t index) const;
  const formats::JsonLinesFile& file() const { return *file_; }

 private:
  std::shared_ptr<const formats::JsonLinesFile> file_;
};

/// The sample type of `json_lines_dataset`: the result of `map`.
template <class Map>
class MappedJsonLines {
 public:
  MappedJsonLines(JsonLines lines, Map map, std::string split)
      : lines_(std::move(lines)), map_(std::move(map)), split_(std::move(split)) {}

  std::int64_t size() const { return lines_.size(); }
  auto get(std::int64_t index) const { return map_(lines_.get(index)); }
  State source_info(std::int64_t index) const { return lines_.source_info(index); }
  std::string split() const { return split_; }

 private:
  JsonLines lines_;
  Map map_;
  std::string split_;
};

/// Returns a dataset of the samples that `map(State)` returns for each line. `map` runs in several threads at a time;
/// its result needs a `collate` in its namespace, as data::Sample has. Its exceptions become DataErrors with file and
/// line when a batch is read.
template <class Map>
auto json_lines_dataset(const std::filesystem::path& path, Map map, std::string split = {},
                        const formats::JsonOptions& options = {}) {
  using Lines = MappedJsonLines<Map>;
  static_assert(detail::require_dataset<Lines>());
  if constexpr (DatasetLike<Lines>) {
    return std::make_shared<DatasetAdapter<Lines>>(
        std::make_shared<Lines>(JsonLines(path, options), std::move(map), std::move(split)));
  }
}

}  // namespace danling::inline v0::data
