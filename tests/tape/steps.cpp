// Replays of steps that are more than a loss and its backward pass.
#include <tape/steps.hpp>

#include <torch/script.h>

namespace {
using namespace tape_test;
namespace nn = torch::nn;

TEST_CASE("Tape: replays of operators that join, divide and choose", "[tape]") {
  check_replays(small([](const at::Tensor& weight, const at::Tensor& x) {
    const at::Tensor both = torch::cat({weight * x, x, weight}, 1);
    const auto parts = both.split({5, 4, 3}, 1);
    const auto chunks = torch::stack({weight, x}).chunk(2);
    const at::Tensor order = x.argsort(int64_t{1});
    const at::Tensor gathered = torch::gather(weight, 1, order);
    const at::Tensor chosen = torch::where(x > 0, weight, x * 2);
    const at::Tensor rows = weight.index_select(0, order.select(0, 0).clamp_max(2));
    const at::Tensor added = torch::zeros({3, 4}).scatter_add(1, order, weight);
    const auto sorted = weight.sort(1);
    const auto top = torch::topk(x * weight, 2, 1);
    const at::Tensor filled = weight.masked_fill(x < 0, 0.5);
    const at::Tensor padded = torch::constant_pad_nd(weight, {1, 2}, 3.0);
    const at::Tensor sums = torch::cumsum(weight.flip({0}), 1).roll({1}, {0});
    return parts[0].sum() + parts[1].square().sum() + parts[2].exp().sum() + (chunks[0] * chunks[1]).sum() +
           (gathered * chosen).sum() + rows.sum() + added.square().sum() + std::get<0>(sorted).select(1, 0).sum() +
           std::get<0>(top).sum() + filled.sum() + padded.sum() + sums.tril().sum() +
           torch::einsum("ij,kj->ik", {weight, x}).sum() + std::get<0>(weight.max(1)).sum() + weight.var(1).sum();
  }));
}

TEST_CASE("Tape: replays of changes in place", "[tape]") {
  check_replays(small([](const at::Tensor& weight, const at::Tensor& x) {
    at::Tensor y = weight * x;
    y += x;
    y.mul_(2).sub_(0.5).div_(3);
    y.mul_(x);
    y[0].add_(1);
    y.select(1, 2).copy_(x.select(1, 0));
    y.slice(0, 1, 3).neg_();
    y.index_put_({x > 1}, 0.25);
    y.clamp_(-1, 1);
    y += y.mean();
    return y.square().sum();
  }));
  // Changes the batch and a parameter; both stay changed.
  check_replays(small([](const at::Tensor& weight, const at::Tensor& x) {
    {
      const torch::NoGradGuard no_grad;
      weight.mul_(0.9);
      x.add_(weight);
      x.relu_();
    }
    return (weight * x).sum();
  }));
}

TEST_CASE("Tape: a change in place reads what was there", "[tape]") {
  check_replays(small([](const at::Tensor& weight, const at::Tensor& x) {
    const torch::NoGradGuard no_grad;
    at::Tensor sum = torch::zeros({3, 4});
    for (int i = 0; i < 5; ++i) {
      at::Tensor term = torch::full({3, 4}, 0.5 * i);
      term.mul_(x);
      sum.add_(term);
      sum.add_(sum);
    }
    at::Tensor ones = torch::ones({3, 4});
    const at::Tensor before = ones + 0;
    ones.add_(sum);
    const torch::AutoGradMode with_grad(true);
    return (weight * ones * sum * before).sum();
  }));
}

TEST_CASE("Tape: replays of two backward passes through one graph", "[tape]") {
  Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); });
  subject.step = [weight = subject.held[0]](const Tensors& batch, StepObserver* observer) -> Tensors {
    const at::Tensor hidden = (weight * batch[0]).tanh();
    const at::Tensor first = hidden.square().sum();
    const at::Tensor second = hidden.exp().mean();
    backward(first, observer, /*retain_graph=*/true);
    backward(second, observer);
    return {first.detach(), second.detach(), hidden.detach()};
  };
  check_replays(subject);
  subject.accumulates = true;
  check_replays(subject);
}

