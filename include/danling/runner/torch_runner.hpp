// The runner that users derive from: the loops of TorchRunnerBase with the user's own batch type.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/data/batch.hpp>
#include <danling/data/batch_traits.hpp>
#include <danling/data/loader.hpp>
#include <danling/data/source.hpp>
#include <danling/data/split_map.hpp>
#include <danling/metrics/batch_losses.hpp>
#include <danling/metrics/batch_metric.hpp>
#include <danling/runner/model_input.hpp>
#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

/// A runner over batches of type `B`. Hooks get `B&`, with no cast. The default steps give the model the batch, where
/// its forward takes a `const B&`, and otherwise `model_input(batch)`: its `input`, or what a function beside the type
/// says. The criterion gets the batch or `model_target(batch)` in the same way. BatchMetrics and BatchLosses over `B`
/// are given the batch, after its member `prediction`, where it has one, was set to what the model gave.
template <class B>
class BasicTorchRunner : public TorchRunnerBase {
  static_assert(data::detail::require_batch<B>());

 public:
  /// Datasets by split: `datasets["train"] = ...`. Loaders are built from them by initialize().
  data::SplitMap<data::Source<B>> datasets;
  /// Loaders by split. One that is set in the constructor is used as it is.
  data::SplitMap<std::shared_ptr<data::Loader<B>>> dataloaders;

  // For a program that owns the loop (a simulator, a game, a robot, a server) and makes the batches itself: no loader,
  // no thread. Accumulation, schedule, metrics, callbacks, log lines and checkpoints work as in train(), by `steps` of
  // the config or without an end. A resumed run goes on with the next batch that the program brings: track() where that
  // is.

  /// Trains one micro-batch. The first call begins the run; finish_training() ends it. Before `steps` is reached the
  /// program may call evaluate_on_batch, infer_on_batch, evaluate, or save_checkpoint at any time, and use the model.
  /// @param last  closes the accumulation window with this batch
  /// @throws Stopped after a stop was asked for and saved; ConfigError with `epochs`; StateError from inside a step
  BatchReport train_on_batch(B batch, const std::string& split = "train", bool last = false) {
    const std::int64_t samples = data::batch_size(batch);
    return train_host_batch(data::BatchRef(batch), samples, split, last);
  }
  /// Evaluates one batch; the averages are those of all since the last finish_evaluation().
  BatchReport evaluate_on_batch(B batch, const std::string& split = "val") {
    const std::int64_t samples = data::batch_size(batch);
    return evaluate_host_batch(data::BatchRef(batch), samples, split);
  }
  /// The prediction of one batch, as infer_step gives it; changes nothing, in a training pass either.
  auto infer_on_batch(B batch) {
    std::optional<decltype(infer_step(batch))> out;
    infer_host_batch([&] { out.emplace(infer_step(batch)); });
    return std::move(*out);
  }

 protected:
  template <std::derived_from<RunnerConfig> C>
  explicit BasicTorchRunner(const C& config) : TorchRunnerBase(config) {}

  /// One training micro-batch: to the device, forward under `train_context()`, loss, metrics, `backward(loss)`,
  /// `step()`. Called when: the loop has a micro-batch, on every rank.
  ///
  /// An override must call `step()` exactly once (the loop checks) and may call `backward` as often as it needs. Do not
  /// zero gradients, call `optimizer->step()`, scale the loss, change counters or save.
  /// @return prediction and loss; an undefined loss is left out of the averages.
  virtual StepOutput train_step(B& batch) {
    move_to_device(batch);
    StepOutput output;
    {
      const auto context = train_context();
      output.prediction = predict(model, batch);
      output.loss = loss_of(output.prediction, batch);
    }
    feed_metrics(output.prediction, batch);
    backward(output.loss);
    step();
    return output;
  }

  /// One batch of evaluation, under inference mode (a TorchScript model: without gradients). Called when: an evaluation
  /// loop has a batch, on every rank. No backward, no step, no saves. @return prediction and, when there is a
  /// criterion, the loss.
  virtual StepOutput evaluate_step(B& batch) {
    move_to_device(batch);
    StepOutput output;
    {
      const auto context = forward_context();
      output.prediction = predict(evaluation_model(), batch);
      if (criterion) {
        output.loss = loss_of(output.prediction, batch);
      }
    }
    feed_metrics(output.prediction, batch);
    return output;
  }

