// Writes trees as pickles that Python reads without running code.
#include <bit>
#include <limits>
#include <unordered_map>

#include <danling/core/error.hpp>
#include <danling/formats/pickle.hpp>

#include "little_endian.hpp"
#include "pickle_opcodes.hpp"
#include "utf8.hpp"

namespace danling::inline v0::formats {
namespace {

using pickle::Op;

class PickleWriter {
 public:
  PickleWriter(const RecordTree& tree, std::span<const std::uint64_t> storage_sizes) : sizes_(storage_sizes) {
    first_dtype_.resize(storage_sizes.size(), dtype_count);
    mixed_.resize(storage_sizes.size(), false);
    survey(tree, "", 0);
    put(Op::proto);
    out_.push_back(2);
    value(tree);
    put(Op::stop);
  }

  std::string take() { return std::move(out_); }

 private:
  // Checks everything first, with the path for messages, so that writing cannot fail.
  void survey(const RecordTree& tree, const std::string& path, std::size_t depth) {
    if (tree.is_string()) {
      check_text(tree.string(), path);
    } else if (tree.is_tensor()) {
      survey_tensor(tree.tensor(), path);
    }
    if (!tree.is_list() && !tree.is_tuple() && !tree.is_map()) {
      return;
    }
    if (depth >= max_depth) {
      fail<CheckpointError>("checkpoint.write", "expected at most ", max_depth, " levels of nesting, got more at ",
                            quote(path.substr(0, 60)));
    }
    if (tree.is_map()) {
      for (const auto& entry : tree.map()) {
        const std::string name = entry.key.is_string() ? entry.key.string() : entry.key.text();
        check_text(name, path);
        survey(entry.value, path.empty() ? name : concat(path, ".", name), depth + 1);
      }
      return;
    }
    const auto& items = tree.items();
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (can_fail(items[i])) {
        survey(items[i], concat(path, "[", i, "]"), depth + 1);
      }
    }
  }

  // Long lists hold numbers: skip building their path.
  static bool can_fail(const RecordTree& tree) {
    return tree.is_string() || tree.is_tensor() || tree.is_list() || tree.is_tuple() || tree.is_map();
  }

  static void check_text(const std::string& text, const std::string& path) {
    const std::size_t invalid = find_invalid_utf8(text);
    if (invalid != std::string::npos) {
      fail<CheckpointError>("checkpoint.write", "expected UTF-8 text, got byte ",
                            static_cast<unsigned char>(text[invalid]), " at position ", invalid, " (key ", quote(path),
                            "); store it as bytes");
    }
    check<CheckpointError>(text.size() <= std::numeric_limits<std::uint32_t>::max(), "checkpoint.write",
                           "expected text of less than 4 GiB, got ", text.size(), " bytes (key ", quote(path), ")");
  }

  void survey_tensor(const TensorRecord& record, const std::string& path) {
    const std::string reason =
        record.sizes.size() > max_dims    ? concat("at most ", max_dims, " dimensions, got ", record.sizes.size())
        : record.storage >= sizes_.size() ? concat("one of ", sizes_.size(), " storages, got number ", record.storage)
                                          : check_view(record, sizes_[record.storage]);
    if (!reason.empty()) {
      fail<CheckpointError>("checkpoint.write", "expected ", reason, " (key ", quote(path), ")");
    }
    auto& first = first_dtype_[record.storage];
    const auto dtype = static_cast<std::size_t>(record.dtype);
    if (first == dtype_count) {
      first = dtype;
    }
    // Python types a storage by its first tensor, unless it is written as untyped.
    mixed_[record.storage] =
        mixed_[record.storage] || first != dtype || sizes_[record.storage] % dtype_size(record.dtype) != 0;
  }

  void put(Op op) { out_.push_back(static_cast<char>(op)); }

  // Content of a memo entry: 't' text, 'g' global.
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

  // Text that probably repeats: keys, and the words of tensors.
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
      // Two's complement in the fewest bytes that keep the sign.
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

  // Protocol 2 has no bytes; Python writes them as text to be encoded.
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

  void tensor(const TensorRecord& record) {
    const auto dtype = static_cast<std::size_t>(record.dtype);
    const std::string_view storage_class =
        mixed_[record.storage] ? std::string_view() : dtype_storage_class(record.dtype);
    const bool untyped = storage_class.empty();
    global("torch._utils", untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
    put(Op::mark);
    put(Op::mark);
    word("storage");
    untyped ? global("torch.storage", "UntypedStorage") : global("torch", storage_class);
    text(to_text(static_cast<std::uint64_t>(record.storage)));
    word("cpu");
    const std::uint64_t size = sizes_[record.storage];
    integer(static_cast<std::int64_t>(untyped ? size : size / dtype_size(static_cast<DType>(dtype))));
    put(Op::tuple);
    put(Op::binpersid);
    integer(record.offset);
    const auto put_integer = [this](std::int64_t value) { integer(value); };
    tuple(record.sizes, put_integer);
    tuple(record.strides, put_integer);
    boolean(record.requires_grad);
    global("collections", "OrderedDict");  // hooks: none
    put(Op::empty_tuple);
    put(Op::reduce);
    if (untyped) {
      global("torch", dtype_name(record.dtype));
    }
    if (record.conjugate || record.negative) {
      put(Op::empty_dict);
      for (const auto& [flag, name] : {std::pair(record.conjugate, "conj"), std::pair(record.negative, "neg")}) {
        if (flag) {
          word(name);
          boolean(true);
          put(Op::setitem);
        }
      }
    }
    put(Op::tuple);
    put(Op::reduce);
  }

  void map(const RecordTree::Map& map) {
    put(Op::empty_dict);
    if (map.empty()) {
      return;
    }
    put(Op::mark);
    for (const auto& entry : map) {
      entry.key.is_string() ? word(entry.key.string()) : integer(entry.key.integer());
      value(entry.value);
    }
    put(Op::setitems);
  }

  void value(const RecordTree& tree) {
    if (tree.is_null()) {
      put(Op::none);
    } else if (tree.is_bool()) {
      boolean(tree.boolean());
    } else if (tree.is_integer()) {
      integer(tree.integer());
    } else if (tree.is_double()) {
      number(tree.number());
    } else if (tree.is_string()) {
      text(tree.string());
    } else if (tree.is_bytes()) {
      bytes(tree.bytes().data);
    } else if (tree.is_tensor()) {
      tensor(tree.tensor());
    } else if (tree.is_map()) {
      map(tree.map());
    } else if (tree.is_tuple()) {
      tuple(tree.tuple(), [this](const RecordTree& item) { value(item); });
    } else {
      put(Op::empty_list);
      if (!tree.list().empty()) {
        put(Op::mark);
        for (const auto& item : tree.list()) {
          value(item);
        }
        put(Op::appends);
      }
    }
  }

  std::span<const std::uint64_t> sizes_;
  std::vector<std::size_t> first_dtype_;
  std::vector<bool> mixed_;
  std::unordered_map<std::string, std::uint32_t> memo_;
  std::string out_;
};

}  // namespace

std::string write_pickle(const RecordTree& tree, std::span<const std::uint64_t> storage_sizes) {
  return PickleWriter(tree, storage_sizes).take();
}

}  // namespace danling::inline v0::formats
