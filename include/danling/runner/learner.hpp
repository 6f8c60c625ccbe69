// One model that a run trains, with its optimizer, schedule and accumulation window.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/optim/grad_scaler.hpp>
#include <danling/optim/optimizer.hpp>
#include <danling/optim/scheduler.hpp>
#include <danling/runner/window.hpp>

namespace danling::inline v0 {

namespace detail {
struct GradientStats;
class KeptBuffers;
}  // namespace detail

/// `model`, or one of `models` by its name, with its optimizer, its schedule and its accumulation window. The runner
/// creates learners when training begins.
struct Learner {
  std::string name = {};  ///< empty: `model`
  std::shared_ptr<optim::Optimizer> optimizer = {};
  std::shared_ptr<optim::Scheduler> scheduler = {};
  bool scheduler_by_step = true;
  bool repeats_step = false;  ///< the optimizer evaluates the loss of a step again
  std::int64_t accum_steps = 1;
  std::optional<double> max_grad_norm = {}, max_grad_value = {};

  AccumulationWindow window = {};
  std::int64_t updates = 0;  ///< of the whole run
  std::int64_t skipped = 0;  ///< updates skipped by a check of the gradients or the loss
  /// Dynamic loss scaling; null without. An optimizer_step() of the program divides by its factor and updates it.
  std::shared_ptr<optim::GradScaler> scaler = {};

  // Of the loops.
  std::int64_t begun_in = -1;  ///< number of the training step whose micro-batch the window has counted
  WindowPlace place = {};
  std::int64_t backwards = 0;  ///< calls of backward() in this micro-batch
  at::Tensor seed = {};        ///< of backward: the weight of the micro-batch, times the loss scale
  double seed_weight = 0.0;
  at::Tensor seed_scale = {};
  bool skips_nonfinite = false;     ///< updates with non-finite gradients
  bool prepares_gradients = false;  ///< an update does more than to divide: checks, clipping, statistics, a loss scale
  bool watches_loss = false;        ///< a policy judges the loss of each window
  at::Tensor loss_sum = {};         ///< of the window, weighted
  /// Whether flags of non-finite gradients are read only where numbers are read anyway: on a device.
  bool reads_flags_late = false;
  at::Tensor unread_flag = {};                        ///< of the last update: not 0 if the device skipped it
  at::Tensor unread_skips = {};                       ///< updates that the device skipped, still counted in `updates`
  std::shared_ptr<detail::GradientStats> stats = {};  ///< null unless norm or noise scale are logged
  std::shared_ptr<detail::KeptBuffers> buffers = {};  ///< null unless a skipped update puts them back
};

}  // namespace danling::inline v0