  /// One batch of inference, as evaluate_step: the predictions, a last dimension of one taken away. Called when:
  /// infer or infer_stream has a batch. No metrics. The result may stay on the device.
  virtual at::Tensor infer_step(B& batch) {
    move_to_device(batch);
    const auto context = forward_context();
    const at::Tensor prediction = predict(evaluation_model(), batch);
    return prediction.dim() > 1 && prediction.size(-1) == 1 ? prediction.squeeze(-1) : prediction;
  }

  /// Builds the loader of one split. Called when: build_dataloaders meets a dataset without a loader, once per split.
  /// `shuffle` and `drop_last` are true for training splits unless `dataloader` of the config says otherwise.
  virtual std::shared_ptr<data::Loader<B>> build_dataloader(const data::Source<B>& source,
                                                            data::LoaderOptions options) {
    if (!source.is_stream()) {
      options.sampler = build_datasampler(source, options);
      options.shuffle = options.shuffle && options.sampler == nullptr;
    }
    return std::make_shared<data::Loader<B>>(source, std::move(options));
  }

  /// Chooses the order of a split. Called when: build_dataloader builds the loader of a dataset (not of a stream), once
  /// per split. Null, as here, is the loader's own: shuffled by (seed, epoch, split), or in order. A sampler stands in
  /// place of `shuffle`, also where the config sets that.
  virtual std::shared_ptr<data::Sampler> build_datasampler(const data::Source<B>&, const data::LoaderOptions&) {
    return nullptr;
  }

  void build_dataloaders() override {
    for (const auto& [split, source] : datasets) {
      check<ConfigError>(static_cast<bool>(source), "runner.build_dataloaders", "expected a dataset for split ",
                         quote(split), ", got none");
      if (!dataloaders.contains(split)) {
        dataloaders[split] =
            build_dataloader(source, loader_options(split, source.is_stream(), source.loader_defaults()));
      }
    }
  }

  /// Moves a batch to the device of the runner; does nothing when it is there already.
  void move_to_device(B& batch) const {
    if constexpr (requires { requires std::same_as<decltype(std::as_const(batch).is_on(device())), bool>; }) {
      if (std::as_const(batch).is_on(device())) {
        return;  // moving it out and back in costs more than the rest of the loop's look at it
      }
    }
    batch = data::to_device(std::move(batch), device());
  }

  // For steps of your own: update the metrics of the split in progress, when there are any. Others than these two kinds
  // you update yourself. @throws StateError for another kind.
  using TorchRunnerBase::update_metrics;
  void update_metrics(const B& batch) const {
    if (batch_metrics_ != nullptr) {
      batch_metrics_->update(batch);
    } else if (active_metrics() != nullptr) {
      fail_metrics();
    }
  }

  data::LoaderBase& loader(std::string_view split) final { return *dataloaders.at(split); }
  const data::LoaderBase* find_loader(std::string_view split) const final {
    const auto* found = dataloaders.find(split);
    return found == nullptr ? nullptr : found->get();
  }
  data::BatchRef batch_of(data::LoaderBase& loader) final {
    return data::BatchRef(static_cast<data::Loader<B>&>(loader).batch());
  }
  StepOutput run_train_step(data::BatchRef batch) final { return train_step(batch.as<B>()); }
  StepOutput run_evaluate_step(data::BatchRef batch) final { return evaluate_step(batch.as<B>()); }
  at::Tensor run_infer_step(data::BatchRef batch) final { return infer_step(batch.as<B>()); }

  std::optional<std::int64_t> loss_normalizer(data::BatchRef ref) final {
    B& batch = ref.as<B>();
    if (const std::optional<std::int64_t> given = data::loss_normalizer(batch)) {
      return given;
    }
    if (criterion.losses() != nullptr) {
      return data::batch_size(batch);  // they are means over samples
    }
    if (const at::Tensor target = target_tensor(batch); target.defined()) {
      return criterion.loss_normalizer(target);
    }
    return std::nullopt;
  }

