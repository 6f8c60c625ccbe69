// How a run ends that was asked to stop.
#pragma once

#include <string>

#include <danling/core/error.hpp>

namespace danling::inline v0 {

/// Thrown by the loops once a stop was asked for and the run is saved; `dl::run` turns it into exit code 128 + signal.
class Stopped : public Error {
 public:
  Stopped(int signal, const std::string& message) : Error(message), signal_(signal) {}
  ~Stopped() override;
  int signal() const { return signal_; }

 private:
  int signal_;
};

}  // namespace danling::inline v0
