// A rank that is killed, throws or stops inside each kind of collective: the others end with one line that names it.
#include <sys/mman.h>

#include <atomic>
#include <thread>

#include <torch/nn.h>

#include <danling/checkpoint/sharded_manager.hpp>
#include <danling/core/error.hpp>
#include <danling/parallel/expert_exchange.hpp>
#include <danling/parallel/pipeline.hpp>
#include <danling/parallel/ring_attention.hpp>
#include <danling/parallel/sharded_model.hpp>
#include <danling/parallel/tensor_functions.hpp>
#include <danling/parallel/vocab_cross_entropy.hpp>

#include <parallel/failures_support.hpp>

#include <support/temp_dir.hpp>

namespace parallel_failures_test {
namespace {

namespace parallel = danling::parallel;
using danling::ShardedModel;
using danling::ShardOptions;
using torch::Tensor;

/// Calls `point` in the backward pass.
Tensor with_point(const Tensor& tensor, const Point& point) {
  const Tensor out = tensor * 1;
  out.register_hook([point](const Tensor&) { point(); });
  return out;
}

Tensor ones(std::vector<std::int64_t> sizes) { return at::ones(sizes).set_requires_grad(true); }

/// Two steps of three layers in three units; the second step calls `point`.
struct ShardedSteps {
  ShardOptions options = {};
  enum class At { before, forward, backward, update } where = At::before;

