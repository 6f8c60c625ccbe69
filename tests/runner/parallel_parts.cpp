// How a grid takes a model apart: its own slices beside a plan, and stages by names.
#include <danling/runner/parallel_parts.hpp>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <danling/parallel/parallelizable.hpp>

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
    return dl::detail::concat(net->calls, " call, ", net->fc->weight.size(0), " rows");
  });
  CHECK(parts == std::vector<std::string>(2, "1 call, 3 rows"));
}

struct StackedImpl : torch::nn::Module {
  StackedImpl() {
    body = register_module("body", torch::nn::Sequential(torch::nn::Linear(4, 4), torch::nn::Tanh()));
    head = register_module("head", torch::nn::Linear(4, 4));
  }
  at::Tensor forward(const at::Tensor& x) { return head(body->forward(x)); }
  torch::nn::Sequential body = nullptr;
  torch::nn::Linear head = nullptr;
};
TORCH_MODULE(Stacked);

TEST_CASE("ParallelRunner: stages run all modules of a Sequential in its order", "[runner][parallel]") {
  torch::nn::Sequential net;
  net->push_back("a", torch::nn::Linear(4, 4));
  net->push_back("relu", torch::nn::ReLU());
  net->push_back("b", torch::nn::Linear(4, 4));
  const auto error = [](const dl::ModelHandle& model, const std::vector<std::string>& stages) {
    return error_of<dl::ConfigError>([&] { dl::detail::check_stage_names(model, stages); });
  };
  const auto message = [](const std::string& of, const std::string& got) {
    return "[runner.build_pipeline_model_part] expected the modules of " + of +
           ", a Sequential, in its order in 'parallel.module_fqns_per_model_part', got " + got +
           "; a stage runs what it names and nothing else";
  };
  dl::detail::check_stage_names(net, {"a, relu", "b"});
  CHECK(error(net, {"a", "b"}) == message("the model", "'b' where 'relu' is next"));
  CHECK(error(net, {"b, relu", "a"}) == message("the model", "'b' where 'a' is next"));
  CHECK(error(net, {"a, relu", "b, relu"}) == message("the model", "'relu' where it has no more"));
  const Stacked stacked;
  dl::detail::check_stage_names(stacked, {"body", "head"});
  dl::detail::check_stage_names(stacked, {"body.0", "body.1, head"});
  CHECK(error(stacked, {"body.0", "head"}) == message("'body'", "none where 'body.1' is next"));
}

}  // namespace
}  // namespace runner_test