  std::vector<SplitInfo> splits() const final {
    std::vector<SplitInfo> out;
    for (const auto& [name, source] : datasets) {
      out.push_back({name, source.train()});
    }
    for (const auto& name : dataloaders.names()) {
      if (!datasets.contains(name)) {
        out.push_back({name, false});
      }
    }
    return out;
  }

  State dataloader_state() const final {
    State::Map map;
    for (const auto& name : train_splits()) {
      if (dataloaders.contains(name)) {
        map.set(name, dataloaders.at(name)->state_dict());
      }
    }
    return map;
  }

  void load_dataloaders(const State& state) override {
    for (const auto& entry : state.map()) {
      if (dataloaders.contains(entry.key.string())) {
        dataloaders.at(entry.key.string())->load_state_dict(entry.value);
      }
    }
  }

 private:
  void find_typed() final {
    batch_metrics_ = dynamic_cast<BatchMetrics<B>*>(active_metrics());
    batch_losses_ = dynamic_cast<BatchLosses<B>*>(criterion.losses().get());
  }

  at::Tensor loss_of(const at::Tensor& prediction, B& batch) const {
    if (batch_losses_ == nullptr) {
      if constexpr (!std::same_as<B, at::Tensor>) {
        if (criterion.template takes<B>()) {
          set_prediction(prediction, batch);
          return criterion(prediction, std::as_const(batch));
        }
      }
      if constexpr (HasModelTarget<B>) {
        return criterion(prediction, model_target(std::as_const(batch)));
      } else {
        fail<DataError>("runner.step",
                        "expected a batch with something to compare with, got a type without a target; "
                        "declare model_target(batch) beside it, or a criterion over the batch");
      }
    }
    set_prediction(prediction, batch);
    return (*batch_losses_)(batch);
  }

  void feed_metrics(const at::Tensor& prediction, B& batch) const {
    if (batch_metrics_ != nullptr) {
      set_prediction(prediction, batch);
      batch_metrics_->update(batch);
    } else if (active_metrics() != nullptr) {
      if constexpr (tensor_target) {
        update_metrics(prediction, target_tensor(batch));
      } else {
        fail<StateError>("runner.update_metrics",
                         "expected a batch with a tensor to compare with for metrics of predictions and targets, got "
                         "another target or none; use BatchMetrics over the batch");
      }
    }
  }

  static void set_prediction(const at::Tensor& prediction, B& batch) {
    if constexpr (requires { batch.prediction = prediction; }) {
      batch.prediction = prediction;
    }
  }

  at::Tensor predict(const ModelHandle& handle, const B& batch) const {
    if constexpr (!std::same_as<B, at::Tensor>) {
      if (handle.template takes<B>()) {
        return handle(batch);
      }
    }
    return handle(model_input(batch));
  }

  using Target = std::remove_cvref_t<decltype(model_target(std::declval<const B&>()))>;
  static constexpr bool tensor_target =
      HasModelTarget<B> && (std::same_as<Target, State> || std::convertible_to<const Target&, const at::Tensor&>);

  /// The target where it is a tensor; else an undefined one.
  static at::Tensor target_tensor(const B& batch) {
    if constexpr (!tensor_target) {
      return {};
    } else if constexpr (std::same_as<Target, State>) {
      const State& target = model_target(batch);
      return target.is_tensor() ? target.tensor() : at::Tensor();
    } else {
      return model_target(batch);
    }
  }

  BatchMetrics<B>* batch_metrics_ = nullptr;
  BatchLosses<B>* batch_losses_ = nullptr;
};

/// The runner over the default `Batch`.
class TorchRunner : public BasicTorchRunner<Batch> {
 public:
  ~TorchRunner() override;

 protected:
  template <std::derived_from<RunnerConfig> C>
  explicit TorchRunner(const C& config) : BasicTorchRunner<Batch>(config) {}
};

}  // namespace danling::inline v0
