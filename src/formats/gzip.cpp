#include <formats/gzip.hpp>

#include <algorithm>
#include <array>
#include <utility>

#include <zlib.h>

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

struct InflateReader::Stream {
  z_stream z{};
  std::array<std::byte, std::size_t{1} << 16> input;
};

InflateReader::InflateReader(const InputFile& file, Format format, std::uint64_t begin, std::uint64_t end)
    : file_(file), format_(format), offset_(begin), end_(end), stream_(std::make_unique<Stream>()) {
  const int window = format == Format::gzip ? 16 + MAX_WBITS : -MAX_WBITS;
  if (inflateInit2(&stream_->z, window) != Z_OK) {
    file.errors().fail("expected memory for decompression, got none");
  }
}

InflateReader::~InflateReader() { inflateEnd(&stream_->z); }

std::size_t InflateReader::read(std::span<std::byte> out) {
  z_stream& z = stream_->z;
  std::size_t done = 0;
  while (done < out.size() && !at_end_ && !cut_off_ && damage_.empty()) {
    refill();
    const std::size_t room = std::min(out.size() - done, std::size_t{1} << 30);
    z.next_out = reinterpret_cast<Bytef*>(out.data() + done);
    z.avail_out = static_cast<uInt>(room);
    const int status = inflate(&z, Z_NO_FLUSH);
    done += room - z.avail_out;
    if (status == Z_STREAM_END) {
      next_member();
    } else if (status == Z_BUF_ERROR) {
      cut_off_ = z.avail_out > 0;
    } else if (status != Z_OK) {
      damage_ = z.msg != nullptr ? z.msg : "data that cannot be decompressed";
    }
  }
  total_ += done;
  return done;
}

void InflateReader::refill() {
  z_stream& z = stream_->z;
  if (z.avail_in == 0) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(end_ - offset_, stream_->input.size()));
    file_.read(offset_, std::span(stream_->input).first(count));
    offset_ += count;
    z.next_in = reinterpret_cast<Bytef*>(stream_->input.data());
    z.avail_in = static_cast<uInt>(count);
  }
}

// Skips zeros between gzip members, as Python's gzip does: some media pad blocks with them.
void InflateReader::next_member() {
  if (format_ == Format::raw) {
    at_end_ = true;
    return;
  }
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

ContentReader::ContentReader(const InputFile& file)
    : file_(file), compression_(compression_of(file.text(0, std::min<std::uint64_t>(file.size(), 6)))) {
  if (compression_ == "gzip") {
    gzip_.emplace(file, InflateReader::Format::gzip, 0, file.size());
  }
}

std::size_t ContentReader::read(std::span<std::byte> out) {
  if (gzip_) {
    return gzip_->read(out);
  }
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), file_.size() - offset_));
  file_.read(offset_, out.first(count));
  offset_ += count;
  return count;
}

void ContentReader::check_sound() const {
  if (!damage().empty()) {
    file_.errors().fail("expected sound gzip data, got ", damage(), " after ", gzip_->total(), " bytes (file ",
                        quote(file_.path().string()), ", damaged)");
  }
}

std::uint64_t ContentReader::limit() const { return gzip_ ? (file_.size() + 1) * max_deflate_ratio : file_.size(); }

std::string read_gzip(const InputFile& file) {
  ContentReader reader(file);
  std::string out;
  std::size_t size = 0;
  do {
    out.resize(
        static_cast<std::size_t>(std::min<std::uint64_t>(std::max<std::uint64_t>(2 * size, 1 << 16), reader.limit())));
    size += reader.read(std::as_writable_bytes(std::span(out).subspan(size)));
  } while (size == out.size() && size < reader.limit());
  reader.check_sound();
  if (reader.cut_off()) {
    file.errors().fail("expected gzip data with its checksum, got the end of the file after ", size, " bytes (file ",
                       quote(file.path().string()), ", truncated)");
  }
  out.resize(size);
  out.shrink_to_fit();
  return out;
}

}  // namespace danling::inline v0::formats
