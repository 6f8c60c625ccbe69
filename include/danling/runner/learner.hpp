// One model that a run trains, with its optimizer, schedule and accumulation window.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/optim/optimizer.hpp>
#include <danling/optim/scheduler.hpp>
#include <danling/runner/window.hpp>

namespace danling::inline v0 {

/// `model`, or one of `models` by its name, with its optimizer, its schedule and its accumulation window. The runner
/// creates learners when training begins.
struct Learner {
  std::string name = {};  ///< empty: `model`
  std::shared_ptr<optim::Optimizer> optimizer = {};
  std::shared_ptr<optim::Scheduler> scheduler = {};
  bool scheduler_by_step = true;
  std::int64_t accum_steps = 1;
  std::optional<double> max_grad_norm = {}, max_grad_value = {};

  AccumulationWindow window = {};
  std::int64_t updates = 0;  ///< of the whole run
  std::int64_t skipped = 0;  ///< updates skipped for non-finite gradients

  // Of the loops.
  std::int64_t begun_in = -1;  ///< number of the training step whose micro-batch the window has counted
  WindowPlace place = {};
  std::int64_t backwards = 0;  ///< calls of backward() in this micro-batch
  at::Tensor seed = {};        ///< of backward: the weight of the micro-batch
  double seed_weight = 0.0;
};

}  // namespace danling::inline v0
