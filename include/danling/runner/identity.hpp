// Identity of a runner: its config, names and seed, the processes of the run, and the device.
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

/// Known from construction on. The constructor normalises the config, reads the variables of the launcher and seeds the
/// generators; it opens no file and starts no thread.
class RunnerIdentity {
 public:
  RunnerIdentity(const RunnerIdentity&) = delete;
  RunnerIdentity& operator=(const RunnerIdentity&) = delete;

  /// The runner's copy of the config, normalised; `config<MyConfig>()` returns it with its type.
  /// @throws ConfigError when the runner was built from another type.
  template <class C = RunnerConfig>
  const C& config() const {
    return config_.as<C>();
  }

  /// `<lineage>-<experiment>`, or the `name` of the config.
  std::string name() const;
  /// Stable over restarts: `<code id>-<config id>`, or the config id alone where there is no code identity.
  std::string id() const;
  /// 12 hex digits of the hash of the canonical config.
  const std::string& config_id() const { return config_id_; }
  /// The commit that the program runs from; empty outside a repository. The first call of this or of id() runs git.
  const std::string& code_id() const;
  /// Start of this attempt, `YYYYMMDD-HHMMSS`-like text that is fit for file names.
  const std::string& timestamp() const { return timestamp_; }

  /// The seed of the run: configured, or generated and then restored with the run. In the constructor the generators of
  /// all ranks have it; from init_distributed on each rank adds its number.
  std::uint64_t seed() const { return seed_; }

  /// The processes of the run and their collective operations.
  Parallelism& parallelism() const { return *parallelism_; }
  /// @throws StateError before several processes have met, as in the constructor.
  const Group& group() const;
  std::int64_t rank() const;
  std::int64_t local_rank() const;
  std::int64_t world_size() const;
  bool distributed() const { return world_size() > 1; }
  bool is_main_process() const { return rank() == 0; }
  bool is_local_main_process() const { return local_rank() == 0; }
  /// Device of the model: `device` of the config, or the first CUDA device of this process, or the CPU.
  at::Device device() const { return device_; }

 protected:
  explicit RunnerIdentity(StoredConfig<RunnerConfig> config);
  ~RunnerIdentity();

  /// Replaces the processes and seeds the generators anew where the seed of this rank changes.
  void replace_parallelism(std::unique_ptr<Parallelism> parallelism);
  /// The seed of the run, as rank 0 has it.
  void use_seed(std::uint64_t seed);
  /// Seeds the generators for this rank, unless they were seeded so before.
  void seed_rank();
  const CodeIdentity& code() const;

  StoredConfig<RunnerConfig> config_;
  std::unique_ptr<Parallelism> parallelism_;
  at::Device device_{at::kCPU};
  std::string config_id_;
  mutable std::unique_ptr<CodeIdentity> code_;
  std::string timestamp_;
  std::uint64_t seed_ = 0;
  std::uint64_t generators_seed_ = 0;  // by which this rank's generators were seeded last
  bool has_met_ = false;
};

}  // namespace danling::inline v0
