// Reading and writing of the JSON header of a safetensors file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <danling/formats/safetensors.hpp>

namespace danling::inline v0::formats {

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< in the order of their data; offsets count from the start of the file
  SafetensorsMetadata metadata;
};

/// Reads the header of a file of `file_size` bytes and checks that its tensors fill the rest of the file. `source` is
/// added to messages. @throws CheckpointError
SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t file_size, const std::string& source);

/// The header of `entries`, which are in the order of their data and have their sizes in bytes; padded to a multiple of
/// 8 bytes. @throws CheckpointError for text that is not UTF-8
std::string safetensors_header(const std::vector<const SafetensorsEntry*>& entries,
                               const SafetensorsMetadata& metadata);

/// Whether Python's safetensors puts `a` before `b`: element types from wide to narrow, then names.
bool safetensors_before(const SafetensorsEntry& a, const SafetensorsEntry& b);

/// Size of the entry by its shape and type, or `fallback` when there are 2^63 elements or more.
std::uint64_t safetensors_bytes(const SafetensorsEntry& entry, std::uint64_t fallback);

}  // namespace danling::inline v0::formats
