// Tree: a tree of values, the content of states and checkpoints. The tensor type is a parameter, so that the parsers in
// formats/ (without LibTorch) and the rest (at::Tensor) share it.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <danling/core/error.hpp>

namespace danling::inline v0 {

/// Key of a map: a string, or an integer (optimizer states are keyed by parameter number).
class Key {
 public:
  Key(std::string name) : value_(std::move(name)) {}         // NOLINT(google-explicit-constructor)
  Key(std::string_view name) : value_(std::string(name)) {}  // NOLINT(google-explicit-constructor)
  Key(const char* name) : value_(std::string(name)) {}       // NOLINT(google-explicit-constructor)
  template <std::integral I>
    requires(!std::same_as<I, bool>)
  Key(I number)  // NOLINT(google-explicit-constructor)
      : value_(static_cast<std::int64_t>(number)) {}

  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  /// @throws StateError if the key is an integer
  const std::string& string() const {
    detail::check<StateError>(is_string(), "state.key", "expected a string key, got ", text());
    return std::get<std::string>(value_);
  }
  /// @throws StateError if the key is a string
  std::int64_t integer() const {
    detail::check<StateError>(!is_string(), "state.key", "expected an integer key, got ", text());
    return std::get<std::int64_t>(value_);
  }
  /// For messages: `'name'` or `3`.
  std::string text() const {
    return is_string() ? detail::quote(std::get<std::string>(value_)) : to_text(std::get<std::int64_t>(value_));
  }
  bool operator==(const Key&) const = default;

  struct Hash {
    std::size_t operator()(const Key& key) const noexcept {
      return std::hash<std::variant<std::int64_t, std::string>>{}(key.value_);
    }
  };

 private:
  std::variant<std::int64_t, std::string> value_;
};

/// Raw bytes, as opposed to text.
struct Bytes {
  std::string data;
  bool operator==(const Bytes&) const = default;
};

/// A value: null, bool, int64, double, string, bytes, tensor, list, tuple, or ordered map.
template <class TensorType>
class Tree {
 public:
  using Tensor = TensorType;
  using Null = std::monostate;
  using List = std::vector<Tree>;
  struct Tuple {
    List items;
  };
  struct Entry;

  /// An ordered map: iterates in the order of insertion.
  class Map {
   public:
    Map() = default;
    Map(std::initializer_list<Entry> entries) {
      for (const auto& entry : entries) {
        set(entry.key, entry.value);
      }
    }

    auto begin() const { return entries_.begin(); }
    auto end() const { return entries_.end(); }
    std::size_t size() const { return entries_.size(); }
    bool empty() const { return entries_.empty(); }

    /// Returns a pointer to the value at `key`, or a null pointer; valid until keys are added or erased.
    const Tree* find(const Key& key) const {
      const std::size_t found = position(key);
      return found == entries_.size() ? nullptr : &entries_[found].value;
    }
    Tree* find(const Key& key) { return const_cast<Tree*>(std::as_const(*this).find(key)); }
    bool contains(const Key& key) const { return find(key) != nullptr; }

    /// Returns the value at `key`. @throws StateError, which lists the existing keys
    const Tree& at(const Key& key) const {
      const Tree* found = find(key);
      if (found == nullptr) {
        std::vector<std::string> known;
        for (const auto& entry : entries_) {
          known.push_back(entry.key.text());
        }
        detail::fail<StateError>("state.at", "expected key ", key.text(), ", got keys [", detail::join(known), "]");
      }
      return *found;
    }

    /// Adds or replaces an entry.
    void set(const Key& key, Tree value) { (*this)[key] = std::move(value); }

    /// Returns the value at `key`; adds a null value if there is none.
    Tree& operator[](const Key& key) {
      const std::size_t found = position(key);
      return found == entries_.size() ? append(key, Tree()) : entries_[found].value;
    }

    /// Adds a key without looking for it; the caller ensures that it is absent.
    Tree& append(Key key, Tree value) {
      entries_.emplace_back(std::move(key), std::move(value));
      if (2 * entries_.size() > slots_.size() && entries_.size() > few) {
        index();
      } else if (!slots_.empty()) {
        take_slot(entries_.size() - 1);
      }
      return entries_.back().value;
    }

    /// Removes `key`; returns true if it existed. Linear in the size of the map.
    bool erase(const Key& key) {
      const std::size_t found = position(key);
      if (found == entries_.size()) {
        return false;
      }
      entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(found));
      if (!slots_.empty()) {
        index();
      }
      return true;
    }

   private:
    // Up to this many keys, a linear search is faster than a hash table.
    static constexpr std::size_t few = 16;

    /// Returns the position of `key` among the entries, or the number of entries if it is absent.
    std::size_t position(const Key& key) const {
      if (slots_.empty()) {
        std::size_t at = 0;
        while (at < entries_.size() && !(entries_[at].key == key)) {
          ++at;
        }
        return at;
      }
      std::size_t slot = first_slot(key);
      while (slots_[slot] != 0 && !(entries_[slots_[slot] - 1].key == key)) {
        slot = (slot + 1) % slots_.size();
      }
      return slots_[slot] == 0 ? entries_.size() : slots_[slot] - 1;
    }
    // Fibonacci hashing, since integers hash to themselves and may share their low bits.
    std::size_t first_slot(const Key& key) const {
      return static_cast<std::size_t>((std::uint64_t{Key::Hash{}(key)} * 0x9e3779b97f4a7c15ULL) >> 32) % slots_.size();
    }
    void take_slot(std::size_t entry) {
      std::size_t slot = first_slot(entries_[entry].key);
      while (slots_[slot] != 0) {
        slot = (slot + 1) % slots_.size();
      }
      slots_[slot] = entry + 1;
    }
    void index() {
      slots_.assign(4 * entries_.size(), 0);
      for (std::size_t entry = 0; entry < entries_.size(); ++entry) {
        take_slot(entry);
      }
    }

