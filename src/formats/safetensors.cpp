#include <danling/formats/safetensors.hpp>

#include <algorithm>
#include <limits>
#include <unordered_set>

#include <danling/core/error.hpp>

#include "little_endian.hpp"
#include "safetensors_header.hpp"

namespace danling::inline v0::formats {
namespace {

// The element types of Python's safetensors in the order of its data, from the last to the first.
constexpr DType kOrder[] = {
    DType::boolean,         DType::uint8,           DType::int8,
    DType::float8_e5m2,     DType::float8_e4m3fn,   DType::float8_e8m0fnu,
    DType::float8_e4m3fnuz, DType::float8_e5m2fnuz, DType::int16,
    DType::uint16,          DType::float16,         DType::bfloat16,
    DType::int32,           DType::uint32,          DType::float32,
    DType::complex64,       DType::float64,         DType::int64,
    DType::uint64,
};

std::size_t rank_of(DType dtype) {
  return static_cast<std::size_t>(std::find(std::begin(kOrder), std::end(kOrder), dtype) - std::begin(kOrder));
}

std::string read_header(const InputFile& file) {
  const auto refuse = [&](const auto&... parts) {
    fail<CheckpointError>("checkpoint.read", "expected a safetensors file, got ", parts..., " (file ",
                          quote(file.path().string()), ")");
  };
  constexpr std::uint64_t prefix = sizeof(std::uint64_t);
  if (file.size() < prefix) {
    refuse("only ", file.size(), " bytes");
  }
  std::string length(prefix, '\0');
  file.read(0, std::as_writable_bytes(std::span(length)));
  const auto size = get_little<std::uint64_t>(length, 0);
  if (size > file.size() - prefix) {
    refuse("a header of ", size, " bytes in a file of ", file.size());
  }
  if (size > max_safetensors_header) {
    refuse("a header of ", size, " bytes, more than the ", max_safetensors_header, " that are read");
  }
  std::string header(static_cast<std::size_t>(size), '\0');
  file.read(prefix, std::as_writable_bytes(std::span(header)));
  return header;
}

// `entries` with their sizes in bytes, all checked.
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
      refuse("expected a name that is free, got one that is taken");
    }
  }
  return out;
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
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    const auto left = rank_of(a->dtype);
    const auto right = rank_of(b->dtype);
    return left != right ? left > right : a->name < b->name;
  });
  const std::string header = safetensors_header(order, metadata);
  check<CheckpointError>(header.size() <= max_safetensors_header, "checkpoint.write",
                         "expected names and metadata that make a header of at most ", max_safetensors_header,
                         " bytes, got ", header.size());
  std::string length;
  put_little(length, std::uint64_t{header.size()});
  out.write(length);
  out.write(header);
  for (const auto* entry : order) {
    std::uint64_t left = entry->bytes;
    source(static_cast<std::size_t>(entry - tensors.data()), [&](std::span<const std::byte> piece) {
      check<CheckpointError>(piece.size() <= left, "checkpoint.write", "expected ", entry->bytes, " bytes of tensor ",
                             quote(entry->name), ", got more");
      out.write(piece);
      left -= piece.size();
    });
    check<CheckpointError>(left == 0, "checkpoint.write", "expected ", entry->bytes, " bytes of tensor ",
                           quote(entry->name), ", got ", entry->bytes - left);
  }
}

bool is_safetensors(const std::filesystem::path& path) {
  const InputFile file(path);
  // A zip archive has its compression method here, which is never '{'.
  std::string start(sizeof(std::uint64_t) + 1, '\0');
  if (file.size() < start.size()) {
    return false;
  }
  file.read(0, std::as_writable_bytes(std::span(start)));
  return start.back() == '{';
}

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path) : file_(path) {
  SafetensorsHeader header =
      parse_safetensors_header(read_header(file_), file_.size(), concat("file ", quote(path.string())));
  entries_ = std::move(header.entries);
  metadata_ = std::move(header.metadata);
  index_.reserve(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    index_.emplace(entries_[i].name, i);
  }
}

const SafetensorsEntry* SafetensorsReader::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

SafetensorsMetadata SafetensorsReader::aliases() const {
  SafetensorsMetadata out;
  for (const auto& [name, target] : metadata_) {
    // `format: pt` says who wrote the file, whatever its tensors are called.
    if (name != "format" && find(name) == nullptr && find(target) != nullptr) {
      out.emplace(name, target);
    }
  }
  return out;
}

void SafetensorsReader::read(const SafetensorsEntry& entry, std::span<std::byte> out) const {
  check<CheckpointError>(out.size() == entry.bytes, "checkpoint.read", "expected room for ", entry.bytes,
                         " bytes of tensor ", quote(entry.name), ", got ", out.size());
  read(entry, 0, out);
}

void SafetensorsReader::read(const SafetensorsEntry& entry, std::uint64_t offset, std::span<std::byte> out) const {
  check<CheckpointError>(offset <= entry.bytes && out.size() <= entry.bytes - offset, "checkpoint.read",
                         "expected a range inside the ", entry.bytes, " bytes of tensor ", quote(entry.name), ", got ",
                         out.size(), " at offset ", offset);
  file_.read(entry.offset + offset, out);
}

}  // namespace danling::inline v0::formats
