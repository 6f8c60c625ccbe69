// A pickle machine without calls: opcodes in, a graph of plain values and tensor records out.
#include <string>
#include <unordered_map>

#include <danling/core/error.hpp>
#include <danling/formats/pickle.hpp>

#include "little_endian.hpp"
#include "pickle_graph.hpp"
#include "pickle_opcodes.hpp"
#include "utf8.hpp"

namespace danling::inline v0::formats {
namespace {

using pickle::Callable;
using pickle::Global;
using pickle::Op;

class PickleReader : private PickleGraph {
 public:
  PickleReader(std::string_view bytes, std::string_view source) : PickleGraph(bytes.size(), source), bytes_(bytes) {}

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

  // --- stack

  void push(std::uint32_t node) { stack_.push_back(node); }
  void push(Kind kind, std::int64_t value = 0) { push(add(kind, value)); }

  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  std::uint32_t pop() {
    if (stack_.size() <= floor()) {
      refuse("a value on the stack, got none");
    }
    const std::uint32_t out = stack_.back();
    stack_.pop_back();
    return out;
  }

  std::uint32_t top() const {
    if (stack_.size() <= floor()) {
      refuse("a value on the stack, got none");
    }
    return stack_.back();
  }

  std::vector<std::uint32_t> pop_mark() {
    if (marks_.empty()) {
      refuse("a mark on the stack, got none");
    }
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<std::uint32_t> out(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return out;
  }

  template <class Table>
  void push_entry(Kind kind, Table& table, typename Table::value_type value) {
    charge(sizeof(value));
    table.push_back(std::move(value));
    push(kind, static_cast<std::int64_t>(table.size() - 1));
  }

  void push_text(std::string_view text) {
    if (find_invalid_utf8(text) != std::string_view::npos) {
      refuse("UTF-8 text, got other bytes");
    }
    push_entry(Kind::text, texts_, std::string(text));
    charge(text.size());
  }

  void push_bytes(std::string bytes) {
    charge(bytes.size());
    push_entry(Kind::bytes, texts_, std::move(bytes));
  }

  void push_items(Kind kind, std::vector<std::uint32_t> items) {
    charge(items.size() * sizeof(std::uint32_t));
    push_entry(kind, items_, std::move(items));
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
                     : refuse("an opcode for plain values, got ", name, ", which is not read");
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
        marks_.push_back(stack_.size());
        return true;
      case Op::empty_list:
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
      case Op::appends:
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
    charge(more.size() * sizeof(std::uint32_t));
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

  static constexpr std::uint32_t kNothing = 0xffffffff;

  void put_memo(std::size_t number) {
    // Each entry costs its pickle at least a byte, so numbers beyond its size are not honest.
    if (number >= bytes_.size()) {
      refuse("a memo number below ", bytes_.size(), ", got ", number);
    }
    if (number >= memo_.size()) {
      memo_.resize(number + 1, kNothing);
    }
    memo_[number] = top();
  }

  void get_memo(std::size_t number) {
    if (number >= memo_.size() || memo_[number] == kNothing) {
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
        call(global(pop()).callable, arguments);
        return true;
      }
      case Op::build:
        pop();
        if (!node(top(), Kind::map).ordered) {
          refuse("attributes of an OrderedDict, got a plain dict");
        }
        return true;
      default:
        return false;
    }
  }

  void push_global(std::string_view module, std::string_view name) {
    const auto found = pickle::find_global(module, name);
    if (!found) {
      refuse("plain values and tensors, got the global ",
             quote(concat(module.substr(0, 200), ".", name.substr(0, 200))), ", which is not read");
    }
    push_entry(Kind::global, globals_, *found);
  }

  // ('storage', class, key, location, number of elements); where it was does not matter.
  void push_storage(const std::vector<std::uint32_t>& id) {
    if (id.size() != 5 || text(id[0]) != "storage") {
      refuse("the identity of a storage in 5 parts, got another one");
    }
    const Global& type = global(id[1]);
    if (type.callable != Callable::typed_storage && type.callable != Callable::untyped_storage) {
      refuse("a storage class, got another global");
    }
    text(id[3]);
    const std::string& key = text(id[2]);
    const std::int64_t count = integer(id[4]);
    const bool typed = type.callable == Callable::typed_storage;
    std::int64_t size = 0;
    if (count < 0 ||
        __builtin_mul_overflow(count, static_cast<std::int64_t>(typed ? dtype_size(type.dtype) : 1), &size)) {
      refuse("a storage size in 63 bits, got ", count, " elements");
    }
    const auto [found, added] = storage_numbers_.try_emplace(key, storages_.size());
    if (added) {
      charge(sizeof(PickledStorage) + 2 * key.size());
      storages_.push_back({key, static_cast<std::uint64_t>(size)});
    } else if (storages_[found->second].size != static_cast<std::uint64_t>(size)) {
      refuse("storage ", quote(key), " with ", storages_[found->second].size, " bytes as before, got ", size);
    }
    push_entry(Kind::storage, uses_, StorageUse{found->second, typed, type.dtype});
  }

  void call(Callable callable, std::uint32_t arguments_node) {
    const auto& arguments = tuple(arguments_node);
    const auto need = [&](bool sound, const char* what) {
      if (!sound) {
        refuse("arguments of ", what, ", got ", arguments.size(), " others");
      }
    };
    switch (callable) {
      case Callable::ordered_dict:
        need(arguments.empty(), "an empty OrderedDict");
        push_items(Kind::map, {});
        nodes_[stack_.back()].ordered = true;
        return;
      case Callable::size:
        need(arguments.size() == 1, "torch.Size");
        tuple(arguments[0]);
        push(arguments[0]);
        return;
      case Callable::encode: {
        need(arguments.size() == 2 && text(arguments[1]) == "latin1", "_codecs.encode for bytes");
        bool ok = true;
        const std::string& source = text(arguments[0]);
        charge(source.size());
        std::string encoded = utf8_to_latin1(source, ok);
        need(ok, "_codecs.encode for bytes");
        push_bytes(std::move(encoded));
        return;
      }
      case Callable::make_bytes:
        need(arguments.size() <= 1, "bytes");
        arguments.empty() ? push_bytes({}) : (node(arguments[0], Kind::bytes), push(arguments[0]));
        return;
      case Callable::rebuild_tensor_v2:
        need(arguments.size() == 6 || arguments.size() == 7, "_rebuild_tensor_v2");
        rebuild(arguments, false);
        return;
      case Callable::rebuild_tensor_v3:
        need(arguments.size() == 7 || arguments.size() == 8, "_rebuild_tensor_v3");
        rebuild(arguments, true);
        return;
      case Callable::rebuild_parameter: {
        need(arguments.size() == 3, "_rebuild_parameter");
        TensorRecord record = tensors_[static_cast<std::size_t>(node(arguments[0], Kind::tensor).integer)];
        record.requires_grad = node(arguments[1], Kind::boolean).integer != 0;
        check_hooks(arguments[2]);
        push_tensor(std::move(record));
        return;
      }
      default:
        refuse("a function that makes a value, got a type");
    }
  }

  void check_hooks(std::uint32_t number) {
    if (nodes_[number].kind != Kind::none && !items(node(number, Kind::map)).empty()) {
      refuse("a tensor without hooks, got hooks");
    }
  }

  std::vector<std::int64_t> integers(std::uint32_t number) {
    const auto& numbers = tuple(number);
    if (numbers.size() > 64) {
      refuse("at most 64 dimensions, got ", numbers.size());
    }
    std::vector<std::int64_t> out;
    for (const auto item : numbers) {
      out.push_back(integer(item));
    }
    return out;
  }

  // (storage, offset, sizes, strides, requires_grad, hooks[, dtype][, metadata])
  void rebuild(const std::vector<std::uint32_t>& arguments, bool names_dtype) {
    const StorageUse& use = uses_[static_cast<std::size_t>(node(arguments[0], Kind::storage).integer)];
    TensorRecord record;
    record.storage = use.storage;
    record.dtype = use.dtype;
    if (names_dtype) {
      const Global& dtype = global(arguments[6]);
      if (dtype.callable != Callable::dtype) {
        refuse("a dtype, got another global");
      }
      record.dtype = dtype.dtype;
    } else if (!use.typed) {
      refuse("a typed storage, got an untyped one");
    }
    record.offset = integer(arguments[1]);
    record.sizes = integers(arguments[2]);
    record.strides = integers(arguments[3]);
    record.requires_grad = node(arguments[4], Kind::boolean).integer != 0;
    check_hooks(arguments[5]);
    const std::size_t metadata = names_dtype ? 7 : 6;
    if (arguments.size() > metadata && nodes_[arguments[metadata]].kind != Kind::none) {
      read_metadata(arguments[metadata], record);
    }
    push_tensor(std::move(record));
  }

  void read_metadata(std::uint32_t number, TensorRecord& record) {
    const auto& flags = items(node(number, Kind::map));
    for (std::size_t i = 0; i + 1 < flags.size(); i += 2) {
      const std::string& name = text(flags[i]);
      const bool value = node(flags[i + 1], Kind::boolean).integer != 0;
      if (name != "conj" && name != "neg") {
        refuse("tensor metadata 'conj' or 'neg', got ", quote(name));
      }
      (name == "conj" ? record.conjugate : record.negative) = value;
    }
  }

  void push_tensor(TensorRecord record) {
    const std::string reason = misfit(record, storages_[record.storage].size);
    if (!reason.empty()) {
      refuse(reason);
    }
    charge(16 * record.sizes.size());
    push_entry(Kind::tensor, tensors_, std::move(record));
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
  std::vector<std::uint32_t> stack_;
  std::vector<std::size_t> marks_;
  std::vector<std::uint32_t> memo_;
  std::unordered_map<std::string, std::size_t> storage_numbers_;
};

}  // namespace

PickledTree read_pickle(std::string_view bytes, std::string_view source) { return PickleReader(bytes, source).read(); }

}  // namespace danling::inline v0::formats
