#include <danling/checkpoint/file_manager.hpp>

#include <algorithm>
#include <deque>
#include <exception>

#include <sys/stat.h>

#include <danling/checkpoint/file.hpp>
#include <danling/formats/file.hpp>

#include "export_dtype.hpp"
#include "state_archive.hpp"

namespace danling::inline v0 {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".pth";

bool is_history_name(const std::string& stem) {
  return (stem.starts_with("ckpt-e") || stem.starts_with("ckpt-s")) && stem.size() > 6 &&
         stem.find_first_not_of("0123456789", 6) == std::string::npos;
}

// What stays the same as long as a file is not written again.
struct FileIdentity {
  dev_t device = 0;
  ino_t number = 0;
  off_t size = 0;
  std::int64_t modified = 0;  // nanoseconds

  bool operator==(const FileIdentity&) const = default;
  bool same_file(const FileIdentity& other) const { return device == other.device && number == other.number; }
};

std::optional<FileIdentity> identify(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return std::nullopt;
  }
  return FileIdentity{status.st_dev, status.st_ino, status.st_size,
                      status.st_mtim.tv_sec * std::int64_t{1000000000} + status.st_mtim.tv_nsec};
}

State load_parts(const fs::path& path) {
  State state = load_file(path);
  check<CheckpointError>(state.is_map(), "checkpoint.read", "expected a checkpoint of named parts, got ", state.kind(),
                         " (file ", quote(path.string()), ")");
  return state;
}

}  // namespace

class FileCheckpointManager::Impl {
 public:
  Impl(CheckpointOptions options, StateFunction full_state, StateFunction model_state, CheckpointHealth& health)
      : options_(std::move(options)),
        full_state_(std::move(full_state)),
        model_state_(std::move(model_state)),
        health_(health) {
    check<ConfigError>(options_.keep_latest_k >= 0, "checkpoint.keep_latest_k", "expected 0 or more, got ",
                       options_.keep_latest_k);
    if (options_.export_dtype) {
      resolve_export_dtype(*options_.export_dtype);
    }
  }

  const CheckpointOptions& options() const { return options_; }
  fs::path path_of(const std::string& name) const { return options_.directory / (name + kSuffix); }

  void save(const CheckpointRequest& request) {
    const bool best = request.save_best && request.is_best;
    const bool due = should_persist(request, options_.interval);
    if (options_.load_only || (!due && !best)) {
      return;
    }
    check_open();
    const bool model_only = request.last_step && options_.last_save_model_only;
    const auto history = due && request.history ? history_name(request, options_.interval) : std::nullopt;
    std::vector<std::string> aliases;
    if (history) {
      aliases.push_back(*history);
    }
    if (best) {
      aliases.push_back("best");
    }
    const bool with_model = request.last_step && request.name == "latest";
    if (with_model && model_only) {
      aliases.push_back("model");
    }
    guarded(history.value_or(request.name), [&] {
      publish(request.name, model_only ? exported_model() : full_state_(), aliases);
      if (history) {
        prune(*history);
      }
    });
    if (with_model && !model_only) {
      save_model("model");
    }
  }

  void save_model(const std::string& name) {
    if (options_.load_only) {
      return;
    }
    check_open();
    guarded(name, [&] { publish(name, exported_model(), {}); });
  }

  State load(const fs::path& path) {
    const auto before = identify(path);
    State state = load_parts(path);
    if (before == identify(path) && before == identify(path_of("latest"))) {
      known_sound_ = before;
    }
    return state;
  }

  std::optional<SoundCheckpoint> newest_sound() {
    SoundCheckpoint out;
    std::vector<FileIdentity> tried;
    for (const auto& path : candidates()) {
      const auto identity = identify(path);
      if (identity &&
          std::any_of(tried.begin(), tried.end(), [&](const auto& other) { return other.same_file(*identity); })) {
        continue;  // another name of a file that is listed already
      }
      try {
        out.state = load(path);
        out.path = path;
        return out;
      } catch (const CheckpointError& error) {
        out.skipped.push_back({path, error.what()});
      }
      if (identity) {
        tried.push_back(*identity);
      }
    }
    if (out.skipped.empty()) {
      return std::nullopt;
    }
    std::vector<std::string> reasons;
    for (const auto& skipped : out.skipped) {
      reasons.push_back(skipped.reason);
    }
    fail<CheckpointError>("checkpoint.newest", "expected a sound checkpoint in ", quote(options_.directory.string()),
                          ", got ", reasons.size(), " that cannot be read:\n  ", join(reasons, "\n  "));
  }

  void close() { closed_ = true; }

 private:
  void check_open() const { check<StateError>(!closed_, "checkpoint.save", "expected no save after close, got one"); }

  State exported_model() const {
    const State state = model_state_();
    return options_.export_dtype ? export_state(state, *options_.export_dtype) : state;
  }

  template <class Work>
  void guarded(const std::string& target, Work work) {
    try {
      work();
    } catch (const std::filesystem::filesystem_error& error) {
      health_.record_failure(error.what(), target);
      fail<CheckpointError>("checkpoint.write", "expected to write checkpoint ", quote(target), ", got ", error.what());
    } catch (const std::exception& error) {
      health_.record_failure(error.what(), target);
      throw;
    }
  }

  void prepare_directory() {
    if (prepared_) {
      return;
    }
    fs::create_directories(options_.directory);
    formats::remove_leftovers(options_.directory);
    history_ = history_on_disk();
    prepared_ = true;
  }

