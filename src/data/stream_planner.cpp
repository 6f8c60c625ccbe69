// Plans steps of a stream: reads the data of this process's shares and skips the others.
#include <algorithm>
#include <numeric>

#include <danling/core/error.hpp>

#include <data/loader_planner.hpp>

namespace danling::inline v0::data::detail {

bool StreamPlanner::advance(std::int64_t to) {
  while (at_ < to) {
    // In pieces: a stream that skips by reading holds the samples in memory.
    const std::int64_t wanted = std::min(to - at_, context().plan.layout().batch_size);
    const std::int64_t skipped = reader_.skip(wanted);
    at_ += skipped;
    if (skipped < wanted) {
      check<DataError>(reader_.skip(1) == 0, "data.loader", "expected the stream to skip ", wanted,
                       " samples, or fewer at its end, got ", skipped, " before its end");
      return false;
    }
  }
  return true;
}

std::int64_t StreamPlanner::plan_step(BatchSlot& slot, std::int64_t step) {
  if (ended_) {
    return -1;
  }
  const EpochPlan& plan = context().plan;
  GlobalBatch global = plan.batch(step);
  Share first = share_of_part(0, global.size);
  while (first.count == 0) {
    global = plan.batch(++step);
    first = share_of_part(0, global.size);
  }
  const std::int64_t begin = plan.position(global.begin).begin;
  slot.wanted = global.size;
  slot.before = first.offset;
  std::int64_t planned = 0;
  for (; planned < max_parts(); ++planned) {
    const Share share = share_of_part(planned, global.size);
    if (share.count == 0) {
      break;
    }
    BatchInfo& info = slot.part(planned).info;
    info.position = begin + share.offset;
    info.global_size = global.size;
    info.indices.resize(static_cast<std::size_t>(share.count));
    std::iota(info.indices.begin(), info.indices.end(), info.position);
  }
  slot.snapshot = snapshot_;
  slot.num_parts = 0;
  try {
    ended_ = !read(slot, planned, begin);
  } catch (...) {
    position_invalid_ = true;
    rethrow_for_batch(slot.part(std::min(slot.num_parts, planned - 1)).info, /*of_stream=*/true);
  }
  slot.next_snapshot = snapshot_;
  return ended_ ? -1 : step;
}

void StreamPlanner::go_to(const Snapshot& snapshot) {
  reader_.load_state_dict(snapshot.state);
  at_ = snapshot.position;
}

// The data for the step are consumed: rewinds the stream; the next plan returns to this position.
void StreamPlanner::replan(BatchSlot& slot) {
  position_invalid_ = true;
  const BatchInfo* info = &slot.info;
  try {
    go_to(*slot.snapshot);
    for (std::int64_t i = 0; i < slot.num_parts; ++i) {
      info = &slot.part(i).info;
      check<DataError>(advance(info->position) && reader_.prepare(slot.part(i)), "data.loader",
                       "expected the stream to yield the same samples again, got its end");
      at_ += static_cast<std::int64_t>(info->indices.size());
    }
  } catch (...) {
    rethrow_for_batch(*info, /*of_stream=*/true);
  }
}

// Reads the data of `planned` parts of the global batch that starts at `begin`: fewer at the end of the stream. Returns
// false if there are none.
bool StreamPlanner::read(BatchSlot& slot, std::int64_t planned, std::int64_t begin) {
  if (position_invalid_) {
    go_to(*snapshot_);
    position_invalid_ = false;
  }
  for (; slot.num_parts < planned; ++slot.num_parts) {
    BatchSlot& part = slot.part(slot.num_parts);
    if (!advance(part.info.position) || !reader_.prepare(part)) {
      break;
    }
    at_ += static_cast<std::int64_t>(part.info.indices.size());
  }
  if (slot.num_parts == 0) {
    missed_ = at_ > begin && !context().plan.layout().drop_last ? 1 : 0;
    return false;
  }
  const std::int64_t read = at_;
  advance(begin + slot.wanted);
  slot.after = at_ - read;
  // Taken at multiples of the position, so that a resumed run takes it at the same places.
  if ((at_ - snapshot_->position) / context().plan.layout().global() >= every_) {
    snapshot_ = std::make_shared<const Snapshot>(Snapshot{at_, reader_.state_dict()});
  }
  return true;
}

// The size of a part is known once its batch is made, that of the global batch after all parts.
bool StreamPlanner::complete(BatchSlot& slot) const {
  std::int64_t behind = slot.after;
  for (std::int64_t i = slot.num_parts - 1; i >= 0; --i) {
    const BatchSlot& part = slot.part(i);
    const auto asked = static_cast<std::int64_t>(part.info.indices.size());
    try {
      check<DataError>(part.size <= asked, "data.loader", "expected at most ", asked, " samples from the stream, got ",
                       part.size);
      check<DataError>(part.size == asked || behind == 0, "data.loader", "expected ", asked,
                       " samples from the stream, or fewer at its end, got ", part.size, " before its end");
    } catch (...) {
      rethrow_for_batch(part.info, /*of_stream=*/true);
    }
    behind += part.size;
  }
  const std::int64_t global = slot.before + behind;
  for (std::int64_t i = 0; i < slot.num_parts; ++i) {
    BatchSlot& part = slot.part(i);
    part.info.indices.resize(static_cast<std::size_t>(part.size));
    part.info.global_size = global;
  }
  while (slot.num_parts > 0 && slot.part(slot.num_parts - 1).size == 0) {
    --slot.num_parts;
  }
  if (global < slot.wanted && context().plan.layout().shard.world_size > 1) {
    slot.next_snapshot = slot.snapshot;  // where the end is noticed depends on the share; the state must not
  }
  return slot.num_parts > 0 && !(context().plan.layout().drop_last && global < slot.wanted);
}

}  // namespace danling::inline v0::data::detail
