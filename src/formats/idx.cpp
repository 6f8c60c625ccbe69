#include <danling/formats/idx.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <string_view>

#include <danling/core/error.hpp>

#include <formats/gzip.hpp>

namespace danling::inline v0::formats {

namespace {

constexpr std::size_t chunk = std::size_t{1} << 16;

/// The content of a file, decompressed if it is gzip'd.
class Content {
 public:
  explicit Content(const std::filesystem::path& path) : file_(path, FileErrors::of<DataError>("data.idx")) {
    if (const auto compression = reader_.compression(); !compression.empty() && compression != "gzip") {
      refuse("not IDX", "expected an IDX file, plain or compressed by gzip, got ", compression);
    }
  }

  /// Reads further bytes; fewer than `out` only at the end.
  std::size_t read(std::span<std::uint8_t> out) {
    const std::size_t got = reader_.read(std::as_writable_bytes(out));
    reader_.check_sound();
    return got;
  }
  std::uint64_t limit() const { return reader_.limit(); }
  bool cut_off() const { return reader_.cut_off(); }

  /// Throws `[data.idx] parts... (file 'x', why)`.
  template <class... Parts>
  [[noreturn]] void refuse(std::string_view why, const Parts&... parts) const {
    fail<DataError>("data.idx", parts..., " (file ", quote(file_.path().string()), why.empty() ? "" : ", ", why, ")");
  }

 private:
  InputFile file_;
  ContentReader reader_{file_};
};

bool is_type(std::uint8_t code) { return code == 0x08 || code == 0x09 || (code >= 0x0b && code <= 0x0e); }

/// Returns a text such as `1437 images of 28x28 bytes`, `1437 bytes` or `2x3 float32 numbers`.
std::string describe(const IdxArray& array) {
  const char* unit = array.type == IdxType::u8 ? " bytes" : nullptr;
  const std::string numbers = unit != nullptr ? unit : concat(" ", name(array.type), " numbers");
  if (array.dims.size() == 3) {
    return concat(array.dims[0], " images of ", array.dims[1], "x", array.dims[2], numbers);
  }
  return join(array.dims, "x") + numbers;
}

/// Returns the size of the array by the header. Refuses more than the file can contain.
std::uint64_t claimed_bytes(const IdxArray& array, const Content& file, std::uint64_t max_bytes) {
  auto total = static_cast<std::uint64_t>(width(array.type));
  for (const std::int64_t dim : array.dims) {
    if (__builtin_mul_overflow(total, static_cast<std::uint64_t>(dim), &total)) {
      total = ~std::uint64_t{0};
      break;  // stop before a dimension of zero, which would make it an empty array
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
  Content content(path);
  std::array<std::uint8_t, 4> head{};
  std::size_t got = content.read(head);
  if (got < head.size()) {
    content.refuse("truncated", "expected an IDX header, got ", got, got == 1 ? " byte" : " bytes");
  }
  if (head[0] != 0 || head[1] != 0 || !is_type(head[2])) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string bytes;
    for (const std::uint8_t byte : head) {
      bytes += concat(bytes.empty() ? "" : " ", digits[byte >> 4], digits[byte & 15]);
    }
    content.refuse("not IDX",
                   "expected the magic number 00 00 <type> <rank> with a type of 08, 09, 0b, 0c, 0d or 0e, got ",
                   bytes);
  }

  if (head[3] == 0) {
    content.refuse("not IDX", "expected at least one dimension, got none");
  }

  IdxArray array;
  array.type = static_cast<IdxType>(head[2]);
  for (int i = 0; i < head[3]; ++i) {
    std::array<std::uint8_t, 4> dim{};
    if (content.read(dim) < dim.size()) {
      content.refuse("truncated", "expected a header with ", int{head[3]}, " dimensions, got ", i);
    }
    array.dims.push_back(std::int64_t{dim[0]} << 24 | std::int64_t{dim[1]} << 16 | std::int64_t{dim[2]} << 8 | dim[3]);
  }

  const std::uint64_t claimed = claimed_bytes(array, content, options.max_bytes);
  array.bytes.reserve(static_cast<std::size_t>(std::min(claimed, content.limit())));
  while (array.bytes.size() < claimed) {
    const std::size_t before = array.bytes.size();
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(claimed - before, chunk * 16));
    array.bytes.resize(before + wanted);
    got = content.read(std::span(array.bytes).subspan(before));
    if (got < wanted) {
      content.refuse("truncated", "expected ", describe(array), ", got ", before + got, " bytes");
    }
  }
  // Makes the decompressor verify its checksum.
  std::uint8_t beyond = 0;
  if (content.read(std::span(&beyond, 1)) != 0) {
    content.refuse("trailing bytes", "expected ", describe(array), ", got more than ", claimed, " bytes");
  }
  if (content.cut_off()) {
    content.refuse("truncated", "expected ", describe(array), " and a checksum, got the end of the file before it");
  }
  to_native(array);
  return array;
}

}  // namespace danling::inline v0::formats
