#include <danling/data/detail/offsets.hpp>

#include <algorithm>
#include <limits>

namespace danling::inline v0::data::detail {

Offsets::Offsets(const std::vector<std::int64_t>& sizes) {
  check<DataError>(!sizes.empty(), "data.concat", "expected at least one dataset, got none");
  std::int64_t end = 0;
  for (const std::int64_t size : sizes) {
    check<DataError>(size >= 0 && size <= std::numeric_limits<std::int64_t>::max() - end, "data.concat",
                     "expected datasets of fewer than 2^63 records, got one of ", size, " after ", end);
    ends_.push_back(end += size);
  }
}

Offsets::Place Offsets::operator[](std::int64_t index) const {
  check<DataError>(index >= 0 && index < size(), "data.concat", "expected an index in [0, ", size(), "), got ", index);
  const auto part = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
  return {part, part == 0 ? index : index - ends_[part - 1]};
}

std::vector<Offsets::Share> Offsets::shares(std::span<const std::int64_t> indices) const {
  std::vector<Share> out;
  std::vector<std::size_t> share_of(ends_.size(), ends_.size());
  std::vector<Place> places;
  places.reserve(indices.size());
  for (const std::int64_t index : indices) {
    places.push_back((*this)[index]);
    share_of[places.back().part] = 0;
  }
  for (std::size_t part = 0; part < share_of.size(); ++part) {
    if (share_of[part] == 0 || (indices.empty() && part == 0)) {
      share_of[part] = out.size();
      out.push_back({part, {}, {}});
    }
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    Share& share = out[share_of[places[i].part]];
    share.indices.push_back(places[i].index);
    share.samples.push_back(i);
  }
  return out;
}

std::string common_split(const std::vector<std::string>& splits) {
  const bool same = std::all_of(splits.begin(), splits.end(), [&](const auto& split) { return split == splits[0]; });
  return same ? splits.front() : std::string();
}

}  // namespace danling::inline v0::data::detail
