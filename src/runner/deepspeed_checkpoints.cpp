// The manager of tagged checkpoints: decides when to save, under which tag, and on which thread.
#include <danling/runner/deepspeed_checkpoints.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <utility>

#include <danling/core/error.hpp>

#include <checkpoint/manager_options.hpp>
#include <checkpoint/save_thread.hpp>
#include <runner/deepspeed_pointers.hpp>
#include <runner/deepspeed_tags.hpp>

namespace danling::inline v0 {
namespace {

namespace fs = std::filesystem;
using TagClock = std::chrono::steady_clock;

std::string global_step_tag(std::int64_t step) {
  const std::string digits = to_text(step);
  return concat("ckpt-g", std::string(digits.size() < 12 ? 12 - digits.size() : 0, '0'), digits);
}

void check_tag_name(const std::string& name) {
  const bool plain = !name.empty() && name.size() <= 200 && name.front() != '.' && !name.ends_with(".pointer") &&
                     std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < ' ' || c == '/'; });
  check<ConfigError>(plain, "checkpoint.save", "expected a name for a directory, without folders, got ", quote(name));
  check<ConfigError>(!name.starts_with("ckpt-") && name != "best", "checkpoint.save",
                     "expected a name that is not reserved (best, ckpt-...), got ", quote(name));
}

}  // namespace

class DeepSpeedCheckpointManager::Tags {
 public:
  Tags(DeepSpeedCheckpointManager& owner, CheckpointOptions own, StateFunction full, StateFunction model,
       std::function<std::string()> yaml, DeepSpeedStore store)
      : options(std::move(own)),
        full_state(std::move(full)),
        model_state(std::move(model)),
        runner_yaml(std::move(yaml)),
        shared_(std::make_shared<Shared>(options.directory, std::move(store), owner)) {}
  ~Tags() {
    thread_.reset();  // waits for the thread, or detaches it
    const std::lock_guard lock(shared_->mutex);
    shared_->owner = nullptr;
  }
  Tags(const Tags&) = delete;
  Tags& operator=(const Tags&) = delete;

  detail::DeepSpeedTags& tags() { return shared_->tags; }
  bool wait(std::optional<double> timeout) { return thread_ == nullptr || thread_->wait(timeout); }
  void order_current_stream() {
    if (thread_ != nullptr) thread_->order_current_stream();
  }
  void close() {
    closed_ = true;
    thread_.reset();
  }

  template <class MakeState>
  void publish(const detail::TagPublication& what, const std::string& name, bool reliable, MakeState make_state) {
    check<StateError>(!closed_, "checkpoint.save", "expected no save after close, got one");
    const auto requested = TagClock::now();
    const std::string mode = options.async_mode.value_or(options.async_enabled ? "async" : "disabled");
    State state;
    try {
      state = make_state();
    } catch (const std::exception& error) {  // an error of the program, reported unchanged
      shared_->record(name, what, {{}, error.what(), {}}, /*thrown=*/true, requested);
      throw;
    }
    if (mode == "disabled") {
      const auto done = shared_->tags.publish(what, state);
      shared_->record(name, what, done, /*thrown=*/true, requested);
      if (!done.error.empty()) throw CheckpointError(done.error);
      return;
    }
    if (thread_ == nullptr) {
      thread_ = std::make_unique<SaveThread>();
    }
    try {
      thread_->save(state, mode == "async_with_pinned_mem", reliable,
                    [shared = shared_, what, name, requested](const State& staged, const std::exception_ptr& failed) {
                      detail::PublishedTag done;
                      failed ? void(done.error = copy_error(failed)) : void(done = shared->tags.publish(what, staged));
                      shared->record(name, what, done, /*thrown=*/false, requested);
                    });
    } catch (const std::exception& error) {  // out of memory
      const detail::PublishedTag failed{{}, detail::no_copy(error), {}};
      shared_->record(name, what, failed, /*thrown=*/true, requested);
      throw CheckpointError(failed.error);
    }
  }