    std::vector<Entry> entries_;
    // Open addressing: the position of an entry plus one, or zero. Empty in small maps.
    std::vector<std::size_t> slots_;
  };

  using Value = std::variant<Null, bool, std::int64_t, double, std::string, Bytes, Tensor, List, Tuple, Map>;

  Tree() = default;
  Tree(std::nullptr_t) {}                                     // NOLINT(google-explicit-constructor)
  Tree(const char* text) : value_(std::string(text)) {}       // NOLINT(google-explicit-constructor)
  Tree(std::string_view text) : value_(std::string(text)) {}  // NOLINT(google-explicit-constructor)
  template <std::integral I>
  Tree(I number) {  // NOLINT(google-explicit-constructor)
    if constexpr (std::same_as<I, bool>) {
      value_ = number;
    } else {
      value_ = static_cast<std::int64_t>(number);
    }
  }
  template <std::floating_point F>
  Tree(F number) : value_(static_cast<double>(number)) {}  // NOLINT(google-explicit-constructor)
  Tree(std::string text) : value_(std::move(text)) {}      // NOLINT(google-explicit-constructor)
  Tree(Bytes bytes) : value_(std::move(bytes)) {}          // NOLINT(google-explicit-constructor)
  Tree(Tensor tensor) : value_(std::move(tensor)) {}       // NOLINT(google-explicit-constructor)
  Tree(List list) : value_(std::move(list)) {}             // NOLINT(google-explicit-constructor)
  Tree(Tuple tuple) : value_(std::move(tuple)) {}          // NOLINT(google-explicit-constructor)
  Tree(Map map) : value_(std::move(map)) {}                // NOLINT(google-explicit-constructor)

  const Value& value() const { return value_; }
  Value& value() { return value_; }

  bool is_null() const { return is<Null>(); }
  bool is_bool() const { return is<bool>(); }
  bool is_integer() const { return is<std::int64_t>(); }
  bool is_double() const { return is<double>(); }
  bool is_string() const { return is<std::string>(); }
  bool is_bytes() const { return is<Bytes>(); }
  bool is_tensor() const { return is<Tensor>(); }
  bool is_list() const { return is<List>(); }
  bool is_tuple() const { return is<Tuple>(); }
  bool is_map() const { return is<Map>(); }

  // Each function returns a value of one kind. For any other kind it throws a StateError that names the kind found.
  bool boolean() const { return get<bool>("a bool"); }
  std::int64_t integer() const { return get<std::int64_t>("an integer"); }
  /// A double, or an integer as a double.
  double number() const {
    return is_integer() ? static_cast<double>(std::get<std::int64_t>(value_)) : get<double>("a number");
  }
  // Overloads for temporaries return by value, so `for (auto& entry : part.state_dict().map())` does not dangle.
  const std::string& string() const& { return get<std::string>("a string"); }
  std::string string() && { return std::move(const_cast<std::string&>(string())); }
  const Bytes& bytes() const& { return get<Bytes>("bytes"); }
  Bytes bytes() && { return std::move(const_cast<Bytes&>(bytes())); }
  const Tensor& tensor() const& { return get<Tensor>("a tensor"); }
  Tensor tensor() && { return std::move(const_cast<Tensor&>(tensor())); }
  const List& list() const& { return get<List>("a list"); }
  List& list() & { return const_cast<List&>(std::as_const(*this).list()); }
  List list() && { return std::move(list()); }
  const List& tuple() const& { return get<Tuple>("a tuple").items; }
  List tuple() && { return std::move(const_cast<List&>(tuple())); }
  const Map& map() const& { return get<Map>("a map"); }
  Map& map() & { return const_cast<Map&>(std::as_const(*this).map()); }
  Map map() && { return std::move(map()); }
  /// The items of a list or a tuple.
  const List& items() const& { return is_tuple() ? std::get<Tuple>(value_).items : get<List>("a list or tuple"); }
  List items() && { return std::move(const_cast<List&>(items())); }

  /// Shorthand for `map().at(key)` and `map().find(key)`.
  const Tree& at(const Key& key) const { return map().at(key); }
  const Tree* find(const Key& key) const { return map().find(key); }
  /// Returns the value at `key` of this map, as `Map::operator[]`; a null tree becomes a map first.
  Tree& operator[](const Key& key) {
    if (is_null()) {
      value_ = Map();
    }
    return map()[key];
  }

  /// Returns the name of the value's kind, for messages.
  const char* kind() const {
    static constexpr const char* names[] = {"null",  "bool",     "an integer", "a number", "a string",
                                            "bytes", "a tensor", "a list",     "a tuple",  "a map"};
    return names[value_.index()];
  }

 private:
  template <class T>
  bool is() const {
    return std::holds_alternative<T>(value_);
  }
  template <class T>
  const T& get(const char* expected) const {
    const T* found = std::get_if<T>(&value_);
    if (found == nullptr) [[unlikely]] {
      detail::fail<StateError>("state.read", "expected ", expected, ", got ", kind());
    }
    return *found;
  }

  Value value_;
};

template <class TensorType>
struct Tree<TensorType>::Entry {
  Entry(Key name, Tree content) : key(std::move(name)), value(std::move(content)) {}

  Key key;
  Tree value;
};

}  // namespace danling::inline v0
