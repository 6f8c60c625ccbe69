#include <runner/agreement.hpp>

#include <algorithm>
#include <cstdlib>

#include <danling/core/signals.hpp>

#include <runner/agreed_error.hpp>
#include <runner/display.hpp>
#include <runner/fault_state.hpp>
#include <runner/saver.hpp>
#include <runner/services.hpp>

namespace danling::inline v0 {

bool BaseRunner::stop_requested() {
  return requests_.stop.load(std::memory_order_relaxed) != 0 || stop_signal() != 0 ||
         (time_limit_.is_set() && Internals::Agreement(*this).is_time_over());
}

bool BaseRunner::Internals::Agreement::is_time_over() {
  const auto* manager = runner_.services_ != nullptr ? runner_.services_->checkpoint_manager.get() : nullptr;
  const double save_seconds = manager != nullptr ? manager->last_save_seconds() : 0.0;
  const bool saves = runner_.config().record && !runner_.config().checkpoint.load_only;
  if (saves && runner_.time_limit_.needs_measured_save(save_seconds)) {
    runner_.requests_.save = true;
  }
  return runner_.time_limit_.is_reached(save_seconds);
}

// Reads the signal after the request, so that a stop by a signal always has its name.
StepPacket BaseRunner::Internals::Agreement::packet_of_stop() const {
  if (!runner_.stop_requested()) [[likely]] {
    return {};
  }
  const int request = std::abs(runner_.requests_.stop.load(std::memory_order_relaxed));
  return {.signal = request != 0 ? request : stop_signal(), .stop = true};
}

bool BaseRunner::Internals::Agreement::is_joined_by() {
  detail::FaultState* fault = runner_.fault_.get();
  const auto now = std::chrono::steady_clock::now();
  if (fault == nullptr || !runner_.is_main_process() || now - fault->looked < std::chrono::milliseconds(200)) {
    return false;
  }
  fault->looked = now;
  return fault->members.has_waiting_process();
}

StepPacket BaseRunner::Internals::Agreement::agree(const Own& own) {
  detail::Requests& requests = runner_.requests_;
  const StepPacket stop = packet_of_stop();
  StepPacket all = runner_.parallelism().exchange_packets({.weight = own.weight,
                                                           .unit = own.unit,
                                                           .learner = own.learner,
                                                           .micro_step = own.micro_step,
                                                           .iteration = own.iteration,
                                                           .signal = stop.signal,
                                                           .stop = stop.stop,
                                                           .end = requests.end.has_value(),
                                                           .evaluate = requests.evaluation,
                                                           .save = requests.save,
                                                           .exhausted = own.ended,
                                                           .timed_out = runner_.time_limit_.reached(),
                                                           .regroup = is_joined_by()});
  if (all.exhausted && !runner_.parallelism().sums_gradients()) [[unlikely]] {
    // A rank that has ended its pass cannot stop before all passes have ended.
    all.signal = 0;
    all.regroup = all.stop = all.end = all.evaluate = all.save = all.timed_out = false;
  }
  if (all.timed_out) [[unlikely]] {
    runner_.time_limit_.set_reached();
  }
  if (all.end) [[unlikely]] {
    requests.ended = requests.end.value_or("another process has ended training");
    requests.end.reset();
  }
  return all;
}

void BaseRunner::Internals::Agreement::stop_if_requested(bool save, const StepPacket& all) {
  Saver saver(runner_);
  saver.poll();
  if (!all.stop) [[likely]] {
    return;
  }
  std::atomic<int>& request = runner_.requests_.stop;
  const detail::TimeLimit& limit = runner_.time_limit_;
  const auto signal = static_cast<int>(all.signal);  // 0: a time limit
  if (auto& heartbeat = runner_.services_->heartbeat; heartbeat != nullptr) {
    heartbeat->stop_begins(signal);
  }
  const bool taken = save && saver.save({.name = "latest", .force = true, .stopping = true});
  if (save) {
    runner_.wait_for_checkpoints();
  }
  request.store(-signal, std::memory_order_relaxed);  // handled: the program may continue after load_checkpoint()
  runner_.callbacks_.notify(&Callback::on_stop, "on_stop", StopEvent{{runner_}, signal});
  const std::string reason = signal != 0 ? signal_name(signal)
                             : limit.is_set()
                                 ? concat("the time limit of ", TextTraits<Duration>::format(*limit.limit()))
                                 : std::string("the time limit of another process");
  throw Stopped(signal, concat("[runner.stop] stopped by ", reason, " ", detail::place_in_run(runner_),
                               taken                               ? "; the run is saved"
                               : save && runner_.is_main_process() ? "; nothing is saved, as configured"
                                                                   : ""));
}

void BaseRunner::Internals::Agreement::report_failure(const std::exception& error) {
  if (!detail::is_known_to_all(error)) {
    report_failure(detail::abort_reason(error, error.what()));
  }
}

void BaseRunner::Internals::Agreement::report_failure(std::string_view words) {
  if (runner_.parallelism().group().alone()) {  // or the processes have not joined yet
    return;
  }
  try {
    if (runner_.fault_ != nullptr) {
      runner_.fault_->members.fail(words);
    }
    runner_.parallelism().abort(words);
  } catch (const std::exception& error) {
    runner_.logger().warning(concat("the error could not be sent to the other processes: ", error.what()));
  }
}

}  // namespace danling::inline v0
