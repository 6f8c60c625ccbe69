// Many records of an archive at once, on all cores.
#pragma once

#include <span>

#include <danling/formats/zip_reader.hpp>

namespace danling::inline v0::formats {

/// A record, the hash to verify it by (null: the archive's CRC-32), and where its content goes.
struct RecordRead {
  const ZipEntry* entry = nullptr;
  const Hash128* hash = nullptr;
  std::span<std::byte> out;
};

/// Fills every destination, which has its record's size, and verifies it. Throws for the first damaged record.
void read_records(const ZipReader& zip, std::span<const RecordRead> reads);
/// Verifies every record; destinations are left alone.
void verify_records(const ZipReader& zip, std::span<const RecordRead> reads);

}  // namespace danling::inline v0::formats
