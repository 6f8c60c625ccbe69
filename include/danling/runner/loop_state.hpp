// State of a training loop: its place in the epoch, the open step, and the numbers measured so far.
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

/// Place of a run in its epoch or round, as a checkpoint holds it.
struct LoopState {
  Result last;                         ///< step mode: results of the previous round
  std::string split;                   ///< training split in progress; empty at a boundary
  std::int64_t iteration = 0;          ///< micro-batches of it that are done
  std::int64_t first_step = 0;         ///< global_step when it began
  std::int64_t target_step = 0;        ///< step mode: global_step at which it ends
  Result round;                        ///< results of the splits of this epoch that are done
  std::vector<std::string> evaluated;  ///< training splits of this round that are evaluated already
  std::optional<std::string> ended;    ///< loaded: why a callback had ended training
  bool continuing = false;             ///< loaded from a checkpoint inside an epoch, and not resumed yet
};

/// States of meters, metrics and losses in the middle of a pass.
struct Measurements {
  State meters, metrics, losses;
  std::int64_t loss_updates = 0;  ///< for which the weights of scheduled losses are set
  /// Of a checkpoint: those of all ranks, which saved in as many shares. Each rank restores its own.
  std::optional<std::int64_t> shares = {};
};

/// One micro-batch, which may be the last of its pass.
struct MicroBatch {
  data::BatchRef batch;
  std::int64_t samples;
  bool last;
  const data::BatchInfo* info = nullptr;  ///< null in a loop of the program
};

struct RepeatedStep;

/// A training step in progress.
struct OpenStep {
  WindowPlace place = {};  ///< of `model`, or of all models together
  std::optional<std::int64_t> normalizer = {};
  bool last = false;          ///< of its pass
  std::int64_t number = 0;    ///< of training steps in this process
  std::int64_t position = 0;  ///< micro-batches before it, by which windows are laid out
  std::int64_t shard = 0;     ///< of this process in the micro-batch, and their number: 1 without virtual ranks
  std::int64_t shards = 1;
  at::Tensor loss = {};
  StepPacket agreed = {};  ///< with the other ranks, where a window closes
  std::int64_t steps = 0;  ///< calls of step()
  bool updated = false;
  bool surely_updated = false;  ///< an optimizer whose flag the host has read
  at::Tensor skipped = {};      ///< on the device: not 0 if all others were skipped there
  bool names_model = false;     ///< in a call of backward(loss, name)
  /// Where the optimizer may run train_step again.
  RepeatedStep* repeat = nullptr;
};

}  // namespace danling::inline v0::detail
