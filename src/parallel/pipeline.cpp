// Public functions of the pipeline's executor.
#include <danling/parallel/pipeline.hpp>

#include <cstring>
#include <utility>

#include <ATen/core/grad_mode.h>

#include <parallel/pipeline_executor.hpp>

namespace danling::inline v0::parallel {

PipelineSchedule::PipelineSchedule(PipelinePlan plan, std::vector<PipelineStage> stages, Group group,
                                   PipelineOptions options)
    : impl_(std::make_unique<Impl>(std::move(plan), std::move(stages), std::move(group), std::move(options))) {}
PipelineSchedule::~PipelineSchedule() = default;
PipelineSchedule::PipelineSchedule(PipelineSchedule&&) noexcept = default;
PipelineSchedule& PipelineSchedule::operator=(PipelineSchedule&&) noexcept = default;

const PipelinePlan& PipelineSchedule::plan() const { return impl_->plan; }
bool PipelineSchedule::has_first_stage() const { return impl_->stages.contains(0); }
bool PipelineSchedule::has_last_stage() const { return impl_->stages.contains(impl_->plan.stages - 1); }
const std::vector<PipelineSpan>& PipelineSchedule::spans() const { return impl_->spans; }

PipelineSchedule::Result PipelineSchedule::step(const Inputs& inputs, const Loss& loss,
                                                const std::vector<at::Tensor>& seeds) {
  const at::AutoGradMode with_gradients(true);
  return impl_->run(true, inputs, loss, seeds);
}

PipelineSchedule::Result PipelineSchedule::eval(const Inputs& inputs, const Loss& loss) {
  const at::NoGradGuard no_grad;
  return impl_->run(false, inputs, loss, {});
}

PipelineTimeline PipelineSchedule::measured() const {
  static_assert(std::is_trivially_copyable_v<PipelineSpan>);
  const auto& own = impl_->spans;
  const std::string_view bytes(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(PipelineSpan));
  std::vector<std::vector<PipelineSpan>> spans;
  for (const std::string& of_rank : impl_->group.all_gather(bytes)) {
    spans.emplace_back(of_rank.size() / sizeof(PipelineSpan));
    std::memcpy(spans.back().data(), of_rank.data(), of_rank.size());
  }
  return pipeline_timeline(std::move(spans));
}

}  // namespace danling::inline v0::parallel
