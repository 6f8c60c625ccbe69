#include <danling/formats/safetensors.hpp>

#include <algorithm>
#include <limits>
#include <unordered_set>

#include <danling/core/error.hpp>

#include <formats/little_endian.hpp>
#include <formats/parallel.hpp>
#include <formats/safetensors_header.hpp>

namespace danling::inline v0::formats {
namespace {

constexpr std::string_view hashes_version = "1";
// Small enough to stay in the cache between the disk and the hash.
constexpr std::size_t tensor_piece = std::size_t{1} << 18;
// From this size on a second thread writes while this one computes; for less data synchronisation costs more than it
// saves.
constexpr std::size_t worth_a_thread = std::size_t{1} << 18;
// Each thread must have at least this many bytes to read.
constexpr std::uint64_t per_thread = std::uint64_t{1} << 22;

std::string read_header(const InputFile& file) {
  const auto refuse = [&](const auto&... parts) {
    fail<CheckpointError>("checkpoint.read", "expected a safetensors file, got ", parts..., " (file ",
                          quote(file.path().string()), ")");
  };
  constexpr std::uint64_t prefix = sizeof(std::uint64_t);
  if (file.size() < prefix) {
    refuse("only ", file.size(), " bytes");
  }
  const auto size = get_little<std::uint64_t>(file.text(0, prefix), 0);
  if (size > file.size() - prefix) {
    refuse("a header of ", size, " bytes in a file of ", file.size());
  }
  if (size > max_safetensors_header) {
    refuse("a header of ", size, " bytes, more than the ", max_safetensors_header, " that are read");
  }
  return file.text(prefix, size);
}

// Checks `entries` and computes their sizes in bytes.
std::vector<SafetensorsEntry> sized(std::span<const SafetensorsEntry> entries) {
  std::vector<SafetensorsEntry> out(entries.begin(), entries.end());
  std::unordered_set<std::string_view> names;
  for (auto& entry : out) {
    const auto refuse = [&](const auto&... parts) {
      fail<CheckpointError>("checkpoint.write", parts..., " (tensor ", quote(entry.name), ")");
    };
    if (safetensors_dtype(entry.dtype).empty()) {
      refuse("expected an element type that safetensors files have, got ", dtype_name(entry.dtype),
             "; cast it, or save a .pth");
    }
    constexpr auto too_many = std::numeric_limits<std::uint64_t>::max();
    entry.bytes = safetensors_bytes(entry, too_many);
    if (entry.bytes == too_many) {
      refuse("expected sizes that make less than 2^63 bytes, got [", join(entry.sizes), "]");
    }
    if (entry.name == "__metadata__" || !names.insert(entry.name).second) {
      refuse("expected unique names, got a repeated or reserved one");
    }
  }
  return out;
}

Hash128 header_hash(const std::vector<const SafetensorsEntry*>& order, const SafetensorsMetadata& metadata) {
  const std::string text = safetensors_header(order, metadata);
  return hash128(std::as_bytes(std::span(text)));
}

std::string hashes_text(const std::vector<Hash128>& hashes) {
  std::string out(hashes_version);
  for (const auto& hash : hashes) {
    out += concat(" ", to_hex(hash));
  }
  return out;
}

// Returns the position of the hashes in a header written here. The search is safe: a quote inside a name or value is
// escaped.
std::size_t hashes_place(std::string_view header) {
  for (const std::string_view before : {"{", ","}) {
    const std::string key = concat(before, "\"", safetensors_hashes_key, "\":\"");
    if (const auto found = header.find(key); found != std::string_view::npos) {
      return found + key.size();
    }
  }
  fail<CheckpointError>("checkpoint.write", "expected a header with a place for hashes, got none");
}

// Writes a tensor and returns its hash.
Hash128 write_tensor(AtomicFile& out, const SafetensorsEntry& entry,
                     const std::function<void(const PieceSink& sink)>& content) {
  std::uint64_t left = entry.bytes;
  Hasher hasher;
  content([&](std::span<const std::byte> piece) {
    check<CheckpointError>(piece.size() <= left, "checkpoint.write", "expected ", entry.bytes, " bytes of tensor ",
                           quote(entry.name), ", got more");
    left -= piece.size();
    if (piece.size() >= worth_a_thread) {
      out.write(piece, [&] { hasher.update(piece); });
    } else {
      hasher.update(piece);
      out.write(piece);
    }
  });
  check<CheckpointError>(left == 0, "checkpoint.write", "expected ", entry.bytes, " bytes of tensor ",
                         quote(entry.name), ", got ", entry.bytes - left);
  return hasher.digest();
}

std::size_t threads_for(const std::vector<SafetensorsEntry>& entries) {
  std::uint64_t total = 0;
  for (const auto& entry : entries) {
    total += entry.bytes;
  }
  return static_cast<std::size_t>(std::max<std::uint64_t>(1, total / per_thread));
}

}  // namespace

void write_safetensors(AtomicFile& out, std::span<const SafetensorsEntry> entries, const SafetensorsMetadata& metadata,
                       const TensorSource& source) {
  const std::vector<SafetensorsEntry> tensors = sized(entries);
  std::vector<const SafetensorsEntry*> order;
  order.reserve(tensors.size());
  for (const auto& entry : tensors) {
    order.push_back(&entry);
  }
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return safetensors_before(*a, *b); });
  // The hashes precede the data: reserve their space now and fill it later.
  SafetensorsMetadata all = metadata;
  all.erase(std::string(safetensors_hashes_key));
  std::vector<Hash128> hashes = {header_hash(order, all)};
  hashes.resize(order.size() + 1);
  all[std::string(safetensors_hashes_key)] = hashes_text(hashes);
  const std::string header = safetensors_header(order, all);
  check<CheckpointError>(header.size() <= max_safetensors_header, "checkpoint.write",
                         "expected names and metadata that make a header of at most ", max_safetensors_header,
                         " bytes, got ", header.size());
  const std::uint64_t start = out.size();
  std::string length;
  put_little(length, std::uint64_t{header.size()});
  out.write(length);
  out.write(header);
  for (std::size_t i = 0; i < order.size(); ++i) {
    hashes[i + 1] = write_tensor(out, *order[i], [&](const PieceSink& sink) {
      source(static_cast<std::size_t>(order[i] - tensors.data()), sink);
    });
  }
  out.rewrite(start + length.size() + hashes_place(header), hashes_text(hashes));
}

