// TorchRunner, which users derive from: the loops of TorchRunnerBase over the user's batch type.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>

#include <danling/data/batch.hpp>
#include <danling/data/batch_traits.hpp>
#include <danling/data/loader.hpp>
#include <danling/data/source.hpp>
#include <danling/data/split_map.hpp>
#include <danling/data/to_dtype.hpp>
#include <danling/metrics/batch_losses.hpp>
#include <danling/metrics/batch_metric.hpp>
#include <danling/runner/detail/batch_parts.hpp>
#include <danling/runner/detail/batch_state.hpp>
#include <danling/runner/detail/step_batch.hpp>
#include <danling/runner/infer_stream.hpp>
#include <danling/runner/model_input.hpp>
#include <danling/runner/model_output.hpp>
#include <danling/runner/step_output.hpp>
#include <danling/runner/torch_runner_base.hpp>
#include <danling/tape/observer.hpp>

namespace danling::inline v0 {

/// A runner over batches of type `B`, whose model returns a `P`. Hooks receive `B&` without a cast. The default steps
/// pass the model the batch if its forward takes a `const B&`, or else `model_input(batch)`: its member `input`, or the
/// result of a free function. The criterion receives the prediction and, by the same rule, the batch or
/// `model_target(batch)`. Criteria and metrics of tensors receive `model_output(prediction)`. BatchMetrics and
/// BatchLosses over `B` receive the batch; its member `prediction`, if any, is first set to the model's output. A
/// member `model` of type `const ModelHandle*` is set before the forward pass (t3w: IMiniBatch).
template <class B, class P = at::Tensor>
class BasicTorchRunner : public TorchRunnerBase {
  static_assert(data::detail::require_batch<B>());
  static_assert(detail::require_prediction<P>());

 public:
  ~BasicTorchRunner() override;

  using Prediction = P;
  /// Return type of steps: `dl::StepOutput` if the prediction is a tensor.
  using StepOutput = BasicStepOutput<P>;

  /// Datasets by split: `datasets["train"] = ...`. initialize() builds their loaders.
  data::SplitMap<data::Source<B>> datasets;
  /// Loaders by split. A loader set in the constructor is used unchanged.
  data::SplitMap<std::shared_ptr<data::Loader<B>>> dataloaders;

  // For a program that owns the loop (a simulator, a game, a robot, a server) and makes the batches: no loader, no
  // thread. Accumulation, schedule, metrics, callbacks, log lines and checkpoints work as in train(), until `steps` of
  // the config if set. A resumed run continues with the program's next batch: save the program's position with
  // register_state().

  /// Trains one micro-batch. The first call begins the run; finish_training() ends it. In between, the program may call
  /// evaluate_on_batch, infer_on_batch, evaluate or save_checkpoint at any time, and use the model. With several ranks,
  /// each passes its part of every global batch; a rank with fewer calls finish_training(), which joins the updates of
  /// the others.
  /// @param last  closes the accumulation window with this batch
  /// Later batches than the last step train nothing; `done` is then true. @throws Stopped after a requested stop is
  /// saved; ConfigError with `epochs`, and for another split before finish_training(); StateError inside a step or an
  /// evaluation
  BatchReport train_on_batch(B batch, const std::string& split = "train", bool last = false) {
    const std::int64_t samples = data::batch_size(batch);
    return train_on_batch_impl(data::BatchRef(batch), samples, split, last);
  }
  /// Evaluates one batch; averages cover all batches since the last finish_evaluation(). With several ranks, each
  /// passes its part, and all ranks evaluate after the same update.
  BatchReport evaluate_on_batch(B batch, const std::string& split = "val") {
    const std::int64_t samples = data::batch_size(batch);
    return evaluate_on_batch_impl(data::BatchRef(batch), samples, split);
  }
  /// Returns the prediction of infer_step for one batch, in which a last dimension of 1 of a tensor is removed. Inside
  /// a training pass it restores generators and modes; elsewhere the models stay in evaluation mode.
  P infer_on_batch(B batch) {
    std::optional<P> out;
    infer_on_batch_impl([&] { run_infer_step(data::BatchRef(batch), &out); });
    return *std::move(out);
  }

