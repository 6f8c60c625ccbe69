// StepBatch: the batch of a step that may be recorded, and the metrics over it.
#pragma once

#include <functional>
#include <type_traits>
#include <utility>

#include <danling/runner/detail/batch_tensors.hpp>
#include <danling/tape/observer.hpp>

namespace danling::inline v0::detail {

template <class B>
concept HasPrediction = requires(B& batch) { batch.prediction; };

template <class B>
class StepBatch {
 public:
  using Update = std::function<void(const B&)>;

  /// Sets the batch for one step.
  class Scope {
   public:
    Scope(StepBatch& place, B& batch);
    ~Scope() {
      place_.batch_ = nullptr;
      place_.parts_.clear();  // they hold the batch's memory
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    StepBatch& place_;
  };

  const BatchParts& parts() const { return parts_; }

  /// Calls `update(batch)` now, and in each replay with the replay's batch and tensors.
  void observe_metrics(tape::Observer& observer, const B& batch, const Update& update);

 private:
  static constexpr bool is_replaced() {
    if constexpr (HasPrediction<B>) {
      return Listable<B>::value && Listable<std::remove_cvref_t<decltype(std::declval<B&>().prediction)>>::value;
    } else {
      return Listable<B>::value;
    }
  }

  void observe(tape::Observer& observer, const B& batch, tape::Tensors tensors, const Update& update);

  B* batch_ = nullptr;
  BatchParts parts_;
};

template <class B>
StepBatch<B>::Scope::Scope(StepBatch& place, B& batch) : place_(place) {
  place_.batch_ = &batch;
  place_.parts_.clear();
  collect_parts(batch, place_.parts_);
}

template <class B>
void StepBatch<B>::observe_metrics(tape::Observer& observer, const B& batch, const Update& update) {
  if constexpr (is_replaced()) {
    BatchParts now;
    collect_parts(batch, now);
    if (now.others == parts_.others && now.tensors.size() == parts_.tensors.size()) {
      observe(observer, batch, std::move(now.tensors), update);
      return;
    }
  }
  observer.mark_unrecordable("BatchMetrics read what the step adds to its batch, or a batch of a type of the program");
  update(batch);
}

template <class B>
void StepBatch<B>::observe(tape::Observer& observer, const B& batch, tape::Tensors tensors, const Update& update) {
  {
    const tape::NoRecordGuard suspended;
    update(batch);
  }
  if constexpr (HasPrediction<B>) {  // the step sets it, a replay does not
    BatchParts parts;
    collect_parts(batch.prediction, parts);
    tensors.insert(tensors.end(), parts.tensors.begin(), parts.tensors.end());
    auto prediction = batch.prediction;
    replace_tensors(prediction, [] { return at::Tensor(); });
    observer.host_call("batch metrics", std::move(tensors), [this, prediction, update](const tape::Tensors& now) {
      auto next = now.begin();
      replace_tensors(*batch_, [&] { return *next++; });
      batch_->prediction = prediction;
      replace_tensors(batch_->prediction, [&] { return *next++; });
      update(std::as_const(*batch_));
    });
  } else {
    observer.host_call("batch metrics", std::move(tensors), [this, update](const tape::Tensors& now) {
      auto next = now.begin();
      replace_tensors(*batch_, [&] { return *next++; });
      update(std::as_const(*batch_));
    });
  }
}

}  // namespace danling::inline v0::detail
