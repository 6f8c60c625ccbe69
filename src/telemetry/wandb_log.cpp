#include <telemetry/wandb_log.hpp>

#include <algorithm>
#include <span>
#include <string_view>

#include <danling/formats/detail/checksum.hpp>

#include <formats/little_endian.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr std::size_t block_size = 32768;
constexpr std::size_t frame_head = 7;
// The file header: ":W&B", the magic number 0xBEE1 and version 0.
constexpr std::string_view file_head(":W&B\xE1\xBE\0", 7);

// Appends `record` to `out`; the first byte of `out` is at `offset` in the file.
// Source: https://github.com/google/leveldb/blob/main/doc/log_format.md. Like wandb, uses zlib's unmasked CRC-32
// instead of CRC-32C.
void put_frames(std::string& out, std::uint64_t offset, std::string_view record) {
  bool first = true;
  do {
    std::size_t left = block_size - (offset + out.size()) % block_size;
    if (left < frame_head) {
      out.append(left, '\0');
      left = block_size;
    }
    const std::string_view part = record.substr(0, left - frame_head);
    record.remove_prefix(part.size());
    const char type = static_cast<char>(first ? (record.empty() ? 1 : 2) : (record.empty() ? 4 : 3));
    const std::uint32_t crc = formats::extend_crc32(formats::extend_crc32(0, std::as_bytes(std::span(&type, 1))),
                                                    std::as_bytes(std::span(part)));
    formats::put_little(out, crc);
    formats::put_little(out, static_cast<std::uint16_t>(part.size()));
    out += type;
    out += part;
    first = false;
  } while (!record.empty());
}

}  // namespace

WandbLog::WandbLog(const std::filesystem::path& path) : file_(path, AppendFile::Content::emptied) {
  file_.append(file_head);
}

void WandbLog::append(const std::vector<Entry>& entries) {
  std::string bytes;
  std::int64_t number = num_records_;
  for (const Entry& entry : entries) {
    put_frames(bytes, file_.size(),
               formats::ProtobufWriter().integer(1, ++number).message(entry.kind, entry.message).bytes());
  }
  file_.append(bytes);
  num_records_ = number;
}

}  // namespace danling::inline v0::detail
