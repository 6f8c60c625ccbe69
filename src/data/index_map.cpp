#include <danling/data/index_map.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

#include <danling/core/error.hpp>

namespace danling::inline v0::data {

IndexMap::IndexMap(std::vector<std::int64_t> indices)
    : size_(static_cast<std::int64_t>(indices.size())),
      list_(std::make_shared<const std::vector<std::int64_t>>(std::move(indices))) {}

std::int64_t IndexMap::at(std::int64_t i) const {
  check<DataError>(i >= 0 && i < size_, "data.subset", "expected an index in [0, ", size_, "), got ", i);
  return (*this)[i];
}

void IndexMap::map(std::span<const std::int64_t> indices, std::span<std::int64_t> to) const {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    to[i] = at(indices[i]);
  }
}

std::vector<std::int64_t> IndexMap::to_vector() const {
  if (!order_) {
    return *list_;
  }
  std::vector<std::int64_t> out(static_cast<std::size_t>(size_));
  order_->fill(begin_, out);
  return out;
}

void IndexMap::check_within(std::int64_t dataset_size) const {
  for (std::size_t i = 0; list_ != nullptr && i < list_->size(); ++i) {
    check<DataError>((*list_)[i] >= 0 && (*list_)[i] < dataset_size, "data.subset", "expected indices in [0, ",
                     dataset_size, "), got ", (*list_)[i], " at position ", i);
  }
}

namespace {

std::vector<std::int64_t> counts_of(std::vector<double> fractions, std::int64_t size) {
  double sum = 0.0;
  for (const double fraction : fractions) {
    check<DataError>(fraction >= 0.0 && fraction <= 1.0, "data.split", "expected fractions between 0 and 1, got ",
                     fraction);
    sum += fraction;
  }
  // 0.7 + 0.2 + 0.1 is not exactly 1, even less so in float.
  check<DataError>(std::abs(sum - 1.0) <= 1e-6, "data.split", "expected fractions that add up to 1, got ",
                   join(fractions), ", which make ", sum);
  if (std::abs(sum - 1.0) > 1e-9) {
    for (double& fraction : fractions) {
      fraction /= sum;
    }
  }
  std::vector<std::int64_t> counts;
  std::int64_t left = size;
  for (const double fraction : fractions) {
    const auto count = static_cast<std::int64_t>(std::floor(fraction * static_cast<double>(size)));
    counts.push_back(std::min(count, left));  // fractions may add up to slightly more than 1
    left -= counts.back();
  }
  for (std::size_t i = 0; left > 0; i = (i + 1) % counts.size(), --left) {
    ++counts[i];
  }
  return counts;
}

}  // namespace

std::vector<std::int64_t> SplitSizes::counts(std::int64_t size) const {
  check<DataError>(!sizes_.empty(), "data.split", "expected at least one part, got none");
  std::vector<std::int64_t> counts;
  std::vector<double> fractions;
  for (const Size& part : sizes_) {
    part.is_fraction ? fractions.push_back(part.fraction) : counts.push_back(part.count);
  }
  check<DataError>(counts.empty() || fractions.empty(), "data.split",
                   "expected numbers of records or fractions, got both: ", join(counts), " and ", join(fractions));
  if (counts.empty()) {
    return counts_of(std::move(fractions), size);
  }
  std::int64_t left = size;
  for (const std::int64_t count : counts) {
    check<DataError>(count >= 0 && count <= left, "data.split", "expected counts of at least 0 that add up to ", size,
                     " records, got ", join(counts));
    left -= count;
  }
  check<DataError>(left == 0, "data.split", "expected counts of at least 0 that add up to ", size, " records, got ",
                   join(counts));
  return counts;
}

std::vector<IndexMap> detail::random_parts(const SplitSizes& sizes, std::int64_t dataset_size, std::uint64_t seed) {
  const Permutation order(dataset_size, order_key(seed, 0, "danling.data.split"));
  std::vector<IndexMap> parts;
  std::int64_t begin = 0;
  for (const std::int64_t count : sizes.counts(dataset_size)) {
    parts.emplace_back(order, begin, count);
    begin += count;
  }
  return parts;
}

}  // namespace danling::inline v0::data
