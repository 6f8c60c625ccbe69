// PickleObjects: creates tensors, their storages, and the plain values that Python pickles as calls. Operands are on a
// stack.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <formats/pickle_graph.hpp>
#include <formats/utf8.hpp>

namespace danling::inline v0::formats {

class PickleObjects : protected PickleGraph {
 protected:
  using PickleGraph::PickleGraph;

  void push(std::uint32_t node) {
    charge(2 * sizeof(node));
    stack_.push_back(node);
  }
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
  std::uint32_t add_entry(Kind kind, Table& table, typename Table::value_type value) {
    charge(2 * sizeof(value));
    table.push_back(std::move(value));
    return add(kind, static_cast<std::int64_t>(table.size() - 1));
  }

  template <class Table>
  void push_entry(Kind kind, Table& table, typename Table::value_type value) {
    push(add_entry(kind, table, std::move(value)));
  }

  void push_text(std::string_view text) {
    if (find_invalid_utf8(text) != std::string_view::npos) {
      refuse("UTF-8 text, got other bytes");
    }
    charge(text.size() + block_size);
    push_entry(Kind::text, texts_, std::string(text));
  }

  void push_bytes(std::string bytes) {
    charge(bytes.size() + block_size);
    push_entry(Kind::bytes, texts_, std::move(bytes));
  }

  void push_items(Kind kind, std::vector<std::uint32_t> items) {
    charge(items.size() * sizeof(std::uint32_t) + (items.empty() ? 0 : block_size));
    push_entry(kind, items_, std::move(items));
  }

  /// Pushes a global; refuses unknown ones.
  void push_global(std::string_view module, std::string_view name);
  /// Pushes a storage. `id` is ('storage', class, key, location, number of elements); the location is ignored.
  void push_storage(const std::vector<std::uint32_t>& id);
  /// Pushes the result of a function; the arguments node is a tuple.
  void call(const pickle::Global& function, std::uint32_t arguments_node);
  /// Pushes an empty dict for a dict class, None for chanfig's NULL, and an object of a known class.
  void make_object(const pickle::Global& type, std::uint32_t arguments_node);
  /// Applies a state to the value on top of the stack: fills an array, drops the attributes of a dict.
  void build(std::uint32_t state_node);

  std::vector<std::uint32_t> stack_;
  std::vector<std::size_t> marks_;

 private:
  void check_hooks(std::uint32_t number);
  std::vector<std::int64_t> integers(std::uint32_t number);
  // Creates a tensor from (storage, offset, sizes, strides, requires_grad, hooks[, dtype][, metadata]).
  void rebuild(const std::vector<std::uint32_t>& arguments, bool names_dtype);
  void read_metadata(std::uint32_t number, TensorRecord& record);
  void push_tensor(TensorRecord record);
  void call_plain(pickle::Callable callable, const std::vector<std::uint32_t>& arguments);
  void call_array(pickle::Callable callable, const std::vector<std::uint32_t>& arguments);
  void check_arguments(bool sound, const char* what, std::size_t count) const;
  DType array_dtype(std::uint32_t number) const;
  void check_array_dtype(DType dtype, std::uint32_t state) const;
  // Adds the `tolist()` of an array: numbers in nested lists, one level per dimension.
  std::uint32_t add_array(DType dtype, std::uint32_t shape, std::uint32_t bytes_node, bool column_major);
  std::uint32_t add_array_part(DType dtype, std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides,
                               std::string_view bytes);
  std::uint32_t add_array_number(DType dtype, std::string_view bytes);

  std::unordered_map<std::string, std::size_t> storage_numbers_;
};

}  // namespace danling::inline v0::formats
