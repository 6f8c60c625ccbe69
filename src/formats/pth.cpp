#include <danling/formats/pth.hpp>

#include <charconv>
#include <new>
#include <optional>
#include <unordered_map>

#include <danling/core/error.hpp>
#include <danling/formats/detail/zip_writer.hpp>

#include <formats/record_reads.hpp>

namespace danling::inline v0::formats {
namespace {

// The folder inside the archive. Its name is fixed, so that the bytes do not depend on the file name.
constexpr std::string_view archive_folder = "archive/";
constexpr std::string_view manifest_file = "danling/manifest";
constexpr std::string_view manifest_title = "danling-checkpoint";

// Parsed data needs more memory than its text, so a text that inflates a thousandfold could exhaust memory.
void check_inflation(const ZipReader& zip, const ZipEntry& entry) {
  constexpr std::uint64_t most = 64;
  if (entry.deflated && entry.size / most > entry.stored_size) {
    zip.fail(entry, concat("expected a record of at most ", most, " times its compressed size, got ", entry.size,
                           " bytes in ", entry.stored_size, "; save the archive without compression"));
  }
}

struct ManifestLine {
  std::uint64_t size = 0;
  std::uint32_t crc = 0;
  std::optional<Hash128> hash;
};

// Writes a line with title and version, then one line per record: `crc32:<8 hex digits> xxh3:<32 hex digits> <size>
// <name>`.
std::string manifest_text(const std::vector<ZipRecord>& records) {
  std::string out = concat(manifest_title, " ", manifest_version, "\n");
  for (const auto& record : records) {
    char digits[8];
    for (std::size_t i = 0; i < 8; ++i) {
      digits[i] = "0123456789abcdef"[(record.crc >> (28 - 4 * i)) & 0xf];
    }
    out += concat("crc32:", std::string_view(digits, 8), " xxh3:", to_hex(record.hash), " ", record.size, " ",
                  std::string_view(record.name).substr(archive_folder.size()), "\n");
  }
  return out;
}

std::string_view take_word(std::string_view& line) {
  const std::size_t end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return word;
}

template <class T>
bool parse(std::string_view text, T& value, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

// Returns nullopt if a line is malformed.
std::optional<std::unordered_map<std::string, ManifestLine>> parse_manifest(std::string_view text, int& version) {
  std::unordered_map<std::string, ManifestLine> out;
  bool first = true;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) {
      return std::nullopt;
    }
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (first) {
      first = false;
      if (take_word(line) != manifest_title || !parse(line, version)) {
        return std::nullopt;
      }
      if (version < 1 || version > manifest_version) {
        return out;
      }
      continue;
    }
    ManifestLine entry;
    const std::string_view crc = take_word(line);
    if (!crc.starts_with("crc32:") || !parse(crc.substr(6), entry.crc, 16)) {
      return std::nullopt;
    }
    if (version > 1) {
      const std::string_view hash = take_word(line);
      entry.hash = hash.starts_with("xxh3:") ? parse_hash128(hash.substr(5)) : std::nullopt;
      if (!entry.hash) {
        return std::nullopt;
      }
    }
    if (!parse(take_word(line), entry.size) || !out.emplace(line, entry).second) {
      return std::nullopt;
    }
  }
  if (first) {
    return std::nullopt;
  }
  return out;
}

}  // namespace

void write_pth(AtomicFile& out, const RecordTree& tree, std::span<const std::uint64_t> storage_sizes,
               const StorageSource& storage) {
  write_pth(out, tree, storage_sizes, [&](std::size_t i, const PieceSink& sink) { sink(storage(i)); });
}

void write_pth(AtomicFile& out, const RecordTree& tree, std::span<const std::uint64_t> storage_sizes,
               const StoragePieces& storage) {
  ZipWriter zip(out);
  const auto name = [](std::string_view record) { return concat(archive_folder, record); };
  // The order matters: PyTorch computes the offsets of storages from the records before them.
  zip.add(name("data.pkl"), write_pickle(tree, storage_sizes));
  zip.add(name(".format_version"), "1");
  zip.add(name(".storage_alignment"), "64");
  zip.add(name("byteorder"), "little");
  for (std::size_t i = 0; i < storage_sizes.size(); ++i) {
    zip.add(name(concat("data/", i)), storage_sizes[i], [&](const PieceSink& sink) { storage(i, sink); });
  }
  zip.add(name("version"), "3\n");
  zip.add(name(manifest_file), manifest_text(zip.records()));
  zip.finish();
}

PthReader::PthReader(const std::filesystem::path& path) : zip_(path) { open(); }

PthReader::PthReader(const std::filesystem::path& path, std::uint64_t offset, std::uint64_t length)
    : zip_(path, offset, length) {
  open();
}

