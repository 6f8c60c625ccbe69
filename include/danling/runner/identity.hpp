// Identity of a runner: config, names, seed, processes and device.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>

#include <c10/core/Device.h>

#include <danling/config/stored.hpp>
#include <danling/runner/runner_config.hpp>

namespace danling::inline v0 {

class Group;
class Parallelism;
struct CodeIdentity;

/// Available from construction on. The constructor normalises the config, reads the launcher's environment variables
/// and seeds the generators; it opens no file and starts no thread.
class RunnerIdentity {
 public:
  RunnerIdentity(const RunnerIdentity&) = delete;
  RunnerIdentity& operator=(const RunnerIdentity&) = delete;

  /// The runner's normalised copy of the config; `config<MyConfig>()` returns it as a MyConfig.
  /// @throws ConfigError when the runner was built from another type
  template <class C = RunnerConfig>
  const C& config() const {
    return config_.as<C>();
  }

  /// `<lineage>-<experiment>`, or the `name` of the config.
  std::string name() const;
  /// Stable over restarts: `<code id>-<config id>`, or only the config id if there is no code identity.
  std::string id() const;
  /// 12 hex digits of the hash of the canonical config.
  const std::string& config_id() const { return config_id_; }
  /// The commit of the program; empty outside a repository. The first call of code_id() or id() runs git.
  const std::string& code_id() const;
  /// Local time at which this attempt was constructed, as `20261231-235959-123456` (see make_timestamp); valid in file
  /// names. Once the processes have joined, that of rank 0 on all ranks.
  const std::string& timestamp() const { return timestamp_; }

  /// The seed of the run: configured, or generated and then restored with the run. In the constructor all ranks seed
  /// their generators with it, unless it is generated: then each rank has one of its own until init_distributed, where
  /// all take that of rank 0. There each rank adds its number.
  std::uint64_t seed() const { return seed_; }

  /// The processes of the run and their collectives.
  Parallelism& parallelism() const { return *parallelism_; }
  /// @throws StateError before several processes have joined, as in the constructor
  const Group& group() const;
  std::int64_t rank() const;
  std::int64_t local_rank() const;
  std::int64_t world_size() const;
  bool distributed() const { return world_size() > 1; }
  bool is_main_process() const { return rank() == 0; }
  bool is_local_main_process() const { return local_rank() == 0; }
  /// Device of the model. `cuda`: the GPU of the local rank; `auto`: the same, or the CPU without a GPU. It becomes
  /// current in the constructing thread.
  at::Device device() const { return device_; }

 protected:
  explicit RunnerIdentity(StoredConfig<RunnerConfig> config);
  ~RunnerIdentity();

  /// Replaces the processes and reseeds the generators if the seed of this rank changes.
  void replace_parallelism(std::unique_ptr<Parallelism> parallelism);
  /// Sets the seed of the run to that of rank 0.
  void use_seed(std::uint64_t seed);
  /// Seeds the generators for this rank, unless they already have this seed.
  void seed_rank();
  const CodeIdentity& code() const;

  StoredConfig<RunnerConfig> config_;
  std::unique_ptr<Parallelism> parallelism_;
  at::Device device_{at::kCPU};
  std::string config_id_;
  mutable std::unique_ptr<CodeIdentity> code_;
  std::string timestamp_;
  std::uint64_t seed_ = 0;
  std::uint64_t generators_seed_ = 0;  // last seed of this rank's generators
  bool has_met_ = false;
};

}  // namespace danling::inline v0
