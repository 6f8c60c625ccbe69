#include <danling/formats/detail/dcp_reader.hpp>

#include <algorithm>
#include <cstring>
#include <set>

#include <danling/core/error.hpp>
#include <danling/formats/pth.hpp>

namespace danling::inline v0::formats {
namespace {

constexpr std::uint64_t max_metadata = std::uint64_t{1} << 30;
// Reading a gap of fewer bytes between two runs costs less than another call.
constexpr std::uint64_t worth_a_seek = 4096;
constexpr std::uint64_t window_bytes = std::uint64_t{1} << 20;

std::string read_whole(const std::filesystem::path& path, std::uint64_t most) {
  const InputFile file(path);
  check<CheckpointError>(file.size() <= most, "checkpoint.read", "expected at most ", most, " bytes, got ", file.size(),
                         " (file ", quote(path.string()), ")");
  return file.text();
}

std::uint64_t elements_of(std::span<const std::int64_t> sizes) {
  std::uint64_t out = 1;
  for (const auto size : sizes) {
    out *= static_cast<std::uint64_t>(size);
  }
  return out;
}

std::vector<std::int64_t> dense_strides(std::span<const std::int64_t> sizes) {
  std::vector<std::int64_t> out(sizes.size(), 1);
  for (std::size_t d = sizes.size(); d-- > 1;) {
    out[d - 1] = out[d] * std::max<std::int64_t>(sizes[d], 1);
  }
  return out;
}

bool is_dense(const TensorRecord& record) {
  const auto strides = dense_strides(record.sizes);
  for (std::size_t d = 0; d < record.sizes.size(); ++d) {
    if (record.sizes[d] > 1 && record.strides[d] != strides[d]) {
      return false;
    }
  }
  return !record.conjugate && !record.negative;
}

// Negates a floating-point number of `width` bytes.
void flip_sign(std::byte* number, std::size_t width) { number[width - 1] ^= std::byte{0x80}; }

// Returns the elements of a strided view in row-major order.
std::vector<std::byte> gather(const TensorRecord& record, std::span<const std::byte> storage) {
  const std::size_t width = dtype_size(record.dtype);
  const std::uint64_t count = elements_of(record.sizes);
  std::vector<std::byte> out(static_cast<std::size_t>(count) * width);
  std::vector<std::int64_t> index(record.sizes.size(), 0);
  std::int64_t at = record.offset;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::byte* element = out.data() + i * width;
    std::copy_n(storage.begin() + static_cast<std::ptrdiff_t>(at) * static_cast<std::ptrdiff_t>(width), width, element);
    const bool is_complex =
        record.dtype == DType::complex32 || record.dtype == DType::complex64 || record.dtype == DType::complex128;
    if (is_complex && record.conjugate != record.negative) {
      flip_sign(element + width / 2, width / 2);
    }
    if (is_complex && record.negative) {
      flip_sign(element, width / 2);
    }
    for (std::size_t d = record.sizes.size(); d-- > 0;) {
      at += record.strides[d];
      if (++index[d] < record.sizes[d]) {
        break;
      }
      at -= record.strides[d] * record.sizes[d];
      index[d] = 0;
    }
  }
  return out;
}

}  // namespace

// The position of the elements of one box, in row-major order.
struct DcpReader::Source {
  DcpFile* file = nullptr;
  std::uint64_t offset = 0;
  std::vector<std::byte> gathered;  // the elements of a box that is stored in another order

  void read(std::uint64_t from, std::span<std::byte> out) const {
    if (gathered.empty()) {
      file->read(offset + from, out);
    } else {
      std::copy_n(gathered.begin() + static_cast<std::ptrdiff_t>(from), out.size(), out.begin());
    }
  }
};

bool is_dcp(const std::filesystem::path& directory) {
  std::error_code missing;
  return std::filesystem::is_regular_file(directory / dcp_metadata_name, missing);
}

