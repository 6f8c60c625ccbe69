// Terms of the criterion that the config sets: losses by type, the teacher's, weights and their schedules.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

class TorchRunnerBase::LossTerms {
 public:
  /// Builds the criterion that `losses` and `distill` describe, from that of the program, and prepares the teacher.
  /// @return null when the config sets nothing and there is no teacher
  static std::shared_ptr<LossTerms> build(TorchRunnerBase& runner);

  bool has_teacher() const { return teacher_logits_ != nullptr; }
  /// The teacher's logits for the batch of the next loss.
  void set_teacher_logits(at::Tensor logits) { *teacher_logits_ = std::move(logits); }

  /// Sets the weights that are in force after `updates` optimizer steps.
  void set_weights(std::int64_t updates) {
    updates_ = updates;
    for (const auto& scheduled : scheduled_) {
      losses_->set_weight(scheduled.name, scheduled.weight(updates));
    }
  }

  /// Those for which the weights are set.
  std::int64_t updates() const { return updates_; }

 private:
  struct Scheduled {
    std::string name;
    std::function<double(std::int64_t)> weight;
  };

  void build_losses(TorchRunnerBase& runner);
  void build_distillation(TorchRunnerBase& runner);
  void build_weights(TorchRunnerBase& runner);

  std::shared_ptr<LossesBase> losses_;
  std::shared_ptr<at::Tensor> teacher_logits_;
  std::vector<Scheduled> scheduled_;
  std::int64_t updates_ = 0;
};

}  // namespace danling::inline v0
