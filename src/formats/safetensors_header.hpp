// Reads and writes the JSON header of a safetensors file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <danling/formats/safetensors.hpp>

namespace danling::inline v0::formats {

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< in the order of the data; offsets count from the start of the file
  SafetensorsMetadata metadata;
};

/// Reads the header of a file of `file_size` bytes and checks that its tensors fill the rest of the file. Messages name
/// `source`. @throws CheckpointError
SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t file_size, const std::string& source);

/// Returns the header of `entries`, padded to a multiple of 8 bytes. They must be in the order of their data, with
/// their sizes in bytes set. @throws CheckpointError for text that is not UTF-8
std::string safetensors_header(const std::vector<const SafetensorsEntry*>& entries,
                               const SafetensorsMetadata& metadata);

/// Returns true if Python's safetensors writes `a` before `b`: element types from wide to narrow, then names.
bool safetensors_before(const SafetensorsEntry& a, const SafetensorsEntry& b);

/// Returns the bytes of the entry by its shape and type, or `fallback` for 2^63 or more.
std::uint64_t safetensors_bytes(const SafetensorsEntry& entry, std::uint64_t fallback);

}  // namespace danling::inline v0::formats
