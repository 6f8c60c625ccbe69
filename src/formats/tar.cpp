#include <danling/formats/tar.hpp>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <danling/core/error.hpp>

#include <formats/gzip.hpp>

namespace danling::inline v0::formats {
namespace {

constexpr std::uint64_t block_size = 512;
// Limit for extended headers (names and attributes), which usually have a few hundred bytes.
constexpr std::uint64_t max_extension = std::uint64_t{1} << 20;

using Block = std::array<char, block_size>;

struct Field {
  std::size_t offset;
  std::size_t size;
};
constexpr Field name_field{0, 100};
constexpr Field size_field{124, 12};
constexpr Field checksum_field{148, 8};
constexpr std::size_t type_offset = 156;
constexpr Field magic_field{257, 6};
constexpr Field prefix_field{345, 155};

std::string_view field_of(const Block& block, Field field) { return {block.data() + field.offset, field.size}; }

/// Returns the field up to the first zero byte.
std::string_view text_of(std::string_view field) { return field.substr(0, field.find('\0')); }

/// Content of the extended headers before a member.
struct Extension {
  std::optional<std::string> name;
  std::optional<std::uint64_t> size;
  bool any = false;
};

/// State of one call of `next`; messages use the current position.
class Scan {
 public:
  Scan(const InputFile& file, std::uint64_t offset) : file_(file), offset_(offset) {}

  std::optional<TarMember> run() {
    const std::uint64_t begin = offset_;
    Extension extension;
    while (true) {
      read_block();
      if (is_zero(block_)) {
        if (extension.any) {
          refuse("expected a member after an extended header, got the end of the archive");
        }
        check_end();
        return std::nullopt;
      }
      check_checksum();
      const std::uint64_t claimed = number(size_field, "size");
      const char type = block_[type_offset];
      switch (type) {
        case 'x':
        case 'X':  // Solaris' variant
          take_pax(content(claimed, max_extension), extension);
          break;
        case 'g':
          refuse_pax_of_all(content(claimed, max_extension));
          break;
        case 'L':
          extension.name = std::string(text_of(content(claimed, max_extension)));
          extension.any = true;
          break;
        case 'K':  // the long name of a link's target
          content(claimed, max_extension);
          extension.any = true;
          break;
        default: {
          const std::string name = extension.name ? *extension.name : short_name();
          const bool directory = type == '5' || (type == '\0' && name.ends_with('/'));
          if (!directory) {
            check_type(type, name);
            return member(begin, name, extension.size.value_or(claimed));
          }
          extension = {};
          offset_ += block_size;
        }
      }
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    fail<DataError>(file_.errors().where(), what, " (file ", quote(file_.path().string()), ", offset ", offset_, ")");
  }

  static bool is_zero(std::string_view bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](char byte) { return byte == 0; });
  }
  static bool is_zero(const Block& block) { return is_zero(std::string_view(block.data(), block.size())); }

  void read_block() {
    const std::uint64_t left = offset_ <= file_.size() ? file_.size() - offset_ : 0;
    if (left == 0) {
      refuse("expected the zeros that end an archive, got the end of the file: it is truncated");
    }
    if (left < block_size) {
      refuse(concat("expected a header of 512 bytes, got ", left, " bytes: the file is truncated"));
    }
    file_.read(offset_, block_);
  }

  void check_checksum() const {
    std::uint64_t unsigned_sum = 0;
    std::int64_t signed_sum = 0;  // the sum that old programs wrote
    for (std::size_t i = 0; i < block_.size(); ++i) {
      const bool inside = i >= checksum_field.offset && i < checksum_field.offset + checksum_field.size;
      const char byte = inside ? ' ' : block_[i];
      unsigned_sum += static_cast<unsigned char>(byte);
      signed_sum += static_cast<signed char>(byte);
    }
    const auto stored = octal(text_of(field_of(block_, checksum_field)));
    if (!stored || (*stored != unsigned_sum && static_cast<std::int64_t>(*stored) != signed_sum)) {
      refuse(concat("expected a header of a TAR archive with its checksum ", unsigned_sum, ", got ",
                    stored ? to_text(*stored) : std::string("none")));
    }
  }

