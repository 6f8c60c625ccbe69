// Streams of records from shards: TAR archives in WebDataset's layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <danling/formats/image.hpp>
#include <danling/formats/tar.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::data {

/// Consecutive members of an archive with equal names up to the first dot of the file name (`train/0001.jpg`,
/// `train/0001.seg.png`). Stores their offsets and reads their content on access; thread-safe, also after the stream
/// has advanced.
class TarRecord {
 public:
  struct Member {
    /// Extension after the first dot, in lower case: `jpg`, `seg.png`.
    std::string name;
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
  };

  TarRecord(std::shared_ptr<const formats::TarArchive> archive, std::string key, std::uint64_t offset)
      : archive_(std::move(archive)), key_(std::move(key)), offset_(offset) {}

  /// Returns the name up to the first dot, including directories.
  const std::string& key() const { return key_; }
  const std::filesystem::path& shard() const { return archive_->path(); }
  /// Returns the offset of the first header in the shard.
  std::uint64_t offset() const { return offset_; }
  const std::vector<Member>& members() const { return members_; }
  void add(Member member) { members_.push_back(std::move(member)); }
  std::vector<std::string> names() const;

  /// Returns the first of `names` (`jpg;jpeg;png`) that the record has, or null.
  const Member* find(std::string_view names) const;
  /// As find. @throws DataError with the existing members if none matches.
  const Member& at(std::string_view names) const;
  /// Returns the content of a member. @throws DataError when it cannot be read.
  std::string bytes(const Member& member) const;
  /// Decodes a member by the last part of its name: `jpg`, `jpeg`, `png` to uint8 [C, H, W]; `npy` to a tensor; `cls`,
  /// `cls2`, `class`, `count`, `index`, `inx`, `id` to an integer; `json`, `jsn` to a tree; `txt`, `text`, `transcript`
  /// to text; all others to bytes.
  /// @throws DataError with member, shard and offset when the content does not match the name
  State value(const Member& member, const formats::ImageDecodeOptions& images = {}) const;
  /// Describes the record for messages: `key 'x', file 'y.tar', offset 1024`.
  std::string where() const;

 private:
  std::shared_ptr<const formats::TarArchive> archive_;
  std::string key_;
  std::uint64_t offset_;
  std::vector<Member> members_;
};

struct TarRecordsOptions {
  /// Shuffles the shards in every epoch, by (seed, epoch, split).
  bool shuffle_shards = false;
  /// Size of the shuffle buffer in records; below 2, records keep the order of the shards. Needs some hundred bytes of
  /// memory per record, for names and offsets, and two integers per record in the state.
  std::int64_t shuffle_buffer = 0;
  std::uint64_t seed = 0;
  std::string split = {};
};

/// The records of all shards, a `RecordStream`; use `map` to create samples in the workers. Reads headers only. Skips
/// file names without a dot or with a leading dot, and names or directories `__like_this__`. If another key or the end
/// of a shard interrupts the members of a key, they become separate records, as in WebDataset. Records keep their shard
/// open: a shuffle buffer takes one file descriptor for each shard in it. Errors are DataErrors with shard and offset;
/// the position does not change.
class TarRecords {
 public:
  /// Shards are paths or patterns: `{000..099}` counts, with a fixed number of digits, and `{a,b}` lists.
  /// @throws DataError without shards or when some do not exist, ConfigError for an invalid pattern or a negative
  /// `shuffle_buffer`
  explicit TarRecords(const std::vector<std::string>& shards, TarRecordsOptions options = {});

  std::optional<TarRecord> next() { return take(/*prefetch=*/true); }
  std::int64_t skip(std::int64_t count);
  void reset(std::int64_t epoch);
  /// Returns the shard, the offset in it, and the places of the records in the buffer.
  State state_dict() const;
  /// Also restores the saved seed, so that the saved order continues.
  /// @throws StateError when shards or options differ.
  void load_state_dict(const State& state);
  std::string split() const { return options_.split; }

  const std::vector<std::filesystem::path>& shards() const { return shards_; }

 private:
  struct Slot {
    std::int64_t shard;  // position in the order of the epoch
    TarRecord record;
  };

  std::optional<TarRecord> take(bool prefetch);
  std::optional<Slot> read(bool prefetch);
  void open(std::int64_t shard);
  const std::filesystem::path& path_of(std::int64_t shard) const;

  std::vector<std::filesystem::path> shards_;
  std::string shards_hash_;
  TarRecordsOptions options_;
  std::string order_split_;  // whose order is read: that of a loaded state
  std::int64_t epoch_ = 0;
  std::int64_t shard_ = 0;    // position in the order of the epoch
  std::uint64_t offset_ = 0;  // offset of the next record in it
  std::int64_t taken_ = 0;    // records of this epoch
  std::vector<Slot> buffer_;
  std::shared_ptr<const formats::TarArchive> archive_;  // archive of `shard_`, or null
  std::optional<formats::TarMember> ahead_;             // member at `offset_`, if known
};

/// Accepts one path or pattern.
TarRecords tar_records(const std::string& shards, TarRecordsOptions options = {});

/// Returns the names that a pattern expands to, in order.
/// @throws ConfigError for an unmatched brace, an invalid range, and more than 10 million names.
std::vector<std::string> expand_braces(std::string_view pattern);

}  // namespace danling::inline v0::data
