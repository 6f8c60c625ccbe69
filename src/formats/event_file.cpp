#include <danling/formats/event_file.hpp>

#include <algorithm>
#include <array>
#include <utility>

#include <danling/core/error.hpp>

#include <formats/crc32c.hpp>
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

EventFileReader::EventFileReader(std::filesystem::path path)
    : file_(std::move(path), FileErrors::of<DataError>("event_file.read")) {}

// Returns a part of the file, valid until the next call; reads ahead.
std::string_view EventFileReader::bytes(std::uint64_t offset, std::uint64_t count) {
  constexpr std::uint64_t piece = std::uint64_t{1} << 16;
  if (offset < begin_ || offset + count > begin_ + buffer_.size()) {
    buffer_ = file_.text(offset, std::min(std::max(count, piece), file_.size() - offset));
    begin_ = offset;
  }
  return std::string_view(buffer_).substr(static_cast<std::size_t>(offset - begin_), static_cast<std::size_t>(count));
}

std::optional<std::string_view> EventFileReader::next() {
  const std::uint64_t left = file_.size() - offset_;
  if (left < frame_size) {
    return {};
  }
  const std::string_view head = bytes(offset_, head_size);
  const auto length = get_little<std::uint64_t>(head, 0);
  check<DataError>(get_little<std::uint32_t>(head, 8) == masked_crc(head.substr(0, 8)), "event_file.read",
                   "expected the length of a record at byte ", offset_, " of ", file_.path().string(),
                   ", got other bytes; the file is damaged");
  if (length > left - frame_size) {
    return {};
  }
  const std::string_view record = bytes(offset_ + head_size, length + sizeof(std::uint32_t));
  const std::string_view message = record.substr(0, static_cast<std::size_t>(length));
  check<DataError>(get_little<std::uint32_t>(record, message.size()) == masked_crc(message), "event_file.read",
                   "expected the record at byte ", offset_, " of ", file_.path().string(),
                   " to have its checksum, got another; the file is damaged");
  offset_ += frame_size + length;
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
    fail<DataError>("event_file.read", "expected an Event in the record at byte ", begin, " of ", file_.path().string(),
                    ": ", error.what());
  }
}

}  // namespace danling::inline v0::formats
