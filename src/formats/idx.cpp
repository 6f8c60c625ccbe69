#include <danling/formats/idx.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <memory>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::formats {

namespace {

constexpr std::size_t chunk = std::size_t{1} << 16;

/// A regular file, open for reading.
class File {
 public:
  explicit File(const std::filesystem::path& path) : path_(path.string()) {
    // O_NONBLOCK: a named pipe must not block before it is refused.
    descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    check<DataError>(descriptor_ >= 0, "data.idx", "expected a readable file, got ", quote(path_), ": ", reason());
    struct stat status {};
    const bool known = ::fstat(descriptor_, &status) == 0;
    if (!known || !S_ISREG(status.st_mode)) {
      const std::string why = !known ? reason() : S_ISDIR(status.st_mode) ? "it is a directory" : "it is not a file";
      ::close(descriptor_);
      fail<DataError>("data.idx", "expected a readable file, got ", quote(path_), ": ", why);
    }
    size_ = static_cast<std::uint64_t>(status.st_size);
  }
  ~File() { ::close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::uint64_t size() const { return size_; }

  /// Up to `count` bytes from `offset`; fewer only at the end of the file.
  std::size_t read_at(std::uint64_t offset, std::uint8_t* out, std::size_t count) const {
    std::size_t done = 0;
    while (done < count) {
      const ssize_t got = ::pread(descriptor_, out + done, count - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) {
        continue;
      }
      check<DataError>(got >= 0, "data.idx", "expected a readable file, got ", quote(path_), ": ", reason());
      if (got == 0) {
        break;
      }
      done += static_cast<std::size_t>(got);
    }
    return done;
  }

  /// `[data.idx] parts... (file 'x', why)`.
  template <class... Parts>
  [[noreturn]] void refuse(std::string_view why, const Parts&... parts) const {
    fail<DataError>("data.idx", parts..., " (file ", quote(path_), why.empty() ? "" : ", ", why, ")");
  }

 private:
  static std::string reason() { return std::generic_category().message(errno); }

  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

/// The content of a file, decompressed where it is gzip'd.
class Content {
 public:
  virtual ~Content() = default;
  /// Up to `count` further bytes; fewer only at the end.
  virtual std::size_t read(std::uint8_t* out, std::size_t count) = 0;
  /// No more bytes than this can come.
  virtual std::uint64_t limit() const = 0;
  /// Whether the end came too early for the content to be checked.
  virtual bool cut_off() const = 0;
};

class PlainContent final : public Content {
 public:
  explicit PlainContent(const File& file) : file_(file) {}
  std::size_t read(std::uint8_t* out, std::size_t count) override {
    const std::size_t got = file_.read_at(offset_, out, count);
    offset_ += got;
    return got;
  }
  std::uint64_t limit() const override { return file_.size(); }
  bool cut_off() const override { return false; }

 private:
  const File& file_;
  std::uint64_t offset_ = 0;
};

/// One or more gzip members. The end is reported only after the last checksum was right.
class GzipContent final : public Content {
 public:
  explicit GzipContent(const File& file) : file_(file) {
    constexpr int gzip_only = 16 + MAX_WBITS;
    check<DataError>(inflateInit2(&stream_, gzip_only) == Z_OK, "data.idx",
                     "expected memory for decompression, got none");
  }
  ~GzipContent() override { inflateEnd(&stream_); }
  GzipContent(const GzipContent&) = delete;
  GzipContent& operator=(const GzipContent&) = delete;

  std::size_t read(std::uint8_t* out, std::size_t count) override {
    std::size_t done = 0;
    while (done < count && !at_end_) {
      refill();
      const std::size_t room = std::min(count - done, std::size_t{1} << 30);
      stream_.next_out = out + done;
      stream_.avail_out = static_cast<uInt>(room);
      const int status = inflate(&stream_, Z_NO_FLUSH);
      done += room - stream_.avail_out;
      if (status == Z_STREAM_END) {
        next_member();
      } else if (status != Z_OK && !(status == Z_BUF_ERROR && stream_.avail_out == 0)) {
        if (status == Z_BUF_ERROR) {
          cut_off_ = true;  // the file ended inside a member
          break;
        }
        file_.refuse("damaged", "expected sound gzip data, got ",
                     stream_.msg != nullptr ? stream_.msg : "data that cannot be decompressed", " after ",
                     total_ + done, " bytes");
      }
    }
    total_ += done;
    return done;
  }

  // Deflate cannot shrink by more than a factor of 1032.
  std::uint64_t limit() const override { return file_.size() * 1032 + 1032; }
  bool cut_off() const override { return cut_off_; }

 private:
  void refill() {
    if (stream_.avail_in == 0) {
      const std::size_t got = file_.read_at(offset_, input_.data(), input_.size());
      offset_ += got;
      stream_.next_in = input_.data();
      stream_.avail_in = static_cast<uInt>(got);
    }
  }
  void next_member() {
    refill();
    at_end_ = stream_.avail_in == 0;
    if (!at_end_) {
      inflateReset(&stream_);
    }
  }

  const File& file_;
  z_stream stream_{};
  std::array<std::uint8_t, chunk> input_{};
  std::uint64_t offset_ = 0;
  std::uint64_t total_ = 0;
  bool at_end_ = false;
  bool cut_off_ = false;
};

bool is_type(std::uint8_t code) { return code == 0x08 || code == 0x09 || (code >= 0x0b && code <= 0x0e); }

/// `1437 images of 28x28 bytes`, `1437 bytes`, `2x3 float32 numbers`.
std::string describe(const IdxArray& array) {
  const char* unit = array.type == IdxType::u8 ? " bytes" : nullptr;
  const std::string numbers = unit != nullptr ? unit : concat(" ", name(array.type), " numbers");
  if (array.dims.size() == 3) {
    return concat(array.dims[0], " images of ", array.dims[1], "x", array.dims[2], numbers);
  }
  return join(array.dims, "x") + numbers;
}

/// Bytes that the header claims. Refuses more than can be there.
std::uint64_t claimed_bytes(const IdxArray& array, const File& file, std::uint64_t max_bytes) {
  auto total = static_cast<std::uint64_t>(width(array.type));
  for (const std::int64_t dim : array.dims) {
    if (__builtin_mul_overflow(total, static_cast<std::uint64_t>(dim), &total)) {
      total = ~std::uint64_t{0};
      break;  // not on to a dimension of zero, which would make it an empty array
    }
  }
  if (total > max_bytes) {
    file.refuse("", "expected at most ", max_bytes, " bytes, got a header that claims ", describe(array));
  }
  return total;
}

void to_native(IdxArray& array) {
  const auto size = static_cast<std::size_t>(width(array.type));
  if constexpr (std::endian::native == std::endian::little) {
    for (std::size_t i = 0; size > 1 && i < array.bytes.size(); i += size) {
      std::reverse(array.bytes.begin() + static_cast<std::ptrdiff_t>(i),
                   array.bytes.begin() + static_cast<std::ptrdiff_t>(i + size));
    }
  }
}

}  // namespace

const char* name(IdxType type) {
  switch (type) {
    case IdxType::u8:
      return "uint8";
    case IdxType::i8:
      return "int8";
    case IdxType::i16:
      return "int16";
    case IdxType::i32:
      return "int32";
    case IdxType::f32:
      return "float32";
    case IdxType::f64:
      return "float64";
  }
  return "unknown";
}

std::int64_t width(IdxType type) {
  switch (type) {
    case IdxType::u8:
    case IdxType::i8:
      return 1;
    case IdxType::i16:
      return 2;
    case IdxType::i32:
    case IdxType::f32:
      return 4;
    case IdxType::f64:
      return 8;
  }
  return 1;
}

IdxArray read_idx(const std::filesystem::path& path, const IdxOptions& options) {
  const File file(path);
  std::array<std::uint8_t, 2> magic{};
  const bool gzipped = file.read_at(0, magic.data(), magic.size()) == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
  std::unique_ptr<Content> content;
  if (gzipped) {
    content = std::make_unique<GzipContent>(file);
  } else {
    content = std::make_unique<PlainContent>(file);
  }

  std::array<std::uint8_t, 4> head{};
  std::size_t got = content->read(head.data(), head.size());
  if (got < head.size()) {
    file.refuse("truncated", "expected an IDX header, got ", got, got == 1 ? " byte" : " bytes");
  }
  if (head[0] != 0 || head[1] != 0 || !is_type(head[2])) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string bytes;
    for (const std::uint8_t byte : head) {
      bytes += concat(bytes.empty() ? "" : " ", digits[byte >> 4], digits[byte & 15]);
    }
    file.refuse("not IDX",
                "expected the magic number 00 00 <type> <rank> with a type of 08, 09, 0b, 0c, 0d or 0e, got ", bytes);
  }

