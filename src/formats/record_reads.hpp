// Reads many records of an archive, on all cores.
#pragma once

#include <span>

#include <danling/formats/detail/zip_reader.hpp>

namespace danling::inline v0::formats {

/// A record, its hash (null: the archive's CRC-32), and the destination of its content.
struct RecordRead {
  const ZipEntry* entry = nullptr;
  const Hash128* hash = nullptr;
  std::span<std::byte> out;
};

/// Fills every destination (of its record's size) and verifies it. Throws for the first damaged record.
void read_records(const ZipReader& zip, std::span<const RecordRead> reads);
/// Reads and verifies every record; ignores destinations.
void verify_records(const ZipReader& zip, std::span<const RecordRead> reads);

}  // namespace danling::inline v0::formats
