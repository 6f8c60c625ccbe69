#include <checkpoint/sharded_directory.hpp>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include <danling/checkpoint/sharded.hpp>
#include <danling/core/error.hpp>
#include <danling/formats/detail/dcp_reader.hpp>
#include <danling/formats/file.hpp>

#include <checkpoint/counters.hpp>

namespace danling::inline v0 {
namespace {

namespace fs = std::filesystem;
using formats::DcpManifest;

constexpr const char* pointer = ".pointer";

// `<name>-g<12 digits>-q...`: the directories that this class may remove.
bool is_save(const std::string& name) {
  const std::size_t step = name.rfind("-g");
  const std::size_t rest = name.find("-q", step == std::string::npos ? 0 : step);
  return step != std::string::npos && rest == step + 14 &&
         std::all_of(name.begin() + static_cast<std::ptrdiff_t>(step + 2),
                     name.begin() + static_cast<std::ptrdiff_t>(rest), [](char c) { return c >= '0' && c <= '9'; });
}

std::optional<DcpManifest> readable_manifest(const fs::path& directory) {
  try {
    return formats::find_dcp_manifest(directory);
  } catch (const CheckpointError&) {
    return std::nullopt;
  }
}

bool has_manifest(const fs::path& directory) {
  std::error_code missing;
  return fs::exists(directory / formats::dcp_manifest_name, missing);
}

// Removes the manifest first: if the process dies in between, the save counts as incomplete.
void remove_save(const fs::path& directory, std::error_code& error) {
  fs::remove(directory / formats::dcp_manifest_name, error);
  fs::remove_all(directory, error);
}

std::int64_t modified(const fs::path& directory) {
  std::error_code missing;
  const auto time = fs::last_write_time(directory / formats::dcp_manifest_name, missing);
  return missing ? 0 : std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

CheckpointCounters counters_or(const std::optional<DcpManifest>& manifest, std::int64_t without) {
  return manifest && manifest->epoch && manifest->global_step
             ? CheckpointCounters{*manifest->epoch, *manifest->global_step, manifest->micro_step.value_or(0)}
             : CheckpointCounters{without, without, without};
}

}  // namespace

void verify_sharded(const fs::path& directory) {
  formats::DcpReader reader(directory);
  check<CheckpointError>(reader.manifest().has_value(), "checkpoint.read",
                         "expected a manifest, got none: the save was not completed (directory ",
                         quote(directory.string()), ")");
  for (const auto& file : reader.files()) {
    reader.verify(file);
  }
}

std::optional<fs::path> ShardedDirectory::find(const std::string& name) const {
  std::error_code missing;
  return fs::exists(directory_ / (name + pointer), missing) ? std::optional(resolve_sharded(directory_ / name))
                                                            : std::nullopt;
}

std::vector<std::string> ShardedDirectory::names() const {
  std::vector<std::string> out;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(directory_, missing)) {
    if (entry.path().extension() == pointer && entry.path().filename().string().front() != '.') {
      out.push_back(entry.path().stem().string());
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::string> ShardedDirectory::saves() const {
  std::vector<std::string> out;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(directory_, missing)) {
    if (entry.is_directory(missing) && is_save(entry.path().filename().string())) {
      out.push_back(entry.path().filename().string());
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

void ShardedDirectory::prepare(const RetentionRules& rules) {
  if (prepared_) {
    return;
  }
  fs::create_directories(directory_);
  lock_.lock(directory_);
  formats::remove_stale_temporaries(directory_);
  for (const auto& name : saves()) {
    std::error_code error;
    if (!has_manifest(directory_ / name)) {
      remove_save(directory_ / name, error);
    }
  }
  history_ = history_on_disk();
  mark_kept_by_hours(history_, rules);
  prepared_ = true;
}

std::string ShardedDirectory::recreate(const RetentionRules& rules) {
  if (prepared_ && !lock_.is_removed(directory_)) {
    return {};
  }
  unlock();
  known_valid_.clear();
  fs::create_directories(directory_);
  lock_.lock(directory_);
  history_ = history_on_disk();
  mark_kept_by_hours(history_, rules);
  prepared_ = true;
  return concat("[checkpoint.write] expected the directory ", quote(directory_.string()),
                ", got none: it was removed with the earlier checkpoints in it; recreated it");
}

void ShardedDirectory::unlock() {
  lock_.unlock();
  prepared_ = false;
}

void ShardedDirectory::point(const std::string& name, const std::string& target) const {
  formats::replace_file(directory_ / (name + pointer), target + "\n");
}

void ShardedDirectory::note_valid(const fs::path& path) {
  if (path.parent_path() == directory_) {
    known_valid_ = path.filename().string();
  }
}

Published ShardedDirectory::publish(const Publication& what, const std::string& target, const std::string& running) {
  Published out;
  const auto attempt = [&](const std::string& name, const std::string& to) {
    try {
      point(name, to);
      out.names.push_back(name);
    } catch (const CheckpointError& error) {
      if (out.error.empty()) {
        out.error = error.what();
        out.failed_alias = name;
      }
    }
  };
  // As in CheckpointDirectory: if the process dies in between, resume starts from the old `latest` and repeats this
  // save.
  for (const auto& alias : what.aliases) {
    attempt(alias, target);
  }
  if (what.history && out.error.empty()) {
    prune(what, out);
  }
  std::optional<fs::path> before;
  if (what.name == "latest") {
    before = find("latest");
    bool serves = before && before->filename() != target;
    if (serves && before->filename() != known_valid_) {
      try {  // a damaged `latest` must not replace a valid `previous`
        verify_sharded(*before);
      } catch (const CheckpointError&) {
        serves = false;
      }
    }
    if (serves && what.latest_may_be_model) {
      const auto manifest = readable_manifest(*before);
      serves = manifest && !manifest->is_model;
    }
    before = serves ? before : std::nullopt;
  }
  attempt(what.name, target);
  if (before && out.error.empty()) {
    attempt("previous", before->filename().string());
  }
  if (what.name == "latest" && out.error.empty()) {
    known_valid_ = target;
  }
  if (out.error.empty()) {
    remove_unnamed(target, running);
  }
  return out;
}

// Removes names; remove_unnamed() removes the directories, once `latest` is the new one.
void ShardedDirectory::prune(const Publication& what, Published& out) {
  std::erase_if(history_, [&](const auto& entry) { return entry.name == *what.history; });
  const auto here = parse_history_name(*what.history);
  // Entries ahead of it date from before the run went back; the run will rewrite them.
  std::stable_partition(history_.begin(), history_.end(), [&](const auto& entry) {
    const auto there = parse_history_name(entry.name);
    return here && there && here->by_steps == there->by_steps && there->progress > here->progress;
  });
  const auto target = find(*what.history);
  history_.push_back({*what.history, target ? modified(*target) : 0, what.score});
  for (const auto& name : superseded(history_, what.rules)) {
    std::error_code error;
    fs::remove(directory_ / (name + pointer), error);
    if (error && out.error.empty()) {
      out.error = concat("[checkpoint.prune] expected to remove ", quote((directory_ / (name + pointer)).string()),
                         ", got errno ", error.value(), " (", error.message(), ")");
      out.failed_alias = name;
    }
    std::erase_if(history_, [&](const auto& entry) { return entry.name == name; });
  }
}

void ShardedDirectory::remove_unnamed(const std::string& target, const std::string& running) const {
  std::set<std::string> named = {target};
  for (const auto& name : names()) {
    if (const auto found = find(name)) {
      named.insert(found->filename().string());
    }
  }
  for (const auto& name : saves()) {
    // Ranks write saves in order: saves before this one have ended on all ranks.
    const std::size_t at = name.rfind(running);
    const std::size_t here = target.rfind(running);
    const bool written_now = at != std::string::npos && here != std::string::npos &&
                             name.compare(at, std::string::npos, target, here, std::string::npos) > 0;
    if (!named.contains(name) && !written_now) {
      std::error_code error;
      remove_save(directory_ / name, error);
    }
  }
}

std::vector<HistoryEntry> ShardedDirectory::history_on_disk() const {
  std::vector<std::tuple<CheckpointCounters, std::int64_t, HistoryEntry>> found;
  for (const auto& name : names()) {
    const auto parsed = parse_history_name(name);
    const auto target = find(name);
    if (parsed && target) {
      const auto manifest = readable_manifest(*target);
      found.emplace_back(counters_or(manifest, 0), parsed->progress,
                         HistoryEntry{name, modified(*target), manifest ? manifest->score : std::nullopt});
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
  });
  std::vector<HistoryEntry> out;
  for (auto& entry : found) {
    out.push_back(std::move(std::get<2>(entry)));
  }
  return out;
}

std::vector<fs::path> ShardedDirectory::candidates(std::vector<SkippedCheckpoint>& skipped) const {
  std::vector<fs::path> out;
  std::set<fs::path> known;
  const auto latest = find("latest");
  if (latest) {
    known.insert(*latest);
    out.push_back(*latest);
  } else if (find("previous")) {
    skipped.push_back({directory_ / (std::string("latest") + pointer), "expected a file, got none"});
  }
  std::vector<std::pair<CheckpointCounters, fs::path>> order;
  const auto add = [&](const fs::path& path) {
    if (!known.insert(path).second) {
      return;
    }
    try {
      if (const auto manifest = formats::find_dcp_manifest(path)) {
        if (manifest->is_model) {
          return;
        }
        order.emplace_back(counters_or(manifest, -1), path);
      } else {
        skipped.push_back({path, concat("[checkpoint.newest] expected a manifest, got none: the save was not completed "
                                        "(directory ",
                                        quote(path.string()), ")")});
      }
    } catch (const CheckpointError&) {  // the caller reports it
      order.emplace_back(counters_or(std::nullopt, std::numeric_limits<std::int64_t>::max()), path);
    }
  };
  for (const auto& name : names()) {
    add(*find(name));
  }
  for (const auto& name : saves()) {
    add(directory_ / name);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (auto& [counters, path] : order) {
    out.push_back(std::move(path));
  }
  return out;
}

}  // namespace danling::inline v0
