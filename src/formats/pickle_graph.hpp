// PickleGraph: the values of a pickle during reading. They are nodes of one table and refer to each other by number,
// since pickles share values and may contain cycles, unlike trees. At the end the nodes are copied into a tree.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/formats/detail/pickle.hpp>

#include <formats/pickle_globals.hpp>

namespace danling::inline v0::formats {

enum class Kind : std::uint8_t {
  none,
  boolean,
  integer,
  number,
  text,
  bytes,
  list,
  tuple,
  map,
  tensor,
  storage,
  global,
  array,  // a NumPy array without its state
  array_dtype,
  record
};

inline constexpr const char* kind_names[] = {"None",
                                             "a bool",
                                             "an integer",
                                             "a number",
                                             "text",
                                             "bytes",
                                             "a list",
                                             "a tuple",
                                             "a dict",
                                             "a tensor",
                                             "a storage",
                                             "a global",
                                             "an array without content",
                                             "a numpy dtype",
                                             "an object"};

struct Node {
  Kind kind = Kind::none;
  bool ordered = false;  // for a map: may have attributes, as an OrderedDict may
  // A bool or an integer, the bits of a number, a DType, or an index into the table of the kind.
  std::int64_t integer = 0;
};

/// A reference of a tensor to a storage.
struct StorageUse {
  std::size_t storage;
  bool typed;
  DType dtype;
};

/// An object of a known class: the name of the class, and the number of the node with its state.
struct RecordObject {
  std::string_view name;
  std::uint32_t state;
};

class PickleGraph {
 public:
  /// The memory limit is proportional to `stored_size`, the input's size in its file, which is less than `input_size`
  /// if compressed. `source` names the input in messages.
  PickleGraph(std::size_t input_size, std::uint64_t stored_size, std::string_view source)
      : stored_size_(stored_size),
        compressed_(stored_size < input_size),
        source_(source),
        budget_((std::uint64_t{1} << 20) + 256 * stored_size) {}

 protected:
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail<CheckpointError>("checkpoint.read", "expected ", parts..., " (", source_, ", byte ", op_at_, ")");
  }

  // Overhead of a heap block, in bytes.
  static constexpr std::uint64_t block_size = 32;

  // Charges memory against the limit. Callers count table entries twice, since a growing table may have twice the
  // capacity.
  void charge(std::uint64_t amount) {
    if (amount > budget_) {
      refuse("values in proportion to ", stored_size_, compressed_ ? " compressed" : "",
             " bytes of pickle, got far more", compressed_ ? "; save the archive without compression" : "");
    }
    budget_ -= amount;
  }

  std::uint32_t add(Kind kind, std::int64_t value = 0) {
    charge(2 * sizeof(Node));
    nodes_.push_back(Node{kind, false, value});
    return static_cast<std::uint32_t>(nodes_.size() - 1);
  }

  const Node& node(std::uint32_t number, Kind kind) const {
    const Node& found = nodes_[number];
    if (found.kind != kind) {
      refuse(kind_names[static_cast<int>(kind)], ", got ", kind_names[static_cast<int>(found.kind)]);
    }
    return found;
  }

  const std::string& text(std::uint32_t number) const {
    return texts_[static_cast<std::size_t>(node(number, Kind::text).integer)];
  }
  const std::vector<std::uint32_t>& tuple(std::uint32_t number) const {
    return items_[static_cast<std::size_t>(node(number, Kind::tuple).integer)];
  }
  std::vector<std::uint32_t>& items(const Node& node) { return items_[static_cast<std::size_t>(node.integer)]; }
  std::int64_t integer(std::uint32_t number) const { return node(number, Kind::integer).integer; }
  const pickle::Global& global(std::uint32_t number) const {
    return globals_[static_cast<std::size_t>(node(number, Kind::global).integer)];
  }

  /// Copies a node and its children into a tree. @throws CheckpointError for cycles and deep nesting
  RecordTree tree(std::uint32_t root) { return convert(root, 0); }

  std::size_t op_at_ = 0;  // position of the current opcode, for messages
  std::vector<Node> nodes_;
  std::vector<std::string> texts_;
  std::vector<std::vector<std::uint32_t>> items_;
  std::vector<TensorRecord> tensors_;
  std::vector<StorageUse> uses_;
  std::vector<pickle::Global> globals_;
  std::vector<PickledStorage> storages_;
  std::vector<RecordObject> records_;
  bool reads_records_ = false;

 private:
  RecordTree convert(std::size_t number, std::size_t depth);
  void check_depth(std::size_t depth) const;
  RecordTree::List convert_items(const std::vector<std::uint32_t>& numbers, std::size_t depth);
  bool has_plain_keys(const std::vector<std::uint32_t>& pairs) const;
  RecordTree convert_pairs(const std::vector<std::uint32_t>& pairs, std::size_t depth);
  RecordTree::Map convert_map(const std::vector<std::uint32_t>& pairs, std::size_t depth);

  std::uint64_t stored_size_;
  bool compressed_;
  std::string_view source_;
  std::uint64_t budget_;
};

}  // namespace danling::inline v0::formats
