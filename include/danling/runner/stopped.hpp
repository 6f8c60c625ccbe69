// Stopped: thrown when a run stops after a signal or a request.
#pragma once

#include <string>

#include <danling/core/error.hpp>

namespace danling::inline v0 {

/// Thrown by the loops after a requested stop or at the time limit, once the run is saved; `dl::run` turns it into exit
/// code 128 + signal, or exit_time_limit.
class Stopped : public Error {
 public:
  Stopped(int signal, const std::string& message) : Error(message), signal_(signal) {}
  ~Stopped() override;
  /// 0: the time limit.
  int signal() const { return signal_; }

 private:
  int signal_;
};

}  // namespace danling::inline v0
