// Emits the opcodes of a pickle of protocol 2.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <danling/core/error.hpp>

#include <formats/little_endian.hpp>
#include <formats/pickle_opcodes.hpp>
#include <formats/utf8.hpp>

namespace danling::inline v0::formats {

class PickleEmitter {
 protected:
  using Op = pickle::Op;

  PickleEmitter() {
    put(Op::proto);
    out_.push_back(2);
  }

  std::string take() { return std::move(out_); }

  void put(Op op) { out_.push_back(static_cast<char>(op)); }

  // Emits a reference to a memo entry, if there is one. `kind`: 't' text, 'g' global.
  bool get_memo(char kind, std::string_view text) {
    const auto found = memo_.find(std::string(1, kind).append(text));
    if (found == memo_.end()) {
      return false;
    }
    if (found->second < 256) {
      put(Op::binget);
      out_.push_back(static_cast<char>(found->second));
    } else {
      put(Op::long_binget);
      put_little(out_, found->second);
    }
    return true;
  }

  void put_memo(char kind, std::string_view text) {
    const auto number = static_cast<std::uint32_t>(memo_.size());
    memo_.emplace(std::string(1, kind).append(text), number);
    if (number < 256) {
      put(Op::binput);
      out_.push_back(static_cast<char>(number));
    } else {
      put(Op::long_binput);
      put_little(out_, number);
    }
  }

  void text(std::string_view text) {
    put(Op::binunicode);
    put_little(out_, static_cast<std::uint32_t>(text.size()));
    out_.append(text);
  }

  // Emits a text that probably repeats: a key, or a word of a tensor's description.
  void word(std::string_view value) {
    if (!get_memo('t', value)) {
      text(value);
      put_memo('t', value);
    }
  }

  void global(std::string_view module, std::string_view name) {
    const std::string both = concat(module, "\n", name);
    if (!get_memo('g', both)) {
      put(Op::global);
      out_.append(both).push_back('\n');
      put_memo('g', both);
    }
  }

  void integer(std::int64_t value) {
    if (value >= 0 && value < 256) {
      put(Op::binint1);
      out_.push_back(static_cast<char>(value));
    } else if (value >= 0 && value < 65536) {
      put(Op::binint2);
      put_little(out_, static_cast<std::uint16_t>(value));
    } else if (value == static_cast<std::int32_t>(value)) {
      put(Op::binint);
      put_little(out_, static_cast<std::uint32_t>(value));
    } else {
      // Two's complement in the fewest bytes that preserve the sign.
      std::string bytes;
      put_little(bytes, static_cast<std::uint64_t>(value));
      const char fill = value < 0 ? '\xff' : '\0';
      while (bytes.size() > 1 && bytes.back() == fill && ((bytes[bytes.size() - 2] < 0) == (value < 0))) {
        bytes.pop_back();
      }
      put(Op::long1);
      out_.push_back(static_cast<char>(bytes.size()));
      out_ += bytes;
    }
  }

  void number(double value) {
    put(Op::binfloat);
    const auto bits = std::bit_cast<std::uint64_t>(value);
    for (int shift = 56; shift >= 0; shift -= 8) {
      out_.push_back(static_cast<char>(static_cast<unsigned char>(bits >> shift)));
    }
  }

  void boolean(bool value) { put(value ? Op::newtrue : Op::newfalse); }

  // Protocol 2 has no bytes type; like Python, emits text and a call that encodes it.
  void bytes(const std::string& data) {
    global("_codecs", "encode");
    const std::string utf8 = latin1_to_utf8(data);
    check<CheckpointError>(utf8.size() <= std::numeric_limits<std::uint32_t>::max(), "checkpoint.write",
                           "expected bytes of less than 4 GiB as text, got ", utf8.size());
    text(utf8);
    word("latin1");
    put(Op::tuple2);
    put(Op::reduce);
  }

  template <class Items, class Put>
  void tuple(const Items& items, Put put_item) {
    const std::size_t count = items.size();
    if (count == 0) {
      put(Op::empty_tuple);
      return;
    }
    if (count > 3) {
      put(Op::mark);
    }
    for (const auto& item : items) {
      put_item(item);
    }
    put(count == 1 ? Op::tuple1 : count == 2 ? Op::tuple2 : count == 3 ? Op::tuple3 : Op::tuple);
  }

 private:
  std::unordered_map<std::string, std::uint32_t> memo_;
  std::string out_;
};

}  // namespace danling::inline v0::formats
