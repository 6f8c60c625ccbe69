#include <danling/data/metadata.hpp>

#include <limits>
#include <utility>

#include <danling/core/error.hpp>

namespace danling::inline v0::data {

namespace {

template <class T>
State or_null(const std::optional<T>& value) {
  return value ? State(*value) : State();
}

std::optional<std::int64_t> integer_of(const State& value) {
  return value.is_null() ? std::nullopt : std::optional<std::int64_t>(value.integer());
}

std::uint32_t half_of_key(const State& value) {
  const std::int64_t half = value.integer();
  check<StateError>(half >= 0 && half <= std::numeric_limits<std::uint32_t>::max(), "data.metadata",
                    "expected each half of rng_key in [0, 2^32), got ", half);
  return static_cast<std::uint32_t>(half);
}

std::optional<RandomKey> key_of(const State& value) {
  if (value.is_null()) {
    return std::nullopt;
  }
  const State::List& halves = value.items();
  check<StateError>(halves.size() == 2, "data.metadata", "expected two numbers for rng_key, got ", halves.size());
  return RandomKey{half_of_key(halves[0]), half_of_key(halves[1])};
}

bool says_something(const State& info) { return !info.is_null() && !(info.is_map() && info.map().empty()); }

}  // namespace

std::vector<std::optional<RandomKey>> Metadata::split_rng(std::int64_t num) const {
  check<DataError>(num >= 0, "data.metadata", "expected a number of keys of at least 0, got ", num);
  std::vector<std::optional<RandomKey>> keys(static_cast<std::size_t>(num));
  if (rng_key) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      keys[i] = rng_key->fold_in(i);
    }
  }
  return keys;
}

Metadata Metadata::next_rng() const {
  Metadata next = *this;
  if (rng_key) {
    next.rng_key = rng_key->fold_in(1);
  }
  return next;
}

Metadata Metadata::increment_step() const {
  Metadata next = *this;
  ++next.global_step;
  return next;
}

Metadata Metadata::increment_epoch() const {
  Metadata next = *this;
  ++next.epoch;
  next.batch_idx = 0;
  return next;
}

Metadata Metadata::increment_batch() const {
  Metadata next = *this;
  next.batch_idx = batch_idx ? *batch_idx + 1 : 0;
  return next;
}

Metadata Metadata::with_shard(std::int64_t shard) const {
  Metadata next = *this;
  next.shard_id = shard;
  return next;
}

Metadata Metadata::merge(const Metadata& other) const {
  Metadata merged;
  merged.index = other.index != 0 ? other.index : index;
  merged.epoch = other.epoch != 0 ? other.epoch : epoch;
  merged.global_step = other.global_step != 0 ? other.global_step : global_step;
  merged.batch_idx = other.batch_idx ? other.batch_idx : batch_idx;
  merged.shard_id = other.shard_id ? other.shard_id : shard_id;
  merged.rng_key = other.rng_key ? other.rng_key : rng_key;
  merged.entry_key = other.entry_key ? other.entry_key : entry_key;
  merged.source_info = says_something(other.source_info) ? other.source_info : source_info;
  return merged;
}

Metadata Metadata::merge(const std::optional<Metadata>& other) const { return other ? merge(*other) : *this; }

State Metadata::to_dict() const {
  State dict;
  dict["index"] = index;
  dict["epoch"] = epoch;
  dict["global_step"] = global_step;
  dict["batch_idx"] = or_null(batch_idx);
  dict["shard_id"] = or_null(shard_id);
  dict["rng_key"] = State();
  if (rng_key) {
    dict["rng_key"] = State::List{State(std::int64_t{rng_key->high}), State(std::int64_t{rng_key->low})};
  }
  dict["record_key"] = or_null(entry_key);
  dict["source_info"] = source_info;
  return dict;
}

Metadata Metadata::from_dict(const State& dict) {
  Metadata out;
  for (const auto& [key, value] : dict.map()) {
    const std::string& name = key.string();
    if (name == "index") {
      out.index = value.integer();
    } else if (name == "epoch") {
      out.epoch = value.integer();
    } else if (name == "global_step") {
      out.global_step = value.integer();
    } else if (name == "batch_idx") {
      out.batch_idx = integer_of(value);
    } else if (name == "shard_id") {
      out.shard_id = integer_of(value);
    } else if (name == "rng_key") {
      out.rng_key = key_of(value);
    } else if (name == "record_key" || name == "key") {
      out.entry_key = value.is_null() ? std::nullopt : std::optional<std::string>(value.string());
    } else if (name == "source_info") {
      out.source_info = value;
    } else {
      fail<StateError>("data.metadata", "expected a field of Metadata, got ", quote(name));
    }
  }
  return out;
}

bool operator==(const Metadata& a, const Metadata& b) { return bitwise_equal(a.to_dict(), b.to_dict()); }

}  // namespace danling::inline v0::data
