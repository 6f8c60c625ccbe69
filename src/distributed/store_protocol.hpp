// The protocol of LibTorch's TCPStore: numbers in the order of the machine, texts after their length in 8 bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <torch/csrc/distributed/c10d/TCPStoreBackend.hpp>

namespace danling::inline v0::detail {

using StoreQuery = c10d::detail::QueryType;
using StoreCheck = c10d::detail::CheckResponseType;
using StoreWait = c10d::detail::WaitResponseType;
constexpr std::uint32_t store_magic = c10d::detail::validationMagicNumber;

/// Builds a message.
class StoreRequest {
 public:
  StoreRequest() = default;
  explicit StoreRequest(StoreQuery query) { number(query); }

  template <class Number>
  StoreRequest& number(Number value) {
    static_assert(std::is_trivially_copyable_v<Number>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  StoreRequest& text(std::string_view text) {
    number(std::uint64_t{text.size()});
    bytes_.append(text);
    return *this;
  }
  StoreRequest& text(const std::vector<std::uint8_t>& bytes) {
    return text(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  StoreRequest& texts(const std::vector<std::string>& all) {
    number(std::uint64_t{all.size()});
    for (const std::string& one : all) {
      text(one);
    }
    return *this;
  }

  std::string_view bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Reads a message that may not have arrived completely: then `complete` is false, and what was read is void.
class StoreReader {
 public:
  explicit StoreReader(std::string_view bytes) : bytes_(bytes) {}

  template <class Number>
  Number number() {
    Number value = {};
    if (const std::string_view found = take(sizeof value); complete_) {
      std::memcpy(&value, found.data(), sizeof value);
    }
    return value;
  }
  /// @throws std::length_error if it is longer than any that a store should hold.
  std::string_view text() {
    const auto size = number<std::uint64_t>();
    if (size > longest_text) {
      throw std::length_error("a text of " + std::to_string(size) + " bytes");
    }
    return take(static_cast<std::size_t>(size));
  }
  std::vector<std::string> texts() {
    std::vector<std::string> all;
    for (auto count = number<std::uint64_t>(); complete_ && count > 0; --count) {
      all.emplace_back(text());
    }
    return all;
  }

  bool complete() const { return complete_; }
  std::size_t position() const { return position_; }

 private:
  static constexpr std::uint64_t longest_text = std::uint64_t{1} << 30;

  std::string_view take(std::size_t size) {
    complete_ = complete_ && size <= bytes_.size() - position_;
    const std::string_view found = complete_ ? bytes_.substr(position_, size) : std::string_view();
    position_ += found.size();
    return found;
  }

  std::string_view bytes_;
  std::size_t position_ = 0;
  bool complete_ = true;
};

}  // namespace danling::inline v0::detail
