#include <danling/checkpoint/sharded_manager.hpp>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include <danling/checkpoint/file_manager.hpp>
#include <danling/core/error.hpp>
#include <danling/formats/detail/checksum.hpp>

#include <checkpoint/sharded_manager_impl.hpp>
#include <checkpoint/staging.hpp>

namespace danling::inline v0 {
namespace {

namespace fs = std::filesystem;

std::string random_id() {
  std::random_device device;
  std::string out;
  for (int i = 0; i < 8; ++i) {
    out.push_back("0123456789abcdef"[device() % 16]);
  }
  return out;
}

std::string padded(std::int64_t number, std::size_t width) {
  const std::string digits = to_text(number);
  return std::string(width > digits.size() ? width - digits.size() : 0, '0') + digits;
}

// Copies a view into memory of its size, instead of keeping all the memory that it views.
at::Tensor compact(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().resolve_conj().resolve_neg().contiguous();
  const bool whole = dense.storage().nbytes() <= dense.nbytes() + 64;
  return (whole ? dense : dense.clone()).set_requires_grad(tensor.requires_grad());
}

}  // namespace

TorchDistributedCheckpointManager::Impl::Impl(CheckpointOptions options, Group group, StateFunction full_state,
                                              StateFunction model_state, ShardSelector wanted,
                                              TorchDistributedCheckpointManager& owner)
    : options_(std::move(options)),
      async_mode_(detail::async_mode_of(options_)),
      group_(std::move(group)),
      full_state_(std::move(full_state)),
      model_state_(std::move(model_state)),
      wanted_(std::move(wanted)),
      owner_(owner),
      session_(std::make_shared<ShardedSession>(options_.directory, group_.rank(), group_.size(), group_.timeout())) {
  detail::check_options(options_);
}

TorchDistributedCheckpointManager::Impl::~Impl() {
  session_->end();
  thread_.reset();  // waits, or detaches the thread
}

bool TorchDistributedCheckpointManager::Impl::save(const CheckpointRequest& request) {
  const auto plan = detail::plan_save(options_, request);
  if (!plan) {
    return false;
  }
  publish(plan->what, request.global_step, plan->reliable,
          [&] { return plan->model_only ? exported_model() : full_state_(); });
  if (plan->model_beside) {
    save_model("model");
  }
  return true;
}

void TorchDistributedCheckpointManager::Impl::save_model(const std::string& name) {
  detail::check_checkpoint_name(name);
  if (options_.load_only) {
    return;
  }
  Publication what;
  what.name = name;
  what.rules = detail::rules_of(options_, false);
  what.weights = options_.export_safetensors ? name : "";
  publish(what, 0, /*reliable=*/true, [&] { return exported_model(); });
}

ShardedState TorchDistributedCheckpointManager::Impl::exported_model() const {
  ShardedState out = model_state_();
  if (options_.export_dtype) {
    out.state = export_state(out.state, *options_.export_dtype);
  }
  return out;
}

// Exchanges the messages of all ranks, and records the outcomes that rank 0 sends.
std::vector<ShardedMessage> TorchDistributedCheckpointManager::Impl::exchange(ShardedMessage message) {
  session_->take(message);
  std::vector<ShardedMessage> all;
  for (const auto& bytes : group_.all_gather(pack_message(message))) {
    all.push_back(unpack_message(bytes));
  }
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    for (const auto& [number, text] : all[rank].failures) {
      session_->abandon(number, concat("rank ", rank, ": ", text));
    }
  }
  for (const auto& outcome : all.front().outcomes) {
    owner_.record(outcome, /*thrown=*/false);
  }
  return all;
}

void TorchDistributedCheckpointManager::Impl::prepare(const RetentionRules& rules) {
  if (!id_.empty()) {
    return;
  }
  ShardedMessage message;
  if (group_.rank() == 0) {
    try {
      session_->directory.prepare(rules);
      message.digest = random_id();
    } catch (const StateError& error) {
      message.error = error.what();
      message.flag = true;
    } catch (const std::exception& error) {
      message.error = concat("[checkpoint.write] expected to save into ", quote(options_.directory.string()), ", got ",
                             error.what());
    }
  }
  message = unpack_message(group_.broadcast(pack_message(message), 0));
  if (!message.error.empty()) {
    if (message.flag) {
      throw StateError(message.error);
    }
    throw CheckpointError(message.error);
  }
  id_ = message.digest;
}

