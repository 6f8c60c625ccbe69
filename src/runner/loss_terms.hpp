// Terms of the criterion that the config sets: losses by type, distillation, weights and their schedules.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

namespace detail {

struct TeacherLogits {
  at::Tensor value;       ///< for the batch of the next loss
  bool left_out = false;  ///< not computed: the model's own logits replace them
};

}  // namespace detail

class TorchRunnerBase::Internals::LossTerms {
 public:
  /// Builds the criterion that `losses` and `distill` describe, from that of the program, and prepares the teacher.
  /// @return null if the config sets nothing and there is no teacher
  static std::shared_ptr<LossTerms> build(TorchRunnerBase& runner);

  bool has_teacher() const { return teacher_logits_ != nullptr; }
  /// Sets the teacher's logits for the batch of the next loss.
  void set_teacher_logits(at::Tensor logits) { teacher_logits_->value = std::move(logits); }

  /// Disables the teacher in steps for its lifetime.
  class WithoutTeacher {
   public:
    explicit WithoutTeacher(TorchRunnerBase& runner) : runner_(runner), distills_(runner.distills_) { set(true); }
    ~WithoutTeacher() { set(false); }
    WithoutTeacher(const WithoutTeacher&) = delete;
    WithoutTeacher& operator=(const WithoutTeacher&) = delete;

   private:
    void set(bool left_out) {
      if (distills_) {
        runner_.distills_ = !left_out;
        runner_.loss_terms_->teacher_logits_->left_out = left_out;
      }
    }

    TorchRunnerBase& runner_;
    bool distills_;
  };

  /// Sets the weights that apply after `updates` updates.
  void set_weights(std::int64_t updates) {
    updates_ = updates;
    for (const auto& scheduled : scheduled_) {
      losses_->set_weight(scheduled.name, scheduled.weight(updates));
    }
  }

  /// The number of updates that the weights are set for.
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
  std::shared_ptr<detail::TeacherLogits> teacher_logits_;
  std::vector<Scheduled> scheduled_;
  std::int64_t updates_ = 0;
};

}  // namespace danling::inline v0
