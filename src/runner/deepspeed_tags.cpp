// The directory of tagged checkpoints.
#include <runner/deepspeed_tags.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <system_error>
#include <tuple>
#include <utility>

#include <danling/checkpoint/file.hpp>
#include <danling/checkpoint/weights.hpp>
#include <danling/core/error.hpp>
#include <danling/formats/file.hpp>

#include <runner/deepspeed_pointers.hpp>

namespace danling::inline v0 {
namespace {

namespace fs = std::filesystem;

constexpr auto tags_where = "deepspeed.checkpoint";
constexpr const char* state_file = detail::deepspeed_state_file;
constexpr const char* deepspeed_file = "mp_rank_00_model_states.pt";

formats::FileErrors tag_errors() { return formats::FileErrors::of<CheckpointError>(tags_where); }

std::int64_t modified_at(const fs::path& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) != 0 ? 0
                                            : status.st_mtim.tv_sec * std::int64_t{1000000000} + status.st_mtim.tv_nsec;
}

/// Directories in `directory` that are not temporary.
std::vector<std::string> tags_in(const fs::path& directory) {
  std::vector<std::string> out;
  std::error_code missing;
  for (fs::directory_iterator entry(directory, missing), end; !missing && entry != end; entry.increment(missing)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with('.') && entry->is_directory(missing)) out.push_back(name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::optional<CheckpointCounters> counters_of(const fs::path& tagged) {
  try {
    return counters_in(tagged / state_file);
  } catch (const CheckpointError&) {
    return std::nullopt;
  }
}

std::vector<HistoryEntry> history_of(const fs::path& directory, bool with_scores) {
  std::vector<std::tuple<CheckpointCounters, std::int64_t, std::string>> order;
  for (const std::string& tag : tags_in(directory)) {
    if (const auto name = parse_history_name(tag)) {
      order.emplace_back(counters_of(directory / tag).value_or(CheckpointCounters()), name->progress, tag);
    }
  }
  std::sort(order.begin(), order.end());
  std::vector<HistoryEntry> out;
  for (const auto& [counters, progress, tag] : order) {
    out.push_back({tag, modified_at(directory / tag),
                   with_scores ? score_in(directory / tag / state_file) : std::optional<double>()});
  }
  return out;
}

/// Copies a tag, sharing the files' blocks if possible; the copy appears when it is complete.
void copy_tag(const fs::path& from, const fs::path& to) {
  const fs::path made = to.parent_path() / concat(".", to.filename().string(), ".tmp-", ::getpid());
  std::error_code error;
  fs::remove_all(made, error);
  fs::create_directory(made);
  for (const auto& entry : fs::directory_iterator(from)) {
    if (entry.is_regular_file()) {
      formats::PendingAlias(entry.path(), made / entry.path().filename()).commit();
    }
  }
  formats::sync_directory(made);
  formats::replace_directory(made, to, tag_errors());
  formats::sync_directory(to.parent_path());
}

}  // namespace

DeepSpeedStore deepspeed_file_store() {
  return {[](const State& state, const fs::path& directory) { save_file(state, directory / state_file); },
          [](const fs::path& directory) {
            std::error_code missing;
            if (fs::exists(directory / state_file, missing)) return load_weights(directory / state_file);
            check<CheckpointError>(fs::exists(directory / deepspeed_file, missing), tags_where, "expected ", state_file,
                                   " in ", quote(directory.string()), ", got none",
                                   fs::exists(directory, missing) ? "" : ": there is no such directory");
            return load_weights(directory / deepspeed_file);
          }};
}

namespace detail {

DeepSpeedTags::DeepSpeedTags(const fs::path& directory, DeepSpeedStore store)
    : directory_(fs::absolute(directory)), store_(std::move(store)) {}

PublishedTag DeepSpeedTags::publish(const TagPublication& what, const State& state) {
  PublishedTag out;
  try {
    write(what, state);
    for (const std::string& name : what.pointers) {
      out.failed_pointer = name;
      write_deepspeed_pointer(directory_, name, what.tag);
      out.failed_pointer.clear();
      out.pointers.push_back(name);
    }
    prune(what);
  } catch (const fs::filesystem_error& error) {
    out.error = concat("[", tags_where, "] expected to write checkpoint ", quote(what.tag), ", got ", error.what());
  } catch (const std::exception& error) {
    out.error = error.what();
  }
  return out;
}

void DeepSpeedTags::write(const TagPublication& what, const State& state) {
  std::error_code error;
  fs::create_directories(directory_);
  if (!prepared_) {  // left by a process that died
    for (const auto& entry : fs::directory_iterator(directory_)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with('.') && name.find(".tmp-") != std::string::npos && entry.is_directory(error)) {
        fs::remove_all(entry.path(), error);
      }
    }
    history_ = history_of(directory_, /*with_scores=*/what.rules.best > 0);
    mark_kept_by_hours(history_, what.rules);
    prepared_ = true;
  }
  const fs::path made = directory_ / concat(".", what.tag, ".tmp-", ::getpid());
  fs::remove_all(made, error);
  fs::create_directory(made);
  try {
    const bool has_room = state.is_map() && (state.find("checkpoint") == nullptr || state.at("checkpoint").is_map());
    if (what.score && has_room) {
      State noted = state;
      noted["checkpoint"]["score"] = *what.score;
      store_.write(noted, made);
    } else {
      store_.write(state, made);
    }
    formats::AtomicFile yaml(made / "runner.yaml");
    yaml.write(what.runner_yaml);
    yaml.commit();
    formats::sync_directory(made);
    if (!what.sync_first.empty()) {
      formats::sync_file(what.sync_first, tag_errors());
    }
    formats::replace_directory(made, directory_ / what.tag, tag_errors());
    formats::sync_directory(directory_);
  } catch (...) {
    fs::remove_all(made, error);
    throw;
  }
}

void DeepSpeedTags::prune(const TagPublication& what) {
  const auto pointed = pointed_deepspeed_tags(directory_);
  const auto is_pointed = [&](const std::string& tag) {
    return std::find(pointed.begin(), pointed.end(), tag) != pointed.end();
  };
  std::vector<std::string> old;
  for (const std::string& tag : tags_in(directory_)) {
    if (tag.starts_with("ckpt-g") && !is_pointed(tag)) old.push_back(tag);
  }
  if (what.in_history) {
    const auto here = parse_history_name(what.tag);
    std::erase_if(history_, [&](const auto& entry) { return entry.name == what.tag; });
    // Tags ahead of this one are from before the run went back; the run will rewrite them.
    std::stable_partition(history_.begin(), history_.end(), [&](const auto& entry) {
      const auto there = parse_history_name(entry.name);
      return here && there && here->by_steps == there->by_steps && there->progress > here->progress;
    });
    history_.push_back({what.tag, modified_at(directory_ / what.tag), what.score});
    for (const std::string& tag : superseded(history_, what.rules)) {
      if (!is_pointed(tag)) old.push_back(tag);
    }
  }
  if (old.empty()) return;
  std::error_code error;
  const fs::path newest = directory_ / what.tag / state_file;
  if (fs::exists(newest, error)) {
    verify_file(newest);  // only a verified checkpoint may replace a valid one
  }
  for (const std::string& tag : old) {
    fs::remove_all(directory_ / tag, error);
    if (error) tag_errors().fail_system("remove", directory_ / tag, error.value());
    std::erase_if(history_, [&](const auto& entry) { return entry.name == tag; });
  }
}

State DeepSpeedTags::load(const fs::path& tagged) const {
  State state = store_.read(tagged);
  check<CheckpointError>(state.is_map(), tags_where, "expected a checkpoint of named parts, got ", state.kind(), " (",
                         quote(tagged.string()), ")");
  return state;
}

std::optional<ValidCheckpoint> DeepSpeedTags::load_newest_valid(const fs::path& directory,
                                                                const CheckpointFilter& filter) const {
  ValidCheckpoint out;
  std::vector<std::string> order;
  std::error_code missing;
  if (const auto pointer = deepspeed_pointer(directory, "latest"); fs::exists(pointer, missing)) {
    try {
      order.push_back(resolve_deepspeed_checkpoint(pointer).tag);
    } catch (const CheckpointError& error) {
      out.skipped.push_back({pointer, error.what()});
    }
  }
  // Then newest first, by the counters in the files; unreadable files come first, so that the caller reports them.
  std::vector<std::pair<CheckpointCounters, std::string>> others;
  for (const std::string& tag : tags_in(directory)) {
    constexpr std::int64_t newest = std::numeric_limits<std::int64_t>::max();
    if (order.empty() || tag != order.front()) {
      others.emplace_back(counters_of(directory / tag).value_or(CheckpointCounters{newest, newest, newest}), tag);
    }
  }
  std::sort(others.rbegin(), others.rend());
  for (auto& [counters, tag] : others) {
    order.push_back(std::move(tag));
  }
  for (const std::string& tag : order) {
    const fs::path path = directory / tag;
    try {
      out.state = load(path);
      const std::string reason = filter ? filter(out.state) : std::string();
      if (reason.empty()) {
        out.path = path;
        return out;
      }
      out.skipped.push_back({path, reason});
    } catch (const CheckpointError& error) {
      out.skipped.push_back({path, error.what()});
    }
  }
  if (out.skipped.empty()) {
    return std::nullopt;
  }
  std::vector<std::string> reasons;
  for (const auto& skipped : out.skipped) {
    reasons.push_back(skipped.reason);
  }
  fail<CheckpointError>("checkpoint.newest", "expected a valid checkpoint in ", quote(directory.string()), ", got ",
                        reasons.size(), " that cannot be read:\n  ", join(reasons, "\n  "));
}

std::vector<std::string> DeepSpeedTags::adopt(const fs::path& directory, const CheckpointHistory& history) {
  std::vector<std::string> problems;
  std::error_code missing;
  fs::create_directories(directory_, missing);
  const auto best = find_deepspeed_tag(directory, "best");
  for (const std::string& tag : tags_in(directory)) {
    const bool in_history = parse_history_name(tag).has_value();
    if (!in_history && tag != best) continue;
    try {
      const auto counters = counters_in(directory / tag / state_file);
      if (!counters) continue;
      const auto progress = history.step_mode ? counters->global_step : counters->epoch;
      if (progress > history.progress || (!in_history && progress != history.best)) continue;
      if (!fs::exists(directory_ / tag, missing)) copy_tag(directory / tag, directory_ / tag);
      if (tag == best && progress == history.best) write_deepspeed_pointer(directory_, "best", tag);
    } catch (const CheckpointError& error) {
      problems.emplace_back(error.what());
    } catch (const fs::filesystem_error& error) {
      problems.push_back(concat("[", tags_where, "] expected to copy ", quote(tag), ", got ", error.what()));
    }
  }
  return problems;
}

std::optional<BestCheckpoint> DeepSpeedTags::best() const {
  const auto tag = find_deepspeed_tag(directory_, "best");
  if (!tag) {
    return BestCheckpoint{};
  }
  const fs::path file = directory_ / *tag / state_file;
  auto index = result_in(file);
  if (!index && counters_of(directory_ / *tag)) {
    index = -1;
  }
  return BestCheckpoint{true, index};
}

std::optional<std::string> DeepSpeedTags::republish_best(std::int64_t index, std::vector<std::string>& problems) {
  for (const std::string& tag : tags_in(directory_)) {
    const fs::path file = directory_ / tag / state_file;
    // A tag that later saves replace cannot be the best.
    if ((!parse_history_name(tag) && !tag.starts_with("ckpt-g")) || result_in(file) != index) continue;
    try {
      verify_file(file);
      write_deepspeed_pointer(directory_, "best", tag);
      return tag;
    } catch (const CheckpointError& error) {
      problems.emplace_back(error.what());
    }
  }
  return std::nullopt;
}

}  // namespace detail
}  // namespace danling::inline v0
