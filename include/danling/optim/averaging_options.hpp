// Options of weight averages, declared once for components, configs, files and the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace danling::inline v0 {
class Fields;
}

namespace danling::inline v0::optim {

/// Options of an exponential moving average. Comments end with the default of an unset option.
struct EMAOptions {
  /// Weight of the average at an update; the new weights have 1 - decay. Default 0.999
  std::optional<double> decay = std::nullopt;
  /// After n updates the next one decays by at most (1 + n) / (warmup + n), so that an early average follows the model;
  /// the first copies the model. 0: full decay at once. Default 10
  std::optional<double> warmup = std::nullopt;
  std::optional<std::int64_t> start = std::nullopt;     ///< updates of the model before the first average. Default 0
  std::optional<std::int64_t> interval = std::nullopt;  ///< updates of the model between averages. Default 1
  /// Averages the buffers too; false copies them, as torch.optim.swa_utils.AveragedModel does. Default false
  std::optional<bool> use_buffers = std::nullopt;

  void fields(Fields& f);
};

/// Options of an equal average (SWA). A unit is an epoch in a run by epochs, otherwise an update of the model.
/// WeightAverage reads `start`, `interval` (unset: 1) and `use_buffers`; a runner reads the others, or a custom loop
/// passes them to SWALR and update_bn.
struct SWAOptions {
  /// Units before averaging begins; below 1: a share of the run. Default 0.75
  std::optional<double> start = std::nullopt;
  /// Units between averages. Default 1 epoch, or 1/100 of the run's steps
  std::optional<std::int64_t> interval = std::nullopt;
  /// The rate to anneal to from `start` on, instead of the schedule; unset: the schedule continues.
  std::optional<double> lr = std::nullopt;
  std::optional<std::int64_t> anneal = std::nullopt;          ///< units until that rate. Default 10 intervals
  std::optional<std::string> anneal_strategy = std::nullopt;  ///< cos or linear. Default cos
  std::optional<bool> use_buffers = std::nullopt;             ///< as for EMAOptions. Default false
  /// Estimates the batch normalization statistics again, over the training data, before the average is evaluated.
  /// Default true
  std::optional<bool> update_bn = std::nullopt;
  /// Batches for that estimate; unset: one pass, or for a stream 1/20 of the run's steps.
  std::optional<std::int64_t> bn_batches = std::nullopt;

  void fields(Fields& f);
};

}  // namespace danling::inline v0::optim
