// Logs a drawing of a pipeline's step.
#include <danling/core/error.hpp>
#include <danling/runner/parallel_parts.hpp>
#include <danling/runner/torch_runner_base.hpp>
#include <danling/telemetry/logger.hpp>

namespace danling::inline v0::detail {

void PipelineDrawing::after_step(TorchRunnerBase& runner, const parallel::PipelineSchedule& schedule,
                                 std::int64_t micro_batches) {
  // Skips the first steps, which allocate and exchange shapes. All ranks count the same steps.
  static constexpr std::int64_t settled = 3, characters = 110;
  ++steps_;
  const parallel::PipelinePlan& plan = schedule.plan();
  if (is_done_ || !runner.config().parallel.draw_pipeline || steps_ < settled || micro_batches != plan.micro_batches) {
    return;
  }
  is_done_ = true;
  const parallel::PipelineTimeline measured = schedule.measured();
  if (runner.is_main_process()) {
    std::string picture = parallel::draw_pipeline(plan, parallel::simulate_pipeline(plan), &measured, characters);
    picture.pop_back();  // the end of the last line
    runner.logger().info(concat("pipeline, training step ", steps_, ": ", picture));
  }
}

}  // namespace danling::inline v0::detail
