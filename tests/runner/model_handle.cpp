// ModelHandle and CriterionHandle: modules, functions, weights and loss normalizers.
#include "fixture.hpp"

namespace runner_test {
namespace {

struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    norm = register_module("norm", torch::nn::BatchNorm1d(2));
    scale = register_parameter("scale", torch::ones({2}));
    offset = register_buffer("offset", torch::zeros({2}));
  }
  torch::Tensor forward(torch::Tensor x) { return norm(x) * scale + offset; }
  torch::nn::BatchNorm1d norm{nullptr};
  torch::Tensor scale, offset;
};
TORCH_MODULE(Block);

TEST_CASE("ModelHandle: holds a module or a function, and returns the concrete module", "[runner]") {
  dl::ModelHandle model;
  CHECK_FALSE(model);
  CHECK(error_of<dl::StateError>([&] { model(torch::ones({1})); }) ==
        "[runner.model] expected a model, got none; assign `model`, or check the name in `models[name]`");
  Block block;
  model = block;
  CHECK(model.as<Block>().ptr() == block.ptr());
  CHECK(&model.as<BlockImpl>() == block.get());
  CHECK(error_of<dl::StateError>([&] { model.as<torch::nn::Linear>(); }) ==
        "[runner.model] expected a model of type torch::nn::LinearImpl for as<T>(), got runner_test::(anonymous "
        "namespace)::BlockImpl");
  CHECK(error_of<dl::StateError>([] { dl::ModelHandle().as<Block>(); }) ==
        "[runner.model] expected a model of type runner_test::(anonymous namespace)::BlockImpl for as<T>(), got none; "
        "assign `model`");
  auto linear = std::make_shared<torch::nn::LinearImpl>(2, 3);
  model = linear;
  CHECK(model(torch::ones({1, 2})).equal(linear->forward(torch::ones({1, 2}))));
  model = [](const at::Tensor& x) { return x * 2; };
  CHECK(model(torch::ones({1})).item<float>() == 2.0F);
  CHECK(model.named_parameters().empty());
}

TEST_CASE("ModelHandle: the state has Python's names in Python's order", "[runner]") {
  // Python: nn.Module.state_dict() lists a module's parameters, its buffers, then its children.
  dl::ModelHandle model = Block();
  std::string names;
  const dl::State state = model.state_dict();
  for (const auto& entry : state.map()) {
    names += entry.key.string() + " ";
  }
  CHECK(names == "scale offset norm.weight norm.bias norm.running_mean norm.running_var norm.num_batches_tracked ");
}

TEST_CASE("ModelHandle: weights of another architecture are an error with their names, and the model does not change",
          "[runner]") {
  dl::ModelHandle model = torch::nn::Linear(2, 3);
  const auto before = dl::clone(model.state_dict());
  dl::ModelHandle other = torch::nn::Linear(4, 3);
  CHECK(error_of<dl::CheckpointError>([&] { model.load_state_dict(other.state_dict()); }) ==
        "[runner.load_model] expected weights of the same architecture, got 1 of another shape (weight is Float [3, 2] "
        "here and Float [3, 4] there)");
  dl::State wrong = dl::clone(model.state_dict());
  wrong.map().erase("bias");
  wrong["extra"] = torch::ones({1});
  CHECK(error_of<dl::CheckpointError>([&] { model.load_state_dict(wrong); }) ==
        "[runner.load_model] expected weights of the same architecture, got 1 missing (bias); 1 unexpected (extra)");
  CHECK(dl::bitwise_equal(before, model.state_dict()));
}

struct SumImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor a, torch::Tensor b) { return a + b; }
};
TORCH_MODULE(Sum);

TEST_CASE("ModelHandle: a module of two inputs is an error that names the steps to override", "[runner]") {
  dl::ModelHandle model = Sum();
  CHECK_THAT(error_of<dl::StateError>([&] { model(torch::ones({1})); }),
             ContainsSubstring("override train_step, evaluate_step and infer_step"));
}

TEST_CASE("CriterionHandle: the normalizer is the number of valid targets, or of all for a mean, or unknown",
          "[runner]") {
  const auto target = torch::tensor({1, -100, 2, 0}, torch::kLong);
  dl::CriterionHandle criterion = torch::nn::CrossEntropyLoss();
  CHECK(criterion.loss_normalizer(target) == 3);
  CHECK(criterion.loss_normalizer(target.to(torch::kInt)) == 3);
  criterion = torch::nn::CrossEntropyLoss(torch::nn::CrossEntropyLossOptions().ignore_index(0));
  CHECK(criterion.loss_normalizer(target) == 3);
  criterion = torch::nn::MSELoss();
  CHECK(criterion.loss_normalizer(torch::zeros({4, 2})) == 8);
  criterion = torch::nn::MSELoss(torch::nn::MSELossOptions(torch::kSum));
  CHECK_FALSE(criterion.loss_normalizer(torch::zeros({4, 2})));
  // As DanLing: ignored targets do not count with any reduction.
  criterion = torch::nn::CrossEntropyLoss(torch::nn::CrossEntropyLossOptions().reduction(torch::kSum));
  CHECK(criterion.loss_normalizer(target) == 3);
  criterion = [](const at::Tensor& prediction, const at::Tensor&) { return prediction.sum(); };
  CHECK_FALSE(criterion.loss_normalizer(target));
  CHECK_FALSE(dl::CriterionHandle(torch::nn::MSELoss()).loss_normalizer(at::Tensor()));
}

}  // namespace
}  // namespace runner_test
