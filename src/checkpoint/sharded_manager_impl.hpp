// Implementation of TorchDistributedCheckpointManager.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <danling/checkpoint/sharded_manager.hpp>

#include <checkpoint/manager_options.hpp>
#include <checkpoint/save_thread.hpp>
#include <checkpoint/sharded_session.hpp>

namespace danling::inline v0 {

class TorchDistributedCheckpointManager::Impl {
 public:
  Impl(CheckpointOptions options, Group group, StateFunction full_state, StateFunction model_state,
       ShardSelector wanted, TorchDistributedCheckpointManager& owner);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const CheckpointOptions& options() const { return options_; }
  const Group& group() const { return group_; }
  const ShardSelector& wanted() const { return wanted_; }
  ShardedDirectory& directory() { return session_->directory; }

  bool save(const CheckpointRequest& request);
  void save_model(const std::string& name);
  /// Waits for the saves of all ranks; returns false after a timeout on rank 0.
  bool settle(std::optional<double> timeout);
  void order_current_stream() {
    if (thread_ != nullptr) {
      thread_->order_current_stream();
    }
  }
  void close();

 private:
  ShardedState exported_model() const;
  std::vector<ShardedMessage> exchange(ShardedMessage message);
  void prepare(const RetentionRules& rules);
  std::vector<std::size_t> positions(const std::string& packed, const std::vector<ShardedMessage>& all);
  template <class MakeState>
  void publish(const Publication& what, std::int64_t global_step, bool reliable, MakeState make_state);
  void save_now(const ShardedSave& save, const ShardWork& work);
  void save_later(const ShardedSave& save, ShardWork work, bool reliable);

  CheckpointOptions options_;
  detail::AsyncMode async_mode_;
  Group group_;
  StateFunction full_state_;
  StateFunction model_state_;
  ShardSelector wanted_;
  TorchDistributedCheckpointManager& owner_;
  std::shared_ptr<ShardedSession> session_;
  std::unique_ptr<SaveThread> thread_;
  std::string id_;           // id of this manager's saves, the same on all ranks
  std::int64_t number_ = 0;  // number of the last save
  std::vector<std::string> digests_;
  std::vector<std::size_t> positions_;
  bool closed_ = false;
};

}  // namespace danling::inline v0