  /// Predictions of a split in the order of its loader: tensors joined to [N, ...], without a last dimension of 1,
  /// other types one per batch; on the CPU, if the type moves between devices. With several ranks: those of this rank's
  /// share. A split that also trains is read as in `evaluate`.
  /// @param steps  maximum number of batches. @throws ConfigError when the split has no length and `steps` is not given
  std::conditional_t<std::same_as<P, at::Tensor>, at::Tensor, std::vector<P>> infer(
      std::string_view split = "infer", std::optional<std::int64_t> steps = std::nullopt) {
    BasicInferStream<P> stream(begin_infer(split, steps, /*whole=*/true));
    std::vector<P> predictions;
    while (auto prediction = stream.next()) {
      if constexpr (std::same_as<P, at::Tensor>) {
        predictions.push_back(prediction->cpu());
      } else if constexpr (data::HasToDevice<P>) {
        predictions.push_back(data::to_device(*std::move(prediction), at::kCPU));
      } else {
        predictions.push_back(*std::move(prediction));
      }
    }
    if constexpr (std::same_as<P, at::Tensor>) {
      return joined(predictions);
    } else {
      return predictions;
    }
  }
  /// Like infer, one batch at a time, on the device: `for (const at::Tensor& prediction : runner.infer_stream())`; also
  /// without a last dimension of 1. The runner must outlive the stream. Any other use of the split's loader ends the
  /// stream; `next` then throws StateError.
  BasicInferStream<P> infer_stream(std::string_view split = "infer", std::optional<std::int64_t> steps = std::nullopt) {
    return BasicInferStream<P>(begin_infer(split, steps, /*whole=*/false));
  }

 protected:
  template <std::derived_from<RunnerConfig> C>
  explicit BasicTorchRunner(const C& config) : TorchRunnerBase(config) {}

  /// One training micro-batch: to the device, forward under `train_context()`, loss, metrics, `backward(loss)`,
  /// `step()`. Called when: the loop has a micro-batch, on every rank.
  ///
  /// An override must call `step()` exactly once (the loop checks) and may call `backward` any number of times. Do not
  /// zero gradients, call `optimizer->step()`, scale the loss, change counters or save.
  /// @return prediction and loss; averages skip an undefined loss
  virtual StepOutput train_step(B& batch) {
    move_to_device(batch);
    StepOutput output = [&]() -> StepOutput {
      const auto context = train_context();
      compute_teacher_logits(batch);
      P prediction = predict(model, batch);
      at::Tensor loss = compute_loss(prediction, batch);
      return {std::move(prediction), std::move(loss)};
    }();
    update_split_metrics(output.prediction, batch);
    backward(output.loss);
    step();
    return output;
  }

  /// One batch of evaluation, under inference mode (a TorchScript model: under no_grad). Called when: an evaluation
  /// loop, evaluate_on_batch() or summarize() has a batch, on every rank. Do not call backward, step or save. @return
  /// prediction and, if there is a criterion, the loss
  virtual StepOutput evaluate_step(B& batch) {
    move_to_device(batch);
    StepOutput output = [&]() -> StepOutput {
      const auto context = forward_context();
      if (criterion) {
        compute_teacher_logits(batch);
      }
      P prediction = predict(evaluation_model(), batch);
      at::Tensor loss = criterion ? compute_loss(prediction, batch) : at::Tensor();
      return {std::move(prediction), std::move(loss)};
    }();
    update_split_metrics(output.prediction, batch);
    return output;
  }

  /// Returns the predictions of one batch, under the same mode as evaluate_step; removes a last dimension of size 1 of
  /// a tensor. Called when: infer or infer_stream has a batch. Updates no metrics. The result may stay on the device.
  virtual P infer_step(B& batch) {
    move_to_device(batch);
    const auto context = forward_context();
    P prediction = predict(evaluation_model(), batch);
    if constexpr (std::same_as<P, at::Tensor>) {
      return prediction.dim() > 1 && prediction.size(-1) == 1 ? prediction.squeeze(-1) : prediction;
    } else {
      return prediction;
    }
  }

  /// Builds the loader of one split. Called when: build_dataloaders finds a dataset without a loader, once per split.
  /// `shuffle` and `drop_last` are true for training splits unless `dataloader` of the config sets them.
  virtual std::shared_ptr<data::Loader<B>> build_dataloader(const data::Source<B>& source, data::LoaderOptions options);

  /// Returns the sampler of a split. Called when: build_dataloader builds the loader of a dataset (not of a stream),
  /// once per split. Null, the default, keeps the loader's order: shuffled by (seed, epoch, split), or sequential. A
  /// sampler replaces `shuffle`, even if the config sets it.
  virtual std::shared_ptr<data::Sampler> build_datasampler(const data::Source<B>&, const data::LoaderOptions&) {
    return nullptr;
  }

