// Tar shards of numbered records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <danling/core/format.hpp>
#include <danling/data/datasets/tar_shards.hpp>

#include <support/tar.hpp>
#include <support/temp_dir.hpp>

namespace tar_shards_test {

namespace data = danling::data;
namespace fs = std::filesystem;
using danling::detail::concat;
using danling_test::tar_archive;
using danling_test::TempDir;
using danling_test::write_file;

inline const fs::path folder = fs::path(DANLING_SOURCE_DIR) / "tests" / "golden" / "data";

/// Shards of 0 to 6 numbered records, each of one to three members: `0000.cls` ...
struct Numbers {
  TempDir dir;
  std::int64_t count = 0;
  explicit Numbers(int shards = 5) {
    for (int shard = 0; shard < shards; ++shard) {
      std::vector<std::pair<std::string, std::string>> members;
      for (int i = 0; i < (shard * 4 + 3) % 7; ++i, ++count) {
        const std::string key = concat("n/", count);
        members.emplace_back(key + ".cls", concat(count, "\n"));
        if (i % 2 == 1) {
          members.emplace_back(key + ".bin", std::string(static_cast<std::size_t>(700 * i), 'x'));
        }
      }
      write_file(dir / concat("s", shard, ".tar"), tar_archive(members));
    }
  }
  std::string pattern() const { return (dir.path() / "s{0..4}.tar").string(); }
};

inline std::vector<std::int64_t> drain(data::TarRecords& records) {
  std::vector<std::int64_t> out;
  while (const auto record = records.next()) {
    out.push_back(record->value(record->at("cls")).integer());
  }
  return out;
}

inline std::vector<std::int64_t> counted(std::int64_t count) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), std::int64_t{0});
  return out;
}

}  // namespace tar_shards_test
