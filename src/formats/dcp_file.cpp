#include <danling/formats/detail/dcp_file.hpp>

#include <algorithm>
#include <array>
#include <string>

#include <danling/core/error.hpp>
#include <danling/formats/detail/pickle.hpp>
#include <danling/formats/detail/zip_writer.hpp>

#include <formats/little_endian.hpp>

namespace danling::inline v0::formats {
namespace {

// The last bytes of a file with hashes: the hash of the tail, its size, and this magic text.
constexpr std::string_view dcp_magic = "danl-dcp";
constexpr std::size_t dcp_end = 16 + 8 + 8;
constexpr std::uint64_t dcp_version = 1;
constexpr std::size_t kept_blocks = 4;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

// ---- writing --------------------------------------------------------------------------------------------------------

// Hashes the file block by block while the archives are written; counts offsets from the current archive.
class DcpFileWriter::Output : public ZipOutput {
 public:
  explicit Output(const std::filesystem::path& target) : file(target) {}

  std::uint64_t size() const override { return file.size() - begin; }
  void write(std::span<const std::byte> bytes) override {
    take(bytes);
    file.write(bytes);
  }
  void write(std::span<const std::byte> bytes, const std::function<void()>& meanwhile) override {
    file.write(bytes, [&] {
      meanwhile();
      take(bytes);
    });
  }

  void pad(std::uint64_t multiple) {
    const std::string zeros(static_cast<std::size_t>((multiple - file.size() % multiple) % multiple), '\0');
    write(bytes_of(zeros));
  }

  void close_block() {
    if (filled > 0) {
      hashes.push_back(hasher.digest());
      hasher = Hasher();
      filled = 0;
    }
  }

  AtomicFile file;
  std::uint64_t begin = 0;
  std::vector<Hash128> hashes;

 private:
  void take(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto piece = bytes.first(std::min<std::size_t>(bytes.size(), dcp_block - filled));
      hasher.update(piece);
      filled += piece.size();
      bytes = bytes.subspan(piece.size());
      if (filled == dcp_block) {
        close_block();
      }
    }
  }

  Hasher hasher;
  std::size_t filled = 0;
};

DcpFileWriter::DcpFileWriter(const std::filesystem::path& target) : out_(std::make_unique<Output>(target)) {}
DcpFileWriter::~DcpFileWriter() = default;

std::uint64_t DcpFileWriter::size() const { return out_->file.size(); }

DcpPlace DcpFileWriter::add_tensor(DType dtype, const std::vector<std::int64_t>& sizes, bool requires_grad,
                                   const std::function<void(const PieceSink& sink)>& content) {
  TensorRecord record{dtype, 0, 0, sizes, std::vector<std::int64_t>(sizes.size(), 1), requires_grad, false, false};
  std::uint64_t elements = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    record.strides[d] = static_cast<std::int64_t>(elements);
    elements *= static_cast<std::uint64_t>(sizes[d]);
  }
  const std::uint64_t size = elements * dtype_size(dtype);
  out_->pad(64);
  out_->begin = out_->file.size();
  ZipWriter zip(*out_);
  zip.add("archive/data.pkl", write_pickle(record, std::array{size}));
  zip.add("archive/.format_version", "1");
  zip.add("archive/.storage_alignment", "64");
  zip.add("archive/byteorder", "little");
  std::uint64_t data = 0;
  zip.add("archive/data/0", size, [&](const PieceSink& sink) {
    data = out_->file.size();
    content(sink);
  });
  zip.add("archive/version", "3\n");
  zip.finish();
  return places_.emplace_back(DcpPlace{out_->begin, out_->size(), data, size});
}

DcpPlace DcpFileWriter::add_value(const RecordTree& value) {
  out_->pad(64);
  out_->begin = out_->file.size();
  ZipWriter zip(*out_);
  zip.add("archive/data.pkl", write_pickle(value, {}));
  zip.add("archive/.format_version", "1");
  zip.add("archive/.storage_alignment", "64");
  zip.add("archive/byteorder", "little");
  zip.add("archive/version", "3\n");
  zip.finish();
  return places_.emplace_back(DcpPlace{out_->begin, out_->size(), 0, 0});
}

Hash128 DcpFileWriter::commit() {
  const std::uint64_t end = out_->file.size();
  out_->close_block();
  std::string tail;
  put_little(tail, dcp_version);
  put_little(tail, dcp_block);
  put_little(tail, end);
  put_little(tail, static_cast<std::uint64_t>(places_.size()));
  for (const auto& place : places_) {
    for (const auto value : {place.offset, place.length, place.data_offset, place.data_size}) {
      put_little(tail, value);
    }
  }
  for (const auto& hash : out_->hashes) {
    put_little(tail, hash.high);
    put_little(tail, hash.low);
  }
  const Hash128 hash = hash128(bytes_of(tail));
  const auto size = static_cast<std::uint64_t>(tail.size());
  put_little(tail, hash.high);
  put_little(tail, hash.low);
  put_little(tail, size);
  tail += dcp_magic;
  out_->file.write(tail);
  out_->file.commit();
  return hash;
}

// ---- reading --------------------------------------------------------------------------------------------------------

DcpFile::DcpFile(const std::filesystem::path& path) : file_(path) { take_hashes(); }

