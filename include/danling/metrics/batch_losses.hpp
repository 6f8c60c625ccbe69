// Several losses over batches of the user's type: returns their weighted sum for backward, reports each by name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/metrics/batch_metric.hpp>
#include <danling/tape/observer.hpp>

namespace torch::nn {
class Module;
}

namespace danling::inline v0 {

/// A weighted batch metric to minimise (t3w's ILoss). Gradients flow through the result of `compute`: return a tensor.
template <class B>
class Loss : public BatchMetric<B> {
 public:
  /// Weight in the sum; read at each batch (t3w's loss_reweight). A loss of weight 0 is reported but gets no gradient.
  virtual double weight() const { return 1.0; }
  /// Module of the loss; its weights and buffers move with the runner to its device. Null without a module.
  virtual std::shared_ptr<torch::nn::Module> module() const { return nullptr; }
  /// Number of targets that the loss of a batch averages over; empty when unknown. Called before the batch moves to the
  /// device.
  virtual std::optional<std::int64_t> normalizer(const at::Tensor&) const { return std::nullopt; }
  /// The target value that the loss ignores, if it has one.
  virtual std::optional<std::int64_t> ignore_index() const { return std::nullopt; }
  bool higher_better() const final { return false; }
};

namespace detail {
/// Weighted sum of the losses' means, for backward.
class LossSum {
 public:
  /// @param weight_tensor  if defined, a tensor of the weight, used instead of `weight` with the same bits
  void add(const MetricValue& value, double weight, const at::Tensor& weight_tensor = {});
  at::Tensor take();

 private:
  at::Tensor total_;
  at::Tensor unweighted_;  // the first loss of weight 0
  double number_ = 0.0;
};

/// A scalar tensor of the dtype that LibTorch's operators use for a number.
at::Tensor number_tensor();

/// Returns `weight`. @throws MetricError when it is not finite.
double finite_weight(const std::string& name, double weight);

Result loss_pairs(const Result& values, const std::vector<double>& weights);

template <class B>
class LossMeter : public DatasetMetric<B> {
 public:
  explicit LossMeter(const std::shared_ptr<Loss<B>>& loss) : DatasetMetric<B>(loss), loss_(loss.get()) {}
  Loss<B>& loss() const { return *loss_; }
  double weight() const { return weight_ ? *weight_ : loss_->weight(); }
  void set_weight(double weight) { weight_ = weight; }
  /// Tensor of the weight for a recorded step; write_weight_tensor() sets it, also in replays.
  const at::Tensor& weight_tensor() const { return weight_tensor_; }
  void write_weight_tensor(double weight) { *static_cast<double*>(weight_tensor_.mutable_data_ptr()) = weight; }

 private:
  at::Tensor weight_tensor_ = number_tensor();
  Loss<B>* loss_;
  std::optional<double> weight_;
};
}  // namespace detail

/// Interface of losses to a runner, independent of their input.
class LossesBase : public MetricsBase {
 public:
  ~LossesBase() override;
  /// The modules of the losses that have one.
  virtual std::vector<std::shared_ptr<torch::nn::Module>> modules() const = 0;
  /// The names of the losses, in order.
  virtual std::vector<std::string> names() const = 0;

  /// The current weight. @throws MetricError that lists the known names when `name` is unknown.
  virtual double weight(std::string_view name) const = 0;
  /// Replaces the weight of the loss, from the next batch on. Not saved in the state.
  /// @throws MetricError when the name is unknown or the weight is not finite.
  virtual void set_weight(std::string_view name, double weight) = 0;

  /// A number that changes when a weight becomes 0 or 1, or was 0 or 1 before, since a call then uses other operators:
  /// for recorded steps.
  virtual std::uint64_t weights_key() const { return 0; }
  /// Tensors of the weights, in order of the names, for a recorded step.
  virtual std::vector<at::Tensor> weight_tensors() const { return {}; }
  /// Number of targets that all losses average over; empty when a loss does not provide it, or when the numbers differ.
  virtual std::optional<std::int64_t> normalizer(const at::Tensor& target) const = 0;
  /// The target value that a loss ignores: that of the first loss that ignores one.
  virtual std::optional<std::int64_t> ignore_index() const = 0;
};

/// Losses over batches of type `B`. A call returns the weighted sum for backward and records each loss. `value`,
/// `batch` and `average` report pairs (weight, raw value); raw values are averaged over samples. Nothing waits for the
/// device.
///
/// A runner whose `criterion` holds this object (or a shared_ptr to it) resets and synchronizes it, reports it under
/// "losses", and saves it in checkpoints.
template <class B>
class BatchLosses : public MeteredMetrics<LossesBase, detail::LossMeter<B>> {
  using Base = MeteredMetrics<LossesBase, detail::LossMeter<B>>;

