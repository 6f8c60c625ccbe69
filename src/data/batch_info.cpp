#include <danling/data/batch_info.hpp>

namespace danling::inline v0::data {

BatchInfo BatchInfo::of(std::span<const std::int64_t> indices) {
  BatchInfo out;
  out.indices.assign(indices.begin(), indices.end());
  return out;
}

Metadata BatchInfo::metadata(std::size_t i) const {
  Metadata out;
  out.index = indices[i];
  out.epoch = epoch;
  out.global_step = global_step;
  out.batch_idx = batch_idx;
  out.shard_id = shard_id;
  out.rng_key = key(i);
  if (!entry_keys.empty()) {
    out.entry_key = entry_keys[i];
  }
  return out;
}

BatchInfo BatchInfo::select(std::span<const std::size_t> samples) const {
  BatchInfo out;
  out.indices.reserve(samples.size());
  out.sample_keys.reserve(sample_keys.empty() ? 0 : samples.size());
  for (const std::size_t i : samples) {
    out.indices.push_back(indices[i]);
    if (!sample_keys.empty()) {
      out.sample_keys.push_back(sample_keys[i]);
    }
    if (!entry_keys.empty()) {
      out.entry_keys.push_back(entry_keys[i]);
    }
    out.num_padding += static_cast<std::int64_t>(i) >= static_cast<std::int64_t>(size()) - num_padding ? 1 : 0;
  }
  out.split = split;
  out.epoch = epoch;
  out.batch_idx = batch_idx;
  out.global_step = global_step;
  out.position = position;
  out.shard_id = shard_id;
  out.global_size = global_size;
  out.epoch_key = epoch_key;
  out.batch_key = batch_key;
  out.collation = collation;
  return out;
}

BatchInfo BatchInfo::at_layer(std::int64_t layer) const {
  BatchInfo out = *this;
  if (layer > 0) {
    const std::uint64_t constant = detail::layer_constant(layer);
    out.epoch_key = epoch_key.fold_in(constant);
    out.batch_key = batch_key.fold_in(constant);
    for (RandomKey& key : out.sample_keys) {
      key = key.fold_in(constant);
    }
  }
  return out;
}

}  // namespace danling::inline v0::data