std::filesystem::path resolve_dcp(const std::filesystem::path& checkpoint) {
  std::filesystem::path pointer = checkpoint;
  if (pointer.extension() != ".pointer") {
    pointer += ".pointer";
  }
  std::error_code missing;
  if (!std::filesystem::is_regular_file(pointer, missing)) {
    return checkpoint;
  }
  const InputFile file(pointer);
  check<CheckpointError>(file.size() < 4096, "checkpoint.read", "expected the name of a directory, got ", file.size(),
                         " bytes (file ", quote(pointer.string()), ")");
  std::string name = file.text();
  name.erase(name.find_last_not_of(" \r\n\t") + 1);
  return name.empty() ? checkpoint : pointer.parent_path() / name;
}

DcpReader::DcpReader(std::filesystem::path directory)
    : directory_(std::move(directory)), manifest_(find_dcp_manifest(directory_)) {
  check_files();
  const auto path = directory_ / dcp_metadata_name;
  const std::string text = read_whole(path, max_metadata);
  bytes_read_ += text.size();
  if (manifest_) {
    for (const auto& file : manifest_->files) {
      check<CheckpointError>(file.name != dcp_metadata_name || file.hash == hash128(std::as_bytes(std::span(text))),
                             "checkpoint.read", "expected the hash in the manifest, got another hash (file ",
                             quote(path.string()), ")");
    }
  }
  entries_ = read_dcp_metadata(text, concat("file ", quote(path.string())));
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    index_.emplace(entries_[i].name, i);
  }
}

DcpReader::~DcpReader() = default;

// Cheap, and detects most incomplete copies.
void DcpReader::check_files() const {
  if (!manifest_) {
    return;
  }
  for (const auto& file : manifest_->files) {
    const auto path = directory_ / file.name;
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    if (error || size != file.size) {
      v0::fail<CheckpointError>("checkpoint.read", "expected a file of ", file.size,
                                " bytes as the manifest lists it, got ",
                                error ? error.message() : concat(size, " bytes"), " (file ", quote(path.string()), ")");
    }
  }
}

void DcpReader::fail(const DcpEntry& entry, const std::string& reason) const {
  v0::fail<CheckpointError>("checkpoint.read", reason, " (directory ", quote(directory_.string()), ", entry ",
                            quote(entry.name), ")");
}

const DcpEntry* DcpReader::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

DcpFile& DcpReader::open(const std::string& name) {
  auto& file = files_[name];
  if (file == nullptr) {
    auto opened = std::make_unique<DcpFile>(directory_ / name);
    if (manifest_) {
      const auto listed = std::find_if(manifest_->files.begin(), manifest_->files.end(),
                                       [&](const auto& other) { return other.name == name; });
      check<CheckpointError>(
          listed != manifest_->files.end() && listed->size == opened->size() && opened->hash() == listed->hash,
          "checkpoint.read", "expected the file that the manifest lists, got another file (file ",
          quote(opened->path().string()), ")");
    }
    file = std::move(opened);
  }
  return *file;
}

const DcpReader::Source& DcpReader::source_of(const DcpEntry& entry, std::size_t number) {
  const DcpChunk& chunk = entry.chunks[number];
  auto& source = sources_[&chunk];
  if (source != nullptr) {
    return *source;
  }
  auto made = std::make_unique<Source>();
  made->file = &open(chunk.file);
  const std::uint64_t bytes = elements_of(chunk.sizes) * dtype_size(entry.dtype);
  if (const DcpPlace* place = made->file->find(chunk.offset, chunk.length)) {
    if (place->data_size != bytes) {
      fail(entry, concat("expected ", bytes, " bytes of elements, got ", place->data_size));
    }
    made->offset = place->data_offset;
  } else if (made->file->has_hashes()) {
    fail(entry, "expected an archive at a position listed with the file's hashes, got another position");
  } else {
    const PthReader archive(directory_ / chunk.file, chunk.offset, chunk.length);
    if (!archive.tree().is_tensor()) {
      fail(entry, concat("expected an archive of a tensor, got ", archive.tree().kind()));
    }
    const TensorRecord& record = archive.tree().tensor();
    const ZipEntry& stored = archive.storage_record(record.storage);
    if (record.dtype != entry.dtype || record.sizes != chunk.sizes) {
      fail(entry, "expected the dtype and sizes of the metadata, got different ones in the archive");
    }
    if (is_dense(record) && !stored.deflated) {
      made->offset =
          chunk.offset + stored.data_offset + static_cast<std::uint64_t>(record.offset) * dtype_size(entry.dtype);
    } else {
      std::vector<std::byte> storage(static_cast<std::size_t>(archive.storage_size(record.storage)));
      // With strides of 0, a small file would become a large tensor.
      if (bytes > storage.size()) {
        fail(entry, concat("expected elements that are stored once each, got ", bytes, " bytes in ", storage.size()));
      }
      archive.read_storage(record.storage, storage);
      bytes_read_ += storage.size();
      made->gathered = gather(record, storage);
    }
  }
  source = std::move(made);
  return *source;
}

