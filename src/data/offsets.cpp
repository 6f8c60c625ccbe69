#include <danling/data/offsets.hpp>

#include <algorithm>
#include <limits>

namespace danling::inline v0::data::detail {

Offsets::Offsets(const std::vector<std::int64_t>& sizes) {
  check<DataError>(!sizes.empty(), "data.concat", "expected at least one dataset, got none");
  std::int64_t end = 0;
  for (const std::int64_t size : sizes) {
    check<DataError>(size >= 0 && size <= std::numeric_limits<std::int64_t>::max() - end, "data.concat",
                     "expected datasets of fewer than 2^63 records, got one of ", size, " behind ", end);
    ends_.push_back(end += size);
  }
}

Offsets::Place Offsets::operator[](std::int64_t index) const {
  check<DataError>(index >= 0 && index < size(), "data.concat", "expected an index in [0, ", size(), "), got ", index);
  const auto part = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
  return {part, part == 0 ? index : index - ends_[part - 1]};
}

std::string common_split(const std::vector<std::string>& splits) {
  const bool same = std::all_of(splits.begin(), splits.end(), [&](const auto& split) { return split == splits[0]; });
  return same ? splits.front() : std::string();
}

}  // namespace danling::inline v0::data::detail