  /// Parses octal digits with spaces around; returns 0 without digits, as GNU tar does.
  static std::optional<std::uint64_t> octal(std::string_view text) {
    while (text.starts_with(' ')) {
      text.remove_prefix(1);
    }
    while (text.ends_with(' ')) {
      text.remove_suffix(1);
    }
    std::uint64_t value = 0;
    for (const char digit : text) {
      if (digit < '0' || digit > '7' || value >> 60 != 0) {
        return std::nullopt;
      }
      value = value << 3 | static_cast<std::uint64_t>(digit - '0');
    }
    return value;
  }

  /// Parses octal digits, or big-endian bytes after 0x80 (GNU tar's form of large numbers).
  std::uint64_t number(Field field, const char* what) const {
    const std::string_view bytes = field_of(block_, field);
    const auto first = static_cast<unsigned char>(bytes[0]);
    std::optional<std::uint64_t> value;
    if (first == 0x80) {
      const std::size_t low = bytes.size() - sizeof(std::uint64_t);
      if (is_zero(bytes.substr(1, low - 1))) {
        value = 0;
        for (const char byte : bytes.substr(low)) {
          *value = *value << 8 | static_cast<unsigned char>(byte);
        }
      }
    } else if (first < 0x80) {
      value = octal(text_of(bytes));
    }
    if (!value) {
      refuse(concat("expected a ", what, " that is a number below 2^64, got ", quote(text_of(bytes))));
    }
    return *value;
  }

  /// Returns the name in the header.
  std::string short_name() const {
    std::string name(text_of(field_of(block_, name_field)));
    const bool posix = field_of(block_, magic_field) == std::string_view("ustar\0", 6);
    const std::string_view prefix = posix ? text_of(field_of(block_, prefix_field)) : std::string_view();
    return prefix.empty() ? name : concat(prefix, "/", name);
  }

  /// Returns the end of `size` bytes of content behind this header, in whole blocks.
  std::uint64_t end_of(std::uint64_t size) const {
    const std::uint64_t left = file_.size() - offset_ - block_size;
    const std::uint64_t padding = (block_size - size % block_size) % block_size;
    if (size > left || padding > left - size) {
      refuse(concat("expected ", size, " bytes of content in whole blocks, got ", left,
                    " bytes to the end of the file: it is truncated"));
    }
    return offset_ + block_size + size + padding;
  }

  /// Reads the content of an extended header and moves behind it.
  std::string content(std::uint64_t size, std::uint64_t most) {
    if (size > most) {
      refuse(concat("expected an extended header of at most ", most, " bytes, got ", size));
    }
    const std::uint64_t end = end_of(size);
    std::string out(static_cast<std::size_t>(size), '\0');
    file_.read(offset_ + block_size, out);
    offset_ = end;
    return out;
  }

  TarMember member(std::uint64_t begin, std::string name, std::uint64_t size) const {
    return {std::move(name), begin, offset_ + block_size, size, end_of(size)};
  }

  /// Parses records `<length> <key>=<value>\n`; calls `each(key, value)`.
  template <class Each>
  void for_each_pax(std::string_view records, const Each& each) const {
    while (!records.empty()) {
      const std::size_t space = records.find(' ');
      const auto length = decimal(records.substr(0, space));
      if (space == std::string_view::npos || !length || *length <= space + 1 || *length > records.size() ||
          records[static_cast<std::size_t>(*length) - 1] != '\n') {
        refuse("expected extended headers of '<length> <key>=<value>', got damaged ones");
      }
      const std::string_view record =
          records.substr(space + 1, static_cast<std::size_t>(*length) - space - 2);  // without the line end
      const std::size_t equals = record.find('=');
      if (equals == std::string_view::npos) {
        refuse("expected extended headers of '<length> <key>=<value>', got one without '='");
      }
      each(record.substr(0, equals), record.substr(equals + 1));
      records.remove_prefix(static_cast<std::size_t>(*length));
    }
  }

  static std::optional<std::uint64_t> decimal(std::string_view text) {
    std::uint64_t value = 0;
    for (const char digit : text) {
      if (digit < '0' || digit > '9' || value > (~std::uint64_t{0} - 9) / 10) {
        return std::nullopt;
      }
      value = value * 10 + static_cast<std::uint64_t>(digit - '0');
    }
    return text.empty() ? std::nullopt : std::optional(value);
  }

