#include <data/loader_planner.hpp>

#include <algorithm>
#include <cctype>
#include <exception>
#include <span>
#include <string_view>

#include <c10/util/Exception.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::data::detail {

BatchSlot::~BatchSlot() = default;

void BatchSlot::swap_memory(BatchInfo& one, BatchInfo& other) {
  one.indices.swap(other.indices);
  one.split.swap(other.split);
  one.sample_keys.swap(other.sample_keys);
  one.entry_keys.swap(other.entry_keys);
}

// Flattened: in a large unit, gcc would leave the copies of strings and lists as calls, for each batch.
[[gnu::flatten]] void BatchSlot::copy_info(BatchInfo& of_batch, BatchInfo& spare) {
  info.entry_keys = std::move(of_batch.entry_keys);
  swap_memory(of_batch, spare);
  of_batch = info;
}

BatchReader::~BatchReader() = default;
Planner::~Planner() = default;

namespace {

std::span<std::int64_t> part(std::vector<std::int64_t>& of, std::int64_t begin, std::int64_t count) {
  return std::span(of).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
}

void check_records(std::span<const std::int64_t> records, std::int64_t size, const char* giver) {
  for (const std::int64_t record : records) {
    if (static_cast<std::uint64_t>(record) >= static_cast<std::uint64_t>(size)) [[unlikely]] {
      fail<DataError>("data.loader", "expected records in [0, ", size, ") from ", giver, ", got record ", record);
    }
  }
}

// "record 5", "records 5, 3": such an error already names its record, more precisely than the loader could.
bool names_record(std::string_view text) {
  for (const std::string_view word : {"record ", "records "}) {
    for (auto at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
      const auto digit = at + word.size();
      if (digit < text.size() && std::isdigit(static_cast<unsigned char>(text[digit])) != 0) {
        return true;
      }
    }
  }
  return false;
}

std::string records_of(const BatchInfo& info, bool of_stream) {
  const auto& records = info.indices;
  std::string out = records.size() == 1 ? "record " : "records ";
  if (of_stream && records.size() > 1) {
    out += concat(records.front(), " to ", records.back());
  } else {
    constexpr std::size_t shown = 8;
    for (std::size_t i = 0; i < std::min(records.size(), shown); ++i) {
      out += concat(i == 0 ? "" : ", ", records[i]);
    }
    out += records.size() > shown ? concat(", ... (", records.size(), " in all)") : "";
  }
  return info.split.empty() ? out : concat(out, " of split ", quote(info.split));
}

}  // namespace

