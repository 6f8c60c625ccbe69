#include "fixture.hpp"

#include <danling/runner/window.hpp>

namespace runner_test {

TEST_CASE("AccumulationWindow: micro-batches weigh by their normalizers and the divisor is their sum", "[runner]") {
  dl::AccumulationWindow window;
  window.reset();
  window.begin_micro_batch(5, false);
  CHECK(window.weight() == 5.0 / 4);  // in units of four, the power of two below the first
  window.begin_micro_batch(2, false);
  CHECK(window.weight() == 2.0 / 4);
  CHECK(window.divisor() == 7.0 / 4);
  window.round_weight(0.25);
  CHECK(window.divisor() == 6.0 / 4);
  window.reset();
  window.begin_micro_batch(3, false);
  CHECK(window.weight() == 3.0 / 2);
  window.reset();
  window.begin_micro_batch(5, /*alone=*/true);
  CHECK(window.weight() == 1.0);
  CHECK(window.divisor() == 1.0);
}

TEST_CASE("AccumulationWindow: without normalizers micro-batches count the same", "[runner]") {
  dl::AccumulationWindow window;
  window.begin_micro_batch(std::nullopt, false);
  window.begin_micro_batch(9, false);  // the first one decides
  CHECK(window.weight() == 1.0);
  CHECK(window.divisor() == 2.0);
}

TEST_CASE("AccumulationWindow: a micro-batch without a valid target counts nothing", "[runner]") {
  dl::AccumulationWindow window;
  window.begin_micro_batch(0, false);
  CHECK(window.weight() == 0.0);
  window.begin_micro_batch(4, false);
  CHECK(window.weight() == 1.0);
  CHECK(window.divisor() == 1.0);
}

TEST_CASE("AccumulationWindow: processes divide alike, also one without a valid target", "[runner]") {
  dl::AccumulationWindow with;
  dl::AccumulationWindow without;
  for (auto* window : {&with, &without}) {
    window->share(true);
    window->reset();
    window->begin_micro_batch(window == &with ? 12 : 0, false);
  }
  CHECK(with.total() == 12.0);
  CHECK(without.total() == 0.0);
  for (auto* window : {&with, &without}) {
    window->set_total(12.0);
    CHECK(window->divisor() == with.weight());  // the gradient of both is that of the one micro-batch
  }
}

TEST_CASE("AccumulationWindow: processes without normalizers add up their micro-batches", "[runner]") {
  dl::AccumulationWindow window;
  window.share(true);
  window.reset();
  window.begin_micro_batch(std::nullopt, true);
  CHECK(window.total() == 1.0);
  window.set_total(2.0);
  CHECK(window.divisor() == 2.0);
}

TEST_CASE("AccumulationWindow: a normalizer that goes missing is an error", "[runner]") {
  dl::AccumulationWindow window;
  window.begin_micro_batch(4, false);
  CHECK(danling_test::error_of<dl::StateError>([&] { window.begin_micro_batch(std::nullopt, false); }) ==
        "[runner.accumulate] expected a loss normalizer for every micro-batch of a window that began with one, got "
        "none; give all batches a loss_normalizer or none");
}

dl::Result split_result(double loss, double acc) {
  dl::Result result;
  result["val"].set("loss", loss);
  result["val"].set("acc", acc);
  return result;
}

TEST_CASE("ResultBook: a loss is best when low, anything else when high, and the latest wins a tie", "[runner]") {
  dl::ResultBook book;
  CHECK(book.is_best());
  CHECK(book.best_index() == 0);
  book.select("val", "loss");
  book.append(0, split_result(0.5, 0.9));
  CHECK(book.is_best());
  book.append(1, split_result(0.7, 0.95));
  CHECK_FALSE(book.is_best());
  CHECK(book.best_index() == 0);
  book.select("val", "acc");
  CHECK(book.is_best());
  CHECK(book.best_index() == 1);
  book.append(2, split_result(0.6, 0.95));
  CHECK(book.best_index() == 2);
  CHECK(book.best_score() == 0.95);
}

TEST_CASE("ResultBook: without a score nothing is best, and NaN never is", "[runner]") {
  dl::ResultBook book;
  book.select("val", "auroc");
  book.append(0, split_result(0.5, 0.9));
  CHECK_FALSE(book.is_best());
  CHECK_FALSE(book.best_score());
  book.select("val", "loss");
  book.append(1, split_result(std::nan(""), 0.1));
  CHECK(book.best_index() == 0);
  CHECK_FALSE(book.is_best());
}

TEST_CASE("ResultBook: its state restores rows and nested results", "[runner]") {
  dl::ResultBook book;
  book.append(3, split_result(0.25, 0.5));
  dl::ResultBook other;
  other.load_state_dict(book.state_dict());
  REQUIRE(other.rows().size() == 1);
  CHECK(other.rows()[0].index == 3);
  CHECK(*other.rows()[0].result.number("val.acc") == 0.5);
}

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

TEST_CASE("ModelHandle: takes a holder, a shared module or a function, and gives the concrete type back", "[runner]") {
  dl::ModelHandle model;
  CHECK_FALSE(model);
  CHECK(danling_test::error_of<dl::StateError>([&] { model(torch::ones({1})); }) ==
        "[runner.model] expected a model, got none; assign `model` first");
  Block block;
  model = block;
  CHECK(model.as<Block>().ptr() == block.ptr());
  CHECK(&model.as<BlockImpl>() == block.get());
  CHECK_THROWS_AS(model.as<torch::nn::Linear>(), dl::StateError);
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

TEST_CASE("ModelHandle: weights of another architecture are refused by name and leave the model as it was",
          "[runner]") {
  dl::ModelHandle model = torch::nn::Linear(2, 3);
  const auto before = dl::clone(model.state_dict());
  dl::ModelHandle other = torch::nn::Linear(4, 3);
  CHECK(danling_test::error_of<dl::CheckpointError>([&] { model.load_state_dict(other.state_dict()); }) ==
        "[runner.load_model] expected weights of the same architecture, got 1 of another shape (weight is Float [3, 2] "
        "here and Float [3, 4] there)");
  dl::State wrong = dl::clone(model.state_dict());
  wrong.map().erase("bias");
  wrong["extra"] = torch::ones({1});
  CHECK(danling_test::error_of<dl::CheckpointError>([&] { model.load_state_dict(wrong); }) ==
        "[runner.load_model] expected weights of the same architecture, got 1 missing (bias); 1 unexpected (extra)");
  CHECK(dl::identical(before, model.state_dict()));
}

struct PairImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor a, torch::Tensor b) { return a + b; }
};
TORCH_MODULE(Pair);

