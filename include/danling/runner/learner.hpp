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
class BufferBackup;
}  // namespace detail

/// `model`, or one of `models` by name, with its optimizer, schedule and accumulation window. The runner creates
/// learners when training begins.
struct Learner {
  std::string name = {};  ///< empty: `model`
  std::shared_ptr<optim::Optimizer> optimizer = {};
  std::shared_ptr<optim::Scheduler> scheduler = {};
  bool scheduler_by_step = true;
  bool repeats_step = false;  ///< the optimizer evaluates the loss of a step several times
  std::int64_t accum_steps = 1;
  std::optional<double> max_grad_norm = {}, max_grad_value = {};

  AccumulationWindow window = {};
  std::int64_t updates = 0;  ///< of the whole run
  std::int64_t skipped = 0;  ///< updates that a check of gradients or loss skipped
  /// Dynamic loss scaling, or null. If the program overrides optimizer_step(), the override divides by its factor and
  /// updates it.
  std::shared_ptr<optim::GradScaler> scaler = {};

  // Written by the loops.
  std::int64_t begun_in = -1;  ///< number of the training step whose micro-batch the window counted last
  WindowPlace place = {};
  std::int64_t backwards = 0;       ///< calls of backward() in this micro-batch
  std::int64_t calls_before = 0;    ///< calls of the optimizer when one of the first micro-batches began
  std::int64_t schedule_count = 0;  ///< steps of the scheduler, by the runner
  /// True until a window has kept a gradient from one micro-batch to the next.
  bool checks_window = true, has_window_gradient = false;
  std::optional<double> gradients_after = {};  ///< checksum after backward(), in the first micro-batches
  at::Tensor seed = {};  ///< gradient that backward starts from: the weight of the micro-batch times the loss scale
  double seed_weight = 0.0;
  at::Tensor seed_scale = {};
  bool skips_nonfinite = false;     ///< skip updates with non-finite gradients
  bool prepares_gradients = false;  ///< an update also checks, clips, records statistics or scales
  bool watches_loss = false;        ///< a policy checks the loss of each window
  at::Tensor loss_sum = {};         ///< weighted sum over the window
  /// True on a device: the host reads flags of non-finite gradients only where it reads other numbers anyway.
  bool reads_flags_late = false;
  at::Tensor unread_flag = {};   ///< of the last update: non-zero if the device skipped it
  at::Tensor unread_skips = {};  ///< updates that the device skipped and that `updates` still counts
  std::shared_ptr<detail::GradientStats> stats = {};   ///< null unless gradient norm or noise scale are logged
  std::shared_ptr<detail::BufferBackup> buffers = {};  ///< null unless a skipped update restores buffers
};

}  // namespace danling::inline v0
