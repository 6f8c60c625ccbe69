// Result: the named numbers of an epoch, a step or an evaluation, in order, nested by split.
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
  /// An array of two or more dimensions in row-major order, such as a confusion matrix. One dimension is a list.
  struct Array {
    std::vector<std::int64_t> shape;
    std::vector<double> values;

    bool operator==(const Array&) const = default;
    /// Returns a text such as `[[1, 2], [3, 4]]`; `number` formats each number.
    std::string text(const std::function<std::string(double)>& number, std::string_view separator = ", ") const;
  };
  using Value = std::variant<double, std::vector<double>, Result, Array>;

  bool empty() const { return entries_.empty(); }
  std::size_t size() const;
  std::vector<Entry>::const_iterator begin() const;
  std::vector<Entry>::const_iterator end() const;

  /// Adds or replaces an entry.
  void set(std::string_view name, Value value);
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// Returns the value at `name` (no path), or null.
  const Value* find(std::string_view name) const;
  /// Returns the number at `path`, or null. Dots separate the parts of a path; positions select elements of lists and
  /// arrays: "val.loss", "val.losses.mse.1", "val.confusion_matrix.0.1". A name that contains dots is tried whole
  /// first.
  const double* number(std::string_view path) const;
  /// Returns the number at `path`, as number(). @throws MetricError that lists the paths when there is none
  double at(std::string_view path) const;
  /// Returns the nested result at `name`. Adds an empty one if there is none, also in place of a number, list or array.
  Result& operator[](std::string_view name);
  /// Adds or replaces every entry of `other`. Two nested results of one name are merged.
  void merge(const Result& other);

  /// Returns every number with its path. `separator` joins the parts of a path; lists and arrays use positions.
  std::vector<std::pair<std::string, double>> flatten(std::string_view separator = "/") const;

  /// Returns a text such as `loss: 0.1234<tab>acc1: 0.9000`. Each nested result begins a line, indented below the first
  /// level.
  std::string text(int precision = 4) const;

 private:
  std::vector<Entry> entries_;
};

struct Result::Entry {
  std::string name;
  Value value;
};

}  // namespace danling::inline v0
