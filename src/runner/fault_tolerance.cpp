#include <runner/fault_tolerance.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <danling/checkpoint/manager.hpp>
#include <danling/core/signals.hpp>
#include <danling/runner/stacks.hpp>
#include <danling/telemetry/logger.hpp>
#include <danling/workspace/workspace.hpp>

#include <checkpoint/state_archive.hpp>
#include <distributed/packing.hpp>
#include <runner/agreement.hpp>
#include <runner/display.hpp>
#include <runner/flag_scope.hpp>
#include <runner/loss_policy.hpp>
#include <runner/process_config.hpp>
#include <runner/rank_messages.hpp>
#include <runner/records.hpp>
#include <runner/restorer.hpp>
#include <runner/saver.hpp>
#include <runner/services.hpp>
#include <runner/training.hpp>
#include <runner/watchdog.hpp>
#include <runner/watched_loop.hpp>
#include <runner/windows.hpp>

namespace danling::inline v0 {
namespace {

// In groups that lost no process. More failures indicate the program, not the network.
constexpr std::int64_t most_failures = 3;

}  // namespace

void TorchRunnerBase::Internals::FaultTolerance::begin_training() {
  runner_.parallelism().set_timeout(timeout());
  if (const std::int64_t started = runner_.config().ft.group_size; runner_.world_size() < started) {
    runner_.logger().warning(concat("fault tolerance: training begins with ", runner_.world_size(), " of ", started,
                                    " processes (ft.group_size); others may join"));
  }
  keep_state();
}

std::chrono::milliseconds TorchRunnerBase::Internals::FaultTolerance::timeout() const {
  return detail::timeout_of(static_cast<double>(runner_.config().ft.process_group_timeout_ms) / 1000);
}

void TorchRunnerBase::Internals::FaultTolerance::end_step(const StepPacket& agreed) {
  const bool opens = runner_.is_single_process_ ? Agreement(runner_).is_joined_by() : agreed.regroup;
  if (++state_.updates >= runner_.config().ft.snapshot_interval || opens) {
    keep_state();
  }
  if (opens) {
    throw detail::Regroup();
  }
}

// Every rank stores what the main process would save.
void TorchRunnerBase::Internals::FaultTolerance::keep_state() {
  const auto ranks = Saver(runner_).gather_rank_states();
  state_.point = clone(runner_.state_dict());
  state_.updates = state_.failures = 0;
  runner_.services().took_over = false;
}

void TorchRunnerBase::Internals::FaultTolerance::regroup(std::string_view reason) {
  AxisPlace share = runner_.parallelism().data_share();  // the share of the loaders, whatever fails below
  std::string news(reason);
  const bool watched = runner_.watched_ != nullptr;
  runner_.watched_ = nullptr;
  runner_.services().watchdog.reset();  // it holds connections of the group
  for (;;) {
    if (!news.empty()) {
      runner_.logger().warning(
          concat("fault tolerance: the group has failed (", news, "); its processes form a new one"));
    }
    const detail::Generation generation = next_generation();
    state_.failures += !news.empty() && generation.same_members ? 1 : 0;
    check<DistributedError>(state_.failures <= most_failures, "runner.init_fault_tolerance",
                            "expected an update after a new group has formed, got ", state_.failures,
                            " failures while all ", generation.size, " processes lived; the last: ", news);
    try {
      connect(generation);
      share_state();
      enter_generation();
      reshard(std::exchange(share, runner_.parallelism().data_share()));
      restore();
      state_.joined = state_.joined || state_.joins;
      state_.joins = false;
      if (watched) {
        WatchedLoop::begin(runner_);
      }
      return;
    } catch (const DistributedError& error) {
      news = error.what();
    }
  }
}

detail::Generation TorchRunnerBase::Internals::FaultTolerance::next_generation() {
  try {
    return state_.members.next();
  } catch (const DistributedError&) {
    if (const int signal = stop_signal(); signal != 0) {
      throw Stopped(signal,
                    concat("[runner.stop] stopped by ", signal_name(signal),
                           " while it waited for the others; progress after the newest checkpoint is not saved"));
    }
    throw;
  }
}

void TorchRunnerBase::Internals::FaultTolerance::connect(const detail::Generation& generation) {
  const RunnerConfig& config = runner_.config();
  const ProcessIdentity identity = detail::identity_in(generation, read_process_identity());
  runner_.gradient_accumulators_.clear();
  // All processes of the generation are present: no need for the long timeout of the start.
  RunnerConfig soon = config;
  soon.comm.init_timeout_seconds = std::chrono::duration<double>(timeout()).count();
  runner_.replace_parallelism(std::make_unique<Parallelism>(ProcessIdentity()));  // ends the old connections first
  runner_.replace_parallelism(stacks().at(config.stack_name())(identity, soon));
  runner_.parallelism().set_timeout(timeout());
  runner_.logger().info(
      concat("fault tolerance: generation ", generation.number, ", rank ", generation.rank, " of ", generation.size));
}

// Sends the state of the furthest rank to ranks that have another state, or none.
void TorchRunnerBase::Internals::FaultTolerance::share_state() {
  std::int64_t position = -1;
  if (state_.point.is_map()) {
    position = state_.point.at("state").at("train").at("micro_step").integer();
  }
  detail::Packer mine;
  mine.number(position);
  std::vector<std::int64_t> positions;
  for (const std::string& packed : detail::exchange(runner_.group(), mine.take())) {
    positions.push_back(detail::Unpacker(packed).number());
  }
  const auto furthest = std::max_element(positions.begin(), positions.end());
  if (std::all_of(positions.begin(), positions.end(), [&](std::int64_t other) { return other == *furthest; })) {
    return;
  }
  const auto source = static_cast<int>(furthest - positions.begin());
  const bool sends = runner_.rank() == source;
  const std::string bytes = runner_.group().broadcast(sends ? pack_state(state_.point) : std::string(), source);
  if (position != *furthest) {
    state_.point = unpack_state(bytes);
  }
}

void TorchRunnerBase::Internals::FaultTolerance::enter_generation() {
  if (runner_.model) {
    runner_.parallelism().prepare(runner_.model, runner_.device());
  }
  for (auto& [name, handle] : runner_.models) {
    runner_.parallelism().prepare(handle, runner_.device());
  }
  Records(runner_).enter_generation();
}

// Gives loaders that had this process's old share its new share.
void TorchRunnerBase::Internals::FaultTolerance::reshard(const AxisPlace& before) {
  const AxisPlace now = runner_.parallelism().data_share();
  for (const SplitInfo& split : runner_.splits()) {
    if (runner_.find_loader(split.name) == nullptr) {
      continue;
    }
    data::LoaderBase& loader = runner_.loader(split.name);
    data::Shard shard = loader.options().shard;
    if (shard.rank == before.rank && shard.world_size == before.size && shard.num_shares == before.num_shares) {
      shard.rank = now.rank;
      shard.world_size = now.size;
      shard.num_shares = now.num_shares;
      loader.reshard(shard);
    }
  }
}

void TorchRunnerBase::Internals::FaultTolerance::restore() {
  runner_.services().deferred_saves.clear();
  try {
    runner_.checkpoint_manager().wait(runner_.config().checkpoint.wait_timeout);
  } catch (const CheckpointError& error) {
    Saver(runner_).on_failure(error.what());
  }
  const detail::Unset between(runner_.training_);  // load_state_dict refuses a loop in progress
  BaseRunner::Internals::Restorer restorer(runner_);
  std::string from;
  if (const Saves saves = saves_of_main(); !state_.point.is_map() || saves == Saves::behind) {
    from = restorer.return_to_newest();
  } else if (saves == Saves::missing) {
    runner_.requests_.save = true;
  }
  if (state_.point.is_map() && from.empty()) {
    const detail::FlagScope all(runner_.services().rewinding);
    restorer.restore(clone(state_.point));
    restorer.roll_back_records(state_.point);
  } else {
    state_.point = State();
  }
  runner_.logger().info(concat("fault tolerance: continues ", detail::place_in_run(runner_),
                               from.empty() ? std::string() : concat(", from ", from)));
  runner_.requests_.ended = std::exchange(runner_.loop_.ended, std::nullopt);
  state_.updates = 0;
  if (runner_.loss_policy_ != nullptr) {
    LossPolicy(runner_).begin_anew(state_.point);
  }
  // Joining processes do it here too, not in train(): it communicates, and here the death of another process is caught.
  state_.prepared = state_.joins;
  Training(runner_).prepare_steps();
  Windows(runner_).drop();
}

// A main process that died may have left a due save unfinished. Then the remaining processes go back to the previous
// save, or save again if it was the first.
TorchRunnerBase::Internals::FaultTolerance::Saves TorchRunnerBase::Internals::FaultTolerance::saves_of_main() {
  const std::int64_t interval = runner_.checkpoint_interval();
  Saves answer = Saves::complete;
  if (runner_.services().took_over && state_.point.is_map() && interval > 0 && !runner_.config().checkpoint.load_only) {
    const std::string_view unit = runner_.is_step_mode() ? "global_step" : "epoch";
    const auto due = [&](const State& run) { return run.at("state").at("train").at(unit).integer() / interval; };
    const auto saved = runner_.checkpoint_manager().load_newest_valid_from(
        runner_.workspace().checkpoint_dir(),
        [](const State& state) { return state.find("state") != nullptr ? "" : "a model"; });
    if (due(state_.point) > (saved ? due(saved->state) : 0)) {
      answer = saved ? Saves::behind : Saves::missing;
    }
  }
  return static_cast<Saves>(detail::exchange(runner_.group(), std::string(1, static_cast<char>(answer))).front()[0]);
}

}  // namespace danling::inline v0
