// The options of weight averages, declared once: components, configs, files and the command line share them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace danling::inline v0 {
class Fields;
}

namespace danling::inline v0::optim {

/// Of an exponential moving average. Unset options have the default in the comment.
struct EMAOptions {
  /// Weight of the average at an update; that of the new weights is 1 - decay. 0.999
  std::optional<double> decay = std::nullopt;
  /// The n-th update decays by at most (1 + n) / (warmup + n), so that a young average follows the model; 0: decay at
  /// once. 10
  std::optional<double> warmup = std::nullopt;
  std::optional<std::int64_t> start = std::nullopt;     ///< updates of the model before the first average. 0
  std::optional<std::int64_t> interval = std::nullopt;  ///< updates of the model between averages. 1
  /// Averages the buffers too; false copies them, as torch.optim.swa_utils.AveragedModel does. false
  std::optional<bool> use_buffers = std::nullopt;

  void fields(Fields& f);
};

/// Of an equal average (SWA). A unit is an epoch in a run by epochs and an update of the model elsewhere. WeightAverage
/// reads `start`, `interval` (unset: 1) and `use_buffers`; the rest is for a runner, or for SWALR and update_bn in a
/// loop of your own.
struct SWAOptions {
  /// Units before averaging begins; below 1, their share of the run. 0.75
  std::optional<double> start = std::nullopt;
  /// Units between averages. 1 epoch, or a hundredth of the run's steps
  std::optional<std::int64_t> interval = std::nullopt;
  /// The rate that the optimizer is led to from `start` on, in place of its schedule; unset: the schedule continues.
  std::optional<double> lr = std::nullopt;
  std::optional<std::int64_t> anneal = std::nullopt;          ///< units until that rate is reached. 10 intervals
  std::optional<std::string> anneal_strategy = std::nullopt;  ///< cos or linear. cos
  std::optional<bool> use_buffers = std::nullopt;             ///< as for EMAOptions. false
  /// Estimates the statistics of batch normalization anew, over the training data, before the average is evaluated.
  /// true
  std::optional<bool> update_bn = std::nullopt;
  /// Batches of that estimate; unset: one pass, or over a stream as many as a twentieth of the run's steps.
  std::optional<std::int64_t> bn_batches = std::nullopt;

  void fields(Fields& f);
};

}  // namespace danling::inline v0::optim
