#include <danling/data/length_buckets.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/ops/empty.h>

#include <danling/core/error.hpp>

#include <data/sampler_state.hpp>

namespace danling::inline v0::data {

namespace {
constexpr std::size_t max_asked_ahead = 1024;
}  // namespace

LengthBuckets::LengthBuckets(const std::vector<std::int64_t>& lengths, LengthBucketsOptions options)
    : LengthBuckets(
          static_cast<std::int64_t>(lengths.size()),
          [lengths](std::int64_t i) { return lengths[static_cast<std::size_t>(i)]; }, std::move(options)) {}

LengthBuckets::LengthBuckets(std::int64_t size, std::function<std::int64_t(std::int64_t)> length,
                             LengthBucketsOptions options)
    : options_(std::move(options)),
      length_(std::move(length)),
      order_(size, order_key(options_.seed, 0, options_.split)) {
  check<ConfigError>(options_.num_buckets > 0, "data.length_buckets", "expected num_buckets of at least 1, got ",
                     options_.num_buckets);
  check<ConfigError>(!options_.max_tokens || *options_.max_tokens > 0, "data.length_buckets",
                     "expected max_tokens of at least 1, got ", options_.max_tokens.value_or(0));
  const auto& boundaries = options_.boundaries;
  check<ConfigError>(
      std::adjacent_find(boundaries.begin(), boundaries.end(), std::greater_equal<>()) == boundaries.end(),
      "data.length_buckets", "expected boundaries in ascending order, got ", join(boundaries));
  if (boundaries.empty()) {
    choose_boundaries();
  }
  buckets_.resize(options_.boundaries.size() + 1);
  count_records();
}

// Quantiles of all lengths, or of a random sample large enough for an error of one percent.
void LengthBuckets::choose_boundaries() {
  const std::int64_t asked = std::min<std::int64_t>(order_.size(), 1 << 16);
  const Permutation sample(order_.size(), order_key(0, 0, "danling.data.quantiles"));
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < asked; ++i) {
    lengths.push_back(length_(asked == order_.size() ? i : sample(i)));
  }
  std::sort(lengths.begin(), lengths.end());
  for (std::int64_t i = 1; i < options_.num_buckets && asked > 0; ++i) {
    const std::int64_t boundary = lengths[static_cast<std::size_t>((asked * i - 1) / options_.num_buckets)];
    const bool rises = options_.boundaries.empty() || boundary > options_.boundaries.back();
    if (rises && boundary < lengths.back()) {
      options_.boundaries.push_back(boundary);
    }
  }
}

void LengthBuckets::count_records() {
  for (std::int64_t i = 0; i < order_.size(); ++i) {
    const std::int64_t length = length_(i);
    check<DataError>(length >= 0, "data.length_buckets", "expected lengths of at least 0, got ", length, " for record ",
                     i);
    check<DataError>(!options_.max_tokens || length <= *options_.max_tokens, "data.length_buckets",
                     "expected lengths of at most max_tokens, ", options_.max_tokens.value_or(0), ", got ", length,
                     " for record ", i, "; cut it or leave it out");
    Bucket& bucket = buckets_[bucket_of(length)];
    ++bucket.count;
    bucket.longest = std::max(bucket.longest, length);
  }
}

std::size_t LengthBuckets::bucket_of(std::int64_t length) const {
  const auto& boundaries = options_.boundaries;
  return static_cast<std::size_t>(std::lower_bound(boundaries.begin(), boundaries.end(), length) - boundaries.begin());
}

std::int64_t LengthBuckets::full(const Bucket& bucket, const BatchShape& shape) const {
  const std::int64_t of_one =
      options_.max_tokens ? std::min(shape.batch_size, *options_.max_tokens / bucket.longest) : shape.batch_size;
  return of_one * shape.world_size;
}

// As many records as fit; a multiple of the number of processes, unless they are all of the rest. `full` ensures at
// least one per process.
template <class InBucket>
std::int64_t LengthBuckets::share_of_rest(std::int64_t rest, const BatchShape& shape, const InBucket& in_bucket) const {
  std::int64_t count = 0;
  while (count < rest && count < full(in_bucket(count), shape)) {
    ++count;
  }
  return count == rest ? count : count - count % shape.world_size;
}

std::int64_t LengthBuckets::dropped_of_rest(std::int64_t rest, const BatchShape& shape) const {
  return shape.drop_last ? rest % (options_.max_tokens ? shape.world_size : shape.global_size()) : 0;
}