void rethrow_for_batch(const BatchInfo& info, bool of_stream) {
  std::string what = "an exception that is not a std::exception";
  try {
    throw;
  } catch (const DataError& error) {
    if (names_record(error.what())) {
      throw;
    }
    what = error.what();
  } catch (const c10::Error& error) {
    what = error.what_without_backtrace();
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {  // NOLINT(bugprone-empty-catch): `what` covers it
  }
  std::throw_with_nested(DataError(concat(what.starts_with('[') ? "" : "[data.read] expected a batch, got: ", what,
                                          "; while reading ", records_of(info, of_stream))));
}

bool read_slot(BatchReader& reader, const Planner& planner, BatchSlot& slot) {
  const bool of_stream = !reader.size().has_value();
  const BatchInfo* info = &slot.info;
  try {
    for (std::int64_t i = 0; i < slot.num_parts; ++i) {
      BatchSlot& part = slot.part(i);
      info = &part.info;
      part.size = reader.read(part);
      const auto asked = static_cast<std::int64_t>(info->indices.size());
      check<DataError>(of_stream || part.size == asked, "data.loader", "expected a batch of ", asked,
                       " samples from the dataset, got ", part.size);
    }
    const bool counts = planner.complete(slot);
    for (std::int64_t i = 0; counts && i < slot.num_parts; ++i) {
      info = &slot.part(i).info;
      reader.finish(slot.part(i));
    }
    return counts;
  } catch (...) {
    rethrow_for_batch(*info, of_stream);
  }
}

void Planner::describe(BatchSlot& slot, std::int64_t part) const {
  BatchInfo& info = slot.info;
  if (info.split.empty()) {  // constant per loader, so set only once per slot
    info.split = context_.split;
  }
  info.epoch = context_.epoch;
  info.collation = context_.collation;
  info.batch_idx = context_.batch_idx;
  info.global_step = context_.global_step;
  info.shard_id = context_.plan.layout().shard.rank + part;
  info.num_padding = 0;
  info.epoch_key = context_.record_key;
  info.sample_keys.clear();
  info.entry_keys.clear();
  slot.size = 0;
}

bool Planner::plan(BatchSlot& slot) {
  for (std::int64_t i = 0; i < max_parts(); ++i) {
    describe(slot.part(i), i);
  }
  slot.before = 0;
  slot.after = 0;
  const std::int64_t step = plan_step(slot, step_);
  if (step < 0) {
    return false;
  }
  slot.step = step;
  for (std::int64_t i = 0; i < slot.num_parts; ++i) {
    BatchInfo& info = slot.part(i).info;
    info.batch_key = context_.batch_key.fold_in(static_cast<std::uint64_t>(info.position));
  }
  step_ = step + 1;
  ++context_.batch_idx;
  ++context_.global_step;
  return true;
}

void Planner::replan(BatchSlot&) {}
bool Planner::complete(BatchSlot&) const { return true; }

std::int64_t OrderPlanner::plan_step(BatchSlot& slot, std::int64_t step) {
  const EpochPlan& plan = context().plan;
  if (step >= plan.num_batches()) {
    return -1;
  }
  const GlobalBatch global = plan.batch(step);
  slot.num_parts = 0;
  while (slot.num_parts < max_parts()) {
    const Share share = share_of_part(slot.num_parts, global.size);
    if (share.size() == 0) {
      break;
    }
    fill(slot.part(slot.num_parts++).info, global, share);
  }
  return step;
}

void OrderPlanner::fill(BatchInfo& info, const GlobalBatch& global, const Share& share) {
  const EpochPlan& plan = context().plan;
  info.indices.resize(static_cast<std::size_t>(share.count + share.padding));
  info.num_padding = share.padding;
  info.global_size = global.size;
  const bool repeats = sampler_.repeats();
  const auto key = [&](std::int64_t i, std::int64_t position) {
    info.sample_keys.push_back(
        context()
            .record_key.fold_in(static_cast<std::uint64_t>(info.indices[static_cast<std::size_t>(i)]))
            .fold_in(static_cast<std::uint64_t>(position)));
  };
  // Padding is at the end of the order, and repeats its beginning.
  const std::int64_t behind = std::max<std::int64_t>(share.offset - global.size, 0);
  info.position = sampler_.size() + behind;
  for (std::int64_t done = 0; done < share.count;) {
    const Range run = plan.position(global.begin + share.offset + done);
    const std::int64_t size = std::min(run.size(), share.count - done);
    info.position = done == 0 ? run.begin : info.position;
    sampler_.fill(run.begin, part(info.indices, done, size));
    for (std::int64_t i = 0; repeats && i < size; ++i) {
      key(done + i, run.begin + i);
    }
    done += size;
  }
  for (std::int64_t i = 0; i < share.padding; ++i) {
    sampler_.fill((behind + i) % sampler_.size(), part(info.indices, share.count + i, 1));
    if (repeats) {
      key(share.count + i, sampler_.size() + behind + i);
    }
  }
  check_records(info.indices, context().size, "the sampler");
}

bool GroupPlanner::ask_sampler(bool drop_last) {
  const Layout& layout = context().plan.layout();
  BatchShape shape = layout.shape();
  shape.drop_last = drop_last;
  Group group(static_cast<std::size_t>(std::min(layout.global(), sampler_.size().value_or(layout.global()))));
  const std::int64_t count = sampler_.next(shape, group);
  check<DataError>(count >= 0 && count <= static_cast<std::int64_t>(group.size()), "data.loader",
                   "expected a batch of at most ", group.size(), " records from the batch sampler, got ", count);
  group.resize(static_cast<std::size_t>(count));
  check_records(group, context().size, "the batch sampler");
  if (count > 0) {
    pending_.push_back(std::move(group));
  }
  return count > 0;
}

// Without padding every share needs a sample, or its rank would be a step ahead of the others. Records left over by a
// layout with fewer shares join the next ones; at the end they join those that drop_last would drop, if there are any.
bool GroupPlanner::next_group() {
  const Layout& layout = context().plan.layout();
  const auto least = static_cast<std::size_t>(layout.shard.padding ? 1 : layout.shard.world_size);
  bool as_given = pending_.empty();
  if (as_given && !ask_sampler(layout.drop_last)) {
    return false;
  }
  group_ = pending_.front();
  const auto ask = [&] { return ask_sampler(layout.drop_last) || (layout.drop_last && ask_sampler(false)); };
  for (std::size_t next = 1; group_.size() < least && (next < pending_.size() || ask()); ++next) {
    group_.insert(group_.end(), pending_[next].begin(), pending_[next].end());
    as_given = false;
  }
  if (group_.size() < least && layout.drop_last) {
    return false;
  }
  if (!as_given) {
    const std::int64_t count = sampler_.fit_batch(layout.shape(), group_);
    const auto size = static_cast<std::int64_t>(group_.size());
    check<DataError>(count >= std::min(size, static_cast<std::int64_t>(least)) && count <= size, "data.loader",
                     "expected a batch of at least ", least, " of ", size, " records from the batch sampler, got ",
                     count);
    group_.resize(static_cast<std::size_t>(count));
  }
  return true;
}

void GroupPlanner::remove_group() {
  for (std::size_t left = group_.size(); left > 0;) {
    Group& first = pending_.front();
    const std::size_t taken = std::min(left, first.size());
    first.erase(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(taken));
    left -= taken;
    if (first.empty()) {
      pending_.pop_front();
    }
  }
}

void GroupPlanner::fill(BatchInfo& info, const Share& share) const {
  const auto global = static_cast<std::int64_t>(group_.size());
  info.global_size = global;
  info.num_padding = share.padding;
  info.position = position_ + share.offset;
  info.indices.clear();
  for (std::int64_t i = 0; i < share.size(); ++i) {
    const std::int64_t record = group_[static_cast<std::size_t>((share.offset + i) % global)];
    info.indices.push_back(record);
    if (sampler_.repeats()) {
      info.sample_keys.push_back(info.epoch_key.fold_in(static_cast<std::uint64_t>(record))
                                     .fold_in(static_cast<std::uint64_t>(info.position + i)));
    }
  }
}

std::int64_t GroupPlanner::plan_step(BatchSlot& slot, std::int64_t step) {
  while (next_group()) {
    const auto global = static_cast<std::int64_t>(group_.size());
    slot.num_parts = 0;
    while (slot.num_parts < max_parts()) {
      const Share share = share_of_part(slot.num_parts, global);
      if (share.size() == 0) {
        break;
      }
      fill(slot.part(slot.num_parts++).info, share);
    }
    State state = clone(sampler_.state_dict());
    slot.group = group_;
    remove_group();
    position_ += global;
    slot.next_snapshot = std::make_shared<const Snapshot>(Snapshot{position_, std::move(state), pending_});
    if (slot.num_parts > 0) {
      return step;
    }
    ++step;
    ++missed_;
  }
  return -1;
}

}  // namespace danling::inline v0::data::detail
