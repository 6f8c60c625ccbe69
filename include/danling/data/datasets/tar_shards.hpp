// Batches from shards in WebDataset's layout: selects members of TAR archives by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <danling/data/batch.hpp>
#include <danling/data/batch_info.hpp>
#include <danling/data/datasets/image.hpp>
#include <danling/data/datasets/tar_records.hpp>
#include <danling/data/sample.hpp>

namespace danling::inline v0::data {

struct TarShardsOptions {
  /// As in TarRecordsOptions.
  bool shuffle_shards = false;
  std::int64_t shuffle_buffer = 0;
  std::uint64_t seed = 0;
  std::string split = {};
  /// Member of the input: the first of these names that a record has. Empty: no input.
  std::string input = "jpg;jpeg;png";
  /// Member of the target, a number or an array. Empty: no target.
  std::string target = "cls";
  /// Members for `extra`; by default all others. Only listed members are read. Names with dots (`seg.png`) become
  /// nested maps.
  std::optional<std::vector<std::string>> extra = {};
  /// Decoding, resizing and cropping of an input image; other images are decoded with the channels of their file.
  ImageOptions image = {};
};

/// A sample of a shard, identified by its key, which is stored in `Batch::info.entry_keys`.
struct TarSample : Sample {
  std::string uuid;
};

/// A stream of samples: finds records sequentially; the workers read and decode them.
class TarShards {
 public:
  /// @throws ConfigError for invalid options, and errors of TarRecords
  TarShards(TarRecords records, TarShardsOptions options);

  std::optional<TarRecord> next() { return records_.next(); }
  /// Creates input, target and extra by `TarRecord::value`; thread-safe. @throws DataError with key, shard and offset.
  TarSample make(TarRecord record, const SampleInfo& info) const;
  Batch collate(std::vector<TarSample> samples) const;

  std::int64_t skip(std::int64_t count) { return records_.skip(count); }
  void reset(std::int64_t epoch) { records_.reset(epoch); }
  State state_dict() const { return records_.state_dict(); }
  void load_state_dict(const State& state) { records_.load_state_dict(state); }
  std::string split() const { return records_.split(); }

 private:
  TarRecords records_;
  TarShardsOptions options_;
};

/// Accepts paths or patterns: see `TarRecords`. For custom samples use `map(tar_records(...), function)`.
TarShards tar_shards(const std::vector<std::string>& shards, TarShardsOptions options = {});
TarShards tar_shards(const std::string& shards, TarShardsOptions options = {});

}  // namespace danling::inline v0::data