 public:
  using Entry = std::pair<std::string, std::shared_ptr<Loss<B>>>;

  /// @throws MetricError when the list is empty, a loss is null, a name is empty or repeated, or a weight is not
  /// finite.
  explicit BatchLosses(const std::vector<Entry>& losses) : Base("losses") {
    danling::detail::check<MetricError>(!losses.empty(), "losses.create", "expected at least one loss, got none");
    for (const auto& [name, loss] : losses) {
      add(name, loss);
    }
  }

  /// @throws MetricError as the constructor.
  void add(const std::string& name, const std::shared_ptr<Loss<B>>& loss) {
    danling::detail::check<MetricError>(!name.empty(), "losses.create", "expected a loss with a name, got one without");
    const auto& meter = this->meters_.add(name, detail::LossMeter<B>(loss));
    detail::finite_weight(name, meter.weight());
  }

  /// Returns the weighted sum of the losses' means over the batch: a scalar with a graph, even if all weights are 0.
  /// @throws MetricError when a weight is not finite. If a loss throws, those before it stay recorded.
  at::Tensor operator()(const B& batch);

  Result value() const override { return detail::loss_pairs(Base::value(), weights()); }
  Result batch() const override { return detail::loss_pairs(Base::batch(), weights()); }
  Result average() const override { return detail::loss_pairs(Base::average(), weights()); }

  std::vector<std::shared_ptr<torch::nn::Module>> modules() const override {
    std::vector<std::shared_ptr<torch::nn::Module>> out;
    for (const auto& entry : this->meters_) {
      if (auto module = entry.meter.loss().module()) {
        out.push_back(std::move(module));
      }
    }
    return out;
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    for (const auto& entry : this->meters_) {
      out.push_back(entry.name);
    }
    return out;
  }

  std::uint64_t weights_key() const override {
    std::uint64_t key = 0;
    for (const auto& entry : this->meters_) {
      const double weight = entry.meter.weight();
      key = key * 3 + (weight == 0.0 ? 0 : weight == 1.0 ? 1 : 2);
    }
    return key;
  }
  std::vector<at::Tensor> weight_tensors() const override {
    std::vector<at::Tensor> out;
    for (const auto& entry : this->meters_) {
      out.push_back(entry.meter.weight_tensor());
    }
    return out;
  }
  double weight(std::string_view name) const override { return this->at(name).weight(); }
  void set_weight(std::string_view name, double weight) override {
    this->at(name).set_weight(detail::finite_weight(std::string(name), weight));
  }

  std::optional<std::int64_t> normalizer(const at::Tensor& target) const override {
    std::optional<std::int64_t> common;
    for (const auto& entry : this->meters_) {
      const auto own = entry.meter.loss().normalizer(target);
      if (!own || (common && *common != *own)) {
        return std::nullopt;
      }
      common = own;
    }
    return common;
  }
  std::optional<std::int64_t> ignore_index() const override {
    for (const auto& entry : this->meters_) {
      if (const auto own = entry.meter.loss().ignore_index()) {
        return own;
      }
    }
    return std::nullopt;
  }

 private:
  std::vector<double> weights() const {
    std::vector<double> out;
    for (const auto& entry : this->meters_) {
      out.push_back(entry.meter.weight());
    }
    return out;
  }
};

template <class B>
at::Tensor BatchLosses<B>::operator()(const B& batch) {
  const std::int64_t samples = detail::samples_of(batch);
  const bool observed = tape::observer() != nullptr;
  if (observed) [[unlikely]] {
    tape::host_call("weights of losses", {}, [this](const tape::Tensors&) {
      for (auto& entry : this->meters_) {
        entry.meter.write_weight_tensor(detail::finite_weight(entry.name, entry.meter.weight()));
      }
    });
  }
  detail::LossSum total;
  for (auto& entry : this->meters_) {
    const double weight = detail::finite_weight(entry.name, entry.meter.weight());
    const MetricValue value = entry.meter.loss().compute(batch);
    total.add(value, weight, observed ? entry.meter.weight_tensor() : at::Tensor());
    const c10::NoGradGuard no_grad;
    entry.meter.record(detail::over_samples(value, samples), samples);
  }
  return total.take();
}

}  // namespace danling::inline v0
