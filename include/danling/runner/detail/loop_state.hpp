// State of a training loop: position in the epoch, open step, and measurements so far.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/core/result.hpp>
#include <danling/data/batch_info.hpp>
#include <danling/data/batch_ref.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/runner/window.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::detail {

/// The splits of a call of train().
struct Splits {
  std::vector<std::string> train, evaluate;
};

/// Position of a run in its epoch or round, as a checkpoint stores it.
struct LoopState {
  Result last;                         ///< step mode: results of the previous round
  std::string split;                   ///< training split in progress; empty at a boundary
  std::int64_t iteration = 0;          ///< micro-batches of the split that are done
  std::int64_t first_step = 0;         ///< global_step at the start of the split
  std::int64_t target_step = 0;        ///< step mode: global_step at the end of the split
  Result round;                        ///< results of this epoch's splits that are done
  std::vector<std::string> evaluated;  ///< training splits of this round that are already evaluated
  std::optional<std::string> ended;    ///< loaded: why a callback had ended training
  bool continuing = false;             ///< loaded from a checkpoint inside an epoch, and not resumed yet
};

/// States of meters, metrics and losses in the middle of a pass.
struct Measurements {
  State meters, metrics, losses;
  std::int64_t loss_updates = 0;  ///< number of updates that the weights of scheduled losses are set for
  /// In a checkpoint: measurements of all ranks, and the number of shares at the save. Each rank restores its part.
  std::optional<std::int64_t> shares = {};
};

/// One micro-batch; `last` marks the last one of its pass.
struct MicroBatch {
  data::BatchRef batch;
  std::int64_t samples;
  bool last;
  const data::BatchInfo* info = nullptr;  ///< null in a loop that the program owns
};

struct RepeatedStep;

/// A training step in progress.
struct OpenStep {
  WindowPlace place = {};  ///< of `model`, or of all models together
  std::optional<std::int64_t> normalizer = {};
  bool last = false;          ///< of its pass
  std::int64_t number = 0;    ///< of training steps in this process
  std::int64_t position = 0;  ///< micro-batches before it; determines the windows
  std::int64_t shard = 0;     ///< index in the micro-batch, of `shards`: 1 without virtual ranks
  std::int64_t shards = 1;
  at::Tensor loss = {};
  StepPacket agreed = {};  ///< agreed with the other ranks where a window closes
  std::int64_t steps = 0;  ///< calls of step()
  bool updated = false;
  bool surely_updated = false;  ///< the host has read that an optimizer changed the parameters
  at::Tensor skipped = {};      ///< on the device: non-zero if all other updates were skipped there
  bool names_model = false;     ///< during a call of backward(loss, name)
  /// Set where the optimizer may run train_step again.
  RepeatedStep* repeat = nullptr;
};

}  // namespace danling::inline v0::detail