// The items that this rank writes. Ranks compare their boxes only if those of a rank have changed.
std::vector<std::size_t> TorchDistributedCheckpointManager::Impl::positions(const std::string& packed,
                                                                            const std::vector<ShardedMessage>& all) {
  std::vector<std::string> digests;
  for (const auto& message : all) {
    digests.push_back(message.digest);
  }
  if (digests != digests_) {
    digests_.clear();
    positions_ = assign_items(group_.all_gather(packed), group_.rank());
    digests_ = std::move(digests);
  }
  return positions_;
}

template <class MakeState>
void TorchDistributedCheckpointManager::Impl::publish(const Publication& what, std::int64_t global_step, bool reliable,
                                                      MakeState make_state) {
  check<StateError>(!closed_, "checkpoint.save", "expected no save after close, got one");
  const auto requested = std::chrono::steady_clock::now();
  SavePlan plan;
  std::string packed;
  ShardedMessage message;
  std::exception_ptr own_error;
  try {
    plan = take_apart(make_state());
    packed = pack_items(plan.items);
    message.digest = to_hex(formats::hash128(std::as_bytes(std::span(packed))));
  } catch (const std::exception& error) {
    own_error = std::current_exception();
    message.error = error.what();
  }
  std::vector<ShardedMessage> all;
  bool dropped = false;
  if (thread_ != nullptr) {
    message.flag = thread_->hold();
    try {
      all = exchange(message);
    } catch (...) {
      thread_->release(false);
      throw;
    }
    // A save that still waits on all ranks is the same save, and no rank has begun it.
    dropped = std::all_of(all.begin(), all.end(), [](const auto& other) { return other.flag; });
    thread_->release(dropped);
  } else {
    all = exchange(message);
  }
  ShardedOutcome failed;
  failed.name = what.name;
  failed.history = what.history.value_or("");
  const auto refuse = [&](const std::string& error) {
    failed.done.error = error;
    owner_.record(failed, /*thrown=*/true);
  };
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].error.empty()) {
      const std::string text = group_.alone() ? all[rank].error : concat("rank ", rank, ": ", all[rank].error);
      refuse(text);
      if (own_error) {  // an error of the program; reported unchanged
        std::rethrow_exception(own_error);
      }
      throw CheckpointError(text);
    }
  }
  ShardWork work;
  try {
    work = work_of(std::move(plan), positions(packed, all));
    prepare(what.rules);
  } catch (const DistributedError&) {
    throw;
  } catch (const Error& error) {
    refuse(error.what());
    throw;
  }
  ShardedSave save;
  save.number = ++number_;
  save.running = concat("-q", id_);
  save.target =
      concat(what.history.value_or(what.name), "-g", padded(global_step, 12), save.running, padded(number_, 6));
  save.what = what;
  save.verify = what.history && (what.rules.latest > 0 || what.rules.best > 0 || what.rules.every_hours > 0.0);
  save.requested = requested;
  async_mode_ == detail::AsyncMode::disabled ? save_now(save, work) : save_later(save, std::move(work), reliable);
}

void TorchDistributedCheckpointManager::Impl::save_now(const ShardedSave& save, const ShardWork& work) {
  ShardedMessage message;
  message.error = session_->write(save, work);
  Published failed;
  const auto all = exchange(message);
  for (std::size_t rank = 0; rank < all.size() && failed.error.empty(); ++rank) {
    if (!all[rank].error.empty()) {
      failed.error = group_.alone() ? all[rank].error : concat("rank ", rank, ": ", all[rank].error);
    }
  }
  ShardedMessage outcome;
  if (group_.rank() == 0) {
    failed.error.empty() ? session_->complete(save) : session_->fail(save, failed.error);
    session_->take(outcome);
  }
  for (const auto& ended : unpack_message(group_.broadcast(pack_message(outcome), 0)).outcomes) {
    owner_.record(ended, /*thrown=*/ended.number == save.number);
    if (ended.number == save.number && !ended.done.error.empty()) {
      throw CheckpointError(ended.done.error);
    }
  }
}

