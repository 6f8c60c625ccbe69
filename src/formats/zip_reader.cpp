#include <danling/formats/detail/zip_reader.hpp>

#include <algorithm>

#include <danling/core/error.hpp>

#include <formats/gzip.hpp>
#include <formats/little_endian.hpp>
#include <formats/zip_layout.hpp>

namespace danling::inline v0::formats {
namespace {

constexpr std::uint64_t max_directory = std::uint64_t{1} << 28;  // three million entries

// The pickled number 0x1950a86a20f9469cfc6c, with which files of torch.save before PyTorch 1.6 begin.
constexpr std::string_view legacy_magic = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

// Replaces an escaped directory field by its value in the zip64 fields; returns false if they lack it.
bool widen(std::uint64_t& value, std::string_view& zip64) {
  if (value != zip::escape32) {
    return true;
  }
  if (zip64.size() < 8) {
    return false;
  }
  value = get_little<std::uint64_t>(zip64, 0);
  zip64.remove_prefix(8);
  return true;
}

// Returns the zip64 field among the extra fields, or an empty view. Sets `sound` to false if a field exceeds the extra
// bytes.
std::string_view find_zip64(std::string_view extra, bool& sound) {
  while (extra.size() >= 4) {
    const auto id = get_little<std::uint16_t>(extra, 0);
    const auto size = get_little<std::uint16_t>(extra, 2);
    if (size > extra.size() - 4) {
      sound = false;
      return {};
    }
    if (id == zip::extra_zip64) {
      return extra.substr(4, size);
    }
    extra.remove_prefix(4 + std::size_t{size});
  }
  return {};
}

}  // namespace

ZipReader::ZipReader(std::filesystem::path path, std::uint64_t max_inflated) : file_(std::move(path)) {
  open(max_inflated);
}

ZipReader::ZipReader(std::filesystem::path path, std::uint64_t offset, std::uint64_t length)
    : file_(std::move(path), offset, length) {
  open(std::uint64_t{1} << 30);
}

void ZipReader::open(std::uint64_t max_inflated) {
  const Directory directory = find_directory();
  parse_directory(directory);
  has_crcs_ = std::any_of(entries_.begin(), entries_.end(), [](const ZipEntry& entry) { return entry.crc != 0; });
  check_layout(max_inflated);
}

const ZipEntry* ZipReader::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

void ZipReader::fail(const std::string& reason) const {
  v0::fail<CheckpointError>("checkpoint.read", reason, " (file ", quote(path().string()), ")");
}

void ZipReader::fail(const ZipEntry& entry, const std::string& reason) const {
  v0::fail<CheckpointError>("checkpoint.read", reason, " (file ", quote(path().string()), ", record ",
                            quote(entry.name), ")");
}

ZipReader::Directory ZipReader::find_directory() const {
  const std::uint64_t size = file_.size();
  const std::string head = file_.text(0, std::min<std::uint64_t>(size, legacy_magic.size()));
  if (head == legacy_magic) {
    fail(
        "expected a PyTorch zip archive, got the format before PyTorch 1.6; convert it in Python with "
        "torch.save(torch.load(path), path)");
  }
  if (!head.starts_with("PK")) {
    fail(concat("expected a PyTorch zip archive, got ", size, " bytes that do not start with 'PK'"));
  }
  // The end record is the last record; only a comment of at most 65,535 bytes may follow.
  const std::uint64_t tail_size = std::min<std::uint64_t>(size, zip::end_size + zip::escape16);
  const std::string tail = file_.text(size - tail_size, tail_size);
  std::size_t end = std::string::npos;
  for (std::size_t at = tail.size() >= zip::end_size ? tail.size() - zip::end_size + 1 : 0; at-- > 0;) {
    if (get_little<std::uint32_t>(tail, at) == zip::end_signature &&
        get_little<std::uint16_t>(tail, at + 20) == tail.size() - at - zip::end_size) {
      end = at;
      break;
    }
  }
  if (end == std::string::npos) {
    fail(concat("expected a complete zip archive, got ", size, " bytes without an end: the file was cut off"));
  }
  const std::uint64_t end_offset = size - tail_size + end;
  Directory out{get_little<std::uint32_t>(tail, end + 16), get_little<std::uint32_t>(tail, end + 12),
                get_little<std::uint16_t>(tail, end + 10)};
  bool one_disk =
      get_little<std::uint32_t>(tail, end + 4) == 0 && get_little<std::uint16_t>(tail, end + 8) == out.count;
  std::uint64_t directory_end = end_offset;
  if (end_offset >= zip::locator64_size + zip::end64_size) {
    const std::string locator = file_.text(end_offset - zip::locator64_size, zip::locator64_size);
    if (get_little<std::uint32_t>(locator, 0) == zip::locator64_signature) {
      directory_end = get_little<std::uint64_t>(locator, 8);
      if (directory_end > end_offset - zip::locator64_size - zip::end64_size) {
        fail(concat("expected the zip64 end record before offset ", end_offset, ", got offset ", directory_end));
      }
      const std::string wide = file_.text(directory_end, zip::end64_size);
      const Directory narrow = out;
      out = {get_little<std::uint64_t>(wide, 48), get_little<std::uint64_t>(wide, 40),
             get_little<std::uint64_t>(wide, 32)};
      const bool agree = (narrow.offset == zip::escape32 || narrow.offset == out.offset) &&
                         (narrow.size == zip::escape32 || narrow.size == out.size) &&
                         (narrow.count == zip::escape16 || narrow.count == out.count);
      one_disk = one_disk && get_little<std::uint32_t>(locator, 4) == 0 && get_little<std::uint64_t>(wide, 16) == 0 &&
                 get_little<std::uint64_t>(wide, 24) == out.count;
      if (get_little<std::uint32_t>(wide, 0) != zip::end64_signature || !agree) {
        fail("expected the two end records of the archive to agree, got different ones");
      }
    }
  }
  if (!one_disk) {
    fail("expected an archive in one file, got a part of several");
  }
  if (out.size > max_directory || out.offset > directory_end || out.size != directory_end - out.offset) {
    fail(concat("expected the directory of entries to end at offset ", directory_end, ", got ", out.size,
                " bytes at offset ", out.offset));
  }
  return out;
}

void ZipReader::parse_directory(const Directory& directory) {
  if (directory.count > directory.size / zip::central_size) {
    fail(concat("expected at most ", directory.size / zip::central_size, " entries in ", directory.size,
                " bytes of directory, got ", directory.count));
  }
  const std::string text = file_.text(directory.offset, directory.size);
  std::string_view rest = text;
  entries_.reserve(static_cast<std::size_t>(directory.count));
  for (std::uint64_t i = 0; i < directory.count; ++i) {
    if (rest.size() < zip::central_size || get_little<std::uint32_t>(rest, 0) != zip::central_signature) {
      fail(concat("expected ", directory.count, " entries in the directory, got ", i));
    }
    const std::size_t name_size = get_little<std::uint16_t>(rest, 28);
    const std::size_t extra_size = get_little<std::uint16_t>(rest, 30);
    const std::size_t comment_size = get_little<std::uint16_t>(rest, 32);
    const std::size_t total = zip::central_size + name_size + extra_size + comment_size;
    if (total > rest.size()) {
      fail(concat("expected entry ", i, " to end inside the directory, got ", total, " bytes with ", rest.size(),
                  " left"));
    }
    ZipEntry entry;
    entry.name = rest.substr(zip::central_size, name_size);
    entry.crc = get_little<std::uint32_t>(rest, 16);
    entry.stored_size = get_little<std::uint32_t>(rest, 20);
    entry.size = get_little<std::uint32_t>(rest, 24);
    entry.header_offset = get_little<std::uint32_t>(rest, 42);
    bool sound = true;
    std::string_view zip64 = find_zip64(rest.substr(zip::central_size + name_size, extra_size), sound);
    if (!sound || !widen(entry.size, zip64) || !widen(entry.stored_size, zip64) || !widen(entry.header_offset, zip64)) {
      fail(entry, "expected sound zip64 fields, got too few bytes");
    }
    const auto method = get_little<std::uint16_t>(rest, 10);
    if ((get_little<std::uint16_t>(rest, 8) & zip::flag_encrypted) != 0) {
      fail(entry, "expected an entry that is not encrypted, got an encrypted one");
    }
    if (method != zip::method_stored && method != zip::method_deflated) {
      fail(entry, concat("expected a stored or deflated entry, got compression method ", method));
    }
    entry.deflated = method == zip::method_deflated;
    locate(entry, directory.offset);
    entries_.push_back(std::move(entry));
    rest.remove_prefix(total);
  }
  if (!rest.empty()) {
    fail(concat("expected the directory to end after ", directory.count, " entries, got ", rest.size(), " more bytes"));
  }
  index_.reserve(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!index_.emplace(entries_[i].name, i).second) {
      fail(entries_[i], "expected one entry of each name, got two");
    }
  }
}

