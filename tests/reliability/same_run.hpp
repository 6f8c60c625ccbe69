// Whether a run has written what another one has.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <support/catch.hpp>

#include "launched.hpp"

namespace reliability {

inline std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The first file of that name below `root`; empty without one.
inline std::filesystem::path find_file(const std::filesystem::path& root, const std::string& name) {
  if (!std::filesystem::exists(root)) {
    return {};
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().filename() == name) {
      return entry.path();
    }
  }
  return {};
}

/// Lines of metrics so far.
inline std::size_t lines_in(const std::filesystem::path& root) {
  const auto file = find_file(root, "metrics.jsonl");
  return file.empty() ? 0 : lines_of(content(file)).size();
}

/// The lines of a file without times, which two runs do not share.
inline std::vector<std::string> lines_without_times(const std::filesystem::path& file) {
  auto out = lines_of(content(file));
  for (std::string& line : out) {
    line = line.substr(0, std::min(line.find(",\"telemetry\""), line.find_last_not_of('}') + 1));
  }
  std::erase_if(out, [](const std::string& line) { return line.find("\"timestamp\"") != line.npos; });
  return out;
}

/// Weights, metrics and results.
inline void check_same_run(const std::filesystem::path& root, const std::filesystem::path& reference) {
  const std::string weights = "model.safetensors";
  CHECK_FALSE(content(find_file(reference, weights)).empty());
  CHECK((content(find_file(root, weights)) == content(find_file(reference, weights))));
  for (const std::string name : {"metrics.jsonl", "results.json"}) {
    INFO(name);
    const auto expected = lines_without_times(find_file(reference, name));
    const auto got = lines_without_times(find_file(root, name));
    CHECK_FALSE(expected.empty());
    REQUIRE(got.size() == expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      REQUIRE(got[i] == expected[i]);
    }
  }
}

}  // namespace reliability
