// Writes trees as pickles that Python loads without running code.
#include <limits>

#include <danling/core/error.hpp>
#include <danling/formats/detail/pickle.hpp>

#include <formats/pickle_emitter.hpp>
#include <formats/utf8.hpp>

namespace danling::inline v0::formats {
namespace {

class PickleWriter : private PickleEmitter {
 public:
  PickleWriter(const RecordTree& tree, std::span<const std::uint64_t> storage_sizes) : sizes_(storage_sizes) {
    first_dtype_.resize(storage_sizes.size(), dtype_count);
    mixed_.resize(storage_sizes.size(), false);
    survey(tree, "", 0);
    value(tree);
    put(Op::stop);
  }

  using PickleEmitter::take;

 private:
  // Checks all values before writing, so that writing cannot fail. `path` is for messages.
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

  // Numbers cannot fail: long lists of them need no path.
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
    // Python takes the type of a storage from its first tensor, unless it is untyped.
    mixed_[record.storage] =
        mixed_[record.storage] || first != dtype || sizes_[record.storage] % dtype_size(record.dtype) != 0;
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
};

}  // namespace

std::string write_pickle(const RecordTree& tree, std::span<const std::uint64_t> storage_sizes) {
  return PickleWriter(tree, storage_sizes).take();
}

}  // namespace danling::inline v0::formats
