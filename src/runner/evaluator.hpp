// Evaluation of splits: whole, by steps, and in the middle of training.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

class TorchRunnerBase::Internals::Evaluator {
 public:
  explicit Evaluator(TorchRunnerBase& runner) : runner_(runner) {}

  /// Evaluates `steps` batches at most, or all. @throws DataError when `demanded` and the split has fewer
  Result evaluate(std::string_view split, std::optional<std::int64_t> steps, bool demanded);
  /// A checkpoint taken during it repeats the evaluation from its start, generators included.
  Result evaluate_in_training(std::string_view split, bool whole);
  /// Evaluates one batch. @return its loss
  at::Tensor evaluate_batch(detail::LoopFrame& frame, data::BatchRef batch, std::int64_t samples);
  /// Reads epoch 0 of `split` from its start; afterwards the loader of a training split has its previous position.
  data::LoaderVisit visit(std::string_view split);

 private:
  Result evaluate(data::LoaderBase& loader, std::string_view split, std::optional<std::int64_t> steps, bool demanded);
  /// Evaluates the shards of global batch `done`, each with separate generators.
  void evaluate_shards(detail::LoopFrame& frame, data::LoaderVisit& batches, data::LoaderBase& loader,
                       std::int64_t done);

  TorchRunnerBase& runner_;
};

}  // namespace danling::inline v0
