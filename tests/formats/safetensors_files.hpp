// Safetensors files for tests: Python's, those of given tensors, and those of given headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>
#include <danling/formats/safetensors.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace safetensors_test {

using danling::CheckpointError;
using danling::detail::concat;
using danling::formats::AtomicFile;
using danling::formats::DType;
using danling::formats::PieceSink;
using danling::formats::SafetensorsEntry;
using danling::formats::SafetensorsMetadata;
using danling::formats::SafetensorsReader;
using danling_test::error_of;

inline std::filesystem::path golden_safetensors(const std::string& name) {
  return std::filesystem::path(DANLING_SOURCE_DIR) / "tests/golden/data" / ("safetensors_" + name + ".safetensors");
}

struct NamedBytes {
  SafetensorsEntry entry;
  std::string bytes;
};

// reference() of tests/golden/safetensors_interop.py.
inline std::vector<NamedBytes> reference_tensors() {
  std::vector<NamedBytes> out;
  for (std::size_t i = 0; i < danling::formats::dtype_count; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (danling::formats::safetensors_dtype(dtype).empty()) {
      continue;
    }
    std::string bytes(6 * danling::formats::dtype_size(dtype), '\0');
    std::iota(bytes.begin(), bytes.end(), '\0');
    if (dtype == DType::boolean) {
      bytes = std::string("\0\1\0\1\0\1", 6);
    }
    out.push_back({{std::string(danling::formats::dtype_name(dtype)), dtype, {2, 3}, 0, 0}, bytes});
  }
  out.push_back({{"empty", DType::float32, {0, 3}, 0, 0}, ""});
  out.push_back({{"scalar", DType::float32, {}, 0, 0}, std::string("\0\0\x20\x40", 4)});
  out.push_back({{"größe \"1\"\n\t\x01\x7f/\\", DType::int16, {3}, 0, 0}, std::string("\0\0\1\0\2\0", 6)});
  return out;
}

// Written one byte at a time when `pieces`.
inline void write_tensors(const std::filesystem::path& path, const std::vector<NamedBytes>& tensors,
                          const SafetensorsMetadata& metadata, bool pieces = false) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& tensor : tensors) {
    entries.push_back(tensor.entry);
  }
  AtomicFile file(path);
  danling::formats::write_safetensors(file, entries, metadata, [&](std::size_t i, const PieceSink& sink) {
    const auto all = std::as_bytes(std::span(tensors[i].bytes));
    for (std::size_t at = 0; pieces && at < all.size(); ++at) {
      sink(all.subspan(at, 1));
    }
    if (!pieces) {
      sink(all);
    }
  });
  file.commit();
}

inline std::string little_endian(std::uint64_t value) {
  std::string out;
  for (int i = 0; i < 8; ++i) {
    out.push_back(static_cast<char>(value >> (8 * i)));
  }
  return out;
}

// Returns the error of reading a file of `header` and `data` bytes of zeros, with `x` for the file's name.
inline std::string refusal(const std::string& header, std::size_t data,
                           std::optional<std::uint64_t> length = std::nullopt) {
  const danling_test::TempDir directory;
  const auto path = directory / "x";
  danling_test::write_file(path, little_endian(length.value_or(header.size())) + header + std::string(data, '\0'));
  std::string text = error_of<CheckpointError>([&] { SafetensorsReader{path}; });
  const auto found = text.find(path.string());
  REQUIRE(found != std::string::npos);
  return text.replace(found, path.string().size(), "x");
}

inline std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                          const std::string& offsets) {
  return concat("\"", name, R"(":{"dtype":")", dtype, R"(","shape":[)", shape, R"(],"data_offsets":[)", offsets, "]}");
}

}  // namespace safetensors_test