bool is_safetensors(const std::filesystem::path& path) {
  const InputFile file(path);
  // In a zip archive this byte is the compression method, which is never '{'.
  char byte = 0;
  if (file.size() <= sizeof(std::uint64_t)) {
    return false;
  }
  file.read(sizeof(std::uint64_t), std::span(&byte, 1));
  return byte == '{';
}

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path) try : file_(path) {
  SafetensorsHeader header =
      parse_safetensors_header(read_header(file_), file_.size(), concat("file ", quote(path.string())));
  entries_ = std::move(header.entries);
  metadata_ = std::move(header.metadata);
  take_hashes();
  index_.reserve(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    index_.emplace(entries_[i].name, i);
  }
} catch (const std::bad_alloc&) {
  fail<CheckpointError>("checkpoint.read", "expected memory for the list of its tensors, got none (file ",
                        quote(path.string()), ")");
}

const SafetensorsEntry* SafetensorsReader::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

SafetensorsMetadata SafetensorsReader::aliases() const {
  SafetensorsMetadata out;
  for (const auto& [name, target] : metadata_) {
    // `format: pt` describes the writer; it is no alias even if a tensor is called `pt`.
    if (name != "format" && find(name) == nullptr && find(target) != nullptr) {
      out.emplace(name, target);
    }
  }
  return out;
}

