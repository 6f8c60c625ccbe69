// Archives for tests.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <danling/formats/detail/zip_writer.hpp>

namespace danling_test {

inline void write_zip(const std::filesystem::path& path,
                      const std::vector<std::pair<std::string, std::string>>& records) {
  danling::formats::AtomicFile file(path);
  danling::formats::ZipWriter zip(file);
  for (const auto& [name, content] : records) {
    zip.add(name, content);
  }
  zip.finish();
  file.commit();
}

}  // namespace danling_test
