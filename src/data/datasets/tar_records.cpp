#include <danling/data/datasets/tar_records.hpp>

#include <algorithm>
#include <map>
#include <span>
#include <system_error>
#include <unordered_set>
#include <utility>

#include <ATen/ops/empty.h>

#include <danling/core/error.hpp>
#include <danling/data/permutation.hpp>
#include <danling/data/random.hpp>
#include <danling/data/throw_if_cancelled.hpp>
#include <danling/formats/detail/checksum.hpp>

namespace danling::inline v0::data {

namespace {

constexpr std::string_view shards_component = "data.tar_shards";
// Maximum size of a record to prefetch; larger records are read on access.
constexpr std::uint64_t max_prefetch = std::uint64_t{1} << 26;

/// Checks that the names of a record's members differ: a few by comparison, many by a set.
class MemberNames {
 public:
  /// Returns false if one of `before` has that name.
  bool add(const std::vector<TarRecord::Member>& before, const std::string& name) {
    constexpr std::size_t few = 32;
    if (before.size() < few) {
      return std::none_of(before.begin(), before.end(), [&](const auto& member) { return member.name == name; });
    }
    if (names_.empty()) {
      for (const TarRecord::Member& member : before) {
        names_.insert(member.name);
      }
    }
    return names_.insert(name).second;
  }

