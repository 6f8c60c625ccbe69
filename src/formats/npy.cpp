#include <danling/formats/npy.hpp>

#include <algorithm>
#include <bit>
#include <charconv>
#include <limits>
#include <optional>
#include <string>

#include <danling/core/error.hpp>

#include <formats/gzip.hpp>
#include <formats/little_endian.hpp>

namespace danling::inline v0::formats {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
// NumPy's limit.
constexpr std::size_t max_dims = 64;

struct NpyKind {
  char code;
  std::size_t width;
  DType dtype;
};

constexpr NpyKind npy_kinds[] = {
    {'f', 2, DType::float16},   {'f', 4, DType::float32},     {'f', 8, DType::float64}, {'i', 1, DType::int8},
    {'i', 2, DType::int16},     {'i', 4, DType::int32},       {'i', 8, DType::int64},   {'u', 1, DType::uint8},
    {'u', 2, DType::uint16},    {'u', 4, DType::uint32},      {'u', 8, DType::uint64},  {'b', 1, DType::boolean},
    {'c', 8, DType::complex64}, {'c', 16, DType::complex128},
};

std::string_view kind_name(char code) {
  switch (code) {
    case 'O':
      return "Python objects";
    case 'S':
    case 'a':
    case 'U':
      return "texts";
    case 'V':
      return "raw bytes (bfloat16 and float8 are stored so; save a view as unsigned integers)";
    case 'M':
    case 'm':
      return "dates or times (save them as int64)";
    case 'f':
    case 'c':
      return "floats that tensors do not have";
    default:
      return "elements of an unknown type";
  }
}

/// Parses the header: the text of a Python dict with `descr`, `fortran_order` and `shape`.
class NpyHeader {
 public:
  NpyHeader(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  NpyArray read() {
    take('{');
    while (!skip('}')) {
      const std::string_view key = string();
      take(':');
      if (key == "descr" && !has_descr_) {
        has_descr_ = true;
        descr();
      } else if (key == "fortran_order" && !has_order_) {
        has_order_ = true;
        array_.fortran_order = boolean();
      } else if (key == "shape" && !has_shape_) {
        has_shape_ = true;
        shape();
      } else {
        refuse("expected the keys descr, fortran_order and shape once each, got ", quote(key.substr(0, 40)));
      }
      if (!skip(',')) {
        take('}');
        break;
      }
    }
    spaces();
    if (at_ != text_.size()) {
      refuse("expected the end of the header after its dict, got ", quote(text_.substr(at_, 20)));
    }
    if (!has_descr_ || !has_order_ || !has_shape_) {
      refuse("expected the keys descr, fortran_order and shape, got a dict without ", !has_descr_   ? "descr"
                                                                                      : !has_order_ ? "fortran_order"
                                                                                                    : "shape");
    }
    return array_;
  }

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail<DataError>("data.npy", parts..., " (", source_, ")");
  }

 private:
  void spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) {
      ++at_;
    }
  }
  bool skip(char wanted) {
    spaces();
    if (at_ < text_.size() && text_[at_] == wanted) {
      ++at_;
      return true;
    }
    return false;
  }
  void take(char wanted) {
    if (!skip(wanted)) {
      refuse("expected '", wanted, "' at byte ", at_, " of the header, got ",
             at_ < text_.size() ? quote(text_.substr(at_, 20)) : std::string("its end"));
    }
  }
  std::string_view string() {
    spaces();
    const char mark = at_ < text_.size() ? text_[at_] : '\0';
    const std::size_t end = mark == '\'' || mark == '"' ? text_.find(mark, at_ + 1) : std::string_view::npos;
    if (end == std::string_view::npos) {
      refuse("expected a text at byte ", at_, " of the header, got ",
             at_ < text_.size() ? quote(text_.substr(at_, 20)) : std::string("its end"));
    }
    const std::string_view out = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return out;
  }
  bool boolean() {
    spaces();
    for (const std::string_view word : {"True", "False"}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return word == "True";
      }
    }
    refuse("expected True or False as fortran_order, got ", quote(text_.substr(at_, 20)));
  }

  void descr() {
    spaces();
    if (at_ < text_.size() && (text_[at_] == '[' || text_[at_] == '(')) {
      refuse("expected an array of numbers, got one of structures; save each field as a separate array");
    }
    const std::string_view name = string();
    const auto unknown = [&] {
      const char code = name.find_first_of("<>|=") == 0 ? name.size() > 1 ? name[1] : '?'
                        : name.empty()                  ? '?'
                                                        : name[0];
      refuse("expected an array of bools, integers, floats or complex numbers that tensors have, got ", kind_name(code),
             ": ", quote(name.substr(0, 40)));
    };
    if (name.size() < 3 || std::string_view("<>|=").find(name[0]) == std::string_view::npos) {
      unknown();
    }
    std::size_t width = 0;
    const auto [end, error] = std::from_chars(name.data() + 2, name.data() + name.size(), width);
    const auto* const kind = std::find_if(std::begin(npy_kinds), std::end(npy_kinds), [&](const NpyKind& known) {
      return known.code == name[1] && known.width == width;
    });
    if (error != std::errc() || end != name.data() + name.size() || kind == std::end(npy_kinds)) {
      unknown();
    }
    array_.dtype = kind->dtype;
    constexpr char other = std::endian::native == std::endian::little ? '>' : '<';
    array_.swapped = name[0] == other && kind->width > 1;
  }

  void shape() {
    take('(');
    while (!skip(')')) {
      spaces();
      std::int64_t size = -1;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), size);
      if (error != std::errc() || size < 0) {
        refuse("expected sizes in [0, 2^63), got ", quote(text_.substr(at_, 24)));
      }
      at_ = static_cast<std::size_t>(end - text_.data());
      at_ += at_ < text_.size() && text_[at_] == 'L' ? 1 : 0;  // Python 2's long integers
      array_.sizes.push_back(size);
      if (array_.sizes.size() > max_dims) {
        refuse("expected at most ", max_dims, " dimensions, got more");
      }
      if (!skip(',')) {
        take(')');
        break;
      }
    }
  }

  std::string_view text_;
  std::string_view source_;
  std::size_t at_ = 0;
  NpyArray array_;
  bool has_descr_ = false;
  bool has_order_ = false;
  bool has_shape_ = false;
};

}  // namespace

