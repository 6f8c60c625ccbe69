#include <danling/workspace/workspace.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>
#include <system_error>
#include <utility>

#include <danling/config/tree.hpp>
#include <danling/core/error.hpp>
#include <danling/formats/file.hpp>
#include <danling/workspace/files.hpp>
#include <danling/workspace/timestamp.hpp>

#include <workspace/lock.hpp>

namespace danling::inline v0 {
namespace fs = std::filesystem;
namespace {

constexpr const char* lock_name = ".lock";
constexpr const char* source_name = ".resuming";  // contains the path of the source, relative to the run
constexpr const char* moving_name = ".moving";
constexpr const char* attempts_name = "attempts";
constexpr std::size_t config_id_size = 12;

void check_name(std::string_view key, const std::string& name) {
  const bool good = !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
                    name.find('\0') == std::string::npos;
  check<ConfigError>(good, "workspace.options", "expected ", key, " to be a folder's name, got ", quote(name));
}

void check_checkpoint_dir(const std::string& name) {
  static const std::set<std::string> taken = {"logs",        "metadata",    attempts_name,   lock_name,
                                              source_name,   "tensorboard", "metrics.jsonl", "results.json",
                                              "latest.json", "best.json",   "summary.json",  "metrics.csv",
                                              "wandb",       "heartbeats",  "profiles",      "bad_batches"};
  const fs::path path(name);
  bool good = !name.empty() && path.is_relative();
  for (const auto& part : path) {
    good = good && part != "." && part != ".." && !part.empty();
  }
  check<ConfigError>(good, "workspace.options",
                     "expected checkpoint.dir_name to be a folder inside the run's directory, got ", quote(name));
  check<ConfigError>(!taken.contains(path.begin()->string()), "workspace.options",
                     "expected a checkpoint.dir_name that no other file of a run has, got ", quote(name));
}

void make_directories(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  check<ConfigError>(!error, "workspace.create", "expected a directory that can be written, got ",
                     quote(error.message()), " for ", path.string(), "; set workspace_root to another one");
}

void move(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  check<ConfigError>(!error, "workspace.move_aside", "expected to move the files of an earlier attempt, got ",
                     quote(error.message()), " for ", from.string(), "; move it by hand or set another workspace_root");
}

// Returns the absolute path with symbolic links resolved, as far as it exists.
fs::path resolved(const fs::path& path) {
  std::error_code error;
  auto out = fs::weakly_canonical(path, error);
  return error ? fs::absolute(path).lexically_normal() : out;
}

bool starts_with(const fs::path& path, const fs::path& prefix) {
  return std::mismatch(path.begin(), path.end(), prefix.begin(), prefix.end()).second == prefix.end();
}

// Returns the timestamp of the latest attempt in `dir` by its metadata; empty if there is none.
std::string last_attempt(const fs::path& dir) {
  try {
    const fs::path file = dir / "metadata" / "git.yaml";
    const ConfigTree tree = from_yaml(read_text(file), file.string());
    const ConfigTree* const timestamp = tree.find("timestamp");
    return timestamp != nullptr && timestamp->is_string() ? timestamp->string() : std::string();
  } catch (const Error&) {
    return {};
  }
}

std::string lineage_dir(const WorkspaceOptions& options, const std::string& code_id) {
  return code_id.empty() ? options.lineage : concat(options.lineage, "-", code_id);
}

}  // namespace

Workspace::Workspace(WorkspaceOptions options) : options_(std::move(options)) {
  check<ConfigError>(!options_.root.empty(), "workspace.options", "expected workspace_root to be a path, got ''");
  check_name("lineage", options_.lineage);
  check_name("the config's id", options_.config_id);
  check_checkpoint_dir(options_.checkpoint_dir_name);
  if (options_.timestamp.empty()) {
    options_.timestamp = make_timestamp();
  }
  check_name("timestamp", options_.timestamp);
  id_ = make_run_id(options_.code_id, options_.config_id);
  check_name("the run's id", id_);
  dir_ = fs::path(options_.root) / lineage_dir(options_, options_.code_id) / id_;
}

Workspace::~Workspace() = default;
Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&&) noexcept = default;

bool Workspace::contains(const fs::path& path) const {
  const auto inner = resolved(path);
  const auto outer = resolved(dir_);
  return starts_with(inner, outer) && !starts_with(inner, outer / attempts_name);
}

fs::path Workspace::interrupted_source() const {
  std::error_code error;
  if (!fs::exists(dir_ / source_name, error)) {
    return {};
  }
  const std::string places = read_text(dir_ / source_name);
  for (std::size_t from = 0; from < places.size();) {
    const auto end = std::min(places.find('\n', from), places.size());
    auto place = dir_ / places.substr(from, end - from);
    if (fs::exists(place, error)) {
      return place;
    }
    from = end + 1;
  }
  return {};
}

void Workspace::taken_over() const {
  std::error_code ignored;
  fs::remove(dir_ / source_name, ignored);
}

// Stores all paths in the run at which the source may be if this process dies, since open() may move it.
void Workspace::store_source(const fs::path& source) const {
  const auto inner = resolved(source);
  const auto outer = resolved(dir_);
  if (source.empty() || !starts_with(inner, outer)) {
    taken_over();
    return;
  }
  auto below = inner.lexically_relative(outer);
  const fs::path attempts = attempts_name;
  if (below.begin() != below.end() && *below.begin() == attempts) {
    const auto attempt = *std::next(below.begin());
    if (attempt != moving_name) {
      write_atomic(dir_ / source_name, below.string());
      return;
    }
    below = below.lexically_relative(attempts / attempt);
  }
  const auto moved = attempts / next_attempt().filename() / below;
  write_atomic(dir_ / source_name,
               concat(moved.string(), "\n", (attempts / moving_name / below).string(), "\n", below.string()));
}

