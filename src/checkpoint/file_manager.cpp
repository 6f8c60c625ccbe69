#include <danling/checkpoint/file_manager.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include <checkpoint/directory.hpp>
#include <checkpoint/manager_options.hpp>
#include <checkpoint/save_thread.hpp>
#include <checkpoint/unwritten_state.hpp>

namespace danling::inline v0 {
namespace {

using detail::AsyncMode, detail::no_copy;
using Clock = std::chrono::steady_clock;

CheckpointOptions checked(CheckpointOptions options) {
  check<ConfigError>(!options.directory.empty(), "checkpoint.options",
                     "expected a directory for the checkpoints, got none; set CheckpointOptions::directory");
  detail::check_options(options);
  return options;
}

}  // namespace

class FileCheckpointManager::Impl {
 public:
  Impl(CheckpointOptions options, StateFunction full_state, StateFunction model_state, FileCheckpointManager& owner)
      : options_(checked(std::move(options))),
        async_mode_(detail::async_mode_of(options_)),
        full_state_(std::move(full_state)),
        model_state_(std::move(model_state)),
        shared_(std::make_shared<Shared>(options_.directory, owner)) {}
  ~Impl() {
    thread_.reset();  // waits, or detaches the thread
    const std::lock_guard lock(shared_->mutex);
    shared_->owner = nullptr;
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const CheckpointOptions& options() const { return options_; }
  CheckpointDirectory& directory() { return shared_->directory; }

  bool save(const CheckpointRequest& request) {
    const auto plan = detail::plan_save(options_, request);
    if (!plan) {
      return false;
    }
    publish(plan->what, plan->reliable, [&] { return plan->model_only ? exported_model() : full_state_(); });
    if (plan->model_beside) {
      save_model("model");
    }
    return true;
  }

  void save_model(const std::string& name) {
    detail::check_checkpoint_name(name);
    if (options_.load_only) {
      return;
    }
    Publication what;
    what.name = name;
    what.rules = detail::rules_of(options_, false);
    what.weights = options_.export_safetensors ? name : "";
    publish(what, /*reliable=*/true, [&] { return exported_model(); });
  }

  bool wait(std::optional<double> timeout) { return thread_ == nullptr || thread_->wait(timeout); }

  // Like wait(), and retries failed writes.
  bool settle(std::optional<double> timeout) {
    if (!wait(timeout) || closed_) {
      return closed_;
    }
    if (thread_ == nullptr) {
      shared_->retry();
    } else if (!shared_->unwritten.empty()) {
      thread_->save(State(), /*pinned=*/false, /*reliable=*/true,
                    [shared = shared_](const State&, const std::exception_ptr&) { shared->retry(); });
    }
    return wait(timeout);
  }

  // A run that goes back to a checkpoint discards its later unwritten states.
  State load(const std::filesystem::path& path) {
    settle(std::nullopt);
    State state = directory().load(path);
    std::error_code missing;
    if (std::filesystem::equivalent(path.parent_path(), options_.directory, missing)) {
      shared_->unwritten.discard();
    }
    return state;
  }

  void order_current_stream() {
    if (thread_ != nullptr) {
      thread_->order_current_stream();
    }
  }

  void close() {
    closed_ = true;
    thread_.reset();
    shared_->directory.unlock();
  }

 private:
  // State that a thread, blocked on a disk, may need after the manager is destroyed.
  struct Shared {
    Shared(const std::filesystem::path& path, FileCheckpointManager& manager) : directory(path), owner(&manager) {}

    CheckpointDirectory directory;
    UnwrittenState unwritten;
    std::mutex mutex;
    FileCheckpointManager* owner;

    Published publish(const Publication& what, const State& state) {
      // Before a newer state becomes `latest`: if the process dies in between, resume repeats both.
      unwritten.supersede(what);
      retry();
      Published done = directory.publish(what, state);
      if (!done.error.empty()) {
        unwritten.keep(what, state, done);
      }
      return done;
    }

    void retry() {
      const auto made = unwritten.retry(directory);
      const std::lock_guard lock(mutex);
      if (owner == nullptr) {
        return;
      }
      if (std::find(made.names.begin(), made.names.end(), "best") != made.names.end()) {
        owner->forget_failure("best");
      }
      if (!made.name.empty()) {
        owner->forget_failure(made.name, made.error);
      }
      if (!made.warning.empty()) {
        owner->record_warning(made.warning);
      }
    }

    void record(const Publication& what, const Published& done, bool thrown, Clock::time_point requested) {
      const std::lock_guard lock(mutex);
      if (owner == nullptr) {
        return;
      }
      const std::string target = what.history.value_or(what.name);
      if (done.error.empty()) {
        owner->record_save_seconds(std::chrono::duration<double>(Clock::now() - requested).count());
      }
      if (!done.names.empty()) {
        const bool whole = std::find(done.names.begin(), done.names.end(), target) != done.names.end();
        owner->record_success(what.name, whole ? target : what.name, done.names);
      }
      if (!done.error.empty()) {
        owner->record_failure(what.name, done.error, target, done.failed_alias, thrown);
      }
      if (!done.warning.empty()) {
        owner->record_warning(done.warning);
      }
      if (is_best_missing(what, done)) {
        owner->record_lost_best(done.error);
      } else if (std::find(what.aliases.begin(), what.aliases.end(), "best") != what.aliases.end()) {
        owner->forget_failure("best");
      }
    }
  };

  State exported_model() const {
    const State state = model_state_();
    return options_.export_dtype ? export_state(state, *options_.export_dtype) : state;
  }

  template <class MakeState>
  void publish(const Publication& what, bool reliable, MakeState make_state) {
    check<StateError>(!closed_, "checkpoint.save", "expected no save after close, got one");
    const Clock::time_point requested = Clock::now();
    Published done;
    State state;
    try {
      state = make_state();
    } catch (const std::exception& error) {  // an error of the program; reported unchanged
      done.error = error.what();
      shared_->record(what, done, /*thrown=*/true, requested);
      throw;
    }
    try {
      if (!prepared_) {  // afterwards only the save thread uses the directory
        directory().prepare(what.rules);
        prepared_ = true;
      }
      if (async_mode_ != AsyncMode::disabled) {
        if (thread_ == nullptr) {
          thread_ = std::make_unique<SaveThread>();
        }
        thread_->save(
            state, async_mode_ == AsyncMode::async_with_pinned_mem, reliable,
            [shared = shared_, what, requested](const State& staged, const std::exception_ptr& copying_failed) {
              Published result;
              copying_failed ? tell(copying_failed, result) : void(result = shared->publish(what, staged));
              shared->record(what, result, /*thrown=*/false, requested);
            });
        return;
      }
      done = shared_->publish(what, state);
    } catch (const std::filesystem::filesystem_error& error) {
      done.error = concat("[checkpoint.write] expected to write checkpoint ", quote(what.history.value_or(what.name)),
                          ", got ", error.what());
    } catch (const Error& error) {
      done.error = error.what();
      shared_->record(what, done, /*thrown=*/true, requested);
      throw;
    } catch (const std::exception& error) {
      done.error = no_copy(error);  // out of memory
    }
    shared_->record(what, done, /*thrown=*/true, requested);
    if (!done.error.empty()) {
      throw CheckpointError(done.error);
    }
  }

  static void tell(const std::exception_ptr& failure, Published& out) {
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      out.error = no_copy(error);
    }
  }

