// Setup of a runner: the hooks of initialize() in order, and the services that they need.
#pragma once

#include <danling/runner/base_runner.hpp>

namespace danling::inline v0 {

class BaseRunner::Internals::Setup {
 public:
  explicit Setup(BaseRunner& runner) : runner_(runner) {}

  void run();
  /// With `ft`: joins the processes that start together; if others already train, returns a Parallelism outside their
  /// group.
  std::unique_ptr<Parallelism> join_members();
  /// On the main process.
  void make_recorder();
  void make_profiler();

 private:
  void build();
  void agree_on_run();
  /// Checks that all ranks have restored the same state.
  void agree_on_state();
  /// Hash of the program's file; empty if it cannot be read.
  static std::string program_id();
  /// Id of the config without the keys that may differ between ranks.
  std::string common_config_id() const;
  void make_services();
  void add_sinks();

  BaseRunner& runner_;
};

}  // namespace danling::inline v0