void ZipReader::locate(ZipEntry& entry, std::uint64_t limit) const {
  if (entry.header_offset > limit || limit - entry.header_offset < zip::local_size + entry.name.size()) {
    fail(entry, concat("expected the entry's header before offset ", limit, ", got offset ", entry.header_offset));
  }
  const std::string header = file_.text(entry.header_offset, zip::local_size + entry.name.size());
  const std::uint64_t name_size = get_little<std::uint16_t>(header, 26);
  const bool described = (get_little<std::uint16_t>(header, 6) & zip::flag_descriptor) != 0;
  const bool sizes_agree =
      described ||
      (get_little<std::uint32_t>(header, 14) == entry.crc &&
       (get_little<std::uint32_t>(header, 18) == entry.stored_size ||
        get_little<std::uint32_t>(header, 18) == zip::escape32) &&
       (get_little<std::uint32_t>(header, 22) == entry.size || get_little<std::uint32_t>(header, 22) == zip::escape32));
  if (get_little<std::uint32_t>(header, 0) != zip::local_signature || name_size != entry.name.size() ||
      header.compare(zip::local_size, entry.name.size(), entry.name) != 0 || !sizes_agree ||
      get_little<std::uint16_t>(header, 8) != (entry.deflated ? zip::method_deflated : zip::method_stored)) {
    fail(entry, "expected a local header that agrees with the directory, got another header");
  }
  entry.data_offset = entry.header_offset + zip::local_size + name_size + get_little<std::uint16_t>(header, 28);
  if (entry.data_offset > limit || entry.stored_size > limit - entry.data_offset) {
    fail(entry, concat("expected the entry's data before offset ", limit, ", got ", entry.stored_size,
                       " bytes at offset ", entry.data_offset));
  }
  if (!entry.deflated && entry.size != entry.stored_size) {
    fail(entry, concat("expected a stored entry of ", entry.stored_size, " bytes, got a claim of ", entry.size));
  }
  if (entry.deflated && entry.size / max_deflate_ratio > entry.stored_size) {
    fail(entry, concat("expected ", entry.stored_size,
                       " deflated bytes to inflate to at most 1032 times as many, got a claim of ", entry.size));
  }
}

void ZipReader::check_layout(std::uint64_t max_inflated) const {
  std::vector<const ZipEntry*> order;
  order.reserve(entries_.size());
  std::uint64_t inflated = 0;
  for (const auto& entry : entries_) {
    order.push_back(&entry);
    if (entry.deflated) {
      if (entry.size > max_inflated - inflated) {
        fail(entry, concat("expected deflated entries of at most ", max_inflated, " bytes together, got more; save ",
                           "the archive without compression"));
      }
      inflated += entry.size;
    }
  }
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return a->header_offset < b->header_offset; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (order[i]->header_offset < order[i - 1]->data_offset + order[i - 1]->stored_size) {
      fail(*order[i],
           concat("expected entries that do not overlap, got one that overlaps ", quote(order[i - 1]->name)));
    }
  }
}

}  // namespace danling::inline v0::formats