fs::path Workspace::open(bool resuming, const fs::path& source) {
  check<StateError>(!is_open(), "workspace.open", "expected to be called once, got a second call for ", dir_.string());
  make_directories(dir_);
  lock_ = std::make_unique<Lock>(dir_ / lock_name);
  fs::path moved;
  try {
    store_source(source);
    if (resuming) {
      move_back();
    } else {
      moved = move_aside();
    }
    make_directories(checkpoint_dir());
    make_directories(dir_ / "logs");
    make_directories(dir_ / "metadata");
    formats::remove_stale_temporaries(dir_);
    formats::remove_stale_temporaries(dir_ / "metadata");
    // Written last: if this process dies before, the lock still names the attempt whose files are moved.
    lock_->write_owner(options_.timestamp);
  } catch (...) {
    lock_.reset();
    throw;
  }
  return moved;
}

void Workspace::close() noexcept { lock_.reset(); }

fs::path Workspace::reopen() {
  if (!is_open() || lock_->exists()) {
    return {};
  }
  std::error_code error;
  const bool whole = !fs::exists(dir_ / "metadata", error);
  make_directories(dir_ / "logs");
  make_directories(dir_ / "metadata");
  try {
    auto lock = std::make_unique<Lock>(dir_ / lock_name);
    lock->write_owner(options_.timestamp);
    lock_ = std::move(lock);
  } catch (const StateError& other) {
    lock_.reset();
    fail<StateError>("workspace.reopen", "expected ", quote(dir_.string()),
                     " to keep its lock during the run, got a removed directory or lock, then: ", other.what());
  }
  return whole ? dir_ : dir_ / lock_name;
}

fs::path Workspace::move_aside() const {
  std::vector<fs::path> left;
  std::error_code error;
  for (fs::directory_iterator entry(dir_, error), end; !error && entry != end; entry.increment(error)) {
    const auto& path = entry->path();
    if (path.filename() != lock_name && path.filename() != attempts_name && path.filename() != source_name) {
      left.push_back(path);
    }
  }
  check<ConfigError>(!error, "workspace.move_aside", "expected to read ", dir_.string(), ", got ",
                     quote(error.message()));
  // An interrupted move continues into the same directory; no attempt has written new files since.
  const auto staging = dir_ / attempts_name / moving_name;
  if (left.empty() && !fs::exists(staging, error)) {
    return {};
  }
  make_directories(staging);
  for (const auto& path : left) {
    move(path, staging / path.filename());
  }
  auto target = next_attempt();
  move(staging, target);
  return target;
}

// Returns the files of a move that did not end to their places.
void Workspace::move_back() const {
  const auto staging = dir_ / attempts_name / moving_name;
  std::error_code error;
  std::vector<fs::path> moved;
  for (fs::directory_iterator entry(staging, error), end; !error && entry != end; entry.increment(error)) {
    moved.push_back(entry->path());
  }
  for (const auto& path : moved) {
    if (!fs::exists(dir_ / path.filename(), error)) {
      move(path, dir_ / path.filename());
    }
  }
  if (!moved.empty() && fs::is_empty(staging, error)) {
    fs::remove(staging, error);
  } else if (!moved.empty()) {  // both have a file of this name: keep it as an attempt of its own
    move(staging, next_attempt());
  }
}

// Returns the destination for the files of an earlier attempt.
fs::path Workspace::next_attempt() const {
  const std::string name = lock_->earlier_attempt().empty() ? "before-" + timestamp() : lock_->earlier_attempt();
  const auto attempts = dir_ / attempts_name;
  auto target = attempts / name;
  std::error_code error;
  for (int i = 2; fs::exists(target, error); ++i) {
    target = attempts / concat(name, "-", i);
  }
  return target;
}

void Workspace::require_open(std::string_view operation) const {
  check<StateError>(is_open(), operation, "expected an open workspace, got a closed one; call open() first");
}

std::vector<FoundRun> find_runs(const WorkspaceOptions& options) {
  std::vector<std::pair<std::pair<std::string, fs::file_time_type>, FoundRun>> found;
  const auto add = [&](const fs::path& dir, const std::string& code_id) {
    std::error_code absent;
    if (!fs::is_directory(dir, absent)) {
      return;
    }
    auto written = fs::last_write_time(dir, absent);
    const auto checkpoints = fs::last_write_time(dir / options.checkpoint_dir_name, absent);
    if (!absent) {
      written = std::max(written, checkpoints);
    }
    found.emplace_back(std::pair(last_attempt(dir), written), FoundRun{dir, code_id});
  };
  std::error_code error;
  for (fs::directory_iterator entry(options.root, error), end; !error && entry != end; entry.increment(error)) {
    const std::string folder = entry->path().filename().string();
    std::string code_id;
    if (folder.starts_with(options.lineage + "-")) {
      code_id = folder.substr(options.lineage.size() + 1);
    } else if (folder != options.lineage) {
      continue;
    }
    // The name of a run repeats the code id, so lineage "a" does not match the runs of lineage "a-b".
    if (!options.config_id.empty()) {
      add(entry->path() / make_run_id(code_id, options.config_id), code_id);
      continue;
    }
    std::error_code unreadable;
    for (fs::directory_iterator run(entry->path(), unreadable), last; !unreadable && run != last;
         run.increment(unreadable)) {
      const std::string name = run->path().filename().string();
      if (name == make_run_id(code_id, name.substr(name.size() - std::min(name.size(), config_id_size)))) {
        add(run->path(), code_id);
      }
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<FoundRun> out;
  for (auto& [written, run] : found) {
    out.push_back(std::move(run));
  }
  return out;
}

}  // namespace danling::inline v0