TEST_CASE("ModelHandle: a module whose forward takes something else says what to override", "[runner]") {
  dl::ModelHandle model = Pair();
  CHECK_THAT(danling_test::error_of<dl::StateError>([&] { model(torch::ones({1})); }),
             ContainsSubstring("override train_step, evaluate_step and infer_step"));
}

TEST_CASE("CriterionHandle: the normalizer counts valid targets, or all of a mean, or is unknown", "[runner]") {
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
  // As DanLing: what is ignored is left out whatever the reduction.
  criterion = torch::nn::CrossEntropyLoss(torch::nn::CrossEntropyLossOptions().reduction(torch::kSum));
  CHECK(criterion.loss_normalizer(target) == 3);
  criterion = [](const at::Tensor& prediction, const at::Tensor&) { return prediction.sum(); };
  CHECK_FALSE(criterion.loss_normalizer(target));
  CHECK_FALSE(dl::CriterionHandle(torch::nn::MSELoss()).loss_normalizer(at::Tensor()));
}

TEST_CASE("PrecisionContext: restores what was set, also when nested", "[runner]") {
  const auto x = torch::ones({2, 2});
  {
    const dl::PrecisionContext outer(at::kCPU, at::kBFloat16);
    CHECK(torch::mm(x, x).scalar_type() == at::kBFloat16);
    {
      const dl::PrecisionContext inner(at::kCPU, std::nullopt);
      CHECK(torch::mm(x, x).scalar_type() == at::kBFloat16);
    }
  }
  CHECK(torch::mm(x, x).scalar_type() == at::kFloat);
}

}  // namespace runner_test