  void operator()(const Group& group, const Point& point) const {
    using torch::nn::Linear;
    Linear first(64, 64), second(64, 64), third(64, 64);
    torch::nn::Sequential net(first, second, third);
    ShardOptions own = options;
    own.units = {"Linear"};
    ShardedModel model(net.ptr(), group, own);
    const auto step = [&](const Point& reached) {
      const auto at = [&](At here) { here == where ? reached() : void(); };
      at(At::before);
      {
        const ShardedModel::Step scope(model);
        Tensor hidden = first->forward(at::ones({2, 64}));
        at(At::forward);
        hidden = second->forward(hidden);
        hidden = where == At::backward ? with_point(hidden, reached) : hidden;
        third->forward(hidden).sum().backward();
      }
      model.finish_backward();
      at(At::update);
      model.update_parameters();
    };
    step(Point());
    step(point);
    // Through shared memory a rank may run ahead, until it needs what the others have not sent.
    step(Point());
    step(Point());
  }
};

ShardOptions options_of(int stage, bool shared_memory, bool reshard = true) {
  ShardOptions out;
  out.stage = stage;
  out.shared_memory = shared_memory;
  out.reshard_after_forward = reshard;
  return out;
}

/// A stage for each rank, and six micro-batches.
void pipeline_step(const Group& group, const Point& point, parallel::PipelineWork work) {
  const auto plan = parallel::pipeline_schedule("1F1B", group.size(), 1, 6);
  torch::nn::Linear layer(8, 8);
  parallel::PipelineOptions options;
  options.around = [&](const parallel::PipelineEvent& event, const std::function<void()>& run) {
    if (event.action.work == work && event.action.micro_batch == 2) {
      point();
    }
    run();
  };
  parallel::PipelineSchedule schedule(
      plan, {{group.rank(), [&](const std::vector<Tensor>& in) { return std::vector<Tensor>{layer(in[0])}; }}}, group,
      options);
  const std::vector<std::vector<Tensor>> inputs(6, {at::ones({2, 8})});
  schedule.step(inputs, [](const std::vector<Tensor>& outputs, std::int64_t) { return outputs[0].sum(); });
}

void ring(const Group& group, const Point& before, const Point& in_backward) {
  const Tensor query = ones({1, 2, 8, 4});
  Tensor out = parallel::ring_attention(query, query, query, group);
  before();
  out = parallel::ring_attention(query, query, query, group);
  with_point(out, in_backward).sum().backward();
}

void save_shards(const Group& group, const Point& point, const std::string& mode) {
  const danling_test::TempDir directory;
  bool reached = false;
  const auto state = [&] {
    reached ? point() : void();
    danling::ShardedState out;
    out.state["weight"] = at::ones({4});
    out.places["weight"] = {{4 * group.size()}, {4 * group.rank()}};
    return out;
  };
  danling::CheckpointOptions options;
  options.directory = group.all_gather(directory.path().string()).front();
  options.interval = 1;
  options.async_mode = mode;
  danling::TorchDistributedCheckpointManager manager(options, group, state, state);
  for (std::int64_t step = 1; step < 4; ++step) {
    danling::CheckpointRequest request;
    request.epoch = step - 1;
    request.global_step = step;
    manager.save_checkpoint(request);
    reached = true;
  }
  manager.wait();
}

std::vector<FailureCase> kinds() {
  using At = ShardedSteps::At;
  const auto none = Point();
  return {
      {"rows of all units, shared memory", ShardedSteps{options_of(3, true), At::before}, {"the rows of all ranks"}},
      {"gather of a unit in the forward pass", ShardedSteps{options_of(3, false), At::forward}, {"start_all_gather"}},
      {"gather of a unit in the backward pass", ShardedSteps{options_of(3, false), At::backward}, {"start_all_gather"}},
      {"sum of gradients, shared memory",
       ShardedSteps{options_of(3, true), At::backward},
       {"the sum of gradients", "all_gather of bytes"}},
      {"sum of gradients",
       ShardedSteps{options_of(3, false, false), At::backward},
       {"start_all_to_all_single", "all_gather of bytes"}},
      {"sum of gradients, stage 2",
       ShardedSteps{options_of(2, false), At::backward},
       {"start_all_to_all_single", "all_gather of bytes"}},
      {"update_parameters of stage 1, shared memory",
       ShardedSteps{options_of(1, true), At::update},
       {"the rows of all ranks"}},
      {"update_parameters of stage 1", ShardedSteps{options_of(1, false), At::update}, {"start_all_gather"}},
      {"sum of a row-parallel layer",
       [](const Group& group, const Point& point) {
         point();
         parallel::reduce_from_group(ones({3, 4}), group);
       },
       {"all_reduce"}},
      {"sum of gradients of a column-parallel layer",
       [](const Group& group, const Point& point) {
         with_point(parallel::copy_to_group(ones({3, 4}), group) * 2, point).sum().backward();
       },
       {"all_reduce"}},
      {"gather of sequences",
       [](const Group& group, const Point& point) {
         point();
         parallel::gather_sequence(ones({2, 3, 4}), group);
       },
       {"all_gather of rows"}},
      {"gradients of gathered sequences",
       [](const Group& group, const Point& point) {
         with_point(parallel::gather_sequence(ones({2, 3, 4}), group), point).sum().backward();
       },
       {"reduce_scatter"}},
      {"cross entropy of a sliced vocabulary",
       [](const Group& group, const Point& point) {
         point();
         parallel::vocab_parallel_cross_entropy(ones({5, 4}), at::zeros({5}, at::kLong), group);
       },
       {"all_gather", "all_reduce"}},
      {"ring attention",
       [none](const Group& group, const Point& point) { ring(group, point, none); },
       {"message of rank", "message to rank"},
       true},
      {"gradients of ring attention",
       [none](const Group& group, const Point& point) { ring(group, none, point); },
       {"message of rank", "message to rank"},
       true},
      {"exchange of experts",
       [](const Group& group, const Point& point) {
         const std::vector<std::int64_t> counts(static_cast<std::size_t>(group.size()), 2);
         point();
         parallel::all_to_all(ones({2 * group.size(), 3}), group, counts, counts);
       },
       {"all_to_all"}},
      {"gradients of exchanged experts",
       [](const Group& group, const Point& point) {
         const std::vector<std::int64_t> counts(static_cast<std::size_t>(group.size()), 2);
         with_point(parallel::all_to_all(ones({2 * group.size(), 3}), group, counts, counts), point).sum().backward();
       },
       {"all_to_all"}},
      {"activations of a pipeline",
       [](const Group& group, const Point& point) { pipeline_step(group, point, parallel::PipelineWork::forward); },
       {"message of rank", "message to rank"},
       true},
      {"gradients of a pipeline",
       [](const Group& group, const Point& point) { pipeline_step(group, point, parallel::PipelineWork::backward); },
       {"message of rank", "message to rank"},
       true},
      {"save of shards",
       [](const Group& group, const Point& point) { save_shards(group, point, "disabled"); },
       {"all_gather of bytes"}},
      {"save of shards by a thread",
       [](const Group& group, const Point& point) { save_shards(group, point, "async"); },
       {"all_gather of bytes"}},
  };
}

TEST_CASE("Parallel failures: a rank that is killed in any collective is named by the others", "[parallel][failures]") {
  check_failures(kinds(), Ending::killed, {1, 0});
}

TEST_CASE("Parallel failures: the words of a rank that throws are those of the others", "[parallel][failures]") {
  check_failures(kinds(), Ending::threw, {1, 0});
}

TEST_CASE("Parallel failures: a rank that stops is named after the timeout", "[parallel][failures]") {
  check_failures(kinds(), Ending::stopped, {1, 2});
}

}  // namespace
}  // namespace parallel_failures_test
