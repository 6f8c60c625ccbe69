// Members of BasicTorchRunner that run once or rarely: the library has them compiled for the default Batch.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/runner/torch_runner.hpp>

namespace danling::inline v0 {

template <class B, class P>
BasicTorchRunner<B, P>::~BasicTorchRunner() = default;

template <class B, class P>
std::shared_ptr<data::Loader<B>> BasicTorchRunner<B, P>::build_dataloader(const data::Source<B>& source,
                                                                          data::LoaderOptions options) {
  if (!source.is_stream()) {
    options.sampler = build_datasampler(source, options);
    options.shuffle = options.shuffle && options.sampler == nullptr;
  }
  return std::make_shared<data::Loader<B>>(source, std::move(options));
}

template <class B, class P>
void BasicTorchRunner<B, P>::build_dataloaders() {
  detail::check<ConfigError>(
      !input_dtype() || data::HasToDtype<B>, "runner.build_dataloaders",
      "expected a batch type with to(at::ScalarType), or to_dtype(batch, at::ScalarType) in its namespace, "
      "for precision fp64, got a type with neither");
  for (const auto& [split, source] : datasets) {
    detail::check<ConfigError>(static_cast<bool>(source), "runner.build_dataloaders", "expected a dataset for split ",
                               detail::quote(split), ", got none");
    if (!dataloaders.contains(split)) {
      dataloaders[split] =
          build_dataloader(source, loader_options(split, source.is_stream(), source.loader_defaults()));
      built_from_[split] = source.identity();
    }
  }
}

template <class B, class P>
data::LoaderBase& BasicTorchRunner<B, P>::loader(std::string_view split) {
  const data::Source<B>* const source = datasets.find(split);
  if (source != nullptr && *source) {
    const auto built = built_from_.find(split);
    detail::check<StateError>(
        dataloaders.contains(split) && (built == built_from_.end() || built->second == source->identity()),
        "runner.loader", "expected the dataset of split ", detail::quote(split), " to be set before initialize(), got ",
        dataloaders.contains(split) ? "another one later" : "it later",
        "; make a runner for other data, or call evaluate_on_batch with your batches");
  }
  return *dataloaders.at(split);
}

template <class B, class P>
std::shared_ptr<data::LoaderBase> BasicTorchRunner<B, P>::loader_of_size(std::string_view split, std::int64_t size) {
  const data::Loader<B>& like = *dataloaders.at(split);
  data::LoaderOptions options = like.options();
  options.batch_size = size;
  options.drop_last = true;  // batches of this size only
  return std::make_shared<data::Loader<B>>(like.source(), std::move(options));
}

template <class B, class P>
State BasicTorchRunner<B, P>::batch_state(data::BatchRef ref) {
  return detail::state_of(ref.as<B>());
}

template <class B, class P>
std::vector<typename BasicTorchRunner<B, P>::SplitInfo> BasicTorchRunner<B, P>::splits() const {
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

template <class B, class P>
State BasicTorchRunner<B, P>::dataloader_state() const {
  State::Map map;
  for (const auto& name : train_splits()) {
    if (dataloaders.contains(name)) {
      map.set(name, dataloaders.at(name)->state_dict());
    }
  }
  return map;
}

template <class B, class P>
void BasicTorchRunner<B, P>::load_dataloaders(const State& state) {
  for (const auto& entry : state.map()) {
    if (dataloaders.contains(entry.key.string())) {
      dataloaders.at(entry.key.string())->load_state_dict(entry.value);
    }
  }
}

template <class B, class P>
void BasicTorchRunner<B, P>::bind_typed_components() {
  batch_metrics_ = dynamic_cast<BatchMetrics<B>*>(active_metrics());
  batch_losses_ = dynamic_cast<BatchLosses<B>*>(criterion.losses().get());
  shape_log_ = warned_of_shapes_ ? nullptr : &logger();
}

template <class B, class P>
void BasicTorchRunner<B, P>::convert(B& batch) const {
  if constexpr (data::HasToDtype<B>) {
    batch = data::to_dtype(std::move(batch), *input_dtype());
  }
}

template <class B, class P>
void BasicTorchRunner<B, P>::copy_to_device(B& batch) const {
  batch = data::to_device(std::move(batch), device());
}

template <class B, class P>
void BasicTorchRunner<B, P>::run_teacher(B& batch) const {
  const c10::NoGradGuard no_grad;
  if constexpr (HasTensorOutput<P>) {
    set_teacher_logits(detail::output_tensor(predict(teacher, batch)));
  } else {
    detail::fail<StateError>("runner.distill",
                             "expected a prediction with a tensor, the logits, got one without; declare "
                             "model_output(prediction) in the namespace of its type");
  }
}

// A loss of [N, 1] and [N] would broadcast to [N, N], and train without an error.
template <class B, class P>
void BasicTorchRunner<B, P>::compare_shapes(const P& prediction, const B& batch) const {
  Logger* const log = std::exchange(shape_log_, nullptr);
  if constexpr (detail::TensorLike<P> && detail::HasTensorTarget<B>) {
    const at::Tensor& target = detail::target_tensor(batch);
    warned_of_shapes_ = detail::warn_of_shapes(*log, prediction, target);
  }
}

template <class B, class P>
void BasicTorchRunner<B, P>::observe_batch_metrics(tape::Observer& observer, const B& batch) const {
  step_batch_.observe_metrics(observer, batch, [this](const B& now) { batch_metrics_->update(now); });
}

// In src/runner/torch_runner.cpp. Members of each step are not among them: a program compiles and inlines those.
extern template class data::SplitMap<data::Source<Batch>>;
extern template class data::SplitMap<std::shared_ptr<data::Loader<Batch>>>;
extern template class detail::StepBatch<Batch>;
extern template std::string detail::shapes_of<Batch>(const Batch&) noexcept;
extern template at::Tensor BatchLosses<Batch>::operator()(const Batch&);
extern template BasicTorchRunner<Batch>::~BasicTorchRunner();
extern template std::shared_ptr<data::Loader<Batch>> BasicTorchRunner<Batch>::build_dataloader(
    const data::Source<Batch>&, data::LoaderOptions);
extern template void BasicTorchRunner<Batch>::build_dataloaders();
extern template data::LoaderBase& BasicTorchRunner<Batch>::loader(std::string_view);
extern template std::shared_ptr<data::LoaderBase> BasicTorchRunner<Batch>::loader_of_size(std::string_view,
                                                                                          std::int64_t);
extern template State BasicTorchRunner<Batch>::batch_state(data::BatchRef);
extern template std::vector<BasicTorchRunner<Batch>::SplitInfo> BasicTorchRunner<Batch>::splits() const;
extern template State BasicTorchRunner<Batch>::dataloader_state() const;
extern template void BasicTorchRunner<Batch>::load_dataloaders(const State&);
extern template void BasicTorchRunner<Batch>::bind_typed_components();
extern template void BasicTorchRunner<Batch>::convert(Batch&) const;
extern template void BasicTorchRunner<Batch>::copy_to_device(Batch&) const;
extern template void BasicTorchRunner<Batch>::run_teacher(Batch&) const;
extern template void BasicTorchRunner<Batch>::compare_shapes(const at::Tensor&, const Batch&) const;
extern template void BasicTorchRunner<Batch>::observe_batch_metrics(tape::Observer&, const Batch&) const;

}  // namespace danling::inline v0
