#include <danling/runner/torch_runner.hpp>

namespace danling::inline v0 {

TorchRunner::~TorchRunner() = default;

// Declared in danling/runner/detail/torch_runner_rare.hpp.
template class data::SplitMap<data::Source<Batch>>;
template class data::SplitMap<std::shared_ptr<data::Loader<Batch>>>;
template class detail::StepBatch<Batch>;
template std::string detail::shapes_of<Batch>(const Batch&) noexcept;
template at::Tensor BatchLosses<Batch>::operator()(const Batch&);
template BasicTorchRunner<Batch>::~BasicTorchRunner();
template std::shared_ptr<data::Loader<Batch>> BasicTorchRunner<Batch>::build_dataloader(const data::Source<Batch>&,
                                                                                        data::LoaderOptions);
template void BasicTorchRunner<Batch>::build_dataloaders();
template data::LoaderBase& BasicTorchRunner<Batch>::loader(std::string_view);
template std::shared_ptr<data::LoaderBase> BasicTorchRunner<Batch>::loader_of_size(std::string_view, std::int64_t);
template State BasicTorchRunner<Batch>::batch_state(data::BatchRef);
template std::vector<BasicTorchRunner<Batch>::SplitInfo> BasicTorchRunner<Batch>::splits() const;
template State BasicTorchRunner<Batch>::dataloader_state() const;
template void BasicTorchRunner<Batch>::load_dataloaders(const State&);
template void BasicTorchRunner<Batch>::bind_typed_components();
template void BasicTorchRunner<Batch>::convert(Batch&) const;
template void BasicTorchRunner<Batch>::copy_to_device(Batch&) const;
template void BasicTorchRunner<Batch>::run_teacher(Batch&) const;
template void BasicTorchRunner<Batch>::compare_shapes(const at::Tensor&, const Batch&) const;
template void BasicTorchRunner<Batch>::observe_batch_metrics(tape::Observer&, const Batch&) const;

}  // namespace danling::inline v0
