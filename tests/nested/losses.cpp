// Losses of nested tensors are those of all valid positions, whatever the padding of plain targets contains.
#include <danling/core/error.hpp>

#include <nested/per_element.hpp>

namespace nested_losses {
namespace {

namespace F = torch::nn::functional;
using danling::NestedTensor;
using torch::Tensor;

struct Batch {
  std::vector<Tensor> inputs, targets;
};

/// A batch of elements (length, columns), with targets by `make`.
template <class Make>
Batch batch_of(std::int64_t columns, const Make& make) {
  torch::manual_seed(5);
  Batch out;
  for (const std::int64_t length : {4, 1, 6}) {
    out.inputs.push_back(torch::randn({length, columns}));
    out.targets.push_back(make(length));
  }
  return out;
}

struct Loss {
  std::string name;
  std::function<Tensor(std::int64_t length)> target;
  std::function<Tensor(const Tensor& input, const Tensor& target, int reduction)> call;
};

const std::int64_t num_classes = 5;
Tensor labels(std::int64_t length) { return torch::randint(0, num_classes, {length}, torch::kLong); }
Tensor like_input(std::int64_t length) { return torch::randn({length, num_classes}); }
Tensor chances(std::int64_t length) { return torch::rand({length, num_classes}); }
Tensor signs(std::int64_t length) { return torch::randint(0, 2, {length, num_classes}).to(torch::kFloat) * 2 - 1; }
/// Numbers of classes, up to a negative one.
Tensor class_lists(std::int64_t length) {
  return torch::tensor({1, 3, -1, 0, 0}).expand({length, num_classes}).contiguous();
}
Tensor row_signs(std::int64_t length) { return torch::randint(0, 2, {length}).to(torch::kFloat) * 2 - 1; }

const std::vector<Loss>& losses() {
  static const Tensor weight = torch::linspace(0.5, 2, num_classes);
  static const std::vector<Loss> all = {
      {"cross_entropy", labels,
       [](const Tensor& x, const Tensor& y, int r) { return torch::cross_entropy_loss(x, y, {}, r); }},
      {"cross_entropy, weighted", labels,
       [](const Tensor& x, const Tensor& y, int r) { return torch::cross_entropy_loss(x, y, weight, r); }},
      {"cross_entropy, ignoring", labels,
       [](const Tensor& x, const Tensor& y, int r) { return torch::cross_entropy_loss(x, y, weight, r, 2); }},
      {"cross_entropy, smoothed", labels,
       [](const Tensor& x, const Tensor& y, int r) { return torch::cross_entropy_loss(x, y, {}, r, -100, 0.1); }},
      {"cross_entropy of probabilities", chances,
       [](const Tensor& x, const Tensor& y, int r) { return torch::cross_entropy_loss(x, y, {}, r); }},
      {"nll", labels,
       [](const Tensor& x, const Tensor& y, int r) { return torch::nll_loss_nd(x.log_softmax(-1), y, {}, r); }},
      {"nll, weighted and ignoring", labels,
       [](const Tensor& x, const Tensor& y, int r) { return torch::nll_loss(x.log_softmax(-1), y, weight, r, 1); }},
      {"mse", like_input, [](const Tensor& x, const Tensor& y, int r) { return torch::mse_loss(x, y, r); }},
      {"l1", like_input, [](const Tensor& x, const Tensor& y, int r) { return torch::l1_loss(x, y, r); }},
      {"smooth_l1", like_input, [](const Tensor& x, const Tensor& y, int r) { return torch::smooth_l1_loss(x, y, r); }},
      {"huber", like_input, [](const Tensor& x, const Tensor& y, int r) { return torch::huber_loss(x, y, r, 0.7); }},
      {"kl_div", chances,
       [](const Tensor& x, const Tensor& y, int r) { return torch::kl_div(x.log_softmax(-1), y, r); }},
      {"binary_cross_entropy", chances,
       [](const Tensor& x, const Tensor& y, int r) { return torch::binary_cross_entropy(x.sigmoid(), y, {}, r); }},
      {"binary_cross_entropy_with_logits", chances,
       [](const Tensor& x, const Tensor& y, int r) {
         return torch::binary_cross_entropy_with_logits(x, y, {}, weight, r);
       }},
      {"soft_margin", signs, [](const Tensor& x, const Tensor& y, int r) { return torch::soft_margin_loss(x, y, r); }},
      {"hinge_embedding", signs,
       [](const Tensor& x, const Tensor& y, int r) { return torch::hinge_embedding_loss(x, y, 1, r); }},
      {"poisson_nll", chances,
       [](const Tensor& x, const Tensor& y, int r) { return torch::poisson_nll_loss(x, y, true, true, 1e-8, r); }},
      {"margin_ranking", signs,
       [](const Tensor& x, const Tensor& y, int r) { return torch::margin_ranking_loss(x, x * 0.5, y, 0.1, r); }},
      {"cosine_embedding", row_signs,
       [](const Tensor& x, const Tensor& y, int r) { return torch::cosine_embedding_loss(x, x.exp(), y, 0.1, r); }},
      {"triplet_margin", like_input,
       [](const Tensor& x, const Tensor& y, int r) {
         return torch::triplet_margin_loss(x, y, x.square(), 1, 2, 1e-6, false, r);
       }},
      {"multilabel_margin", class_lists,
       [](const Tensor& x, const Tensor& y, int r) { return torch::multilabel_margin_loss(x, y, r); }},
      {"multi_margin", labels,
       [](const Tensor& x, const Tensor& y, int r) { return torch::multi_margin_loss(x, y, 1, 1, {}, r); }},
  };
  return all;
}

TEST_CASE("NestedTensor: losses are those of all valid positions, with nested targets and padded ones", "[nested]") {
  for (const Loss& loss : losses()) {
    const Batch batch = batch_of(num_classes, loss.target);
    for (const int reduction : {at::Reduction::Mean, at::Reduction::Sum, at::Reduction::None}) {
      for (const bool plain_target : {false, true}) {
        INFO(loss.name << ", reduction " << reduction << (plain_target ? ", padded target" : ""));
        const NestedTensor x(batch.inputs, {.requires_grad = true}), targets(batch.targets, {.padding_value = 3});
        const Tensor target = plain_target ? targets.tensor() : Tensor(targets);
        const Tensor got = loss.call(x, target, reduction);
        const Tensor all = torch::cat(batch.inputs).requires_grad_();
        const Tensor expected = loss.call(all, torch::cat(batch.targets), reduction);
        CHECK(NestedTensor::is_nested(got) == (reduction == at::Reduction::None));
        const Tensor values = NestedTensor::is_nested(got) ? NestedTensor(got).concat() : got;
        CHECK(per_element::close(values, expected));
        if (NestedTensor::is_nested(got)) {
          CHECK(NestedTensor(got).offsets().equal(x.offsets()));
        }
        per_element::loss_of(values).backward();
        per_element::loss_of(expected).backward();
        CHECK(per_element::close(NestedTensor(x.grad()).concat(), all.grad()));
      }
    }
  }
}

TEST_CASE("NestedTensor: classes are dimension 1 where it is static, as LibTorch counts", "[nested]") {
  torch::manual_seed(6);
  const std::vector<Tensor> inputs = {torch::randn({num_classes, 4}), torch::randn({num_classes, 2})};
  const std::vector<Tensor> targets = {labels(4), labels(2)};
  const NestedTensor x(inputs, {.requires_grad = true}), y(targets);
  Tensor sum = torch::zeros({});
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    sum = sum + torch::cross_entropy_loss(inputs[i].t(), targets[i], {}, at::Reduction::Sum);
  }
  CHECK(torch::cross_entropy_loss(x, y).allclose(sum / 6));
  CHECK(torch::cross_entropy_loss(x.tensor(), y).allclose(sum / 6));
  CHECK(torch::cross_entropy_loss(x, y.tensor(), {}, at::Reduction::Sum).allclose(sum));
}

TEST_CASE("NestedTensor: the losses of torch::nn take nested tensors", "[nested]") {
  const Batch batch = batch_of(num_classes, like_input), classes = batch_of(num_classes, labels),
              rates = batch_of(num_classes, chances);
  const NestedTensor x(batch.inputs), y(batch.targets), labelled(classes.targets), likely(rates.targets);
  const Tensor all = torch::cat(batch.inputs), target = torch::cat(batch.targets), label = torch::cat(classes.targets),
               rate = torch::cat(rates.targets);
  CHECK(torch::nn::MSELoss()(x, y).allclose(torch::nn::MSELoss()(all, target)));
  CHECK(torch::nn::MSELoss()(x, y.tensor()).allclose(torch::nn::MSELoss()(all, target)));
  CHECK(torch::nn::L1Loss()(x, y).allclose(torch::nn::L1Loss()(all, target)));
  CHECK(torch::nn::SmoothL1Loss()(x, y).allclose(torch::nn::SmoothL1Loss()(all, target)));
  CHECK(torch::nn::HuberLoss()(x, y).allclose(torch::nn::HuberLoss()(all, target)));
  CHECK(torch::nn::CrossEntropyLoss()(x, labelled).allclose(torch::nn::CrossEntropyLoss()(all, label)));
  CHECK(torch::nn::NLLLoss()(x.log_softmax(-1), labelled).allclose(torch::nn::NLLLoss()(all.log_softmax(-1), label)));
  CHECK(torch::nn::BCELoss()(x.sigmoid(), likely).allclose(torch::nn::BCELoss()(all.sigmoid(), rate)));
  CHECK(torch::nn::BCEWithLogitsLoss()(x, likely).allclose(torch::nn::BCEWithLogitsLoss()(all, rate)));
  CHECK(torch::nn::KLDivLoss()(x.log_softmax(-1), likely).allclose(torch::nn::KLDivLoss()(all.log_softmax(-1), rate)));
  CHECK(torch::nn::PoissonNLLLoss()(x, likely).allclose(torch::nn::PoissonNLLLoss()(all, rate)));
  CHECK(torch::nn::MultiLabelSoftMarginLoss()(x, likely).allclose(torch::nn::MultiLabelSoftMarginLoss()(all, rate)));
  CHECK(F::cross_entropy(x, labelled, F::CrossEntropyFuncOptions().reduction(torch::kSum))
            .allclose(F::cross_entropy(all, label, F::CrossEntropyFuncOptions().reduction(torch::kSum))));
}

TEST_CASE("NestedTensor: a loss names the shapes that do not fit", "[nested]") {
  const NestedTensor x({torch::randn({3, 5}), torch::randn({2, 5})});
  const NestedTensor shorter({torch::zeros({2}, torch::kLong), torch::zeros({2}, torch::kLong)});
  CHECK_THROWS_WITH(torch::cross_entropy_loss(x, shorter),
                    ContainsSubstring("[nested_tensor.cross_entropy_loss] expected a target of the input's lengths "
                                      "(3, 5), (2, 5), got elements (2), (2)"));
  CHECK_THROWS_WITH(torch::cross_entropy_loss(x, torch::zeros({2, 4}, torch::kLong)),
                    ContainsSubstring("expected a target padded to the input's longest sizes, or nested, of its "
                                      "lengths (3, 5), (2, 5), got one of shape (2, 4)"));
  CHECK_THROWS_WITH(torch::cross_entropy_loss(x, torch::zeros({2}, torch::kLong)),
                    ContainsSubstring("got one of shape (2)"));
  CHECK_THROWS_WITH(torch::mse_loss(x, NestedTensor({torch::randn({2, 5}), torch::randn({3, 5})})),
                    ContainsSubstring("[nested_tensor.mse_loss] expected NestedTensors of the same ragged sizes, got "
                                      "(3, 5), (2, 5) and (2, 5), (3, 5)"));
  CHECK_THROWS_WITH(
      torch::mse_loss(x, torch::randn({2, 4, 5})),
      ContainsSubstring("[nested_tensor.mse_loss] expected a tensor that broadcasts to the padded shape"));
}

TEST_CASE("NestedTensor: a mean over no position is NaN, as LibTorch's", "[nested]") {
  const NestedTensor x({torch::randn({0, 5}), torch::randn({0, 5})});
  const NestedTensor y({torch::zeros({0}, torch::kLong), torch::zeros({0}, torch::kLong)});
  CHECK(torch::cross_entropy_loss(x, y).isnan().item<bool>());
  CHECK(torch::cross_entropy_loss(x, y, {}, at::Reduction::Sum).item<float>() == 0);
}

}  // namespace
}  // namespace nested_losses
