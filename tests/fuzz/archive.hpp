// Zip archives taken apart and put together again with the right checksums, so that mutations reach what lies inside.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace danling_fuzz {

/// Names and contents of the entries, in order.
using Records = std::vector<std::pair<std::string, std::string>>;

/// The entries that can be read; none when the archive cannot.
Records unpack(std::string_view archive);
/// An archive of stored entries. The records of the manifest's checksums are the caller's business.
std::string pack(const Records& records);

/// Changes one record, or their order, and packs them again; now and then changes raw bytes instead.
/// Gives the new size in `data`, which has room for `most` bytes.
std::size_t mutate_archive(unsigned char* data, std::size_t size, std::size_t most, unsigned seed);

}  // namespace danling_fuzz
