#include "ckpt_compare.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include <danling/core/error.hpp>

#include "ckpt.hpp"
#include "elements.hpp"

namespace danling_command {
namespace {

using danling::detail::concat;
using danling::formats::dtype_name;
using danling::formats::dtype_size;

struct Side {
  TensorFile file;
  std::vector<Leaf> leaves;
  bool has_key = true;
  std::unordered_map<std::string_view, std::vector<std::size_t>> by_key;  // indices of leaves by path

  Side(const std::filesystem::path& path, const std::string& key) : file(path), leaves(leaves_of(file.tree())) {
    has_key = key.empty() ||
              std::any_of(leaves.begin(), leaves.end(), [&](const Leaf& leaf) { return is_below(leaf.path, key); });
    if (has_key && !key.empty()) {
      std::erase_if(leaves, [&](const Leaf& leaf) { return !is_below(leaf.path, key); });
      for (auto& leaf : leaves) {
        const std::string rest = leaf.path.substr(key.size());
        leaf.path = rest.empty() ? key : rest.substr(rest.starts_with('.') ? 1 : 0);
      }
    }
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      by_key[leaves[i].path].push_back(i);
    }
  }
};

std::string summary(const RecordTree& value) {
  return value.is_tensor() ? concat(dtype_name(value.tensor().dtype), " ", shape_text(value.tensor()))
                           : value_text(value, 4);
}

std::vector<std::int64_t> position(std::span<const std::int64_t> sizes, std::uint64_t element) {
  std::vector<std::int64_t> out(sizes.size());
  for (std::size_t i = sizes.size(); i-- > 0;) {
    const auto size = static_cast<std::uint64_t>(sizes[i]);
    out[i] = static_cast<std::int64_t>(element % size);
    element /= size;
  }
  return out;
}

class Comparison {
 public:
  Comparison(Side& a, Side& b, const CompareOptions& options)
      : a_(a), b_(b), tolerance_(options.tolerance), any_dtype_(options.any_dtype) {
    const auto partners = partners_of_a();
    std::vector<bool> taken(b_.leaves.size(), false);
    for (std::size_t i = 0; i < a_.leaves.size(); ++i) {
      const auto& leaf = a_.leaves[i];
      if (!partners[i]) {
        add(leaf.path, "only_in_a", summary(*leaf.value), "", leaf.value->is_tensor());
      } else {
        ++compared_;
        taken[*partners[i]] = true;
        compare(leaf.path, *leaf.value, *b_.leaves[*partners[i]].value);
      }
      if (options.first_tensor && first_tensor_) {
        return;
      }
    }
    for (std::size_t i = 0; i < b_.leaves.size(); ++i) {
      if (!taken[i]) {
        add(b_.leaves[i].path, "only_in_b", "", summary(*b_.leaves[i].value), b_.leaves[i].value->is_tensor());
      }
    }
  }

  FileComparison take() { return {std::move(out_), compared_}; }

 private:
  // Pairs each leaf of A with a leaf of B. Several leaves may have one path ("a.b", and "b" in "a"): pairs leaves with
  // equal places first, then the others in order.
  std::vector<std::optional<std::size_t>> partners_of_a() const {
    std::vector<std::optional<std::size_t>> out(a_.leaves.size());
    for (const auto& entry : a_.by_key) {
      const auto& mine = entry.second;  // a structured binding cannot be captured in clang 14
      const auto found = b_.by_key.find(entry.first);
      if (found == b_.by_key.end()) {
        continue;
      }
      auto theirs = found->second;
      const auto pair_up = [&](const auto& fits) {
        for (const auto i : mine) {
          const auto partner = out[i] ? theirs.end() : std::find_if(theirs.begin(), theirs.end(), [&](std::size_t j) {
            return fits(a_.leaves[i], b_.leaves[j]);
          });
          if (partner != theirs.end()) {
            out[i] = *partner;
            theirs.erase(partner);
          }
        }
      };
      pair_up([](const Leaf& a, const Leaf& b) { return a.place == b.place; });
      pair_up([](const Leaf&, const Leaf&) { return true; });
    }
    return out;
  }

  void add(const std::string& key, std::string kind, std::string a, std::string b, bool of_tensor = false) {
    first_tensor_ = first_tensor_ || of_tensor;
    out_.push_back({key, std::move(kind), std::move(a), std::move(b), 0, 0, {}, 0, of_tensor});
  }

  void compare(const std::string& key, const RecordTree& a, const RecordTree& b) {
    if (kind_text(a) != kind_text(b)) {
      add(key, "kind", concat(kind_text(a), " ", summary(a)), concat(kind_text(b), " ", summary(b)),
          a.is_tensor() || b.is_tensor());
    } else if (!a.is_tensor()) {
      compare_values(key, a, b);
    } else if (a.tensor().sizes != b.tensor().sizes) {
      add(key, "shape", summary(a), summary(b), true);
    } else {
      if (a.tensor().dtype != b.tensor().dtype && !any_dtype_) {
        add(key, "dtype", summary(a), summary(b), true);
      }
      compare_elements(key, a.tensor(), b.tensor());
    }
  }