  if (head[3] == 0) {
    file.refuse("not IDX", "expected at least one dimension, got none");
  }

  IdxArray array;
  array.type = static_cast<IdxType>(head[2]);
  for (int i = 0; i < head[3]; ++i) {
    std::array<std::uint8_t, 4> dim{};
    if (content->read(dim.data(), dim.size()) < dim.size()) {
      file.refuse("truncated", "expected a header with ", int{head[3]}, " dimensions, got ", i);
    }
    array.dims.push_back(std::int64_t{dim[0]} << 24 | std::int64_t{dim[1]} << 16 | std::int64_t{dim[2]} << 8 | dim[3]);
  }

  const std::uint64_t claimed = claimed_bytes(array, file, options.max_bytes);
  array.bytes.reserve(static_cast<std::size_t>(std::min(claimed, content->limit())));
  while (array.bytes.size() < claimed) {
    const std::size_t before = array.bytes.size();
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(claimed - before, chunk * 16));
    array.bytes.resize(before + wanted);
    got = content->read(array.bytes.data() + before, wanted);
    if (got < wanted) {
      file.refuse("truncated", "expected ", describe(array), ", got ", before + got, " bytes");
    }
  }
  // Also makes the decompressor reach its checksum.
  std::uint8_t beyond = 0;
  if (content->read(&beyond, 1) != 0) {
    file.refuse("trailing bytes", "expected ", describe(array), ", got more than ", claimed, " bytes");
  }
  if (content->cut_off()) {
    file.refuse("truncated", "expected ", describe(array), " and a checksum, got the end of the file before it");
  }
  to_native(array);
  return array;
}

}  // namespace danling::inline v0::formats