 private:
  std::unordered_set<std::string> names_;
};

struct KeyAndName {
  std::string_view key;
  std::string_view name;
};

/// WebDataset's rule: the key ends at the first dot of the file name. Returns nullopt for names that WebDataset skips.
std::optional<KeyAndName> split_name(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  const std::size_t begin = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = path.find('.', begin);
  const std::string_view first = path.substr(0, path.find('/'));
  const bool meta = first.size() >= 4 && first.starts_with("__") && first.ends_with("__");
  if (meta || dot == std::string_view::npos || dot == begin) {
    return std::nullopt;
  }
  return KeyAndName{path.substr(0, dot), path.substr(dot + 1)};
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

/// Hashes the file names without directories.
std::string hash_of(const std::vector<std::filesystem::path>& shards) {
  formats::Hasher hasher;
  for (const auto& shard : shards) {
    const std::string name = shard.filename().string();
    hasher.update(std::as_bytes(std::span(name.c_str(), name.size() + 1)));
  }
  return formats::to_hex(hasher.digest());
}

}  // namespace

TarRecords::TarRecords(const std::vector<std::string>& shards, TarRecordsOptions options)
    : options_(std::move(options)), order_split_(options_.split) {
  check<ConfigError>(options_.shuffle_buffer >= 0, shards_component, "expected a shuffle_buffer of 0 or more, got ",
                     options_.shuffle_buffer);
  std::vector<std::string> missing;
  for (const std::string& pattern : shards) {
    for (std::string& shard : expand_braces(pattern)) {
      std::error_code error;
      if (!std::filesystem::exists(shard, error)) {
        missing.push_back(quote(shard));
      }
      shards_.emplace_back(std::move(shard));
    }
  }
  check<DataError>(!shards_.empty(), shards_component, "expected at least one shard, got none");
  if (!missing.empty()) {
    const std::size_t num_missing = missing.size();
    missing.resize(std::min(num_missing, std::size_t{3}));
    fail<DataError>(shards_component, "expected ", shards_.size(), " shards, got ", shards_.size() - num_missing,
                    ": there is no ", join(missing),
                    num_missing > 3 ? concat(" and ", num_missing - 3, " others") : "");
  }
  shards_hash_ = hash_of(shards_);
}

const std::filesystem::path& TarRecords::path_of(std::int64_t shard) const {
  const auto count = static_cast<std::int64_t>(shards_.size());
  if (options_.shuffle_shards) {
    shard = Permutation(count, order_key(options_.seed, epoch_, order_split_ + "/shards"))(shard);
  }
  return shards_[static_cast<std::size_t>(shard)];
}

void TarRecords::open(std::int64_t shard) {
  if (archive_ == nullptr) {
    archive_ = std::make_shared<const formats::TarArchive>(path_of(shard));
  }
}

std::optional<TarRecords::Slot> TarRecords::read(bool prefetch) {
  while (shard_ < static_cast<std::int64_t>(shards_.size())) {
    open(shard_);
    std::optional<TarRecord> record;
    MemberNames names;
    // Updated only after a whole record: an error must not change the position.
    std::uint64_t offset = offset_;
    auto member = ahead_ ? std::exchange(ahead_, std::nullopt) : archive_->next(offset);
    for (; member; member = archive_->next(offset)) {
      const auto parts = split_name(member->name);
      if (parts) {
        if (!record) {
          record.emplace(archive_, std::string(parts->key), offset);
        } else if (record->key() != parts->key) {
          break;
        }
        std::string name = lower(parts->name);
        if (!names.add(record->members(), name)) {
          fail<DataError>(shards_component, "expected one member ", quote(name), " of a key, got two (",
                          record->where(), ")");
        }
        record->add({std::move(name), member->offset, member->size});
      }
      offset = member->next;
    }
    if (record) {
      if (prefetch) {
        archive_->prefetch(offset_, std::min(offset - offset_, max_prefetch));
      }
      offset_ = offset;
      ahead_ = std::move(member);
      return Slot{shard_, std::move(*record)};
    }
    ++shard_;
    offset_ = 0;
    archive_.reset();
  }
  return std::nullopt;
}

std::optional<TarRecord> TarRecords::take(bool prefetch) {
  std::optional<TarRecord> out;
  if (options_.shuffle_buffer < 2) {
    if (auto slot = read(prefetch)) {
      out = std::move(slot->record);
    }
  } else {
    while (static_cast<std::int64_t>(buffer_.size()) < options_.shuffle_buffer) {
      throw_if_cancelled();
      auto slot = read(prefetch);
      if (!slot) {
        break;
      }
      buffer_.push_back(std::move(*slot));
    }
    if (!buffer_.empty()) {
      const RandomKey key = RandomKey::of(order_key(options_.seed, epoch_, order_split_ + "/buffer"));
      Random random(key.fold_in(static_cast<std::uint64_t>(taken_)));
      auto& chosen = buffer_[static_cast<std::size_t>(random.randint(static_cast<std::int64_t>(buffer_.size())))];
      out = std::move(chosen.record);
      if (&chosen != &buffer_.back()) {
        chosen = std::move(buffer_.back());
      }
      buffer_.pop_back();
    }
  }
  taken_ += out ? 1 : 0;
  return out;
}

std::int64_t TarRecords::skip(std::int64_t count) {
  std::int64_t done = 0;
  while (done < count && take(/*prefetch=*/false)) {
    ++done;
  }
  return done;
}

void TarRecords::reset(std::int64_t epoch) {
  epoch_ = epoch;
  shard_ = 0;
  offset_ = 0;
  taken_ = 0;
  buffer_.clear();
  archive_.reset();
  ahead_.reset();
}

State TarRecords::state_dict() const {
  State state;
  state["type"] = "tar_records";
  state["shards"] = shards_hash_;
  state["shuffle_shards"] = options_.shuffle_shards;
  state["shuffle_buffer"] = options_.shuffle_buffer;
  state["seed"] = static_cast<std::int64_t>(options_.seed);
  state["split"] = order_split_;
  state["epoch"] = epoch_;
  state["shard"] = shard_;
  state["offset"] = static_cast<std::int64_t>(offset_);
  state["taken"] = taken_;
  at::Tensor places = at::empty({static_cast<std::int64_t>(buffer_.size()), 2}, at::kLong);
  auto* place = places.mutable_data_ptr<std::int64_t>();
  for (const Slot& slot : buffer_) {
    *place++ = slot.shard;
    *place++ = static_cast<std::int64_t>(slot.record.offset());
  }
  state["buffer"] = places;
  return state;
}

void TarRecords::load_state_dict(const State& state) {
  const auto require = [](bool holds, const auto&... what) { check<StateError>(holds, "data.tar_shards", what...); };
  require(state.is_map() && state.find("type") != nullptr && state.at("type").is_string() &&
              state.at("type").string() == "tar_records",
          "expected the state of a stream of shards, got another kind");
  require(state.at("shards").string() == shards_hash_, "expected the state of these ", shards_.size(),
          " shards, got one of others");
  require(state.at("shuffle_shards").boolean() == options_.shuffle_shards, "expected a state with shuffle_shards ",
          options_.shuffle_shards, ", got ", !options_.shuffle_shards);
  require(state.at("shuffle_buffer").integer() == options_.shuffle_buffer, "expected a state with a shuffle_buffer of ",
          options_.shuffle_buffer, ", got ", state.at("shuffle_buffer").integer());
  const auto num_shards = static_cast<std::int64_t>(shards_.size());
  const std::int64_t shard = state.at("shard").integer();
  const std::int64_t offset = state.at("offset").integer();
  const std::int64_t taken = state.at("taken").integer();
  require(shard >= 0 && shard <= num_shards && offset >= 0 && taken >= 0, "expected a position in ", num_shards,
          " shards, got shard ", shard, ", offset ", offset);
  const at::Tensor places = state.at("buffer").tensor().to(at::kCPU, at::kLong).contiguous();
  require(
      places.dim() == 2 && places.size(1) == 2 && places.size(0) <= std::max(options_.shuffle_buffer, std::int64_t{0}),
      "expected a buffer of at most ", options_.shuffle_buffer, " places, got [", join(places.sizes()), "]");

  TarRecords loaded(*this);
  loaded.options_.seed = static_cast<std::uint64_t>(state.at("seed").integer());
  if (const State* split = state.find("split")) {  // older states lack it
    loaded.order_split_ = split->string();
  }
  loaded.reset(state.at("epoch").integer());
  loaded.taken_ = taken;
  const auto* place = places.const_data_ptr<std::int64_t>();
  // The buffer's records are in any order: opens each shard once for all of its records.
  std::map<std::int64_t, std::shared_ptr<const formats::TarArchive>> archives;
  for (std::int64_t i = 0; i < places.size(0); ++i, place += 2) {
    require(place[0] >= 0 && place[0] < num_shards && place[1] >= 0, "expected a place in ", num_shards,
            " shards, got shard ", place[0], ", offset ", place[1]);
    auto& archive = archives[place[0]];
    loaded.archive_ = archive;
    loaded.shard_ = place[0];
    loaded.offset_ = static_cast<std::uint64_t>(place[1]);
    loaded.ahead_.reset();
    auto slot = loaded.read(/*prefetch=*/true);
    require(slot && slot->shard == place[0], "expected a record at offset ", place[1], " of shard ", place[0],
            ", got none");
    archive = loaded.archive_;
    loaded.buffer_.push_back(std::move(*slot));
  }
  const auto here = archives.find(shard);
  loaded.archive_ = here == archives.end() ? nullptr : here->second;
  loaded.ahead_.reset();
  loaded.shard_ = shard;
  loaded.offset_ = static_cast<std::uint64_t>(offset);
  *this = std::move(loaded);
}

TarRecords tar_records(const std::string& shards, TarRecordsOptions options) {
  return TarRecords({shards}, std::move(options));
}

}  // namespace danling::inline v0::data
