// A pickle machine without calls: reads opcodes into a graph of plain values and tensor records.
#include <string>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/formats/detail/pickle.hpp>

#include <formats/little_endian.hpp>
#include <formats/pickle_objects.hpp>
#include <formats/pickle_opcodes.hpp>
#include <formats/pickle_records.hpp>
#include <formats/utf8.hpp>

namespace danling::inline v0::formats {
namespace {

using pickle::Op;

class PickleReader : private PickleObjects {
 public:
  PickleReader(std::string_view bytes, std::string_view source, std::uint64_t stored_size)
      : PickleObjects(bytes.size(), stored_size, source), bytes_(bytes) {}

  void accept_records() { reads_records_ = true; }

  PickledTree read() {
    const std::uint32_t root = run();
    PickledTree out;
    out.tree = tree(root);
    out.storages = std::move(storages_);
    return out;
  }

 private:
  // --- input

  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_) {
      refuse(count, " more bytes, got ", bytes_.size() - at_, ": the pickle was cut off");
    }
    const std::string_view out = bytes_.substr(at_, static_cast<std::size_t>(count));
    at_ += static_cast<std::size_t>(count);
    return out;
  }

  template <class T>
  T take_little() {
    return get_little<T>(take(sizeof(T)), 0);
  }

  std::string_view take_line() {
    const std::size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) {
      refuse("a line, got the end of the pickle");
    }
    const std::string_view out = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return out;
  }

  // --- opcodes

  std::uint32_t run() {
    for (;;) {
      op_at_ = at_;
      const auto byte = static_cast<std::uint8_t>(take(1)[0]);
      const auto op = static_cast<Op>(byte);
      if (op == Op::stop) {
        const std::uint32_t root = pop();
        if (!stack_.empty() || !marks_.empty() || at_ != bytes_.size()) {
          refuse("one value and the end of the pickle, got more");
        }
        return root;
      }
      if (!constant(op) && !collection(op) && !memory(op) && !object(op)) {
        const std::string_view name = pickle::refused_name(byte);
        name.empty() ? refuse("a pickle opcode, got byte ", byte)
                     : refuse("an opcode for plain values, got ", name, ", which is not supported");
      }
    }
  }

  bool constant(Op op) {
    switch (op) {
      case Op::none:
        push(Kind::none);
        return true;
      case Op::newtrue:
        push(Kind::boolean, 1);
        return true;
      case Op::newfalse:
        push(Kind::boolean, 0);
        return true;
      case Op::binint:
        push(Kind::integer, static_cast<std::int32_t>(take_little<std::uint32_t>()));
        return true;
      case Op::binint1:
        push(Kind::integer, take_little<std::uint8_t>());
        return true;
      case Op::binint2:
        push(Kind::integer, take_little<std::uint16_t>());
        return true;
      case Op::long1:
        push_long(take(take_little<std::uint8_t>()));
        return true;
      case Op::long4:
        push_long(take(take_little<std::uint32_t>()));
        return true;
      case Op::binfloat:
        push_number(take(8));
        return true;
      case Op::short_binunicode:
        push_text(take(take_little<std::uint8_t>()));
        return true;
      case Op::binunicode:
        push_text(take(take_little<std::uint32_t>()));
        return true;
      case Op::binunicode8:
        push_text(take(take_little<std::uint64_t>()));
        return true;
      case Op::short_binbytes:
        push_bytes(std::string(take(take_little<std::uint8_t>())));
        return true;
      case Op::binbytes:
        push_bytes(std::string(take(take_little<std::uint32_t>())));
        return true;
      case Op::binbytes8:
      case Op::bytearray8:
        push_bytes(std::string(take(take_little<std::uint64_t>())));
        return true;
      default:
        return false;
    }
  }

  void push_long(std::string_view bytes) {
    if (bytes.size() > 8) {
      refuse("an integer of at most 64 bits with its sign, got ", bytes.size(), " bytes");
    }
    std::uint64_t value = !bytes.empty() && bytes.back() < 0 ? ~std::uint64_t{0} : 0;
    for (std::size_t i = bytes.size(); i-- > 0;) {
      value = (value << 8) | static_cast<unsigned char>(bytes[i]);
    }
    push(Kind::integer, static_cast<std::int64_t>(value));
  }

  void push_number(std::string_view bytes) {
    std::uint64_t bits = 0;
    for (const char c : bytes) {
      bits = (bits << 8) | static_cast<unsigned char>(c);
    }
    push(Kind::number, static_cast<std::int64_t>(bits));
  }

  bool collection(Op op) {
    switch (op) {
      case Op::mark:
        charge(2 * sizeof(std::size_t));
        marks_.push_back(stack_.size());
        return true;
      case Op::empty_list:
      case Op::empty_set:  // sets become lists
        push_items(Kind::list, {});
        return true;
      case Op::empty_dict:
        push_items(Kind::map, {});
        return true;
      case Op::empty_tuple:
        push_items(Kind::tuple, {});
        return true;
      case Op::tuple:
        push_items(Kind::tuple, pop_mark());
        return true;
      case Op::tuple1:
        short_tuple(1);
        return true;
      case Op::tuple2:
        short_tuple(2);
        return true;
      case Op::tuple3:
        short_tuple(3);
        return true;
      case Op::append: {
        const std::uint32_t item = pop();
        extend(Kind::list, {item});
        return true;
      }
      case Op::frozenset:
        push_items(Kind::list, pop_mark());
        return true;
      case Op::appends:
      case Op::additems:
        extend(Kind::list, pop_mark());
        return true;
      case Op::setitem: {
        const std::uint32_t value = pop();
        const std::uint32_t key = pop();
        extend(Kind::map, {key, value});
        return true;
      }
      case Op::setitems:
        extend(Kind::map, pop_mark());
        return true;
      default:
        return false;
    }
  }

  void short_tuple(std::size_t count) {
    std::vector<std::uint32_t> out(count);
    for (std::size_t i = count; i-- > 0;) {
      out[i] = pop();
    }
    push_items(Kind::tuple, std::move(out));
  }

  void extend(Kind kind, const std::vector<std::uint32_t>& more) {
    auto& all = items(node(top(), kind));
    if (kind == Kind::map && more.size() % 2 != 0) {
      refuse("keys and values in pairs, got ", more.size(), " values");
    }
    charge(2 * more.size() * sizeof(std::uint32_t) + (all.empty() ? block_size : 0));
    all.insert(all.end(), more.begin(), more.end());
  }

  bool memory(Op op) {
    switch (op) {
      case Op::proto:
        if (const auto version = take_little<std::uint8_t>(); version < 2 || version > 5) {
          refuse("pickle protocol 2 to 5, got ", version);
        }
        return true;
      case Op::frame: {
        const auto size = take_little<std::uint64_t>();
        if (size > bytes_.size() - at_) {
          refuse("a frame of at most ", bytes_.size() - at_, " bytes, got ", size);
        }
        return true;
      }
      case Op::binput:
        put_memo(take_little<std::uint8_t>());
        return true;
      case Op::long_binput:
        put_memo(take_little<std::uint32_t>());
        return true;
      case Op::memoize:
        put_memo(memo_.size());
        return true;
      case Op::binget:
        get_memo(take_little<std::uint8_t>());
        return true;
      case Op::long_binget:
        get_memo(take_little<std::uint32_t>());
        return true;
      default:
        return false;
    }
  }

  static constexpr std::uint32_t nothing = 0xffffffff;

  void put_memo(std::size_t number) {
    // Each memo entry takes at least one byte of the pickle, so larger numbers are invalid.
    if (number >= bytes_.size()) {
      refuse("a memo number below ", bytes_.size(), ", got ", number);
    }
    if (number >= memo_.size()) {
      charge(2 * (number + 1 - memo_.size()) * sizeof(std::uint32_t));
      memo_.resize(number + 1, nothing);
    }
    memo_[number] = top();
  }

  void get_memo(std::size_t number) {
    if (number >= memo_.size() || memo_[number] == nothing) {
      refuse("a memo number that was put before, got ", number);
    }
    push(memo_[number]);
  }

  bool object(Op op) {
    switch (op) {
      case Op::global: {
        const std::string_view module = take_line();
        push_global(module, take_line());
        return true;
      }
      case Op::stack_global: {
        const std::uint32_t name = pop();
        const std::uint32_t module = pop();
        push_global(text(module), text(name));
        return true;
      }
      case Op::binpersid:
        push_storage(tuple(pop()));
        return true;
      case Op::reduce: {
        const std::uint32_t arguments = pop();
        call(pickle::Global(global(pop())), arguments);
        return true;
      }
      case Op::newobj: {
        const std::uint32_t arguments = pop();
        make_object(pickle::Global(global(pop())), arguments);
        return true;
      }
      case Op::build:
        build(pop());
        return true;
      default:
        return false;
    }
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
  std::vector<std::uint32_t> memo_;
};

}  // namespace

PickledTree read_pickle(std::string_view bytes, std::string_view source) {
  return read_pickle(bytes, source, bytes.size());
}

PickledTree read_pickle(std::string_view bytes, std::string_view source, std::uint64_t stored_size) {
  return PickleReader(bytes, source, stored_size).read();
}

RecordTree read_record_objects(std::string_view bytes, std::string_view source) {
  PickleReader reader(bytes, source, bytes.size());
  reader.accept_records();
  return std::move(reader.read().tree);
}

}  // namespace danling::inline v0::formats
