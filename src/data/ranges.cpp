#include <data/ranges.hpp>

#include <algorithm>
#include <limits>

#include <danling/core/error.hpp>

namespace danling::inline v0::data::detail {

void Ranges::insert(Range range) {
  if (range.begin >= range.end) {
    return;
  }
  const auto first = std::find_if(items_.begin(), items_.end(), [&](const Range& r) { return r.end >= range.begin; });
  auto last = first;
  for (; last != items_.end() && last->begin <= range.end; ++last) {
    range.begin = std::min(range.begin, last->begin);
    range.end = std::max(range.end, last->end);
  }
  if (last != first) {
    *first = range;
    items_.erase(first + 1, last);
  } else {
    items_.insert(first, range);
  }
}

void Ranges::add(const Ranges& other) {
  for (const Range& range : other.items_) {
    add(range);
  }
}

std::int64_t Ranges::count() const {
  std::int64_t total = 0;
  for (const Range& range : items_) {
    total += range.size();
  }
  return total;
}

Range Ranges::missing(std::int64_t n) const {
  for (const Range& range : items_) {
    if (range.begin > n) {
      return {n, range.begin};
    }
    n += range.size();
  }
  return {n, std::numeric_limits<std::int64_t>::max()};
}

Ranges Ranges::intersection(const Ranges& other) const {
  Ranges out;
  auto a = items_.begin();
  auto b = other.items_.begin();
  while (a != items_.end() && b != other.items_.end()) {
    out.add({std::max(a->begin, b->begin), std::min(a->end, b->end)});
    a->end < b->end ? ++a : ++b;
  }
  return out;
}

Ranges Ranges::without(const Ranges& other) const {
  Ranges out;
  for (Range range : items_) {
    for (const Range& hole : other.items_) {
      if (hole.end > range.begin && hole.begin < range.end) {
        out.add({range.begin, hole.begin});
        range.begin = hole.end;
      }
    }
    out.add(range);
  }
  return out;
}

Ranges Ranges::below(std::int64_t end) const {
  Ranges out;
  for (const Range& range : items_) {
    out.add({range.begin, std::min(range.end, end)});
  }
  return out;
}

State Ranges::to_state(std::int64_t from) const {
  State::List out;
  for (const Range& range : items_) {
    if (range.end > from) {
      out.emplace_back(std::max(range.begin, from));
      out.emplace_back(range.end);
    }
  }
  return State(std::move(out));
}

Ranges Ranges::from_state(const State& state) {
  Ranges out;
  std::int64_t before = -1;
  const State::List& numbers = state.items();
  check<StateError>(numbers.size() % 2 == 0, "data.loader", "expected ranges of positions in pairs, got ",
                    numbers.size(), " numbers");
  for (std::size_t i = 0; i < numbers.size(); i += 2) {
    const Range range{numbers[i].integer(), numbers[i + 1].integer()};
    check<StateError>(range.begin > before && range.end > range.begin, "data.loader",
                      "expected ranges of positions that increase, got ", range.begin, " to ", range.end, " after ",
                      before);
    out.items_.push_back(range);
    before = range.end;
  }
  return out;
}

}  // namespace danling::inline v0::data::detail