void TorchDistributedCheckpointManager::Impl::save_later(const ShardedSave& save, ShardWork work, bool reliable) {
  if (thread_ == nullptr) {
    thread_ = std::make_unique<SaveThread>(/*drops_waiting=*/false);
  }
  State::List tensors;
  for (auto& item : work.items) {
    tensors.emplace_back(compact(item.tensor));
    item.tensor = at::Tensor();
  }
  const auto shared = std::make_shared<ShardWork>(std::move(work));
  const auto run = [session = session_, save, shared](const State& staged, const std::exception_ptr& copying_failed) {
    std::string error;
    if (copying_failed) {
      try {
        std::rethrow_exception(copying_failed);
      } catch (const std::exception& failure) {
        error = detail::no_copy(failure);
      }
    } else if (staged.is_list()) {
      for (std::size_t i = 0; i < shared->items.size(); ++i) {
        shared->items[i].tensor = staged.list()[i].tensor();
      }
    }
    session->run(save, *shared, error);
    shared->items.clear();  // the staging memory will be reused
  };
  try {
    thread_->save(State(std::move(tensors)), async_mode_ == detail::AsyncMode::async_with_pinned_mem, reliable, run);
  } catch (const std::exception& error) {  // no memory for the copy: the next call sends it to the other ranks
    session_->run(save, *shared, detail::no_copy(error));
  }
}

bool TorchDistributedCheckpointManager::Impl::settle(std::optional<double> timeout) {
  if (closed_ || number_ == 0) {
    return true;
  }
  using Seconds = std::chrono::duration<double>;
  const auto begin = std::chrono::steady_clock::now();
  const double longest = Seconds(group_.timeout()).count() / 4;
  for (double slice = 0.005;; slice = std::min(2 * slice, std::min(longest, 0.25))) {
    const double left = timeout ? *timeout - Seconds(std::chrono::steady_clock::now() - begin).count() : slice;
    ShardedMessage message;
    message.flag = thread_ == nullptr || thread_->is_idle_within(std::clamp(left, 0.0, slice));
    message.expired = timeout && Seconds(std::chrono::steady_clock::now() - begin).count() >= *timeout;
    const auto all = exchange(message);
    if (std::all_of(all.begin(), all.end(), [](const auto& other) { return other.flag; })) {
      return true;
    }
    if (all.front().expired) {
      thread_->wait(0.0);  // the destructor will not wait
      return false;
    }
  }
}

void TorchDistributedCheckpointManager::Impl::close() {
  closed_ = true;
  thread_.reset();
  session_->directory.unlock();
}

void TorchDistributedCheckpointManager::record(const ShardedOutcome& outcome, bool thrown) {
  const Published& done = outcome.done;
  const std::string target = outcome.history.empty() ? outcome.name : outcome.history;
  const auto has = [&](const std::string& name) {
    return std::find(done.names.begin(), done.names.end(), name) != done.names.end();
  };
  if (done.error.empty()) {
    record_save_seconds(outcome.seconds);
  }
  if (!done.names.empty()) {
    record_success(outcome.name, has(target) ? target : outcome.name, done.names);
  }
  if (!done.error.empty()) {
    record_failure(outcome.name, done.error, target, done.failed_alias, thrown);
  }
  if (!done.warning.empty()) {
    record_warning(done.warning);
  }
  if (outcome.best && !has("best")) {
    record_lost_best(done.error);
  } else if (outcome.best) {
    forget_failure("best");
  }
}

TorchDistributedCheckpointManager::TorchDistributedCheckpointManager(CheckpointOptions options, Group group,
                                                                     StateFunction full_state,
                                                                     StateFunction model_state, ShardSelector wanted)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(group), std::move(full_state), std::move(model_state),
                                   std::move(wanted), *this)) {}

TorchDistributedCheckpointManager::~TorchDistributedCheckpointManager() = default;

bool TorchDistributedCheckpointManager::save_checkpoint(const CheckpointRequest& request) {
  return impl_->save(request);
}
void TorchDistributedCheckpointManager::save_model_checkpoint(const std::string& name) { impl_->save_model(name); }

bool TorchDistributedCheckpointManager::wait(std::optional<double> timeout) {
  if (!impl_->settle(timeout)) {
    return false;
  }
  throw_failure();
  return true;
}

bool TorchDistributedCheckpointManager::maybe_wait_for_staging(std::optional<double>) {
  impl_->order_current_stream();
  return true;
}

bool TorchDistributedCheckpointManager::close(std::optional<double> timeout) {
  if (!impl_->settle(timeout)) {
    return false;
  }
  impl_->close();
  throw_failure();
  return true;
}

const CheckpointOptions& TorchDistributedCheckpointManager::options() const { return impl_->options(); }

}  // namespace danling::inline v0
