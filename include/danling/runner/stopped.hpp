// Stopped: thrown when a run stops after a signal, a request or the time limit.
#pragma once

#include <string>

#include <danling/core/error.hpp>

namespace danling::inline v0 {

/// The loops throw it after a requested stop or at the time limit; training is saved first. `dl::run` then returns 128
/// + signal, or exit_time_limit.
class Stopped : public Error {
 public:
  Stopped(int signal, const std::string& message) : Error(message), signal_(signal) {}
  ~Stopped() override;
  /// 0 for the time limit.
  int signal() const { return signal_; }

 private:
  int signal_;
};

}  // namespace danling::inline v0
