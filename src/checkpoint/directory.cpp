#include <checkpoint/directory.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <limits>
#include <numeric>
#include <system_error>
#include <tuple>
#include <utility>

#include <danling/checkpoint/file.hpp>
#include <danling/checkpoint/weights.hpp>
#include <danling/formats/file.hpp>
#include <danling/formats/pth.hpp>
#include <danling/formats/safetensors.hpp>
#include <danling/tensors/nested_tensor.hpp>

#include <checkpoint/counters.hpp>
#include <checkpoint/state_archive.hpp>
#include <tensors/dtypes.hpp>

namespace danling::inline v0 {
namespace {

namespace fs = std::filesystem;

constexpr const char* file_suffix = ".pth";

std::optional<FileIdentity> identify(const fs::path& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return std::nullopt;
  }
  return FileIdentity{status.st_dev, status.st_ino, status.st_size,
                      status.st_mtim.tv_sec * std::int64_t{1000000000} + status.st_mtim.tv_nsec};
}

// Returns whether all entries are named dense tensors of dtypes that the format supports.
bool fits_safetensors(const State& state) {
  if (state.is_map()) {
    return std::all_of(state.map().begin(), state.map().end(),
                       [](const auto& entry) { return entry.key.is_string() && fits_safetensors(entry.value); });
  }
  if (!state.is_tensor() || !state.tensor().defined()) {
    return false;
  }
  const at::Tensor& tensor = state.tensor();
  const auto dtype = to_file_dtype(tensor.scalar_type());
  if (NestedTensor::is_nested(tensor)) {
    return dtype && !formats::safetensors_dtype(*dtype).empty();
  }
  return tensor.layout() == at::kStrided && !tensor.is_quantized() && !tensor.is_nested() && tensor.has_storage() &&
         !tensor.is_meta() && dtype && !formats::safetensors_dtype(*dtype).empty();
}

std::optional<CheckpointCounters> readable_counters(const fs::path& path) {
  try {
    return counters_in(path);
  } catch (const CheckpointError&) {
    return std::nullopt;
  }
}

}  // namespace

CheckpointDirectory::~CheckpointDirectory() { unlock(); }

fs::path CheckpointDirectory::path_of(const std::string& name) const { return directory_ / (name + file_suffix); }

void CheckpointDirectory::prepare(const RetentionRules& rules) {
  if (prepared_) {
    return;
  }
  fs::create_directories(directory_);
  lock_.lock(directory_);
  formats::remove_stale_temporaries(directory_);
  history_ = history_on_disk();
  if (rules.best > 0) {
    for (auto& entry : history_) {
      entry.score = score_in(path_of(entry.name));
    }
  }
  mark_kept_by_hours(history_, rules);
  prepared_ = true;
}

void CheckpointDirectory::recreate(const Publication& what, Published& out) {
  if (prepared_ && !lock_.is_removed(directory_)) {
    return;
  }
  unlock();
  known_valid_.reset();
  prepare(what.rules);
  out.warning = concat("[checkpoint.write] expected the directory ", quote(directory_.string()),
                       ", got none: it was removed with the earlier checkpoints in it; recreated it");
}

void CheckpointDirectory::unlock() {
  lock_.unlock();
  prepared_ = false;
}

Published CheckpointDirectory::publish(const Publication& what, const State& state) {
  Published out;
  try {
    try {
      write(what, state, out);
    } catch (const CheckpointError&) {
      if (!lock_.is_removed(directory_)) {
        throw;
      }
      out = {};  // removed during the save
      write(what, state, out);
    }
  } catch (const fs::filesystem_error& error) {
    out.error = concat("[checkpoint.write] expected to write checkpoint ", quote(what.name), ", got ", error.what());
  } catch (const std::exception& error) {
    out.error = error.what();
  }
  return out;
}