  CheckpointOptions options_;
  AsyncMode async_mode_;
  StateFunction full_state_;
  StateFunction model_state_;
  std::shared_ptr<Shared> shared_;
  std::unique_ptr<SaveThread> thread_;
  bool prepared_ = false;
  bool closed_ = false;
};

FileCheckpointManager::FileCheckpointManager(CheckpointOptions options, StateFunction full_state,
                                             StateFunction model_state)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(full_state), std::move(model_state), *this)) {}

FileCheckpointManager::~FileCheckpointManager() = default;

bool FileCheckpointManager::save_checkpoint(const CheckpointRequest& request) { return impl_->save(request); }
void FileCheckpointManager::save_model_checkpoint(const std::string& name) { impl_->save_model(name); }

State FileCheckpointManager::load_checkpoint(const std::filesystem::path& path) { return impl_->load(path); }

std::optional<ValidCheckpoint> FileCheckpointManager::load_newest_valid() { return load_newest_valid({}); }

std::optional<ValidCheckpoint> FileCheckpointManager::load_newest_valid(const CheckpointFilter& filter) {
  impl_->wait(std::nullopt);
  return impl_->directory().load_newest_valid(filter);
}

std::optional<State> FileCheckpointManager::load_best() {
  impl_->wait(std::nullopt);
  std::error_code missing;
  const auto path = path_of("best");
  return std::filesystem::exists(path, missing) ? std::optional(CheckpointDirectory(options().directory).load(path))
                                                : std::nullopt;
}

bool FileCheckpointManager::wait(std::optional<double> timeout) {
  if (!impl_->settle(timeout)) {
    return false;
  }
  throw_failure();
  return true;
}

bool FileCheckpointManager::maybe_wait_for_staging(std::optional<double>) {
  impl_->order_current_stream();
  return true;
}

bool FileCheckpointManager::close(std::optional<double> timeout) {
  if (!impl_->settle(timeout)) {
    return false;
  }
  impl_->close();
  throw_failure();
  return true;
}

const CheckpointOptions& FileCheckpointManager::options() const { return impl_->options(); }
std::filesystem::path FileCheckpointManager::path_of(const std::string& name) const {
  return impl_->directory().path_of(name);
}

}  // namespace danling::inline v0