TEST_CASE("Tape: replays of a gradient's gradient", "[tape]") {
  check_replays(small([](const at::Tensor& weight, const at::Tensor& x) {
    const at::Tensor y = (weight * x).tanh().sum();
    const at::Tensor slope = torch::autograd::grad({y}, {weight}, {}, true, /*create_graph=*/true)[0];
    return y + slope.norm();
  }));
}

TEST_CASE("Tape: replays that add to gradients of the step before", "[tape]") {
  nn::Sequential net(nn::Linear(7, 6), nn::ReLU(), nn::Linear(6, 5));
  Subject subject = classifier(net, {4, 7});
  subject.accumulates = true;
  check_replays(subject);
}

TEST_CASE("Tape: micro-batches in turn, one tape without and one with gradients", "[tape]") {
  torch::manual_seed(1);
  nn::Sequential net(nn::Linear(7, 6), nn::Dropout(0.5), nn::Linear(6, 5));
  Subject first = classifier(net, {4, 7});
  Subject second = first;
  second.accumulates = true;
  const auto arena = std::make_shared<tape::Arena>();
  const auto one = make_tape(first, arena);
  const auto two = make_tape(second, arena);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  for (std::uint64_t seed = 20; seed < 26; ++seed) {
    CAPTURE(seed);
    const at::Tensor random_before = generator.get_state();
    first.reset_gradients(seed);
    Tensors expected = copies_of(first.step(first.batch(seed), nullptr));
    const Tensors expected_second = copies_of(first.step(first.batch(seed + 100), nullptr));
    const Tensors expected_gradients = copies_of(first.gradients());
    generator.set_state(random_before);
    first.reset_gradients(seed);
    const Tensors outputs = one->replay(first.batch(seed));
    const Tensors outputs_second = two->replay(first.batch(seed + 100));
    check_same(outputs, expected, "first");
    check_same(outputs_second, expected_second, "second");
    check_same(first.gradients(), expected_gradients, "gradients");
    first.update();
  }
}

TEST_CASE("Tape: replays of a loss over views of the batch", "[tape]") {
  Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) {
    return (weight.slice(1, 0, 2) * x.slice(1, 2, 4)).sum() + x.t()[3].max() + weight.diagonal().sum() +
           (weight.view({2, 6}) * x.reshape({2, 6})).sum() + x.expand({2, 3, 4}).mean();
  });
  check_replays(subject);
  subject.batch = [](std::uint64_t seed) -> Tensors { return {random({5, 4}, seed).slice(0, 1, 4)}; };
  check_replays(subject);
  subject.batch = [](std::uint64_t seed) -> Tensors { return {random({4, 3}, seed).t()}; };
  check_replays(subject);
}

TEST_CASE("Tape: replays where parameters are unused, frozen or shared", "[tape]") {
  nn::Linear used(7, 5);
  nn::Linear unused(3, 2);
  nn::Linear frozen(7, 7);
  frozen->weight.set_requires_grad(false);
  frozen->bias.set_requires_grad(false);
  Subject subject = classifier(used, {4, 7});
  subject.hold(*unused);
  subject.hold(*frozen);
  subject.step = classifying([=](const at::Tensor& x) mutable { return used(frozen(x)) + used(x.neg()); });
  check_replays(subject);
  subject.accumulates = true;
  check_replays(subject);
}

struct Clipped : torch::autograd::Function<Clipped> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, double limit) {
    context->save_for_backward({x});
    context->saved_data["limit"] = limit;
    return x.clamp(-limit, limit);
  }
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors gradients) {
    const at::Tensor x = context->get_saved_variables()[0];
    return {gradients[0] * (x.abs() < context->saved_data["limit"].toDouble()), at::Tensor()};
  }
};

TEST_CASE("Tape: replays of a function with a backward pass of its own", "[tape]") {
  check_replays(small(
      [](const at::Tensor& weight, const at::Tensor& x) { return Clipped::apply(weight * x, 0.5).square().sum(); }));
}