// The number of records that remain in each bucket does not depend on the order.
std::optional<std::int64_t> LengthBuckets::length(const BatchShape& shape) const {
  std::int64_t steps = 0;
  std::vector<const Bucket*> rest;
  for (const Bucket& bucket : buckets_) {
    steps += bucket.count / full(bucket, shape);
    rest.insert(rest.end(), static_cast<std::size_t>(bucket.count % full(bucket, shape)), &bucket);
  }
  auto left = static_cast<std::int64_t>(rest.size());
  if (!options_.max_tokens) {
    left -= dropped_of_rest(left, shape);
    return steps + left / shape.global_size() + (left % shape.global_size() != 0 ? 1 : 0);
  }
  left -= dropped_of_rest(left, shape);
  for (auto first = rest.begin(); left > 0; ++steps) {
    const std::int64_t count =
        share_of_rest(left, shape, [&](std::int64_t i) -> const Bucket& { return **(first + i); });
    first += count;
    left -= count;
  }
  return steps;
}

void LengthBuckets::set_epoch(std::int64_t epoch) {
  epoch_ = epoch;
  order_ = Permutation(order_.size(), order_key(options_.seed, epoch, options_.split));
  cursor_ = 0;
  ahead_.clear();
  for (Bucket& bucket : buckets_) {
    bucket.waiting.clear();
  }
  resting_ = false;
  rest_.clear();
  rest_taken_ = 0;
  rest_kept_ = 0;
}

void LengthBuckets::wait(std::int64_t record, std::int64_t place) {
  const std::int64_t length = length_(record);
  buckets_[bucket_of(length)].waiting.push_back({record, length, place});
}

std::int64_t LengthBuckets::take(Bucket& bucket, std::int64_t count, std::span<std::int64_t> indices) {
  const auto end = bucket.waiting.begin() + count;
  std::transform(bucket.waiting.begin(), end, indices.begin(), [](const Waiting& waiting) { return waiting.record; });
  bucket.waiting.erase(bucket.waiting.begin(), end);
  return count;
}

std::int64_t LengthBuckets::next(const BatchShape& shape, std::span<std::int64_t> indices) {
  // After loading a state of larger batches, several buckets may be full.
  for (Bucket& bucket : buckets_) {
    if (static_cast<std::int64_t>(bucket.waiting.size()) >= full(bucket, shape)) {
      return take(bucket, full(bucket, shape), indices);
    }
  }
  while (cursor_ < order_.size()) {
    if (ahead_.empty() || cursor_ >= ahead_begin_ + static_cast<std::int64_t>(ahead_.size())) {
      ahead_begin_ = cursor_;
      ahead_.resize(std::min(max_asked_ahead, static_cast<std::size_t>(order_.size() - cursor_)));
      if (options_.shuffle) {
        order_.fill(cursor_, ahead_);
      } else {
        std::iota(ahead_.begin(), ahead_.end(), cursor_);
      }
    }
    const std::int64_t record = ahead_[static_cast<std::size_t>(cursor_ - ahead_begin_)];
    const std::int64_t length = length_(record);
    Bucket& bucket = buckets_[bucket_of(length)];
    bucket.waiting.push_back({record, length, cursor_++});
    if (static_cast<std::int64_t>(bucket.waiting.size()) >= full(bucket, shape)) {
      return take(bucket, full(bucket, shape), indices);
    }
  }
  return next_of_rest(shape, indices);
}

std::int64_t LengthBuckets::fit_batch(const BatchShape& shape, std::span<const std::int64_t> records) const {
  std::int64_t most = shape.global_size();
  std::int64_t count = 0;
  for (const std::int64_t record : records) {
    most = std::min(most, full(buckets_[bucket_of(length_(record))], shape));
    if (count == most) {
      break;
    }
    ++count;
  }
  return std::min(count, most);
}