  const CheckpointOptions options;
  const StateFunction full_state, model_state;
  const std::function<std::string()> runner_yaml;

 private:
  // Outlives the manager while the thread is blocked on a disk.
  struct Shared {
    Shared(const fs::path& directory, DeepSpeedStore store, DeepSpeedCheckpointManager& manager)
        : tags(directory, std::move(store)), owner(&manager) {}

    void record(const std::string& name, const detail::TagPublication& what, const detail::PublishedTag& done,
                bool thrown, TagClock::time_point requested) {
      const std::lock_guard lock(mutex);
      if (owner == nullptr) return;
      const auto has = [](const std::vector<std::string>& names, const char* wanted) {
        return std::find(names.begin(), names.end(), wanted) != names.end();
      };
      if (!done.pointers.empty()) owner->record_success(name, what.tag, done.pointers);
      if (done.error.empty()) {
        owner->record_save_seconds(std::chrono::duration<double>(TagClock::now() - requested).count());
      } else {
        owner->record_failure(name, done.error, what.tag, done.failed_pointer, thrown);
      }
      if (has(what.pointers, "best")) {
        has(done.pointers, "best") ? owner->forget_failure("best") : owner->record_lost_best(done.error);
      }
    }

    detail::DeepSpeedTags tags;
    std::mutex mutex;
    DeepSpeedCheckpointManager* owner;
  };

  static std::string copy_error(const std::exception_ptr& failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      return detail::no_copy(error);
    }
  }

  std::shared_ptr<Shared> shared_;
  std::unique_ptr<SaveThread> thread_;
  bool closed_ = false;
};

DeepSpeedCheckpointManager::DeepSpeedCheckpointManager(CheckpointOptions options, StateFunction full_state,
                                                       StateFunction model_state,
                                                       std::function<std::string()> runner_yaml, DeepSpeedStore store)
    : FileCheckpointManager(options, full_state, model_state),
      tags_(std::make_unique<Tags>(*this, std::move(options), std::move(full_state), std::move(model_state),
                                   std::move(runner_yaml), std::move(store))) {}

DeepSpeedCheckpointManager::~DeepSpeedCheckpointManager() = default;

bool DeepSpeedCheckpointManager::save_checkpoint(const CheckpointRequest& request) {
  check_tag_name(request.name);
  const CheckpointOptions& own = tags_->options;
  const std::int64_t interval = own.interval.value_or(0);
  const bool best = request.save_best && request.is_best;
  const bool due = should_persist(request, interval);
  if (own.load_only || (!due && !best)) {
    return false;
  }
  const bool model_only = request.last_step && own.last_save_model_only;
  // A run cannot resume from a model, so a model does not enter the history.
  const auto history = due && request.history && !model_only ? history_name(request, interval) : std::nullopt;
  detail::TagPublication what;
  what.tag = history ? *history : best ? global_step_tag(request.global_step) : request.name;
  what.pointers = {"latest"};
  if (request.name != "latest" && request.name != what.tag) what.pointers.push_back(request.name);
  if (best) what.pointers.emplace_back("best");
  what.in_history = history.has_value();
  what.score = model_only ? std::nullopt : request.score;
  what.rules = {own.keep_latest_k, own.keep_best_k, own.keep_every_hours, request.higher_is_better};
  what.runner_yaml = tags_->runner_yaml();
  what.sync_first = own.sync_first;
  const bool reliable = history || best || request.last_step || request.force || request.name != "latest";
  tags_->publish(what, request.name, reliable, [&] {
    if (!model_only) return tags_->full_state();
    const State state = tags_->model_state();
    return own.export_dtype ? export_state(state, *own.export_dtype) : state;
  });
  if (request.last_step && request.name == "latest" && request.export_model) {
    save_model_checkpoint("model");
  }
  return true;
}

