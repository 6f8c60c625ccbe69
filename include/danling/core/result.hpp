// Results of an epoch, a step or an evaluation: names to numbers, nested by split, in order.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace danling::inline v0 {

/// An ordered mapping of names to numbers, lists and arrays of numbers, or further results (DanLing's RoundDict).
/// Lookup is linear: results are small.
class Result {
 public:
  struct Entry;
  /// Numbers of two dimensions or more, in row-major order: a confusion matrix. One-dimensional values are lists.
  struct Array {
    std::vector<std::int64_t> shape;
    std::vector<double> values;

    bool operator==(const Array&) const = default;
    /// `[[1, 2], [3, 4]]`, each number formatted by `number`.
    std::string text(const std::function<std::string(double)>& number, std::string_view separator = ", ") const;
  };
  using Value = std::variant<double, std::vector<double>, Result, Array>;

  bool empty() const { return entries_.empty(); }
  std::size_t size() const;
  std::vector<Entry>::const_iterator begin() const;
  std::vector<Entry>::const_iterator end() const;

  /// Adds or replaces.
  void set(std::string_view name, Value value);
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  const Value* find(std::string_view name) const;
  /// The number at `path`, parts joined by dots ("val.loss"; of a list or array by position, "val.losses.mse.1",
  /// "val.confusion_matrix.0.1"), or null.
  const double* number(std::string_view path) const;
  /// The nested result at `name`, added when there is none.
  Result& operator[](std::string_view name);
  /// Adds or replaces every entry of `other`; nested results are merged.
  void merge(const Result& other);

  /// Every number with its path, parts joined by `separator`; elements of lists and arrays by position.
  std::vector<std::pair<std::string, double>> flatten(std::string_view separator = "/") const;

  /// `loss: 0.1234<tab>acc1: 0.9000`, nested results on indented lines of their own.
  std::string text(int precision = 4) const;

 private:
  std::vector<Entry> entries_;
};

struct Result::Entry {
  std::string name;
  Value value;
};

}  // namespace danling::inline v0