  void build_dataloaders() override;

  /// Moves a batch to the device of the runner, unless it is there. With `precision: fp64` also converts its
  /// floating-point tensors.
  void move_to_device(B& batch) const {
    if (input_dtype()) [[unlikely]] {
      convert(batch);
    }
    if constexpr (requires { requires std::same_as<decltype(std::as_const(batch).is_on(device())), bool>; }) {
      if (std::as_const(batch).is_on(device())) {
        return;  // moving it out and back in costs more than the rest of the loop's work on it
      }
    }
    copy_to_device(batch);
  }

  /// Runs the `teacher` on the batch, for the loss `distill` in the next call of the criterion; without a teacher it
  /// does nothing. For custom steps: call it inside the forward context, before the criterion.
  void compute_teacher_logits(B& batch) const {
    if (has_distillation_loss()) [[unlikely]] {
      run_teacher(batch);
    }
  }

  // For custom steps: updates the metrics of the split in progress, if any. Your step updates metrics of other kinds.
  // @throws StateError for metrics of another kind
  using TorchRunnerBase::update_metrics;
  void update_metrics(const B& batch) const {
    if (batch_metrics_ != nullptr) {
      update_batch_metrics(batch);
    } else if (active_metrics() != nullptr) {
      fail_metrics();
    }
  }

  data::LoaderBase& loader(std::string_view split) final;
  const data::LoaderBase* find_loader(std::string_view split) const final {
    const auto* found = dataloaders.find(split);
    return found == nullptr ? nullptr : found->get();
  }
  std::shared_ptr<data::LoaderBase> loader_of_size(std::string_view split, std::int64_t size) final;
  data::BatchRef current_batch(data::LoaderBase& loader) override {
    return data::BatchRef(static_cast<data::Loader<B>&>(loader).batch());
  }
  at::Tensor run_train_step(data::BatchRef ref) final {
    B& batch = ref.as<B>();
    try {
      if (records_steps()) [[unlikely]] {
        return run_as_recorded(RunnerMode::train, batch,
                               [&] { return check_loss("train_step", train_step(batch).loss); });
      }
      return check_loss("train_step", train_step(batch).loss);
    } catch (...) {
      rethrow_from_step("train_step", detail::shapes_of(batch));
    }
  }
  at::Tensor run_evaluate_step(data::BatchRef ref) final {
    B& batch = ref.as<B>();
    try {
      if (records_steps()) [[unlikely]] {
        return run_as_recorded(RunnerMode::evaluate, batch,
                               [&] { return check_loss("evaluate_step", evaluate_step(batch).loss); });
      }
      return check_loss("evaluate_step", evaluate_step(batch).loss);
    } catch (...) {
      rethrow_from_step("evaluate_step", detail::shapes_of(batch));
    }
  }
  void run_infer_step(data::BatchRef ref, void* prediction) final {
    B& batch = ref.as<B>();
    try {
      if constexpr (std::same_as<P, at::Tensor>) {
        if (records_steps()) [[unlikely]] {
          static_cast<std::optional<P>*>(prediction)->emplace(run_as_recorded(RunnerMode::infer, batch, [&] {
            return infer_step(batch);
          }));
          return;
        }
      }
      static_cast<std::optional<P>*>(prediction)->emplace(infer_step(batch));
    } catch (...) {
      rethrow_from_step("infer_step", detail::shapes_of(batch));
    }
  }

  BatchCounts count_batch(data::BatchRef ref) final {
    const B& batch = ref.as<B>();
    return {detail::normalizer_of(batch, criterion), detail::tokens_of(batch)};
  }

  State batch_state(data::BatchRef ref) final;
  std::vector<SplitInfo> splits() const final;
  State dataloader_state() const final;
  void load_dataloaders(const State& state) override;

  // Parts of the default steps, for custom steps.
  /// The loss of a prediction by the criterion. @throws DataError when the batch has no target that the criterion takes
  at::Tensor compute_loss(const P& prediction, B& batch) const {
    if (batch_losses_ == nullptr) {
      if constexpr (!std::same_as<B, at::Tensor>) {
        if (criterion.template takes<B, P>()) {
          set_prediction(prediction, batch);
          return criterion(prediction, std::as_const(batch));
        }
      }
      if constexpr (HasModelTarget<B>) {
        if (shape_log_ != nullptr) [[unlikely]] {
          compare_shapes(prediction, batch);
        }
        return criterion(prediction, model_target(std::as_const(batch)));
      } else {
        detail::fail<DataError>("runner.step",
                                "expected a batch with a target, got a type without one; "
                                "declare model_target(batch) in its namespace, or a criterion over the batch");
      }
    }
    set_prediction(prediction, batch);
    return (*batch_losses_)(batch);
  }

