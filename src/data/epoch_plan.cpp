#include <data/epoch_plan.hpp>

#include <algorithm>
#include <utility>

namespace danling::inline v0::data::detail {

namespace {
constexpr std::int64_t endless = std::int64_t{1} << 62;
}  // namespace

Share share_of_last(const Layout& layout, std::int64_t number, std::int64_t global) {
  const std::int64_t world_size = layout.shard.world_size;
  if (layout.shard.padding) {
    const std::int64_t each = rounded_up(global, world_size);
    const std::int64_t own = std::clamp<std::int64_t>(global - number * each, 0, each);
    return {number * each, own, each - own};
  }
  const std::int64_t each = global / world_size;
  const std::int64_t extra = global % world_size;
  return {number * each + std::min(number, extra), each + (number < extra ? 1 : 0), 0};
}

EpochPlan::EpochPlan(std::optional<std::int64_t> size, Ranges done, Layout layout)
    : layout_(layout), done_(std::move(done)), left_(size ? *size - done_.count() : endless - done_.count()) {
  if (size) {
    segments_ = {{0, left_, 0}};
    num_batches_ = count_batches();
    return;
  }
  segments_.clear();
  Segment segment;
  std::int64_t at = 0;
  for (const Range& range : done_.items()) {
    segment.size = range.begin - at;
    if (segment.size > 0) {
      segments_.push_back(segment);
      segment.begin += segment.size;
      segment.step += layout_.drop_last ? segment.size / layout_.global() : rounded_up(segment.size, layout_.global());
    }
    at = range.end;
  }
  segment.size = left_ - segment.begin;
  segments_.push_back(segment);
  num_batches_ = count_batches();
}

std::int64_t EpochPlan::num_steps() const {
  const Segment& last = segments_.back();
  return last.step + (layout_.drop_last ? last.size / layout_.global() : rounded_up(last.size, layout_.global()));
}

std::int64_t EpochPlan::count_batches() const {
  const std::int64_t steps = num_steps();
  if (steps == 0) {
    return 0;
  }
  return share_of(layout_, layout_.shard.rank, batch(steps - 1).size).size() > 0 ? steps : steps - 1;
}

GlobalBatch EpochPlan::batch(std::int64_t step) const {
  auto segment = segments_.end() - 1;
  while (segment->step > step) {
    --segment;
  }
  const std::int64_t offset = (step - segment->step) * layout_.global();
  return {segment->begin + offset, std::min(layout_.global(), segment->size - offset)};
}

Ranges EpochPlan::positions(std::int64_t begin, std::int64_t count) const {
  Ranges out;
  while (count > 0) {
    const Range run = position(begin);
    const std::int64_t size = std::min(run.size(), count);
    out.add({run.begin, run.begin + size});
    begin += size;
    count -= size;
  }
  return out;
}

Ranges EpochPlan::positions(const Ranges& steps) const {
  Ranges out;
  for (const Range& range : steps.items()) {
    // Starts at the end of the previous batch, to include records between them that drop_last drops.
    const GlobalBatch before = range.begin > 0 ? batch(range.begin - 1) : GlobalBatch();
    const std::int64_t begin = before.begin + before.size;
    const GlobalBatch last = batch(range.end - 1);
    out.add(positions(begin, last.begin + last.size - begin));
  }
  return out;
}

Ranges EpochPlan::positions_of_share(std::int64_t step, std::int64_t number) const {
  const GlobalBatch global = batch(step);
  const Share share = share_of(layout_, number, global.size);
  return positions(global.begin + share.offset, share.count);
}

bool EpochPlan::all_have_samples() const {
  return layout_.drop_last || std::all_of(segments_.begin(), segments_.end() - 1, [&](const Segment& segment) {
           const std::int64_t rest = segment.size % layout_.global();
           return rest == 0 || rest >= layout_.shard.world_size;
         });
}

}  // namespace danling::inline v0::data::detail