std::int64_t LengthBuckets::next_of_rest(const BatchShape& shape, std::span<std::int64_t> indices) {
  if (!resting_) {
    rest_ = all_waiting();
    rest_taken_ = 0;
    resting_ = true;
    rest_kept_ =
        rest_.size() - static_cast<std::size_t>(dropped_of_rest(static_cast<std::int64_t>(rest_.size()), shape));
    // Dropped records stay at the end and in the state: another layout may use them.
    const auto sorted = rest_.begin() + static_cast<std::ptrdiff_t>(options_.max_tokens ? rest_.size() : rest_kept_);
    std::stable_sort(rest_.begin(), sorted, [](const auto& a, const auto& b) { return a.length < b.length; });
    for (Bucket& bucket : buckets_) {
      bucket.waiting.clear();
    }
  }
  const auto first = rest_.begin() + static_cast<std::ptrdiff_t>(rest_taken_);
  const std::size_t end = shape.drop_last ? rest_kept_ : rest_.size();
  if (end <= rest_taken_) {
    return 0;
  }
  const auto left = static_cast<std::int64_t>(end - rest_taken_);
  const std::int64_t count = share_of_rest(
      left, shape, [&](std::int64_t i) -> const Bucket& { return buckets_[bucket_of((first + i)->length)]; });
  std::transform(first, first + count, indices.begin(), [](const Waiting& waiting) { return waiting.record; });
  rest_taken_ += static_cast<std::size_t>(count);
  return count;
}

std::vector<LengthBuckets::Waiting> LengthBuckets::all_waiting() const {
  const auto visited_before = [](const Waiting& a, const Waiting& b) { return a.place < b.place; };
  std::vector<Waiting> all(rest_.begin() + static_cast<std::ptrdiff_t>(rest_taken_), rest_.end());
  std::sort(all.begin(), all.end(), visited_before);
  // Each bucket is already in order. (Loaders call this after every batch.)
  for (const Bucket& bucket : buckets_) {
    const auto middle = all.insert(all.end(), bucket.waiting.begin(), bucket.waiting.end());
    std::inplace_merge(all.begin(), middle, all.end(), visited_before);
  }
  return all;
}

State LengthBuckets::state_dict() const {
  const std::vector<Waiting> all = all_waiting();
  at::Tensor waiting = at::empty({static_cast<std::int64_t>(all.size())}, at::kLong);
  std::transform(all.begin(), all.end(), waiting.mutable_data_ptr<std::int64_t>(),
                 [](const Waiting& entry) { return entry.record; });
  State state = detail::sampler_state("length_buckets", order_.size());
  state["shuffle"] = options_.shuffle;
  state["seed"] = static_cast<std::int64_t>(options_.seed);  // the same 64 bits
  state["split"] = options_.split;
  state["epoch"] = epoch_;
  state["position"] = cursor_;
  state["waiting"] = std::move(waiting);
  return state;
}

void LengthBuckets::load_state_dict(const State& state) {
  detail::check_sampler_state(state, "length_buckets", order_.size());
  const bool shuffle = state.at("shuffle").boolean();
  check<StateError>(shuffle == options_.shuffle, "data.sampler",
                    "expected the state of a sampler with shuffle: ", options_.shuffle,
                    ", got one with shuffle: ", shuffle);
  const std::int64_t seed = state.at("seed").integer();
  const std::string& split = state.at("split").string();
  const std::int64_t epoch = state.at("epoch").integer();
  const std::int64_t position = state.at("position").integer();
  check<StateError>(position >= 0 && position <= order_.size(), "data.sampler", "expected a position in [0, ",
                    order_.size(), "], got ", position);
  const at::Tensor& waiting = state.at("waiting").tensor();
  check<StateError>(waiting.dim() == 1 && waiting.scalar_type() == at::kLong && waiting.numel() <= position,
                    "data.sampler", "expected up to ", position, " waiting records, got ",
                    c10::toString(waiting.scalar_type()), " [", join(waiting.sizes()), "]");
  const at::Tensor records = waiting.to(at::Device(at::kCPU)).contiguous();
  const auto* const begin = records.const_data_ptr<std::int64_t>();
  const auto* const end = begin + records.numel();
  const auto* const bad = std::find_if(begin, end, [&](std::int64_t i) { return i < 0 || i >= order_.size(); });
  check<StateError>(bad == end, "data.sampler", "expected waiting records in [0, ", order_.size(), "), got ",
                    bad == end ? 0 : *bad);
  options_.seed = static_cast<std::uint64_t>(seed);
  options_.split = split;
  set_epoch(epoch);
  cursor_ = position;
  for (const auto* record = begin; record != end; ++record) {
    wait(*record, record - end);  // before records that are not visited yet
  }
}

}  // namespace danling::inline v0::data