  void compare_values(const std::string& key, const RecordTree& a, const RecordTree& b) {
    if (a.is_bytes() ? a.bytes() == b.bytes() : value_text(a, SIZE_MAX) == value_text(b, SIZE_MAX)) {
      return;
    }
    if (a.is_double() && tolerance_) {
      const double left = a.number();
      const double right = b.number();
      if (element_distance(DType::float64, reinterpret_cast<const std::byte*>(&left), DType::float64,
                           reinterpret_cast<const std::byte*>(&right)) <= *tolerance_) {
        return;
      }
    }
    if (!a.is_list() && !a.is_tuple()) {
      add(key, "value", value_text(a, 4), value_text(b, 4));
      return;
    }
    const auto& left = a.items();
    const auto& right = b.items();
    if (left.size() != right.size()) {
      add(key, "value", count_text(left.size(), "item"), count_text(right.size(), "item"));
      return;
    }
    for (std::size_t i = 0; i < left.size(); ++i) {
      compare(concat(key, "[", i, "]"), left[i], right[i]);
    }
  }

  bool differ(const TensorRecord& a, const std::byte* left, const TensorRecord& b, const std::byte* right) const {
    if (a.dtype == b.dtype && (std::memcmp(left, right, dtype_size(a.dtype)) == 0 || !tolerance_)) {
      return std::memcmp(left, right, dtype_size(a.dtype)) != 0;
    }
    return element_distance(a.dtype, left, b.dtype, right) > tolerance_.value_or(0);
  }

  // Compares repeated elements once along dimensions that both tensors repeat, but counts all of them.
  std::uint64_t reduce(const std::string& key, TensorRecord& a, TensorRecord& b) const {
    const auto left = without_repetitions(a).first.sizes;
    const auto right = without_repetitions(b).first.sizes;
    std::uint64_t repeated = 1;
    for (std::size_t i = 0; i < a.sizes.size(); ++i) {
      if (left[i] != a.sizes[i] && right[i] != b.sizes[i]) {
        repeated *= static_cast<std::uint64_t>(a.sizes[i]);
        a.sizes[i] = b.sizes[i] = 1;
      }
    }
    check_overlap(a_.file, a, key);
    check_overlap(b_.file, b, key);
    return repeated;
  }

  void compare_elements(const std::string& key, const TensorRecord& whole_a, const TensorRecord& whole_b) {
    TensorRecord a = whole_a;
    TensorRecord b = whole_b;
    const std::uint64_t repeated = reduce(key, a, b);
    const std::size_t a_width = dtype_size(a.dtype);
    const std::size_t b_width = dtype_size(b.dtype);
    const std::uint64_t most = piece_bytes / std::max(a_width, b_width);
    ElementStream a_stream(a_.file, a);
    ElementStream b_stream(b_.file, b);
    FileDifference found{key, "elements", "", "", num_elements(whole_a), 0, {}, 0, true};
    std::uint64_t start = 0;
    for (;;) {
      const auto left = a_stream.next(most);
      const auto right = b_stream.next(most);
      if (left.empty()) {
        break;
      }
      const std::size_t count = left.size() / a_width;
      if (a.dtype != b.dtype || std::memcmp(left.data(), right.data(), left.size()) != 0) {
        for (std::size_t i = 0; i < count; ++i) {
          const std::byte* p = left.data() + i * a_width;
          const std::byte* q = right.data() + i * b_width;
          if (!differ(a, p, b, q)) {
            continue;
          }
          if (found.differing++ == 0) {
            found.first = position(a.sizes, start + i);
            found.a = element_text(a.dtype, p);
            found.b = element_text(b.dtype, q);
          }
          found.largest = std::max(found.largest, element_distance(a.dtype, p, b.dtype, q));
        }
      }
      start += count;
    }
    found.differing *= repeated;
    if (found.differing != 0) {
      first_tensor_ = true;
      out_.push_back(std::move(found));
    }
  }

  Side& a_;
  Side& b_;
  std::optional<double> tolerance_;
  bool any_dtype_;
  std::vector<FileDifference> out_;
  std::uint64_t compared_ = 0;
  bool first_tensor_ = false;
};

}  // namespace

const FileDifference* FileComparison::first_tensor() const {
  const auto found = std::find_if(differences.begin(), differences.end(),
                                  [](const FileDifference& difference) { return difference.of_tensor; });
  return found == differences.end() ? nullptr : &*found;
}

FileComparison compare_files(const std::filesystem::path& a, const std::filesystem::path& b,
                             const CompareOptions& options) {
  Side left(a, options.key);
  Side right(b, options.key);
  danling::detail::check<danling::ConfigError>(left.has_key || right.has_key, "danling ckpt diff",
                                               "expected a key that one of the files has, got ",
                                               danling::detail::quote(options.key));
  return Comparison(left, right, options).take();
}

std::string describe(const FileDifference& difference) {
  const std::string& kind = difference.kind;
  const std::string key = printable(difference.key);
  if (kind == "only_in_a" || kind == "only_in_b") {
    return concat(key, ": only in ", kind == "only_in_a" ? "A: " : "B: ", difference.a, difference.b);
  }
  if (kind == "elements") {
    return concat(key, ": ", difference.differing, " of ", count_text(difference.count, "element"),
                  " differ, first at [", danling::detail::join(difference.first), "]: ", difference.a, " and ",
                  difference.b, "; largest difference ", danling::to_text(difference.largest));
  }
  return concat(key, ": ", kind, ": ", difference.a, " and ", difference.b);
}

}  // namespace danling_command
