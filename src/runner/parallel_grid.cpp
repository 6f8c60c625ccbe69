// Materializes a model on a grid: prepares the whole model, cuts it, and checks the result.
#include <algorithm>
#include <utility>

#include <torch/nn/module.h>

#include <danling/core/error.hpp>
#include <danling/parallel/slices.hpp>
#include <danling/runner/parallel_runner.hpp>
#include <danling/telemetry/logger.hpp>

#include <distributed/group_impl.hpp>
#include <runner/sharded_parallel.hpp>
#include <runner/stage_names.hpp>

namespace danling::inline v0::detail {

namespace {

/// Warns once if attention does not exchange keys and values over the axis `context`, which would train another model.
class ContextUse : public Callback {
 public:
  explicit ContextUse(Group context) : context_(std::move(context)), before_(GroupCall::exchanges_of(context_)) {}
  void on_step(const StepEvent& event) override {
    if (!std::exchange(has_looked_, true) && GroupCall::exchanges_of(context_) == before_) {
      event.runner.logger().warning(
          concat("runner.train: expected a model whose attention exchanges keys and values over parallel.axes.context, "
                 "got a first step in which nothing was sent: each of the ",
                 context_.size(),
                 " parts of a sequence is a separate sequence; use dl::parallel::RingAttention, or parallelize() of "
                 "the model, or set the axis to 1"));
    }
  }

 private:
  Group context_;
  std::int64_t before_;
  bool has_looked_ = false;
};

}  // namespace

Grid::Grid(TorchRunnerBase& runner)
    : runner_(runner), sharded_(dynamic_cast<ShardedParallel*>(&runner.parallelism())) {}

void Grid::prepare_whole(ModelHandle& model) const { sharded_->prepare_whole(model, runner_.device()); }

void Grid::check_slices() const {
  const ParallelTopology& topology = sharded_->context().topology();
  for (const std::string_view axis : {"tensor", "expert", "expert_tensor"}) {
    const std::int64_t degree = topology.axis_degree(axis);
    const auto is_cut = [axis](const ModelHandle& model) {
      const auto parameters = model && model.module() ? model.module()->parameters() : std::vector<at::Tensor>();
      return std::any_of(parameters.begin(), parameters.end(), [axis](const at::Tensor& parameter) {
        const auto slices = parallel::slices_of(parameter);
        return std::any_of(slices.begin(), slices.end(), [axis](const auto& slice) { return slice.axis == axis; });
      });
    };
    if (degree > 1 && runner_.is_main_process() && !is_cut(runner_.model) &&
        std::none_of(runner_.models.begin(), runner_.models.end(),
                     [&](const auto& entry) { return is_cut(entry.second); })) {
      runner_.logger().warning(concat("runner.parallelize_model: expected a model that is cut along the axis ", axis,
                                      ", got none of its parameters: the ", degree, " processes of 'parallel.axes.",
                                      axis, "' compute the same"));
    }
  }
}

void Grid::check_context() const {
  if (sharded_->context().topology().axis_degree("context") > 1 && runner_.is_main_process()) {
    runner_.add(ContextUse(sharded_->context().group("context")));
  }
}

void Grid::check_pipeline() const {
  static constexpr std::string_view where = "runner.materialize_model";
  check<ConfigError>(runner_.models.empty() && runner_.model, where,
                     "expected one model, `model`, with parallel.axes.pipeline above 1, got `models`");
  check<ConfigError>(!runner_.ema && !runner_.teacher, where,
                     "expected no `ema` and no `teacher` with parallel.axes.pipeline above 1, got one");
  const auto& losses = runner_.criterion.losses();
  check<ConfigError>(losses == nullptr, where,
                     "expected a single loss with parallel.axes.pipeline above 1, got Losses");
}

void Grid::convert_outputs(std::vector<StagePart>& parts) const {
  const at::ScalarType dtype = shard_dtype(runner_.config().fsdp.mp_policy.output_dtype);
  for (StagePart& part : parts) {
    const bool is_last = part.stage == stages_of(runner_.config().parallel, sharded_->context().topology()) - 1;
    if (is_last && dtype != at::ScalarType::Undefined) {
      part.forward = [forward = std::move(part.forward), dtype](const std::vector<at::Tensor>& inputs) {
        std::vector<at::Tensor> out = forward(inputs);
        for (at::Tensor& tensor : out) {
          tensor = tensor.is_floating_point() ? tensor.to(dtype) : tensor;
        }
        return out;
      };
    }
  }
}

parallel::PipelineOptions Grid::pipeline_options(std::function<PrecisionContext()> forward) const {
  parallel::PipelineOptions out;
  out.device = runner_.device();
  out.around = [grid = sharded_, forward = std::move(forward)](const parallel::PipelineEvent& event,
                                                               const std::function<void()>& run) {
    if (event.action.work == parallel::PipelineWork::forward) {
      const PrecisionContext context = forward();
      run();
    } else {
      grid->sync_gradients(event.last);
      run();
    }
  };
  return out;
}

}  // namespace danling::inline v0::detail
