// Shards of records: TAR archives in WebDataset's layout, read one after another as a stream.
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

/// Consecutive members of an archive whose names are the same up to the first dot of the file name (`train/0001.jpg`,
/// `train/0001.seg.png`). Holds their offsets; reads their content on access, in several threads at a time, even after
/// the stream has advanced.
class TarRecord {
 public:
  struct Member {
    /// The extension behind the first dot, in lower case: `jpg`, `seg.png`.
    std::string name;
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
  };

  TarRecord(std::shared_ptr<const formats::TarArchive> archive, std::string key, std::uint64_t offset)
      : archive_(std::move(archive)), key_(std::move(key)), offset_(offset) {}

  /// The name up to the first dot, directories included.
  const std::string& key() const { return key_; }
  const std::filesystem::path& shard() const { return archive_->path(); }
  /// Offset of its first header in the shard.
  std::uint64_t offset() const { return offset_; }
  const std::vector<Member>& members() const { return members_; }
  void add(Member member) { members_.push_back(std::move(member)); }
  std::vector<std::string> names() const;

  /// The first of `names` (`jpg;jpeg;png`) that it has, or null.
  const Member* find(std::string_view names) const;
  /// @throws DataError that lists the existing members when it has none of `names`, and as the following.
  const Member& at(std::string_view names) const;
  /// The content. @throws DataError when it cannot be read.
  std::string bytes(const Member& member) const;
  /// The content, decoded by the last part of the name: `jpg`, `jpeg`, `png` are uint8 [C, H, W]; `npy` is a tensor;
  /// `cls`, `cls2`, `class`, `count`, `index`, `inx`, `id` an integer; `json`, `jsn` a tree; `txt`, `text`,
  /// `transcript` a text; all others bytes. @throws DataError that names member, shard and offset when the content does
  /// not match its name
  State value(const Member& member, const formats::ImageDecodeOptions& images = {}) const;
  /// For messages: `key 'x', file 'y.tar', offset 1024`.
  std::string where() const;

 private:
  std::shared_ptr<const formats::TarArchive> archive_;
  std::string key_;
  std::uint64_t offset_;
  std::vector<Member> members_;
};

struct TarRecordsOptions {
  /// A new order of the shards in every epoch, computed from (seed, epoch, split).
  bool shuffle_shards = false;
  /// Size of the shuffle buffer, in records; below 2, records keep the order of the shards. Costs the memory of their
  /// names and offsets (some hundred bytes each), and two integers each in the state.
  std::int64_t shuffle_buffer = 0;
  std::uint64_t seed = 0;
  std::string split = {};
};

/// The records of all shards; a `RecordStream`, to be mapped to samples in the workers. It reads headers only. Skips
/// file names without a dot, or that begin with one, and names or directories `__like_this__`; members of a key that
/// another key or the end of a shard interrupts become separate records, as in WebDataset. Records keep their shards
/// open: a shuffle buffer takes a file descriptor for each shard that it has records of. Errors are DataErrors that
/// name shard and offset; the position stays unchanged.
class TarRecords {
 public:
  /// Shards are paths, or patterns: `{000..099}` counts, with as many digits, and `{a,b}` lists.
  /// @throws DataError when there are none or some do not exist, ConfigError for an invalid pattern
  explicit TarRecords(const std::vector<std::string>& shards, TarRecordsOptions options = {});

  std::optional<TarRecord> next() { return take(/*prefetch=*/true); }
  std::int64_t skip(std::int64_t count);
  void reset(std::int64_t epoch);
  /// The shard, the offset in it, and those of the records in the buffer.
  State state_dict() const;
  /// Restores the saved seed too, so that the saved order continues. @throws StateError when the shards or options
  /// differ.
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
  std::int64_t epoch_ = 0;
  std::int64_t shard_ = 0;    // position in the order of the epoch
  std::uint64_t offset_ = 0;  // offset of the next record in it
  std::int64_t taken_ = 0;    // records of this epoch
  std::vector<Slot> buffer_;
  std::shared_ptr<const formats::TarArchive> archive_;  // archive of `shard_`, or null
  std::optional<formats::TarMember> ahead_;             // member at `offset_`, if known
};

/// One path or pattern.
TarRecords tar_records(const std::string& shards, TarRecordsOptions options = {});

/// The names that a pattern expands to, in order. @throws ConfigError for an unmatched brace, an invalid range, and
/// more than 10 million names.
std::vector<std::string> expand_braces(std::string_view pattern);

}  // namespace danling::inline v0::data