NpyArray parse_npy(std::span<const std::byte> content, std::string_view source) {
  const std::string_view text(reinterpret_cast<const char*>(content.data()), content.size());
  const auto refuse = [&](const auto&... parts) { fail<DataError>("data.npy", parts..., " (", source, ")"); };
  if (!text.starts_with(magic)) {
    const std::string_view compression = compression_of(text);
    refuse("expected a .npy file, which begins with \\x93NUMPY, got ",
           text.empty()           ? std::string("an empty one")
           : compression.empty()  ? quote(text.substr(0, magic.size()))
           : compression == "zip" ? std::string("zip: read an .npz archive by npz_dataset")
                                  : concat(compression, ": decompress it first"));
  }
  const unsigned major = text.size() > magic.size() ? static_cast<unsigned char>(text[magic.size()]) : 0;
  const std::size_t prefix = magic.size() + 2 + (major == 1 ? 2 : 4);
  if (text.size() < prefix) {
    refuse("expected a header, got the end of the data after ", text.size(), " bytes");
  }
  if (major < 1 || major > 3) {
    refuse("expected version 1, 2 or 3 of the format, got ", major);
  }
  const std::uint64_t length = major == 1 ? get_little<std::uint16_t>(text, magic.size() + 2)
                                          : get_little<std::uint32_t>(text, magic.size() + 2);
  if (length > text.size() - prefix) {
    refuse("expected a header of ", length, " bytes, got the end of the data after ", text.size() - prefix);
  }

  NpyHeader header(text.substr(prefix, static_cast<std::size_t>(length)), source);
  NpyArray array = header.read();
  array.offset = prefix + length;
  // Counts sizes of zero as one, so that no part of the shape can overflow.
  auto most = static_cast<std::int64_t>(dtype_size(array.dtype));
  bool empty = false;
  for (const std::int64_t size : array.sizes) {
    empty = empty || size == 0;
    if (__builtin_mul_overflow(most, std::max<std::int64_t>(size, 1), &most)) {
      refuse("expected a shape that makes less than 2^63 bytes, got (", join(array.sizes), ")");
    }
  }
  array.bytes = empty ? 0 : static_cast<std::uint64_t>(most);
  if (array.bytes != text.size() - array.offset) {
    refuse("expected ", array.bytes, " bytes of ", dtype_name(array.dtype), " of shape (", join(array.sizes),
           ") after the header, got ", text.size() - array.offset);
  }
  return array;
}

bool has_npy(DType dtype) {
  return std::any_of(std::begin(npy_kinds), std::end(npy_kinds), [&](const auto& kind) { return kind.dtype == dtype; });
}

std::string npy_header(DType dtype, std::span<const std::int64_t> sizes) {
  const auto* const kind =
      std::find_if(std::begin(npy_kinds), std::end(npy_kinds), [&](const auto& known) { return known.dtype == dtype; });
  std::string text = concat("{'descr': '", kind->width == 1 ? '|' : '<', kind->code, kind->width,
                            "', 'fortran_order': False, 'shape': (", join(sizes), sizes.size() == 1 ? "," : "", "), }");
  // NumPy reserves space for the first size to grow to 21 digits in place.
  text += std::string(sizes.empty() ? 0 : 21 - std::min<std::size_t>(21, to_text(sizes[0]).size()), ' ');
  const std::size_t before = magic.size() + 4;
  text += std::string(63 - (before + text.size()) % 64, ' ') + '\n';
  std::string out(magic);
  out += '\x01';
  out += '\0';
  out += static_cast<char>(text.size() & 0xff);
  out += static_cast<char>(text.size() >> 8);
  return out + text;
}

}  // namespace danling::inline v0::formats
