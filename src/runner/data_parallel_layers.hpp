// SyncBatchNorm layers: exchanges their statistics inside the steps of data parallel training.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <danling/distributed/group.hpp>
#include <danling/runner/model.hpp>

namespace danling::inline v0::nn {
class SyncBatchNormImpl;
}

namespace danling::inline v0::detail {

/// Connects the SyncBatchNorm layers of models to the loop's messages, so that ranks which have ended their pass take
/// part without a batch. Outside steps each rank computes alone: evaluations and other passes may differ in their
/// number of batches.
class SyncedLayers {
 public:
  explicit SyncedLayers(Group group);
  bool empty() const { return layers_.empty(); }
  /// Resets the layers to a group of one.
  ~SyncedLayers();
  SyncedLayers(const SyncedLayers&) = delete;
  SyncedLayers& operator=(const SyncedLayers&) = delete;

  /// Called by all ranks in the same order of models.
  void add(const ModelHandle& model);
  void set_in_step(bool in_step) noexcept;
  /// On a rank that has ended its pass: takes part with the shares of the other ranks.
  void join_exchange(const std::vector<std::string>& shares);

 private:
  struct Meetings;

  std::shared_ptr<Meetings> meetings_;
  std::vector<std::weak_ptr<nn::SyncBatchNormImpl>> layers_;
};

/// @throws ConfigError that names the first SyncBatchNorm and the setting that excludes it
void refuse_synced_layers(const ModelHandle& model, std::string_view setting, std::string_view why);

}  // namespace danling::inline v0::detail