void DcpReader::read(const DcpEntry& entry, std::span<const std::int64_t> offsets, std::span<const std::int64_t> sizes,
                     std::span<std::byte> out) {
  bool inside = entry.is_tensor && offsets.size() == entry.sizes.size() && sizes.size() == entry.sizes.size();
  for (std::size_t d = 0; inside && d < sizes.size(); ++d) {
    inside = offsets[d] >= 0 && sizes[d] >= 0 && sizes[d] <= entry.sizes[d] && offsets[d] <= entry.sizes[d] - sizes[d];
  }
  if (!inside || out.size() != elements_of(sizes) * dtype_size(entry.dtype)) {
    const auto text = [](std::span<const std::int64_t> values) {
      return concat("[", join(std::vector<std::int64_t>(values.begin(), values.end())), "]");
    };
    fail(entry, concat("expected a box inside of the sizes ", text(entry.sizes), ", got sizes ", text(sizes),
                       " at offsets ", text(offsets)));
  }
  if (out.empty()) {
    return;
  }
  for (std::size_t i = 0; i < entry.chunks.size(); ++i) {
    copy(entry, i, offsets, sizes, out);
  }
}

// Copies the intersection of a stored box and the requested one, run by run.
void DcpReader::copy(const DcpEntry& entry, std::size_t number, std::span<const std::int64_t> offsets,
                     std::span<const std::int64_t> sizes, std::span<std::byte> out) {
  const DcpChunk& chunk = entry.chunks[number];
  const std::size_t dims = sizes.size();
  const std::uint64_t width = dtype_size(entry.dtype);
  std::vector<std::int64_t> shared(dims);
  std::vector<std::int64_t> from(dims);
  std::vector<std::int64_t> to(dims);
  for (std::size_t d = 0; d < dims; ++d) {
    const std::int64_t begin = std::max(offsets[d], chunk.offsets[d]);
    shared[d] = std::min(offsets[d] + sizes[d], chunk.offsets[d] + chunk.sizes[d]) - begin;
    if (shared[d] <= 0) {
      return;
    }
    from[d] = begin - chunk.offsets[d];
    to[d] = begin - offsets[d];
  }
  const Source& source = source_of(entry, number);
  const auto from_strides = dense_strides(chunk.sizes);
  const auto to_strides = dense_strides(sizes);
  // Trailing dimensions that both boxes cover completely form one run with the dimension before them.
  std::size_t outer = dims;
  std::uint64_t run = width;
  while (outer > 0) {
    --outer;
    run *= static_cast<std::uint64_t>(shared[outer]);
    if (shared[outer] != chunk.sizes[outer] || shared[outer] != sizes[outer]) {
      break;
    }
  }
  const auto position = [&](std::span<const std::int64_t> first, std::span<const std::int64_t> strides,
                            std::span<const std::int64_t> index) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < dims; ++d) {
      at += (first[d] + (d < outer ? index[d] : 0)) * strides[d];
    }
    return static_cast<std::uint64_t>(at) * width;
  };
  std::vector<std::byte> window;
  std::uint64_t window_at = 0;
  const std::uint64_t end = elements_of(chunk.sizes) * width;
  std::vector<std::int64_t> index(dims, 0);
  const std::uint64_t runs = elements_of(std::span(shared).first(outer));
  for (std::uint64_t i = 0; i < runs; ++i) {
    const std::uint64_t at = position(from, from_strides, index);
    const auto target =
        out.subspan(static_cast<std::size_t>(position(to, to_strides, index)), static_cast<std::size_t>(run));
    if (runs == 1 || run >= worth_a_seek) {
      source.read(at, target);
    } else {
      if (window.empty() || at + run > window_at + window.size()) {
        const std::uint64_t last = position(from, from_strides, shared) + run;  // the end of the last run, or later
        window_at = at;
        window.resize(static_cast<std::size_t>(std::min({window_bytes, end - at, std::max(last, at + run) - at})));
        source.read(at, window);
      }
      std::memcpy(target.data(), window.data() + (at - window_at), static_cast<std::size_t>(run));
    }
    for (std::size_t d = outer; d-- > 0;) {
      if (++index[d] < shared[d]) {
        break;
      }
      index[d] = 0;
    }
  }
}

