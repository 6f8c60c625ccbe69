// ProtobufWriter: writes messages in the wire format of Protocol Buffers. The library's symbols would clash with the
// copy inside LibTorch.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace danling::inline v0::formats {

/// Appends fields to a message. Also writes fields with default values; the caller omits them if needed.
/// Source: https://protobuf.dev/programming-guides/encoding/
class ProtobufWriter {
 public:
  const std::string& bytes() const { return bytes_; }

  ProtobufWriter& integer(int field, std::int64_t value) {
    return tag(field, 0).varint(static_cast<std::uint64_t>(value));
  }
  ProtobufWriter& number(int field, double value) {
    return tag(field, 1).fixed(std::bit_cast<std::uint64_t>(value), 8);
  }
  ProtobufWriter& number32(int field, float value) {
    return tag(field, 5).fixed(std::bit_cast<std::uint32_t>(value), 4);
  }
  /// `value` must be UTF-8.
  ProtobufWriter& text(int field, std::string_view value) {
    tag(field, 2).varint(value.size());
    bytes_ += value;
    return *this;
  }
  ProtobufWriter& message(int field, const ProtobufWriter& value) { return text(field, value.bytes_); }

  /// Appends an element of a packed field. Fill a separate writer with the elements and add it by `message`.
  ProtobufWriter& packed(double value) { return fixed(std::bit_cast<std::uint64_t>(value), 8); }

 private:
  ProtobufWriter& tag(int field, unsigned type) { return varint((static_cast<std::uint64_t>(field) << 3U) | type); }
  ProtobufWriter& varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7U) {
      bytes_ += static_cast<char>(value | 0x80U);
    }
    bytes_ += static_cast<char>(value);
    return *this;
  }
  ProtobufWriter& fixed(std::uint64_t value, int size) {
    for (int i = 0; i < size; ++i) {
      bytes_ += static_cast<char>(value >> (8U * static_cast<unsigned>(i)));
    }
    return *this;
  }

  std::string bytes_;
};

}  // namespace danling::inline v0::formats