  /// Updates the metrics of the split in progress, if any.
  void update_split_metrics(const P& prediction, B& batch) const {
    if (batch_metrics_ != nullptr) {
      set_prediction(prediction, batch);
      update_batch_metrics(batch);
    } else if (active_metrics() != nullptr) {
      if constexpr (!HasTensorOutput<P>) {
        detail::fail<StateError>(
            "runner.update_metrics",
            "expected a prediction with a tensor for metrics of predictions and targets, got one "
            "without; declare model_output(prediction) in the namespace of its type, or use BatchMetrics");
      } else if constexpr (detail::HasTensorTarget<B>) {
        const at::Tensor& target = detail::target_tensor(batch);
        if (target.defined()) {
          update_metrics(detail::output_tensor(prediction), target);
        }
      } else {
        detail::fail<StateError>(
            "runner.update_metrics",
            "expected a batch with a tensor to compare with for metrics of predictions and targets, got "
            "another target or none; use BatchMetrics over the batch");
      }
    }
  }

  /// The model's output for a batch, in the open autocast context.
  P predict(const ModelHandle& handle, B& batch) const {
    if constexpr (requires { batch.model = &handle; }) {
      batch.model = &handle;
    }
    if constexpr (!std::same_as<B, at::Tensor>) {
      if (handle.template takes<B>()) {
        return handle.template forward<P>(std::as_const(batch));
      }
    }
    return handle.template forward<P>(model_input(std::as_const(batch)));
  }

 private:
  void bind_typed_components() final;
  void convert(B& batch) const;
  void copy_to_device(B& batch) const;
  void run_teacher(B& batch) const;
  void compare_shapes(const P& prediction, const B& batch) const;
  void observe_batch_metrics(tape::Observer& observer, const B& batch) const;

  void update_batch_metrics(const B& batch) const {
    tape::Observer* const observer = tape::observer();
    if (observer == nullptr) [[likely]] {
      batch_metrics_->update(batch);
    } else {
      observe_batch_metrics(*observer, batch);
    }
  }

  template <class Eager>
  at::Tensor run_as_recorded(RunnerMode mode, B& batch, const Eager& eager) {
    const typename detail::StepBatch<B>::Scope scope(step_batch_, batch);
    return run_recorded(mode, step_batch_.parts(), eager);
  }

  static void set_prediction(const P& prediction, B& batch) {
    if constexpr (requires { batch.prediction = prediction; }) {
      batch.prediction = prediction;
    }
  }

  mutable detail::StepBatch<B> step_batch_;                     // of the step in progress
  std::map<std::string, const void*, std::less<>> built_from_;  // by split, the dataset or stream of its loader
  BatchMetrics<B>* batch_metrics_ = nullptr;
  BatchLosses<B>* batch_losses_ = nullptr;
  mutable Logger* shape_log_ = nullptr;  // for compare_shapes: set in the first batch of a pass
  mutable bool warned_of_shapes_ = false;
};

/// The runner of most programs, over the default `Batch` of tensors. A program derives from it, sets `model`,
/// `criterion`, `datasets` and `metrics` in its constructor, and passes the class to run(). Its members are declared in
/// these bases:
///
/// - BasicTorchRunner: datasets, dataloaders, infer, train_on_batch, and hooks that take a batch, such as train_step;
/// - TorchRunnerBase: model, criterion, optimizer, metrics, train, evaluate, test, find_lr, backward, step;
/// - BaseRunner: callbacks, sinks, checkpoints, results, close, logger;
/// - RunnerPlan and RunnerIdentity: the resolved plan of the run, ranks, devices, seeds.
///
/// docs/hooks.md lists each hook with when, how often and on which ranks it is called. Derive from
/// BasicTorchRunner<YourBatch> for a batch type of your own.
class TorchRunner : public BasicTorchRunner<Batch> {
 public:
  ~TorchRunner() override;

 protected:
  template <std::derived_from<RunnerConfig> C>
  explicit TorchRunner(const C& config) : BasicTorchRunner<Batch>(config) {}
};

}  // namespace danling::inline v0

#include <danling/runner/detail/torch_runner_rare.hpp>
