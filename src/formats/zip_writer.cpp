#include <danling/formats/detail/zip_writer.hpp>

#include <algorithm>

#include <danling/core/error.hpp>

#include <formats/little_endian.hpp>
#include <formats/zip_layout.hpp>

namespace danling::inline v0::formats {
namespace {

// Size of pieces: small enough to stay in the cache between the two checksums.
constexpr std::size_t zip_piece = std::size_t{1} << 18;
// From this size on a second thread computes the checksums while this one writes; for less data synchronisation costs
// more than it saves.
constexpr std::size_t zip_worth_a_thread = std::size_t{1} << 17;

std::uint32_t clamp32(std::uint64_t value) {
  return value >= zip::escape32 ? zip::escape32 : static_cast<std::uint32_t>(value);
}

// PyTorch puts the offset into the local header's zip64 field too; readers rely on the length of that field.
std::string zip64_extra(std::uint64_t size, std::uint64_t header_offset) {
  std::string values;
  if (size >= zip::escape32) {
    put_little(values, size);
    put_little(values, size);
  }
  if (header_offset >= zip::escape32) {
    put_little(values, header_offset);
  }
  std::string out;
  if (!values.empty()) {
    put_little(out, zip::extra_zip64);
    put_little(out, static_cast<std::uint16_t>(values.size()));
    out += values;
  }
  return out;
}

class WholeFile : public ZipOutput {
 public:
  explicit WholeFile(AtomicFile& file) : file_(file) {}
  std::uint64_t size() const override { return file_.size(); }
  void write(std::span<const std::byte> bytes) override { file_.write(bytes); }
  void write(std::span<const std::byte> bytes, const std::function<void()>& meanwhile) override {
    file_.write(bytes, meanwhile);
  }

 private:
  AtomicFile& file_;
};

}  // namespace

ZipWriter::ZipWriter(AtomicFile& out, std::size_t alignment)
    : whole_file_(std::make_unique<WholeFile>(out)), out_(whole_file_.get()), alignment_(alignment) {}

ZipRecord ZipWriter::begin(std::string_view name, std::uint64_t size) {
  check<CheckpointError>(name.size() < zip::escape16 && names_.emplace(name).second, "checkpoint.write",
                         "expected a new record name, got ", name);
  ZipRecord record{std::string(name), size, 0, {}, out_->size()};

  std::string extra = zip64_extra(record.size, record.header_offset);
  const std::uint64_t start = record.header_offset + zip::local_size + name.size() + extra.size() + 4;
  const auto padding = static_cast<std::uint16_t>((alignment_ - start % alignment_) % alignment_);
  extra.append("FB");
  put_little(extra, padding);
  extra.append(padding, 'Z');

  const std::uint16_t flags = size == 0 ? zip::flag_utf8 : zip::flag_utf8 | zip::flag_descriptor;
  std::string header;
  put_little(header, zip::local_signature);
  put_little(header, std::uint16_t{0});  // version needed
  put_little(header, flags);
  put_little(header, zip::method_stored);
  put_little(header, std::uint32_t{0});  // time and date
  put_little(header, std::uint32_t{0});  // checksum and sizes: after the data
  put_little(header, std::uint32_t{0});
  put_little(header, std::uint32_t{0});
  put_little(header, static_cast<std::uint16_t>(name.size()));
  put_little(header, static_cast<std::uint16_t>(extra.size()));
  header.append(name).append(extra);
  write(header);

  return record;
}

void ZipWriter::add(std::string_view name, std::span<const std::byte> data) {
  add(name, data.size(), [&](const PieceSink& sink) { sink(data); });
}

void ZipWriter::add(std::string_view name, std::uint64_t size,
                    const std::function<void(const PieceSink& sink)>& content) {
  ZipRecord record = begin(name, size);
  Hasher hasher;
  std::uint64_t given = 0;
  content([&](std::span<const std::byte> data) {
    given += data.size();
    const auto compute = [&] {
      for (std::size_t done = 0; done < data.size(); done += zip_piece) {
        const auto piece = data.subspan(done, std::min(zip_piece, data.size() - done));
        record.crc = extend_crc32(record.crc, piece);
        hasher.update(piece);
      }
    };
    if (data.size() < zip_worth_a_thread) {
      compute();
      out_->write(data);
    } else {
      out_->write(data, compute);
    }
  });
  check<CheckpointError>(given == size, "checkpoint.write", "expected ", size, " bytes of record ", quote(name),
                         ", got ", given);
  record.hash = hasher.digest();

  if (size > 0) {
    std::string descriptor;
    put_little(descriptor, zip::descriptor_signature);
    put_little(descriptor, record.crc);
    const bool wide = record.size >= zip::escape32 || record.header_offset >= zip::escape32;
    for (int i = 0; i < 2; ++i) {
      wide ? put_little(descriptor, record.size) : put_little(descriptor, static_cast<std::uint32_t>(record.size));
    }
    write(descriptor);
  }
  records_.push_back(std::move(record));
}

void ZipWriter::finish() {
  const std::uint64_t directory = out_->size();
  for (const auto& record : records_) {
    const std::string extra = zip64_extra(record.size, record.header_offset);
    std::string entry;
    put_little(entry, zip::central_signature);
    put_little(entry, std::uint16_t{0});  // made by
    put_little(entry, std::uint16_t{0});  // version needed
    put_little(entry,
               record.size == 0 ? zip::flag_utf8 : static_cast<std::uint16_t>(zip::flag_utf8 | zip::flag_descriptor));
    put_little(entry, zip::method_stored);
    put_little(entry, std::uint32_t{0});  // time and date
    put_little(entry, record.crc);
    put_little(entry, clamp32(record.size));
    put_little(entry, clamp32(record.size));
    put_little(entry, static_cast<std::uint16_t>(record.name.size()));
    put_little(entry, static_cast<std::uint16_t>(extra.size()));
    put_little(entry, std::uint16_t{0});  // comment
    put_little(entry, std::uint16_t{0});  // disk
    put_little(entry, std::uint16_t{0});  // internal attributes
    put_little(entry, std::uint32_t{0});  // external attributes
    put_little(entry, clamp32(record.header_offset));
    entry.append(record.name).append(extra);
    write(entry);
  }
  const std::uint64_t end = out_->size();
  const std::uint64_t count = records_.size();
  const auto count16 = count >= zip::escape16 ? zip::escape16 : static_cast<std::uint16_t>(count);
  std::string tail;
  put_little(tail, zip::end64_signature);
  put_little(tail, std::uint64_t{zip::end64_size - 12});
  put_little(tail, std::uint16_t{0x031e});  // made by, needed: as in PyTorch
  put_little(tail, std::uint16_t{0x002d});
  put_little(tail, std::uint64_t{0});  // disks
  put_little(tail, count);
  put_little(tail, count);
  put_little(tail, end - directory);
  put_little(tail, directory);
  put_little(tail, zip::locator64_signature);
  put_little(tail, std::uint32_t{0});
  put_little(tail, end);
  put_little(tail, std::uint32_t{1});
  put_little(tail, zip::end_signature);
  put_little(tail, std::uint32_t{0});  // disks
  put_little(tail, count16);
  put_little(tail, count16);
  put_little(tail, clamp32(end - directory));
  put_little(tail, clamp32(directory));
  put_little(tail, std::uint16_t{0});  // comment
  write(tail);
}

}  // namespace danling::inline v0::formats
