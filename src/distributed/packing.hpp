// Serialization of numbers and text for exchange, and errors that are equal on all ranks.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <c10/util/ArrayRef.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {

class Packer {
 public:
  void number(std::int64_t value) { raw(&value, sizeof value); }
  void real(double value) { raw(&value, sizeof value); }
  void text(std::string_view value) {
    number(static_cast<std::int64_t>(value.size()));
    raw(value.data(), value.size());
  }
  void numbers(c10::ArrayRef<std::int64_t> values) {
    number(static_cast<std::int64_t>(values.size()));
    raw(values.data(), values.size() * sizeof(std::int64_t));
  }
  void raw(const void* data, std::size_t size) { bytes_.append(static_cast<const char*>(data), size); }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads values that a Packer wrote. @throws DistributedError past the end: the ranks did not call the same function.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : rest_(bytes) {}

  bool done() const { return rest_.empty(); }
  std::int64_t number() { return read<std::int64_t>(); }
  double real() { return read<double>(); }
  std::string text() { return std::string(raw(static_cast<std::size_t>(number()))); }
  std::vector<std::int64_t> numbers() {
    std::vector<std::int64_t> values(checked(number(), sizeof(std::int64_t)));
    const auto bytes = raw(values.size() * sizeof(std::int64_t));
    if (!values.empty()) {
      std::memcpy(values.data(), bytes.data(), bytes.size());
    }
    return values;
  }
  std::string_view raw(std::size_t size) {
    check<DistributedError>(size <= rest_.size(), "group.unpack", "expected ", size, " more bytes, got ", rest_.size(),
                            "; the ranks did not call the same function");
    const auto part = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return part;
  }

 private:
  template <class T>
  T read() {
    T value = {};
    std::memcpy(&value, raw(sizeof value).data(), sizeof value);
    return value;
  }
  std::size_t checked(std::int64_t count, std::size_t size) const {
    const bool fits = count >= 0 && static_cast<std::uint64_t>(count) <= rest_.size() / size;
    check<DistributedError>(fits, "group.unpack", "expected a length, got ", count,
                            "; the ranks did not call the same function");
    return static_cast<std::size_t>(count);
  }

  std::string_view rest_;
};

/// Throws unless all ranks passed the same text; an empty text matches any. `texts` must be equal on all ranks.
/// `names`: ranks for messages, which differ in a subgroup.
template <class E>
void check_agreement(const std::vector<std::string>& texts, std::string_view where, std::string_view what,
                     c10::ArrayRef<std::int64_t> names = {}) {
  const auto name = [&](std::size_t rank) { return names.empty() ? static_cast<std::int64_t>(rank) : names[rank]; };
  std::size_t first = texts.size();
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].empty()) {
      continue;
    }
    if (first == texts.size()) {
      first = rank;
    } else if (texts[rank] != texts[first]) {
      fail<E>(where, "expected ", what, " on all ranks, got ", texts[first], " on rank ", name(first), " and ",
              texts[rank], " on rank ", name(rank));
    }
  }
}

}  // namespace danling::inline v0::detail