void DcpFile::take_hashes() {
  if (file_.size() < dcp_end) {
    return;
  }
  std::string end(dcp_end, '\0');
  read_direct(file_.size() - dcp_end, std::as_writable_bytes(std::span(end)));
  if (!end.ends_with(dcp_magic)) {
    return;
  }
  const auto refuse = [&](const auto& expected) {
    fail<CheckpointError>("checkpoint.read", "expected ", expected, ", got invalid data (file ", quote(path().string()),
                          ")");
  };
  const auto size = get_little<std::uint64_t>(end, 16);
  if (size < 32 || size > file_.size() - dcp_end) {
    refuse("hashes inside the file");
  }
  std::string tail(static_cast<std::size_t>(size), '\0');
  read_direct(file_.size() - dcp_end - size, std::as_writable_bytes(std::span(tail)));
  const Hash128 hash{get_little<std::uint64_t>(end, 0), get_little<std::uint64_t>(end, 8)};
  if (hash128(bytes_of(tail)) != hash) {
    refuse("hashes that match their own hash");
  }
  const auto number = [&](std::size_t at) { return get_little<std::uint64_t>(tail, 8 * at); };
  const std::uint64_t count = number(3);
  data_end_ = number(2);
  const std::uint64_t blocks = (data_end_ + dcp_block - 1) / dcp_block;
  // A newer version may have another layout after the first number.
  if (number(0) != dcp_version) {
    fail<CheckpointError>("checkpoint.read", "expected version ", dcp_version, " of the hashes, got ", number(0),
                          "; a newer danling wrote this file (file ", quote(path().string()), ")");
  }
  if (number(1) != dcp_block || data_end_ != file_.size() - dcp_end - size || count > size / 32 ||
      32 + 32 * count + 16 * blocks != size) {
    refuse("a hash for each block");
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(4 + 4 * i);
    const DcpPlace place{number(at), number(at + 1), number(at + 2), number(at + 3)};
    if (place.offset > data_end_ || place.length > data_end_ - place.offset || place.data_offset > data_end_ ||
        place.data_size > data_end_ - place.data_offset) {
      refuse("places before the hashes");
    }
    places_.push_back(place);
  }
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const auto at = static_cast<std::size_t>(4 + 4 * count + 2 * i);
    hashes_.push_back({number(at), number(at + 1)});
  }
  std::sort(places_.begin(), places_.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  hash_ = hash;
}

const DcpPlace* DcpFile::find(std::uint64_t offset, std::uint64_t length) const {
  const auto found = std::lower_bound(places_.begin(), places_.end(), offset,
                                      [](const DcpPlace& place, std::uint64_t at) { return place.offset < at; });
  return found != places_.end() && found->offset == offset && found->length == length ? &*found : nullptr;
}

void DcpFile::read_direct(std::uint64_t offset, std::span<std::byte> out) {
  file_.read(offset, out);
  bytes_read_ += out.size();
}

std::uint64_t DcpFile::block_size(std::uint64_t block) const {
  return std::min(dcp_block, data_end_ - block * dcp_block);
}

void DcpFile::check_block(std::uint64_t block, std::span<const std::byte> bytes) const {
  const Hash128 got = hash128(bytes);
  if (got != hashes_[static_cast<std::size_t>(block)]) {
    fail<CheckpointError>("checkpoint.read", "expected the hash ", to_hex(hashes_[static_cast<std::size_t>(block)]),
                          " of ", bytes.size(), " bytes at offset ", block * dcp_block, ", got ", to_hex(got),
                          ": the file is damaged (file ", quote(path().string()), ")");
  }
}

const std::vector<std::byte>& DcpFile::load_block(std::uint64_t block) {
  const auto found =
      std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& kept) { return kept.first == block; });
  if (found != blocks_.end()) {
    blocks_.splice(blocks_.begin(), blocks_, found);
    return blocks_.front().second;
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(block_size(block)));
  read_direct(block * dcp_block, bytes);
  check_block(block, bytes);
  if (blocks_.size() == kept_blocks) {
    blocks_.pop_back();
  }
  blocks_.emplace_front(block, std::move(bytes));
  return blocks_.front().second;
}

void DcpFile::read(std::uint64_t offset, std::span<std::byte> out) {
  if (!hash_ || offset > data_end_ || out.size() > data_end_ - offset) {
    if (hash_) {
      fail<CheckpointError>("checkpoint.read", "expected ", out.size(), " bytes at offset ", offset, ", got ",
                            data_end_, " (file ", quote(path().string()), ")");
    }
    read_direct(offset, out);
    return;
  }
  while (!out.empty()) {
    const std::uint64_t block = offset / dcp_block;
    const std::uint64_t inside = offset - block * dcp_block;
    std::size_t count = 0;
    if (inside == 0 && out.size() >= block_size(block)) {  // read a whole block directly into its destination
      count = static_cast<std::size_t>(block_size(block));
      read_direct(offset, out.first(count));
      check_block(block, out.first(count));
    } else {
      const auto& bytes = load_block(block);
      count = std::min<std::size_t>(out.size(), bytes.size() - static_cast<std::size_t>(inside));
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(inside), count, out.begin());
    }
    offset += count;
    out = out.subspan(count);
  }
}

void DcpFile::verify() {
  std::vector<std::byte> bytes(static_cast<std::size_t>(std::min(dcp_block, data_end_)));
  for (std::uint64_t block = 0; block < hashes_.size(); ++block) {
    const auto part = std::span(bytes).first(static_cast<std::size_t>(block_size(block)));
    read_direct(block * dcp_block, part);
    check_block(block, part);
  }
}

}  // namespace danling::inline v0::formats
