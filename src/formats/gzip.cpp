#include <formats/gzip.hpp>

#include <algorithm>
#include <array>
#include <utility>

#include <zlib.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::formats {

std::string_view compression_of(std::string_view bytes) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 4> known = {
      {{"\x1f\x8b", "gzip"}, {"\x28\xb5\x2f\xfd", "Zstandard"}, {"\xfd\x37zXZ", "xz"}, {"PK\x03\x04", "zip"}}};
  for (const auto& [magic, name] : known) {
    if (bytes.starts_with(magic)) {
      return name;
    }
  }
  // Text may begin with "BZh" too; in bzip2, a block or the end mark follows the size.
  const bool bzip2 = bytes.starts_with("BZh") && bytes.size() > 5 && bytes[3] >= '1' && bytes[3] <= '9' &&
                     (bytes.substr(4).starts_with("1A") || bytes.substr(4).starts_with("\x17\x72"));
  return bzip2 ? "bzip2" : std::string_view();
}

struct GzipReader::Stream {
  z_stream z{};
  std::array<char, std::size_t{1} << 16> input;
};

GzipReader::GzipReader(const DataFile& file) : file_(file), stream_(std::make_unique<Stream>()) {
  constexpr int gzip_only = 16 + MAX_WBITS;
  check<DataError>(inflateInit2(&stream_->z, gzip_only) == Z_OK, file_.where(),
                   "expected memory for decompression, got none");
}

GzipReader::~GzipReader() { inflateEnd(&stream_->z); }

std::size_t GzipReader::read(char* out, std::size_t count) {
  z_stream& z = stream_->z;
  std::size_t done = 0;
  while (done < count && !at_end_) {
    refill();
    const std::size_t room = std::min(count - done, std::size_t{1} << 30);
    z.next_out = reinterpret_cast<Bytef*>(out + done);
    z.avail_out = static_cast<uInt>(room);
    const int status = inflate(&z, Z_NO_FLUSH);
    done += room - z.avail_out;
    if (status == Z_STREAM_END) {
      next_member();
    } else if (status != Z_OK && !(status == Z_BUF_ERROR && z.avail_out == 0)) {
      if (status == Z_BUF_ERROR) {
        cut_off_ = true;  // the file ended inside a member
        break;
      }
      fail<DataError>(file_.where(), "expected sound gzip data, got ",
                      z.msg != nullptr ? z.msg : "data that cannot be decompressed", " after ", total_ + done,
                      " bytes (file ", quote(file_.path().string()), ", damaged)");
    }
  }
  total_ += done;
  return done;
}

// Deflate's maximum ratio is 1032.
std::uint64_t GzipReader::limit() const { return file_.size() * 1032 + 1032; }

void GzipReader::refill() {
  z_stream& z = stream_->z;
  if (z.avail_in == 0) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(file_.size() - offset_, stream_->input.size()));
    file_.read(offset_, {stream_->input.data(), count});
    offset_ += count;
    z.next_in = reinterpret_cast<Bytef*>(stream_->input.data());
    z.avail_in = static_cast<uInt>(count);
  }
}

// Skips zeros between members, as Python's gzip does: some media pad blocks with them.
void GzipReader::next_member() {
  refill();
  for (z_stream& z = stream_->z; z.avail_in > 0 && *z.next_in == 0; refill()) {
    ++z.next_in;
    --z.avail_in;
  }
  at_end_ = stream_->z.avail_in == 0;
  if (!at_end_) {
    inflateReset(&stream_->z);
  }
}

std::string read_gzip(const DataFile& file) {
  GzipReader reader(file);
  std::string out;
  std::size_t size = 0;
  do {
    out.resize(
        static_cast<std::size_t>(std::min<std::uint64_t>(std::max<std::uint64_t>(2 * size, 1 << 16), reader.limit())));
    size += reader.read(out.data() + size, out.size() - size);
  } while (size == out.size());
  check<DataError>(!reader.cut_off(), file.where(),
                   "expected gzip data with its checksum, got the end of the file after ", size, " bytes (file ",
                   quote(file.path().string()), ", truncated)");
  out.resize(size);
  out.shrink_to_fit();
  return out;
}

}  // namespace danling::inline v0::formats
