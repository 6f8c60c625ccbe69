// The measured process of bench/pipeline.cpp: a custom loop around PipelineSchedule.
#include "pipeline_work.hpp"

#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>

#include <torch/torch.h>

#include <danling/distributed/group.hpp>
#include <danling/distributed/process.hpp>
#include <danling/optim/sgd.hpp>
#include <danling/parallel/pipeline.hpp>
#include <danling/parallel/pipeline_schedule.hpp>

#include "rank_loop.hpp"

namespace dl = danling;

namespace bench {
namespace {

constexpr std::int64_t rows = pipeline_micro_batches * pipeline_micro_batch_size;
constexpr std::int64_t layer_size = pipeline_width * pipeline_width + pipeline_width;

at::Tensor read_floats(const std::string& file, std::int64_t count) {
  return at::from_file(file, false, count, at::TensorOptions().dtype(at::kFloat));
}

/// Linear layers, each followed by a ReLU.
torch::nn::Sequential make_stage(const std::string& folder, std::int64_t first, std::int64_t count) {
  const at::NoGradGuard no_grad;
  const at::Tensor all = read_floats(folder + "/weights", pipeline_layers * layer_size);
  torch::nn::Sequential out;
  for (std::int64_t layer = first; layer < first + count; ++layer) {
    torch::nn::Linear linear(pipeline_width, pipeline_width);
    const at::Tensor values = all.narrow(0, layer * layer_size, layer_size);
    linear->weight.copy_(values.narrow(0, 0, linear->weight.numel()).view_as(linear->weight));
    linear->bias.copy_(values.narrow(0, linear->weight.numel(), pipeline_width));
    out->push_back(linear);
    out->push_back(torch::nn::ReLU());
  }
  return out;
}

}  // namespace

void write_pipeline_inputs(const std::string& folder) {
  torch::manual_seed(5);
  const auto write = [&](const char* name, const at::Tensor& values) {
    std::ofstream out(folder + "/" + name, std::ios::binary);
    out.write(static_cast<const char*>(values.const_data_ptr()), static_cast<std::streamsize>(values.nbytes()));
    if (!out.flush()) {
      throw std::runtime_error("expected to write the inputs of the benchmark");
    }
  };
  const double bound = 1 / std::sqrt(static_cast<double>(pipeline_width));
  write("weights", at::empty({pipeline_layers * layer_size}).uniform_(-bound, bound).mul_(2));
  write("input", at::randn({pipeline_batches * rows, pipeline_width}));
  write("target", at::randn({pipeline_batches * rows, pipeline_width}));
}

int train_pipeline_on_command(const std::vector<std::string>& arguments) {
  if (arguments.size() != 3) {
    throw std::runtime_error("expected three arguments of a rank");
  }
  at::set_num_threads(1);
  const dl::Group group = dl::Group::connect(dl::read_process_identity());
  const std::string& folder = arguments[0];
  const auto plan =
      dl::parallel::pipeline_schedule(arguments[1], group.size(), std::stoll(arguments[2]), pipeline_micro_batches);
  std::vector<dl::parallel::PipelineStage> stages;
  std::vector<at::Tensor> parameters;
  const std::int64_t layers = pipeline_layers / plan.stages;
  for (const std::int64_t index : plan.stages_of_rank(group.rank())) {
    torch::nn::Sequential stage = make_stage(folder, index * layers, layers);
    for (const at::Tensor& parameter : stage->parameters()) {
      parameters.push_back(parameter);
    }
    stages.push_back({index, [stage](const std::vector<at::Tensor>& inputs) mutable {
                        return std::vector<at::Tensor>{stage->forward(inputs[0])};
                      }});
  }
  dl::parallel::PipelineSchedule schedule(plan, std::move(stages), group);
  dl::optim::SGD optimizer(parameters, dl::optim::OptimizerOptions{.lr = 0.01});
  const auto batches_of = [&](const char* name) {
    std::vector<std::vector<at::Tensor>> out;
    for (const at::Tensor& batch :
         read_floats(folder + "/" + name, pipeline_batches * rows * pipeline_width)
             .view({pipeline_batches, pipeline_micro_batches, pipeline_micro_batch_size, pipeline_width})
             .unbind(0)) {
      out.push_back(batch.unbind(0));
    }
    return out;
  };
  const auto inputs = batches_of("input"), targets = batches_of("target");
  std::size_t number = 0;
  const auto step = [&] {
    const std::vector<at::Tensor>& batch = inputs[number % inputs.size()];
    const std::vector<at::Tensor>& target = targets[number++ % targets.size()];
    dl::parallel::PipelineSchedule::Inputs micro;
    if (schedule.has_first_stage()) {
      for (const at::Tensor& rows_of_micro : batch) {
        micro.push_back({rows_of_micro});
      }
    }
    optimizer.zero_grad();
    auto result = schedule.step(micro, [&](const std::vector<at::Tensor>& outputs, std::int64_t index) {
      return at::mse_loss(outputs[0], target[static_cast<std::size_t>(index)]).div(pipeline_micro_batches);
    });
    optimizer.step();
    return std::move(result.losses);
  };
  train_on_lines([&](int steps) -> std::function<double()> {
    std::vector<at::Tensor> losses;
    for (int left = std::abs(steps); left > 0; --left) {
      losses = step();
    }
    return [&, losses, steps] {
      double sum = 0;
      for (const at::Tensor& tensor : steps > 0 ? losses : parameters) {
        sum += steps > 0 ? tensor.item<double>() : tensor.grad().square().sum().item<double>();
      }
      return sum;
    };
  });
}

}  // namespace bench
