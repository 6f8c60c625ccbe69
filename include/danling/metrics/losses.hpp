// Several losses of a prediction and its target.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <danling/metrics/batch_losses.hpp>
#include <danling/tensors/detail/loss_targets.hpp>

namespace danling::inline v0 {

/// A model's prediction and its target, as a batch.
struct PredictionBatch {
  at::Tensor prediction;
  at::Tensor target;
  /// The target's first dimension, or the prediction's if the target is undefined; 1 for a scalar.
  std::int64_t size() const;
};

/// Losses of (prediction, target): `criterion = Losses({{"ce", torch::nn::CrossEntropyLoss()}, {"l1", my_l1, 0.1}})`.
class Losses : public BatchLosses<PredictionBatch> {
 public:
  struct Entry {
    /// `what`: a loss module (holder or shared_ptr), an nn::TargetLoss (or a pointer to one), or a callable
    /// (prediction, target) -> tensor or MetricValue.
    template <class T>
      requires(!std::convertible_to<T, std::shared_ptr<Loss<PredictionBatch>>>)
    Entry(std::string given, T what, double weight = 1.0) : name(std::move(given)) {
      loss = std::make_shared<Of<T>>(std::move(what), weight);
    }
    /// A loss of a user-defined class.
    Entry(std::string given, std::shared_ptr<Loss<PredictionBatch>> what)
        : name(std::move(given)), loss(std::move(what)) {}

    std::string name;
    std::shared_ptr<Loss<PredictionBatch>> loss;
  };

  explicit Losses(std::vector<Entry> losses);
  ~Losses() override;

  using BatchLosses<PredictionBatch>::operator();
  at::Tensor operator()(const at::Tensor& prediction, const at::Tensor& target) {
    return (*this)(PredictionBatch{prediction, target});
  }

 private:
  template <class T>
  class Of : public Loss<PredictionBatch> {
   public:
    Of(T what, double weight) : what_(std::move(what)), weight_(weight) {}
    double weight() const override { return weight_; }
    MetricValue compute(const PredictionBatch& batch) override {
      if constexpr (requires { what_.sum_and_count(batch.prediction, batch.target); }) {
        return counted(what_, batch);
      } else if constexpr (requires { what_->sum_and_count(batch.prediction, batch.target); }) {
        return counted(*what_, batch);
      } else if constexpr (requires { what_->forward(batch.prediction, batch.target); }) {
        return MetricValue(at::Tensor(what_->forward(batch.prediction, batch.target)));
      } else {
        static_assert(std::is_invocable_v<T&, const at::Tensor&, const at::Tensor&>,
                      "danling: expected a loss module with forward(prediction, target), or a callable of both");
        return MetricValue(what_(batch.prediction, batch.target));
      }
    }
    std::shared_ptr<torch::nn::Module> module() const override {
      if constexpr (requires { std::shared_ptr<torch::nn::Module>(what_.ptr()); }) {
        return what_.ptr();
      } else if constexpr (std::convertible_to<T, std::shared_ptr<torch::nn::Module>>) {
        return what_;
      } else {
        return nullptr;
      }
    }

    std::optional<std::int64_t> normalizer(const at::Tensor& target) const override {
      return detail::loss_normalizer(what_, target);
    }
    std::optional<std::int64_t> ignore_index() const override { return detail::ignore_index_of(what_); }

   private:
    // A sum with its count is averaged over targets, also where a batch has none.
    template <class L>
    static MetricValue counted(const L& loss, const PredictionBatch& batch) {
      if (!loss.counts_targets()) {
        return loss(batch.prediction, batch.target);
      }
      auto [sum, count] = loss.sum_and_count(batch.prediction, batch.target);
      return MetricValue::sum(std::move(sum), std::move(count));
    }

    T what_;
    double weight_;
  };
};

}  // namespace danling::inline v0
