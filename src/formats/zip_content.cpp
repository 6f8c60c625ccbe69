// ZipReader: reads and verifies the content of entries.
#include <algorithm>
#include <cstring>
#include <optional>

#include <danling/core/error.hpp>
#include <danling/formats/detail/zip_reader.hpp>

#include <formats/gzip.hpp>

namespace danling::inline v0::formats {
namespace {

// Small enough to stay in the cache until its checksum is computed.
constexpr std::size_t content_piece = std::size_t{1} << 18;

// Computes the XXH3-128 if a hash is given, else the CRC-32.
class Verification {
 public:
  Verification(const ZipReader& zip, const ZipEntry& entry, const Hash128* hash)
      : zip_(zip), entry_(entry), expected_(hash) {
    if (expected_ != nullptr) {
      hasher_.emplace();
    }
  }
  void update(std::span<const std::byte> bytes) {
    if (hasher_) {
      hasher_->update(bytes);
    } else {
      crc_ = extend_crc32(crc_, bytes);
    }
  }
  void finish() const {
    if (hasher_) {
      zip_.check_hash(entry_, *expected_, hasher_->digest());
    } else {
      zip_.check_crc(entry_, crc_);
    }
  }

 private:
  const ZipReader& zip_;
  const ZipEntry& entry_;
  const Hash128* expected_;
  std::optional<Hasher> hasher_;
  std::uint32_t crc_ = 0;
};

}  // namespace

void ZipReader::check_hash(const ZipEntry& entry, const Hash128& expected, const Hash128& got) const {
  if (got != expected) {
    fail(entry, concat("expected XXH3-128 ", to_hex(expected), ", got ", to_hex(got), ": the data was damaged"));
  }
}

void ZipReader::check_crc(const ZipEntry& entry, std::uint32_t got) const {
  if (has_crcs_ && got != entry.crc) {
    fail(entry, concat("expected checksum ", entry.crc, ", got ", got, ": the data was damaged"));
  }
}

template <class Take>
void ZipReader::inflate(const ZipEntry& entry, Take take) const {
  InflateReader reader(file_, InflateReader::Format::raw, entry.data_offset, entry.data_offset + entry.stored_size);
  std::vector<std::byte> piece(content_piece);
  std::uint64_t produced = 0;
  for (std::size_t count = piece.size(); count == piece.size();) {
    count = reader.read(piece);
    if (!reader.damage().empty()) {
      fail(entry, "expected deflated data, got damaged data");
    }
    if (count > entry.size - produced) {
      fail(entry, concat("expected ", entry.size, " bytes, got more"));
    }
    take(produced, std::span<const std::byte>(piece).first(count));
    produced += count;
  }
  if (produced != entry.size) {
    fail(entry, concat("expected ", entry.size, " bytes, got ", produced));
  }
}

// Passes the content to `take` in order. `room` is the buffer for stored content: the whole destination, or one piece.
template <class Take>
void ZipReader::stream(const ZipEntry& entry, std::span<std::byte> room, Take take) const {
  if (entry.deflated) {
    inflate(entry, take);
    return;
  }
  std::vector<std::byte> piece;
  const bool whole = room.size() == entry.size;
  if (!whole) {
    piece.resize(static_cast<std::size_t>(std::min<std::uint64_t>(content_piece, entry.size)));
  }
  for (std::uint64_t done = 0; done < entry.size;) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(content_piece, entry.size - done));
    const auto bytes = whole ? room.subspan(static_cast<std::size_t>(done), count) : std::span(piece).first(count);
    file_.read(entry.data_offset + done, bytes);
    take(done, std::span<const std::byte>(bytes));
    done += count;
  }
}

std::string ZipReader::read(const ZipEntry& entry, const Hash128* hash) const {
  std::string out;
  Verification verification(*this, entry, hash);
  stream(entry, {}, [&](std::uint64_t, std::span<const std::byte> bytes) {
    verification.update(bytes);
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  verification.finish();
  return out;
}

void ZipReader::read(const ZipEntry& entry, std::span<std::byte> out, const Hash128* hash) const {
  if (out.size() != entry.size) {
    fail(entry, concat("expected room for ", entry.size, " bytes, got ", out.size()));
  }
  Verification verification(*this, entry, hash);
  stream(entry, out, [&](std::uint64_t at, std::span<const std::byte> bytes) {
    verification.update(bytes);
    if (entry.deflated && !bytes.empty()) {
      std::memcpy(out.data() + at, bytes.data(), bytes.size());
    }
  });
  verification.finish();
}

void ZipReader::verify(const ZipEntry& entry, const Hash128* hash) const {
  Verification verification(*this, entry, hash);
  stream(entry, {}, [&](std::uint64_t, std::span<const std::byte> bytes) { verification.update(bytes); });
  verification.finish();
}

void ZipReader::read(const ZipEntry& entry, std::uint64_t offset, std::span<std::byte> out) const {
  if (offset > entry.size || out.size() > entry.size - offset) {
    fail(entry, concat("expected a range inside ", entry.size, entry.deflated ? " inflated" : " stored", " bytes, got ",
                       out.size(), " at offset ", offset));
  }
  if (!entry.deflated) {
    file_.read(entry.data_offset + offset, out);
    return;
  }
  inflate(entry, [&](std::uint64_t at, std::span<const std::byte> bytes) {
    const std::uint64_t begin = std::max(at, offset);
    const std::uint64_t end = std::min(at + bytes.size(), offset + out.size());
    if (begin < end) {
      std::memcpy(out.data() + (begin - offset), bytes.data() + (begin - at), static_cast<std::size_t>(end - begin));
    }
  });
}

}  // namespace danling::inline v0::formats