void CheckpointDirectory::write(const Publication& what, const State& state, Published& out) {
  recreate(what, out);
  const fs::path path = path_of(what.name);
  formats::AtomicFile file(path);
  const bool has_room = state.is_map() && (state.find("checkpoint") == nullptr || state.at("checkpoint").is_map());
  if (what.score && has_room) {
    State noted = state;
    noted["checkpoint"]["score"] = *what.score;
    write_state(noted, file);
  } else {
    write_state(state, file);
  }
  file.finish();
  if (!what.sync_first.empty()) {
    formats::sync_file(what.sync_first);
  }

  const auto attempt = [&](const std::string& alias, const auto& make) {
    try {
      make();
      out.names.push_back(alias);
    } catch (const CheckpointError& error) {
      if (out.error.empty()) {
        out.error = error.what();
        out.failed_alias = alias;
      }
    }
  };
  // History and `best` come first, then the pruning: if the process dies in between, resume starts from the old
  // `latest` and repeats this save. In the other order, resume would start after this save, and they would be lost.
  for (const auto& alias : what.aliases) {
    attempt(alias, [&] { formats::PendingAlias(file.temporary(), path_of(alias)).commit(); });
  }
  const bool named_by_history = what.name == what.history;  // only once the file exists
  if (what.history && out.error.empty() && !named_by_history) {
    prune(what, out);
  }
  // The old file gets its second name before the new file takes the first, and `previous` is replaced last: at any
  // point, two different valid files have names.
  std::optional<formats::PendingAlias> previous;
  if (what.name == "latest" && is_valid(path) && !(what.latest_may_be_model && is_model(path))) {
    previous.emplace(path, path_of("previous"));
  }
  file.commit();
  out.names.insert(out.names.begin(), what.name);
  if (what.name == "latest") {
    known_valid_ = identify(path);
  }
  if (named_by_history && out.error.empty()) {
    prune(what, out);
  }
  if (previous) {
    attempt("previous", [&] { previous->commit(); });
  }
  if (!what.weights.empty()) {
    const auto write = [&](const State* weights, const std::string& suffix) {
      if (weights != nullptr && weights->is_map() && fits_safetensors(*weights)) {
        const std::string name = concat(what.weights, suffix, ".safetensors");
        attempt(name, [&] { save_safetensors(*weights, directory_ / name); });
      }
    };
    write(state.find("model"), "");
    write(state.find("ema"), "-ema");
    if (const State* models = state.find("models"); models != nullptr && models->is_map()) {
      for (const auto& model : models->map()) {
        write(model.value.find("model"), concat("-", model.key.string()));
        write(model.value.find("ema"), concat("-", model.key.string(), "-ema"));
      }
    }
  }
  if (out.names.size() > 1) {
    formats::sync_directory(directory_);
  }
}

void CheckpointDirectory::prune(const Publication& what, Published& out) {
  const fs::path newest = path_of(*what.history);
  std::erase_if(history_, [&](const auto& entry) { return entry.name == *what.history; });
  const auto here = parse_history_name(*what.history);
  const auto is_ahead = [&](const auto& entry) {
    const auto there = parse_history_name(entry.name);
    return here && there && here->by_steps == there->by_steps && there->progress > here->progress;
  };
  auto place = history_.end();
  if (what.retried) {
    while (place != history_.begin() && is_ahead(*std::prev(place))) {
      --place;
    }
  } else {
    // Entries ahead of it date from before the run went back; the run will rewrite them.
    std::stable_partition(history_.begin(), history_.end(), is_ahead);
  }
  history_.insert(place, {*what.history, identify(newest).value_or(FileIdentity()).modified, what.score});
  const auto old = superseded(history_, what.rules);
  if (old.empty()) {
    return;
  }
  verify_file(newest);  // only a verified file may replace a valid one
  formats::sync_directory(directory_);
  for (const auto& name : old) {
    std::error_code error;
    fs::remove(path_of(name), error);
    if (error && out.error.empty()) {  // the new checkpoint is on disk: report the error, do not retry
      out.error = concat("[checkpoint.prune] expected to remove ", quote(path_of(name).string()), ", got errno ",
                         error.value(), " (", error.message(), ")");
      out.failed_alias = name;
    }
    std::erase_if(history_, [&](const auto& entry) { return entry.name == name; });
  }
}

State CheckpointDirectory::load(const fs::path& path) {
  const auto before = identify(path);
  State state = load_weights(path);
  check<CheckpointError>(state.is_map(), "checkpoint.read", "expected a checkpoint of named parts, got ", state.kind(),
                         " (file ", quote(path.string()), ")");
  if (before == identify(path) && before == identify(path_of("latest"))) {
    known_valid_ = before;
  }
  return state;
}