void DcpReader::read(const DcpEntry& entry, std::uint64_t offset, std::span<std::byte> out) {
  const std::uint64_t width = dtype_size(entry.dtype);
  if (offset % width != 0 || out.size() % width != 0) {  // read the whole elements around the range
    const std::uint64_t begin = offset / width * width;
    std::vector<std::byte> wide(static_cast<std::size_t>((offset + out.size() + width - 1) / width * width - begin));
    read(entry, begin, wide);
    std::copy_n(wide.begin() + static_cast<std::ptrdiff_t>(offset - begin), out.size(), out.begin());
    return;
  }
  std::uint64_t at = offset / width;
  // From each position, reads the largest box of consecutive elements.
  while (!out.empty()) {
    const std::uint64_t left = out.size() / width;
    std::vector<std::int64_t> first(entry.sizes.size());
    std::vector<std::int64_t> box(entry.sizes.size(), 1);
    std::uint64_t rest = at;
    std::uint64_t inner = elements_of(entry.sizes);
    std::size_t d = 0;
    for (; d < entry.sizes.size(); ++d) {
      const auto size = static_cast<std::uint64_t>(entry.sizes[d]);
      if (size == 0) {
        fail(entry, "expected a range inside the tensor, got a range of an empty tensor");
      }
      inner /= size;
      first[d] = static_cast<std::int64_t>(rest / inner);
      rest %= inner;
      if (rest == 0 && left >= inner) {  // the inner dimensions are complete
        box[d] = static_cast<std::int64_t>(std::min(left / inner, size - static_cast<std::uint64_t>(first[d])));
        for (std::size_t whole = d + 1; whole < entry.sizes.size(); ++whole) {
          first[whole] = 0;
          box[whole] = entry.sizes[whole];
        }
        break;
      }
    }
    const std::uint64_t count = elements_of(box);
    read(entry, first, box, out.first(static_cast<std::size_t>(count * width)));
    at += count;
    out = out.subspan(static_cast<std::size_t>(count * width));
  }
}

std::uint64_t DcpReader::bytes_read() const {
  std::uint64_t out = bytes_read_;
  for (const auto& [name, file] : files_) {
    out += file->bytes_read();
  }
  return out;
}

std::vector<std::string> DcpReader::files() const {
  std::set<std::string> names;
  for (const auto& entry : entries_) {
    for (const auto& chunk : entry.chunks) {
      names.insert(chunk.file);
    }
  }
  if (manifest_) {
    for (const auto& file : manifest_->files) {
      if (file.name != dcp_metadata_name) {
        names.insert(file.name);
      }
    }
  }
  return {names.begin(), names.end()};
}

std::uint64_t DcpReader::size() const {
  std::uint64_t out = std::filesystem::file_size(directory_ / dcp_metadata_name);
  for (const auto& name : files()) {
    out += InputFile(directory_ / name).size();
  }
  return out;
}

void DcpReader::verify(const std::string& name) {
  DcpFile& file = open(name);
  if (file.has_hashes()) {
    file.verify();
    return;
  }
  for (const auto& entry : entries_) {
    for (const auto& chunk : entry.chunks) {
      if (chunk.file == name) {
        PthReader(directory_ / name, chunk.offset, chunk.length).verify();
      }
    }
  }
}

}  // namespace danling::inline v0::formats