void SafetensorsReader::take_hashes() {
  const auto found = metadata_.find(std::string(safetensors_hashes_key));
  if (found == metadata_.end()) {
    return;
  }
  const auto refuse = [&](const auto&... parts) {
    fail<CheckpointError>("checkpoint.read", parts..., " (file ", quote(path().string()), ", metadata ",
                          quote(safetensors_hashes_key), ")");
  };
  std::string_view text = found->second;
  const std::string_view version = text.substr(0, text.find(' '));
  if (version != hashes_version) {
    refuse("expected hashes of version ", hashes_version, ", got ", quote(version.substr(0, 20)),
           "; a newer danling wrote this file");
  }
  text.remove_prefix(version.size());
  constexpr std::size_t max_digits = 32;
  for (; !text.empty(); text.remove_prefix(max_digits + 1)) {
    const auto hash =
        text.size() > max_digits && text.front() == ' ' ? parse_hash128(text.substr(1, max_digits)) : std::nullopt;
    if (!hash) {
      refuse("expected hashes of 32 digits, got ", quote(text.substr(0, max_digits + 1)));
    }
    hashes_.push_back(*hash);
  }
  if (hashes_.size() != entries_.size() + 1) {
    refuse("expected ", entries_.size() + 1, " hashes, got ", hashes_.size());
  }
  metadata_.erase(found);
  std::vector<const SafetensorsEntry*> order;
  for (const auto& entry : entries_) {
    order.push_back(&entry);
  }
  if (const Hash128 got = header_hash(order, metadata_); got != hashes_.front()) {
    refuse("expected a header of XXH3-128 ", to_hex(hashes_.front()), ", got ", to_hex(got),
           ": it was damaged, or another program changed the file and kept danling's hashes");
  }
  hashes_.erase(hashes_.begin());
}

void SafetensorsReader::check_hash(const SafetensorsEntry& entry, const Hash128& got) const {
  const Hash128& expected = hashes_[static_cast<std::size_t>(&entry - entries_.data())];
  if (got != expected) {
    fail<CheckpointError>("checkpoint.read", "expected XXH3-128 ", to_hex(expected), ", got ", to_hex(got),
                          ": the data was damaged, or another program changed it and kept danling's hashes (file ",
                          quote(path().string()), ", tensor ", quote(entry.name), ")");
  }
}

void SafetensorsReader::read(const SafetensorsEntry& entry, std::span<std::byte> out) const {
  check<CheckpointError>(out.size() == entry.bytes, "checkpoint.read", "expected room for ", entry.bytes,
                         " bytes of tensor ", quote(entry.name), ", got ", out.size());
  Hasher hasher;
  for (std::size_t done = 0; done < out.size(); done += tensor_piece) {
    const auto piece = out.subspan(done, std::min(tensor_piece, out.size() - done));
    read(entry, done, piece);
    if (has_hashes()) {
      hasher.update(piece);
    }
  }
  if (has_hashes()) {
    check_hash(entry, hasher.digest());
  }
}

void SafetensorsReader::read_all(std::span<const std::span<std::byte>> out) const {
  check<CheckpointError>(out.size() == entries_.size(), "checkpoint.read", "expected ", entries_.size(),
                         " destinations, got ", out.size());
  parallel_for(entries_.size(), threads_for(entries_), [&](std::size_t i) { read(entries_[i], out[i]); });
}

void SafetensorsReader::verify(const SafetensorsEntry& entry) const {
  Hasher hasher;
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min<std::uint64_t>(tensor_piece, entry.bytes)));
  for (std::uint64_t done = 0; done < entry.bytes; done += tensor_piece) {
    const auto piece =
        std::span(buffer).first(static_cast<std::size_t>(std::min<std::uint64_t>(tensor_piece, entry.bytes - done)));
    read(entry, done, piece);
    hasher.update(piece);
  }
  if (has_hashes()) {
    check_hash(entry, hasher.digest());
  }
}

void SafetensorsReader::verify() const {
  parallel_for(entries_.size(), threads_for(entries_), [&](std::size_t i) { verify(entries_[i]); });
}

void SafetensorsReader::read(const SafetensorsEntry& entry, std::uint64_t offset, std::span<std::byte> out) const {
  check<CheckpointError>(offset <= entry.bytes && out.size() <= entry.bytes - offset, "checkpoint.read",
                         "expected a range inside the ", entry.bytes, " bytes of tensor ", quote(entry.name), ", got ",
                         out.size(), " at offset ", offset);
  file_.read(entry.offset + offset, out);
}

}  // namespace danling::inline v0::formats
