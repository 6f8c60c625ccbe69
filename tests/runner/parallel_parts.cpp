// How a grid takes a model apart: its own slices beside a plan, and stages by names.
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <danling/parallel/parallelizable.hpp>
#include <danling/runner/parallel_parts.hpp>

#include "models.hpp"
#include "runner/stage_names.hpp"

namespace runner_test {
namespace {

struct OwnSlicesImpl : torch::nn::Module, dl::parallel::Parallelizable {
  OwnSlicesImpl() { fc = register_module("fc", torch::nn::Linear(4, 6)); }
  at::Tensor forward(const at::Tensor& x) { return fc(x); }
  void parallelize(const dl::ParallelContext&) override { ++calls; }
  torch::nn::Linear fc = nullptr;
  int calls = 0;
};
TORCH_MODULE(OwnSlices);

TEST_CASE("ParallelRunner: a plan comes after the model's own parallelize(), not in its place", "[runner][parallel]") {
  const auto parts = danling_test::run_ranks(2, [](const dl::Group& group) {
    OwnSlices net;
    dl::ModelHandle handle = net;
    const dl::ParallelContext context(dl::ParallelTopology(2, group.rank(), {{"tensor", 2}}), group);
    dl::detail::parallelize(handle, context, {"fc$=colwise"});
    return std::pair(net->calls, net->fc->weight.size(0));
  });
  CHECK(parts == std::vector<std::pair<int, std::int64_t>>{{1, 3}, {1, 3}});
}

TEST_CASE("ParallelRunner: stages run all modules of a Sequential in its order", "[runner][parallel]") {
  torch::nn::Sequential inner(torch::nn::Linear(4, 4), torch::nn::Tanh());
  torch::nn::Sequential net;
  net->push_back("a", torch::nn::Linear(4, 4));
  net->push_back("relu", torch::nn::ReLU());
  net->push_back("b", inner);
  const auto error = [&](const std::vector<std::string>& stages) {
    return error_of<dl::ConfigError>([&] { dl::detail::check_stage_names(net, stages); });
  };
  const std::string begin =
      "[runner.build_pipeline_model_part] expected the modules of the model, a Sequential, in its order in "
      "'parallel.module_fqns_per_model_part', got ";
  const std::string end = "; a stage runs what it names and nothing else";
  dl::detail::check_stage_names(net, {"a, relu", "b"});
  dl::detail::check_stage_names(net, {"a", "relu, b.0, b.1"});
  CHECK(error({"a", "b"}) == begin + "'b.0' where 'relu' is next" + end);
  CHECK(error({"a, relu", "b.0"}) == begin + "none where 'b.1' is next" + end);
  CHECK(error({"b", "a, relu"}) == begin + "'b.0' where 'a' is next" + end);
  CHECK(error({"a, relu", "b, relu"}) == begin + "'relu' where it has no more" + end);
}

}  // namespace
}  // namespace runner_test
