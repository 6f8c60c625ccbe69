#include <danling/formats/event_file.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <danling/core/error.hpp>

#include <core/removed_file.hpp>
#include <core/signal_mask.hpp>
#include <formats/little_endian.hpp>

namespace danling::inline v0::formats {
namespace {

constexpr std::array<std::uint32_t, 256> crc_table = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0x82f63b78U : 0U);
    }
    table[byte] = crc;
  }
  return table;
}();

std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15U) | (crc << 17U)) + 0xa282ead8U;
}

constexpr std::size_t head_size = sizeof(std::uint64_t) + sizeof(std::uint32_t);
constexpr std::size_t frame_size = head_size + sizeof(std::uint32_t);

/// Reads the fields of a message in the wire format of Protocol Buffers.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  std::uint64_t number = 0;  // of the current field
  std::uint64_t value = 0;   // of an integer
  std::string_view bytes;    // of a text or message

  /// Reads the next field. Returns false at the end. @throws DataError
  bool next() {
    if (rest_.empty()) {
      return false;
    }
    const std::uint64_t tag = varint();
    number = tag >> 3U;
    value = 0;
    bytes = {};
    switch (tag & 7U) {
      case 0:
        value = varint();
        break;
      case 1:
        take(8);
        break;
      case 2:
        bytes = take(varint());
        break;
      case 5:
        take(4);
        break;
      default:
        fail<DataError>("event_file.read", "expected a field of type 0, 1, 2 or 5, got type ", tag & 7U);
    }
    check<DataError>(number != 0, "event_file.read", "expected the number of a field, got 0");
    return true;
  }

 private:
  std::string_view take(std::uint64_t size) {
    check<DataError>(size <= rest_.size(), "event_file.read", "expected ", size, " bytes of a field, got ",
                     rest_.size());
    const std::string_view out = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return out;
  }
  std::uint64_t varint() {
    std::uint64_t out = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      out |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
      if (byte < 0x80) {
        return out;
      }
    }
    fail<DataError>("event_file.read", "expected an integer of at most 10 bytes, got more");
  }

  std::string_view rest_;
};

EventHead parse_head(std::string_view message) {
  EventHead out;
  for (Fields event(message); event.next();) {
    if (event.number == 2) {
      out.step = static_cast<std::int64_t>(event.value);
    } else if (event.number == 10) {
      for (Fields source(event.bytes); source.next();) {
        if (source.number == 1) {
          out.writer = source.bytes;
        }
      }
    } else if (event.number == event_line_field) {
      out.line = static_cast<std::int64_t>(event.value);
    } else if (event.number == event_in_step_field) {
      out.in_step = event.value != 0;
    } else if (event.number == event_lines_before_field) {
      out.lines_before = static_cast<std::int64_t>(event.value);
    }
  }
  return out;
}

[[noreturn]] void fail_write(const std::filesystem::path& path, int reason) {
  fail("event_file.write", "expected to write ", path.string(), ", got ", quote(std::strerror(reason)),
       reason == ENOSPC || reason == EDQUOT ? "; free some space" : "");
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc = (crc >> 8U) ^ crc_table[(crc ^ static_cast<unsigned char>(c)) & 0xffU];
  }
  return ~crc;
}

void append_tfrecord(std::string& out, std::string_view message) {
  const std::size_t begin = out.size();
  put_little(out, static_cast<std::uint64_t>(message.size()));
  put_little(out, masked_crc(std::string_view(out).substr(begin)));
  out += message;
  put_little(out, masked_crc(message));
}

EventFileReader::EventFileReader(std::filesystem::path path) : path_(std::move(path)), file_(path_, std::ios::binary) {
  std::error_code error;
  size_ = std::filesystem::file_size(path_, error);
  check<DataError>(file_.good() && !error, "event_file.read", "expected an event file to read, got ",
                   quote(path_.string()));
}

std::optional<std::string_view> EventFileReader::next() {
  const std::uint64_t left = size_ - offset_;
  if (left < frame_size) {
    return {};
  }
  record_.resize(head_size);
  if (position_ != offset_) {  // seek only if needed: it discards the stream's buffer
    file_.clear();
    file_.seekg(static_cast<std::streamoff>(offset_));
  }
  position_ = size_;  // forces a seek if the record cannot be read completely
  file_.read(record_.data(), static_cast<std::streamsize>(record_.size()));
  if (!file_) {
    return {};
  }
  const auto length = get_little<std::uint64_t>(record_, 0);
  check<DataError>(get_little<std::uint32_t>(record_, 8) == masked_crc(std::string_view(record_).substr(0, 8)),
                   "event_file.read", "expected the length of a record at byte ", offset_, " of ", path_.string(),
                   ", got other bytes; the file is damaged");
  if (length > left - frame_size) {
    return {};
  }
  record_.resize(static_cast<std::size_t>(length) + sizeof(std::uint32_t));
  file_.read(record_.data(), static_cast<std::streamsize>(record_.size()));
  if (!file_) {
    return {};
  }
  const std::string_view message = std::string_view(record_).substr(0, static_cast<std::size_t>(length));
  check<DataError>(get_little<std::uint32_t>(record_, message.size()) == masked_crc(message), "event_file.read",
                   "expected the record at byte ", offset_, " of ", path_.string(),
                   " to have its checksum, got another; the file is damaged");
  offset_ += frame_size + length;
  position_ = offset_;
  return message;
}

std::optional<EventHead> EventFileReader::next_event() {
  const std::uint64_t begin = offset_;
  const auto message = next();
  if (!message) {
    return {};
  }
  try {
    return parse_head(*message);
  } catch (const DataError& error) {
    offset_ = begin;
    fail<DataError>("event_file.read", "expected an Event in the record at byte ", begin, " of ", path_.string(), ": ",
                    error.what());
  }
}

EventFileWriter::EventFileWriter(std::filesystem::path path) : path_(std::move(path)) {
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0) {
    fail_write(path_, errno);
  }
}

EventFileWriter::~EventFileWriter() { ::close(file_); }

void EventFileWriter::append(std::string_view records) {
  int reason = detail::restore_removed(file_, path_);
  if (reason == ENOENT) {
    std::error_code ignored;
    std::filesystem::create_directories(path_.parent_path(), ignored);
    reason = detail::restore_removed(file_, path_);
  }
  if (reason == 0) {
    reason = write(records);
  }
  if (reason != 0) {
    fail_write(path_, reason);
  }
}

int EventFileWriter::write(std::string_view records) noexcept {
  if (torn_ && ::ftruncate(file_, static_cast<off_t>(size_)) != 0) {
    return errno;
  }
  torn_ = false;
  const detail::FileSizeSignalMask quiet;
  std::size_t done = 0;
  // One write, unless the disk is full: then a second write returns the reason.
  while (done < records.size()) {
    const ssize_t written = ::write(file_, records.data() + done, records.size() - done);
    if (written > 0) {
      done += static_cast<std::size_t>(written);
    } else if (written == 0 || errno != EINTR) {
      const int reason = written == 0 ? EIO : errno;
      torn_ = done > 0 && ::ftruncate(file_, static_cast<off_t>(size_)) != 0;
      return reason;
    }
  }
  size_ += done;
  return 0;
}

}  // namespace danling::inline v0::formats