  // Oldest first, by the time they were written: after a resume from an earlier checkpoint the numbers start over.
  std::deque<std::string> history_on_disk() const {
    std::vector<std::pair<std::int64_t, std::string>> found;
    for (const auto& entry : fs::directory_iterator(options_.directory)) {
      const auto identity = identify(entry.path());
      if (identity && entry.path().extension() == kSuffix && is_history_name(entry.path().stem().string())) {
        found.emplace_back(identity->modified, entry.path().stem().string());
      }
    }
    std::sort(found.begin(), found.end());
    std::deque<std::string> out;
    for (auto& item : found) {
      out.push_back(std::move(item.second));
    }
    return out;
  }

  void publish(const std::string& name, const State& state, const std::vector<std::string>& aliases) {
    prepare_directory();
    const fs::path path = path_of(name);
    formats::AtomicFile file(path);
    write_state(state, file);
    file.finish();

    // The old file gets its second name before the new one takes the first, and `previous` is replaced last: whenever
    // the process dies, two different sound files have names.
    std::optional<formats::PendingAlias> previous;
    if (name == "latest" && is_sound(path)) {
      previous.emplace(path, path_of("previous"));
    }
    file.commit();
    if (name == "latest") {
      known_sound_ = identify(path);
    }
    std::exception_ptr first_error;
    std::vector<std::string> published{name};
    const auto attempt = [&](const std::string& alias, formats::PendingAlias* pending) {
      try {
        pending != nullptr ? pending->commit() : formats::PendingAlias(path, path_of(alias)).commit();
        published.push_back(alias);
      } catch (const CheckpointError&) {
        first_error = first_error ? first_error : std::current_exception();
      }
    };
    if (previous) {
      attempt("previous", &*previous);
    }
    for (const auto& alias : aliases) {
      attempt(alias, nullptr);
    }
    if (published.size() > 1) {
      formats::sync_directory(options_.directory);
    }
    const auto history = std::find_if(published.begin(), published.end(), is_history_name);
    health_.record_success(history == published.end() ? name : *history, published);
    if (first_error) {
      std::rethrow_exception(first_error);
    }
  }

  // A damaged `latest` must not push out a sound `previous`. Files that this object wrote or read are known; another
  // is read once.
  bool is_sound(const fs::path& path) const {
    const auto identity = identify(path);
    if (!identity) {
      return false;
    }
    if (identity == known_sound_) {
      return true;
    }
    try {
      verify_file(path);
      return true;
    } catch (const CheckpointError&) {
      return false;  // what was wrong with it is told by newest_sound() and load_checkpoint()
    }
  }

  void prune(const std::string& newest) {
    if (options_.keep_latest_k == 0) {
      return;
    }
    std::erase(history_, newest);
    history_.push_back(newest);
    while (history_.size() > static_cast<std::size_t>(options_.keep_latest_k)) {
      std::error_code error;
      fs::remove(path_of(history_.front()), error);
      if (error) {  // the new checkpoint is safe: this is told, not thrown
        health_.record_failure(concat("[checkpoint.prune] expected to remove ",
                                      quote(path_of(history_.front()).string()), ", got ", error.message()),
                               history_.front());
      }
      history_.pop_front();
    }
  }

  std::vector<fs::path> candidates() const {
    std::vector<fs::path> out;
    for (const char* name : {"latest", "previous"}) {
      if (identify(path_of(name))) {
        out.push_back(path_of(name));
      }
    }
    std::error_code missing;
    if (!fs::is_directory(options_.directory, missing)) {
      return out;
    }
    std::vector<std::pair<std::int64_t, fs::path>> others;
    for (const auto& name : history_on_disk()) {
      others.emplace_back(identify(path_of(name)).value_or(FileIdentity()).modified, path_of(name));
    }
    if (const auto best = identify(path_of("best"))) {
      others.emplace_back(best->modified, path_of("best"));
    }
    std::stable_sort(others.begin(), others.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    for (auto& item : others) {
      out.push_back(std::move(item.second));
    }
    return out;
  }

  CheckpointOptions options_;
  StateFunction full_state_;
  StateFunction model_state_;
  CheckpointHealth& health_;
  std::deque<std::string> history_;
  std::optional<FileIdentity> known_sound_;  // of `latest`
  bool prepared_ = false;
  bool closed_ = false;
};

FileCheckpointManager::FileCheckpointManager(CheckpointOptions options, StateFunction full_state,
                                             StateFunction model_state)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(full_state), std::move(model_state), health_)) {}

FileCheckpointManager::~FileCheckpointManager() = default;

void FileCheckpointManager::save_checkpoint(const CheckpointRequest& request) { impl_->save(request); }
void FileCheckpointManager::save_model_checkpoint(const std::string& name) { impl_->save_model(name); }
State FileCheckpointManager::load_checkpoint(const std::filesystem::path& path) { return impl_->load(path); }
std::optional<SoundCheckpoint> FileCheckpointManager::newest_sound() { return impl_->newest_sound(); }

bool FileCheckpointManager::close(std::optional<double>) {
  impl_->close();
  return true;
}

const CheckpointOptions& FileCheckpointManager::options() const { return impl_->options(); }
std::filesystem::path FileCheckpointManager::path_of(const std::string& name) const { return impl_->path_of(name); }

}  // namespace danling::inline v0