std::optional<ValidCheckpoint> CheckpointDirectory::load_newest_valid(const CheckpointFilter& filter) {
  ValidCheckpoint out;
  std::vector<FileIdentity> tried;
  if (identify(path_of("previous")) && !identify(path_of("latest"))) {
    out.skipped.push_back({path_of("latest"), "expected a file, got none"});
  }
  const auto serves = [&](const fs::path& path) {
    const auto identity = identify(path);
    if (!identity ||
        std::any_of(tried.begin(), tried.end(), [&](const auto& other) { return other.same_file(*identity); })) {
      return false;  // missing, or another name of a file already tried
    }
    tried.push_back(*identity);
    try {
      out.state = load(path);
      const std::string reason = filter ? filter(out.state) : std::string();
      if (reason.empty()) {
        out.path = path;
        return true;
      }
      out.skipped.push_back({path, reason});
    } catch (const CheckpointError& error) {
      out.skipped.push_back({path, error.what()});
    }
    return false;
  };
  if (serves(path_of("latest"))) {
    return out;
  }
  for (const auto& path : older_than_latest()) {
    if (serves(path)) {
      return out;
    }
  }
  if (out.skipped.empty()) {
    return std::nullopt;
  }
  std::vector<std::string> reasons;
  for (const auto& skipped : out.skipped) {
    reasons.push_back(skipped.reason);
  }
  fail<CheckpointError>("checkpoint.newest", "expected a valid checkpoint in ", quote(directory_.string()), ", got ",
                        reasons.size(), " that cannot be read:\n  ", join(reasons, "\n  "));
}

// A damaged `latest` must not replace a valid `previous`. Files that this object wrote or read are known to be valid;
// other files are read once.
bool CheckpointDirectory::is_valid(const fs::path& path) const {
  const auto identity = identify(path);
  if (!identity) {
    return false;
  }
  if (identity == known_valid_) {
    return true;
  }
  try {
    verify_file(path);
    return true;
  } catch (const CheckpointError&) {
    return false;  // load_newest_valid() and load() report the error
  }
}

// Decides by the file's parts: a whole state has more than a model.
bool CheckpointDirectory::is_model(const fs::path& path) const {
  const formats::PthReader reader(path);
  const auto& tree = reader.tree();
  return tree.is_map() && std::all_of(tree.map().begin(), tree.map().end(), [](const auto& entry) {
           return entry.key == Key("model") || entry.key == Key("ema") || entry.key == Key("models");
         });
}

// Oldest first, by the counters in the names: file times depend on copies and clocks.
std::vector<HistoryEntry> CheckpointDirectory::history_on_disk() const {
  std::vector<HistoryEntry> found;
  std::error_code missing;
  if (!fs::is_directory(directory_, missing)) {
    return found;
  }
  bool by_steps = false;
  bool by_epochs = false;
  for (const auto& entry : fs::directory_iterator(directory_)) {
    const auto identity = identify(entry.path());
    const std::string stem = entry.path().stem().string();
    const auto name = parse_history_name(stem);
    if (identity && name && entry.path().extension() == file_suffix) {
      found.push_back({stem, identity->modified});
      (name->by_steps ? by_steps : by_epochs) = true;
    }
  }
  // Names by epochs and by steps, of a run that switched, cannot be compared.
  std::vector<std::tuple<CheckpointCounters, std::int64_t, std::string>> order;
  for (const auto& entry : found) {
    const auto counters = by_steps && by_epochs ? readable_counters(path_of(entry.name)) : CheckpointCounters();
    order.emplace_back(counters.value_or(CheckpointCounters()), parse_history_name(entry.name)->progress, entry.name);
  }
  std::vector<std::size_t> places(found.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::sort(places.begin(), places.end(), [&](auto a, auto b) { return order[a] < order[b]; });
  std::vector<HistoryEntry> out;
  for (const auto place : places) {
    out.push_back(std::move(found[place]));
  }
  return out;
}

// Newest first, by the counters in the files. Unreadable files come first, so that the caller reports them. Files
// without counters come in the order in which a run writes them.
std::vector<fs::path> CheckpointDirectory::older_than_latest() const {
  std::vector<fs::path> all = {path_of("previous")};
  auto history = history_on_disk();
  for (auto entry = history.rbegin(); entry != history.rend(); ++entry) {
    all.push_back(path_of(entry->name));
  }
  all.push_back(path_of("best"));
  std::vector<std::pair<CheckpointCounters, fs::path>> order;
  for (auto& path : all) {
    if (identify(path)) {
      constexpr std::int64_t newest = std::numeric_limits<std::int64_t>::max();
      std::optional<CheckpointCounters> counters;
      try {
        counters = counters_in(path);
      } catch (const CheckpointError&) {
        counters = CheckpointCounters{newest, newest, newest};
      }
      order.emplace_back(counters.value_or(CheckpointCounters{-1, -1, -1}), std::move(path));
    }
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<fs::path> out;
  for (auto& [counters, path] : order) {
    out.push_back(std::move(path));
  }
  return out;
}

}  // namespace danling::inline v0