void PthReader::open() try {
  const std::filesystem::path& path = zip_.path();
  if (!zip_.entries().empty()) {
    const std::string& first = zip_.entries().front().name;
    prefix_ = first.substr(0, first.find('/') + 1);
  }
  const ZipEntry& pickle = require("data.pkl");
  if (zip_.find(prefix_ + "constants.pkl") != nullptr) {
    zip_.fail(pickle, "expected an archive of torch.save, got one of TorchScript");
  }
  check_manifest();
  if (const ZipEntry* order = zip_.find(prefix_ + "byteorder"); order != nullptr) {
    // Reads the entry only if it has the size of the word, to bound memory.
    const std::string text = order->size <= 6 ? zip_.read(*order) : std::string("another one");
    if (text != "little") {
      zip_.fail(*order, concat("expected byte order 'little', got ", quote(text)));
    }
  }
  check_inflation(zip_, pickle);
  pickled_ = read_pickle(zip_.read(pickle, record_hash(pickle)),
                         concat("file ", quote(path.string()), ", record ", quote(pickle.name)), pickle.stored_size);
  entries_.reserve(pickled_.storages.size());
  for (const auto& storage : pickled_.storages) {
    const ZipEntry& entry = require("data/" + storage.key);
    if (entry.size != storage.size) {
      zip_.fail(entry, concat("expected a storage of ", storage.size, " bytes, got ", entry.size));
    }
    entries_.push_back(&entry);
  }
} catch (const std::bad_alloc&) {
  fail<CheckpointError>("checkpoint.read", "expected memory for the list of its values, got none (file ",
                        quote(zip_.path().string()), ")");
}

const ZipEntry& PthReader::require(const std::string& name) const {
  const ZipEntry* entry = zip_.find(prefix_ + name);
  if (entry == nullptr) {
    fail<CheckpointError>("checkpoint.read", "expected a record ", quote(name), ", got none among ",
                          zip_.entries().size(), " (file ", quote(zip_.path().string()), ")");
  }
  return *entry;
}

void PthReader::check_manifest() {
  const ZipEntry* manifest = zip_.find(prefix_ + std::string(manifest_file));
  has_manifest_ = manifest != nullptr;
  if (!has_manifest_) {
    return;
  }
  check_inflation(zip_, *manifest);
  int version = 0;
  const auto lines = parse_manifest(zip_.read(*manifest), version);
  if (!lines) {
    zip_.fail(*manifest, "expected a manifest of title, version and one line per record, got something else");
  }
  if (version < 1 || version > manifest_version) {
    zip_.fail(*manifest, concat("expected manifest version 1 to ", manifest_version, ", got ", version,
                                "; a newer danling wrote this file"));
  }
  for (const auto& entry : zip_.entries()) {
    if (&entry == manifest) {
      continue;
    }
    const auto found = entry.name.starts_with(prefix_) ? lines->find(entry.name.substr(prefix_.size())) : lines->end();
    if (found == lines->end() || found->second.size != entry.size || found->second.crc != entry.crc) {
      zip_.fail(entry, "expected a record as the manifest lists it, got another size or checksum");
    }
    if (found->second.hash) {
      hashes_.emplace(&entry, *found->second.hash);
    }
  }
  if (lines->size() + 1 != zip_.entries().size()) {
    zip_.fail(*manifest,
              concat("expected ", lines->size(), " records besides the manifest, got ", zip_.entries().size() - 1));
  }
}

const Hash128* PthReader::record_hash(const ZipEntry& record) const {
  const auto found = hashes_.find(&record);
  return found == hashes_.end() ? nullptr : &found->second;
}

void PthReader::read_storage(std::size_t storage, std::span<std::byte> out) const {
  const ZipEntry& entry = storage_record(storage);
  zip_.read(entry, out, record_hash(entry));
}

void PthReader::read_storages(std::span<const std::span<std::byte>> out) const {
  check<CheckpointError>(out.size() == entries_.size(), "checkpoint.read", "expected ", entries_.size(),
                         " destinations, got ", out.size(), " (file ", quote(zip_.path().string()), ")");
  std::vector<RecordRead> reads;
  reads.reserve(out.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    reads.push_back({entries_[i], record_hash(*entries_[i]), out[i]});
  }
  read_records(zip_, reads);
}

void PthReader::read_storage(std::size_t storage, std::uint64_t offset, std::span<std::byte> out) const {
  zip_.read(storage_record(storage), offset, out);
}

void PthReader::verify_record(const ZipEntry& record) const { zip_.verify(record, record_hash(record)); }

void PthReader::verify() const {
  std::vector<RecordRead> reads;
  for (const auto& entry : zip_.entries()) {
    reads.push_back({&entry, record_hash(entry), {}});
  }
  verify_records(zip_, reads);
}

}  // namespace danling::inline v0::formats