State DeepSpeedCheckpointManager::load_checkpoint(const fs::path& path) {
  tags_->wait(std::nullopt);
  std::error_code missing;
  if (detail::is_state_file(path) && fs::is_regular_file(path, missing)) {
    return FileCheckpointManager::load_checkpoint(path);
  }
  fs::path found = path;
  const fs::path bare = tags_->tags().directory() / path.filename();
  const bool is_bare = !path.has_parent_path() || path.parent_path() == fs::current_path(missing);
  if (is_bare && !fs::exists(path, missing) &&
      (fs::exists(bare, missing) || fs::exists(bare.string() + ".pointer", missing))) {
    found = bare;
  }
  return tags_->tags().load(detail::resolve_deepspeed_checkpoint(found).path());
}

std::optional<ValidCheckpoint> DeepSpeedCheckpointManager::load_newest_valid() {
  tags_->wait(std::nullopt);
  return tags_->tags().load_newest_valid(tags_->tags().directory(), {});
}

std::optional<ValidCheckpoint> DeepSpeedCheckpointManager::load_newest_valid_from(const fs::path& directory,
                                                                                  const CheckpointFilter& filter) {
  tags_->wait(std::nullopt);
  return tags_->tags().load_newest_valid(directory, filter);
}

std::optional<fs::path> DeepSpeedCheckpointManager::find_final_model(const fs::path& directory) {
  const auto latest = detail::find_deepspeed_tag(directory, "latest");
  if (!latest) {
    return std::nullopt;
  }
  try {
    // Only the last save of a run writes a state without counters.
    const State state = tags_->tags().load(directory / *latest);
    const bool has_model = state.find("model") != nullptr || state.find("models") != nullptr;
    return state.find("state") == nullptr && has_model ? std::optional(directory / *latest) : std::nullopt;
  } catch (const CheckpointError&) {
    return std::nullopt;
  }
}

bool DeepSpeedCheckpointManager::is_latest(const fs::path& checkpoint) const {
  const auto latest = detail::find_deepspeed_tag(tags_->tags().directory(), "latest");
  std::error_code missing;
  if (!latest || (detail::is_state_file(checkpoint) && fs::is_regular_file(checkpoint, missing))) {
    return false;
  }
  try {
    return fs::equivalent(detail::resolve_deepspeed_checkpoint(checkpoint).path(), tags_->tags().directory() / *latest,
                          missing);
  } catch (const CheckpointError&) {
    return false;
  }
}

std::vector<std::string> DeepSpeedCheckpointManager::adopt(const fs::path& directory,
                                                           const CheckpointHistory& history) {
  tags_->wait(std::nullopt);
  return tags_->options.load_only ? std::vector<std::string>() : tags_->tags().adopt(directory, history);
}

std::optional<BestCheckpoint> DeepSpeedCheckpointManager::best_checkpoint() const {
  return tags_->options.load_only ? std::nullopt : tags_->tags().best();
}

std::optional<State> DeepSpeedCheckpointManager::load_best() {
  tags_->wait(std::nullopt);
  const auto tag = detail::find_deepspeed_tag(tags_->tags().directory(), "best");
  return tag ? std::optional(tags_->tags().load(tags_->tags().directory() / *tag)) : std::nullopt;
}

std::optional<std::string> DeepSpeedCheckpointManager::republish_best(std::int64_t index,
                                                                      std::vector<std::string>& problems) {
  tags_->wait(std::nullopt);
  return tags_->tags().republish_best(index, problems);
}

bool DeepSpeedCheckpointManager::wait(std::optional<double> timeout) {
  return tags_->wait(timeout) && FileCheckpointManager::wait(timeout);
}

bool DeepSpeedCheckpointManager::maybe_wait_for_staging(std::optional<double> timeout) {
  tags_->order_current_stream();
  return FileCheckpointManager::maybe_wait_for_staging(timeout);
}

bool DeepSpeedCheckpointManager::close(std::optional<double> timeout) {
  if (!tags_->wait(timeout)) {
    return false;
  }
  tags_->close();
  return FileCheckpointManager::close(timeout);
}

}  // namespace danling::inline v0
