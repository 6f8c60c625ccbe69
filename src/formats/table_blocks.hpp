// Divides the text of a table among threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <thread>

#include <danling/core/error.hpp>
#include <danling/formats/table.hpp>

namespace danling::inline v0::formats {

struct Blocks {
  std::size_t threads = 1;
  /// Approximate size of a block's text.
  std::size_t bytes = std::size_t{1} << 20;

  /// `num_threads` is the value of an option; 0 means one thread per core.
  static Blocks of(std::string_view where, std::int64_t num_threads) {
    check<ConfigError>(num_threads >= 0, where, "expected num_threads of at least 0, got ", num_threads);
    const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
    const std::size_t threads = num_threads == 0 ? cores : static_cast<std::size_t>(num_threads);
    // Blocks help one thread too: small columns grow in the cache, and the whole column is allocated once.
    return {threads, std::size_t{threads == 1 ? 4U : 1U} << 20};
  }
};

/// read_csv and read_json_lines with given blocks. The tables do not depend on the blocks.
Table read_csv_in(const std::filesystem::path& path, const CsvOptions& options, const Blocks& blocks);
Table read_json_lines_in(const std::filesystem::path& path, const JsonTableOptions& options, const Blocks& blocks);

}  // namespace danling::inline v0::formats