  void take_pax(const std::string& records, Extension& extension) const {
    extension.any = true;
    for_each_pax(records, [&](std::string_view key, std::string_view value) {
      // POSIX: an empty value cancels an earlier one; the header's field then applies.
      if (key == "path") {
        extension.name = value.empty() ? std::nullopt : std::optional(std::string(text_of(value)));
      } else if (key == "size" && value.empty()) {
        extension.size.reset();
      } else if (key == "size") {
        extension.size = decimal(value);
        if (!extension.size) {
          refuse(concat("expected a size that is a number below 2^64, got ", quote(value)));
        }
      } else if (key.starts_with("GNU.sparse")) {
        refuse("expected whole files, got a sparse one: write the archive without --sparse");
      }
    });
  }

  /// Refuses names and sizes among attributes for all members; allows others, such as times and comments.
  void refuse_pax_of_all(const std::string& records) const {
    for_each_pax(records, [&](std::string_view key, std::string_view) {
      if (key == "path" || key == "size" || key.starts_with("GNU.sparse")) {
        refuse(concat("expected no ", quote(key), " for all members at once, got one"));
      }
    });
  }

  void check_type(char type, const std::string& name) const {
    if (type == '\0' || type == '0' || type == '7') {  // '7': contiguous storage
      return;
    }
    static constexpr std::array<std::pair<char, const char*>, 10> others = {{{'1', "a hard link"},
                                                                             {'2', "a symbolic link"},
                                                                             {'3', "a character device"},
                                                                             {'4', "a block device"},
                                                                             {'6', "a named pipe"},
                                                                             {'S', "a sparse file"},
                                                                             {'M', "the rest of a file in parts"},
                                                                             {'D', "a directory of a GNU dump"},
                                                                             {'N', "names of an old GNU tar"},
                                                                             {'V', "the label of a volume"}}};
    const auto* const found =
        std::find_if(others.begin(), others.end(), [&](const auto& other) { return other.first == type; });
    refuse(concat("expected files and directories, got ",
                  found != others.end() ? std::string(found->second) : concat("a member of type ", int{type}), " ",
                  quote(name)));
  }

  /// Refuses data behind the first block of zeros, since members there would be lost silently.
  void check_end() {
    std::uint64_t at = offset_ + block_size;
    std::string piece;
    while (at < file_.size()) {
      piece.resize(static_cast<std::size_t>(std::min<std::uint64_t>(file_.size() - at, std::uint64_t{1} << 16)));
      file_.read(at, piece);
      if (!is_zero(std::string_view(piece))) {
        refuse("expected only zeros from here on, got further data, as in concatenated archives");
      }
      at += piece.size();
    }
  }

  const InputFile& file_;
  std::uint64_t offset_;
  Block block_{};
};

}  // namespace

TarArchive::TarArchive(std::filesystem::path path)
    : file_(std::make_unique<InputFile>(std::move(path), FileErrors::of<DataError>("formats.tar"))) {
  check<DataError>(file_->size() > 0, "formats.tar", "expected a TAR archive, got an empty file (file ",
                   quote(file_->path().string()), ")");
  const std::string_view compression = compression_of(file_->text(0, std::min<std::uint64_t>(file_->size(), 8)));
  check<DataError>(compression.empty(), "formats.tar", "expected a plain TAR archive, got one compressed by ",
                   compression, ", in which no position can be sought: decompress it first (file ",
                   quote(file_->path().string()), ")");
}

TarArchive::~TarArchive() = default;

const std::filesystem::path& TarArchive::path() const { return file_->path(); }
std::uint64_t TarArchive::size() const { return file_->size(); }

std::optional<TarMember> TarArchive::next(std::uint64_t offset) const { return Scan(*file_, offset).run(); }

std::string TarArchive::read(const TarMember& member) const { return file_->text(member.offset, member.size); }

void TarArchive::prefetch(std::uint64_t offset, std::uint64_t count) const { file_->prefetch(offset, count); }

}  // namespace danling::inline v0::formats