TEST_CASE("Tape: replays of a TorchScript module", "[tape]") {
  auto module = std::make_shared<torch::jit::Module>("scripted");
  module->register_parameter("weight", random({4, 5}, 1).set_requires_grad(true), /*is_buffer=*/false);
  module->register_buffer("calls", torch::zeros({1}));
  module->define(R"(
    def forward(self, x):
        self.calls.add_(1)
        y = torch.relu(torch.mm(x, self.weight))
        for i in range(3):
            y = torch.tanh(y) * 2 + 0.1
        if x.size(0) > 2:
            y = y + y.mean()
        return torch.dropout(y, 0.25, True)
  )");
  Subject subject;
  subject.hold("weight", module->attr("weight").toTensor());
  subject.hold("calls", module->attr("calls").toTensor());
  subject.step = classifying([module](const at::Tensor& x) { return module->forward({x}).toTensor(); });
  subject.batch = [](std::uint64_t seed) -> Tensors { return {random({3, 4}, seed), random_labels(5, {3}, seed)}; };
  check_replays(subject);
}

TEST_CASE("Tape: replays of evaluations, without gradients and in inference mode", "[tape]") {
  nn::Sequential net(nn::Conv2d(2, 6, 3), nn::BatchNorm2d(6), nn::ReLU(), nn::MaxPool2d(2), nn::Dropout(),
                     nn::Flatten(), nn::Linear(24, 5));
  net->eval();
  Subject subject = classifier(net, {4, 2, 6, 6});
  const std::function<Tensors(const Tensors&)> evaluate = [net](const Tensors& batch) mutable -> Tensors {
    const at::Tensor scores = net->forward(batch[0]);
    return {torch::nn::functional::cross_entropy(scores, batch[1]), scores, scores.argmax(1)};
  };
  subject.step = [evaluate](const Tensors& batch, StepObserver*) -> Tensors {
    const torch::NoGradGuard no_grad;
    return evaluate(batch);
  };
  check_replays(subject);
  subject.step = [evaluate](const Tensors& batch, StepObserver*) -> Tensors { return evaluate(batch); };
  const c10::InferenceMode inference;
  check_replays(subject);
  const auto replayed = make_tape(subject);
  CHECK(replayed->replay(subject.batch(4))[0].is_inference());
}

TEST_CASE("Tape: a step that returns its batch, a parameter, nothing, or the same tensor twice", "[tape]") {
  Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); });
  subject.step = [weight = subject.held[0]](const Tensors& batch, StepObserver*) -> Tensors {
    const torch::NoGradGuard no_grad;
    const at::Tensor product = weight * batch[0];
    return {product, batch[0], weight.detach(), at::Tensor(), product, product.t(), batch[0].select(0, 1)};
  };
  check_replays(subject);
  const auto replayed = make_tape(subject);
  const Tensors batch = subject.batch(3);
  const Tensors outputs = replayed->replay(batch);
  CHECK(outputs[1].is_same(batch[0]));
  CHECK(outputs[4].is_same(outputs[0]));
  CHECK(outputs[5].is_alias_of(outputs[0]));
}

TEST_CASE("Tape: an empty batch", "[tape]") {
  nn::Linear net(7, 5);
  Subject subject = classifier(net, {0, 7});
  subject.step = [net](const Tensors& batch, StepObserver* observer) mutable -> Tensors {
    const at::Tensor loss = torch::relu(net(batch[0])).sum();
    backward(loss, observer);
    return {loss.detach()};
  };
  check_replays(subject);
}

TEST_CASE("Tape: random numbers of a generator that the step was given", "[tape]") {
  auto own = std::make_shared<at::Generator>(seeded(1));
  Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); });
  subject.step = [weight = subject.held[0], own](const Tensors& batch, StepObserver* observer) -> Tensors {
    const at::Tensor mask = torch::empty({3, 4}).bernoulli_(0.5, *own);
    const at::Tensor noise = torch::randn({3, 4}, *own) + torch::rand({3, 4});
    const at::Tensor loss = (weight * batch[0] * mask + noise).sum();
    backward(loss, observer);
    return {loss.detach(), at::Tensor(mask)};
  };
  const auto replayed = make_tape(subject);
  for (std::uint64_t seed = 10; seed < 15; ++seed) {
    const at::Tensor before = own->get_state();
    const Outcome expected = eager_outcome(subject, seed);
    const at::Tensor after = own->get_state();
    own->set_state(before);
    subject.reset_gradients(seed);
    const Tensors batch = subject.batch(seed);
    const Tensors outputs = replayed->replay(batch);
    check_same(Outcome::of(subject, outputs, batch), expected);
    CHECK(tape::same_bits(own->get_state(), after));
  }
}

}  // namespace
