// The outputs of a replay, and the host functions that it calls.
#include <tape/steps.hpp>

namespace {
using namespace tape_test;
namespace nn = torch::nn;

Subject net() { return classifier(nn::Sequential(nn::Linear(7, 6), nn::ReLU(), nn::Linear(6, 5)), {4, 7}); }

TEST_CASE("Tape: outputs and gradients that somebody holds stay as they were", "[tape]") {
  const Subject subject = net();
  const auto replayed = make_tape(subject);
  std::vector<Tensors> kept;
  std::vector<Tensors> copies;
  for (std::uint64_t seed = 10; seed < 15; ++seed) {
    subject.reset_gradients(seed);
    Tensors now = replayed->replay(subject.batch(seed));
    for (const at::Tensor& gradient : subject.gradients()) {
      now.push_back(gradient);
    }
    copies.push_back(copies_of(now));
    kept.push_back(now);
    subject.update();
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    CAPTURE(i);
    check_same(kept[i], copies[i], "kept");
    for (std::size_t k = 0; k < i; ++k) {
      CHECK(kept[i][1].data_ptr() != kept[k][1].data_ptr());
    }
  }
}

TEST_CASE("Tape: a view, a storage or one of several outputs keeps the memory", "[tape]") {
  const Subject subject = net();
  const auto replayed = make_tape(subject);
  const at::Tensor view = replayed->replay(subject.batch(3))[1].select(0, 1);
  const c10::Storage storage = replayed->replay(subject.batch(4))[1].storage();
  const at::Tensor row = view.clone();
  const auto byte = static_cast<const unsigned char*>(storage.data())[5];
  for (std::uint64_t seed = 10; seed < 15; ++seed) {
    const Tensors outputs = replayed->replay(subject.batch(seed));
    CHECK_FALSE(outputs[1].is_alias_of(view));
    CHECK(outputs[1].storage().data() != storage.data());
  }
  CHECK(tape::same_bits(view, row));
  CHECK(static_cast<const unsigned char*>(storage.data())[5] == byte);
}

TEST_CASE("Tape: outputs that nobody holds lie in the same memory again", "[tape]") {
  const Subject subject = net();
  const auto replayed = make_tape(subject);
  const void* const loss = replayed->replay(subject.batch(3))[0].data_ptr();
  const void* const gradient = subject.held[0].grad().data_ptr();
  for (std::uint64_t seed = 10; seed < 15; ++seed) {
    subject.reset_gradients(seed);
    CHECK(replayed->replay(subject.batch(seed))[0].data_ptr() == loss);
    CHECK(subject.held[0].grad().data_ptr() == gradient);
  }
}

TEST_CASE("Tape: outputs outlive it", "[tape]") {
  const Subject subject = net();
  const Outcome expected = eager_outcome(subject, 5);
  auto replayed = make_tape(subject);
  subject.reset_gradients(5);
  const Tensors batch = subject.batch(5);
  const Tensors outputs = replayed->replay(batch);
  replayed.reset();
  check_same(Outcome::of(subject, outputs, batch), expected);
}

TEST_CASE("Tape: a program may change the outputs that it got", "[tape]") {
  const Subject subject = net();
  const auto replayed = make_tape(subject);
  const auto change = [&](const std::function<void(const at::Tensor& loss, const at::Tensor& scores)>& changed) {
    for (std::uint64_t seed = 10; seed < 13; ++seed) {
      const Outcome expected = eager_outcome(subject, seed);
      subject.reset_gradients(seed);
      const Tensors batch = subject.batch(seed);
      const Tensors outputs = replayed->replay(batch);
      check_same(Outcome::of(subject, outputs, batch), expected);
      CHECK_FALSE(outputs[1].requires_grad());
      changed(outputs[0], outputs[1]);
      changed(subject.held[1].grad(), subject.held[0].grad());
      subject.reset_gradients(seed);
    }
  };
  change([](auto loss, auto scores) { loss.fill_(7), scores.zero_(); });
  change([](auto, auto scores) { scores.unsqueeze_(0); });
  change([](auto, auto scores) { scores.t_(); });
  change([](auto loss, auto scores) { loss.set_requires_grad(true), scores.set_requires_grad(true); });
  change([](auto, auto scores) { scores.resize_({100, 100}); });
  change([](auto, auto scores) { scores.resize_({100, 100}).resize_({1}); });
  change([](auto, auto scores) { scores.resize_({2, 2}); });
  change([](auto, auto scores) { scores.set_data(torch::zeros({3})); });
  change([](auto, auto scores) { scores.add_(torch::ones({1}).set_requires_grad(true)); });
}

TEST_CASE("Tape: large outputs are handed out anew", "[tape]") {
  Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); });
  subject.step = [weight = subject.held[0]](const Tensors& batch, StepObserver* observer) -> Tensors {
    const at::Tensor large = (weight * batch[0]).sum() * torch::ones({300, 300});
    backward(large.mean(), observer);
    return {large.detach(), large.detach().relu(), large.detach().cumsum(0)};
  };
  check_replays(subject);
  const auto replayed = make_tape(subject);
  const Tensors first = replayed->replay(subject.batch(1));
  const Tensors copies = copies_of(first);
  replayed->replay(subject.batch(2));
  check_same(first, copies, "first");
}

TEST_CASE("Tape: host calls get the tensors of the step in its order", "[tape]") {
  std::vector<std::string> calls;
  std::vector<Tensors> given;
  Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); });
  subject.step = [&, weight = subject.held[0]](const Tensors& batch, StepObserver* observer) -> Tensors {
    const auto note = [&](const char* name) {
      return [&, name](const Tensors& tensors) {
        calls.emplace_back(name);
        given.push_back(tensors);
      };
    };
    tape::host_call("first", {batch[0]}, note("first"));
    at::Tensor product = weight * batch[0];
    tape::host_call("second", {product, weight.detach(), at::Tensor(), batch[0].select(0, 1)}, note("second"));
    const at::Tensor loss = product.square().sum();
    backward(loss, observer);
    tape::host_call("none", {}, note("none"));
    tape::host_call("third", {loss, weight.grad()}, note("third"));
    return {loss.detach()};
  };
  const auto replayed = make_tape(subject);
  for (std::uint64_t seed = 10; seed < 14; ++seed) {
    calls.clear();
    given.clear();
    const Outcome outcome = eager_outcome(subject, seed);
    const std::vector<Tensors> eager_given = std::exchange(given, {});
    const std::vector<std::string> eager_calls = std::exchange(calls, {});
    subject.reset_gradients(seed);
    const Tensors batch = subject.batch(seed);
    replayed->replay(batch);
    CHECK(calls == std::vector<std::string>{"first", "second", "none", "third"});
    CHECK(calls == eager_calls);
    REQUIRE(given.size() == 4);
    for (std::size_t i = 0; i < given.size(); ++i) {
      check_same(given[i], eager_given[i], "given");
    }
    CHECK(given[0][0].is_same(batch[0]));
    CHECK(given[1][1].is_alias_of(subject.held[0]));
    CHECK_FALSE(given[1][2].defined());
    CHECK(given[1][3].is_alias_of(batch[0]));
    CHECK(given[3][1].is_same(subject.held[0].grad()));
    subject.update();
  }
}

TEST_CASE("Tape: a host call may change what the step reads afterwards", "[tape]") {
  auto scale = std::make_shared<at::Tensor>(torch::ones({}));
  auto count = std::make_shared<int>(0);
  Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); });
  subject.live = {scale.get()};
  subject.step = [=, weight = subject.held[0]](const Tensors& batch, StepObserver* observer) -> Tensors {
    tape::host_call("scale", {}, [=](const Tensors&) { *scale = torch::full({}, 1.5 * ++*count); });
    tape::host_call("weight", {}, [=](const Tensors&) { weight.data().mul_(0.5); });
    const at::Tensor loss = (weight * batch[0]).sum() * *scale;
    backward(loss, observer);
    return {loss.detach()};
  };
  const auto replayed = make_tape(subject);
  for (std::uint64_t seed = 10; seed < 14; ++seed) {
    const int before = *count;
    const Outcome expected = eager_outcome(subject, seed);
    *count = before;
    subject.reset_gradients(seed);
    const Tensors batch = subject.batch(seed);
    check_same(Outcome::of(subject, replayed->replay(batch), batch), expected);
  }
}

TEST_CASE("Tape: an exception of a host call ends the replay; the next one is whole", "[tape]") {
  auto fails = std::make_shared<bool>(false);
  Subject subject = small([](const at::Tensor& weight, const at::Tensor& x) { return (weight * x).sum(); });
  subject.step = [=, weight = subject.held[0]](const Tensors& batch, StepObserver* observer) -> Tensors {
    const at::Tensor hidden = torch::cumsum(weight * batch[0], 1);
    tape::host_call("meter", {hidden}, [=](const Tensors&) {
      if (*fails) {
        throw std::runtime_error("no meter");
      }
    });
    const at::Tensor loss = hidden.square().sum();
    backward(loss, observer);
    return {loss.detach()};
  };
  const auto replayed = make_tape(subject);
  *fails = true;
  const Tensors batch = subject.batch(3);
  CHECK(error_of<std::runtime_error>([&] { replayed->replay(batch); }) == "no meter");
  *fails = false;
  check_replays(subject, *replayed);
}

TEST_CASE("Tape: sees that parameters, buffers and gradients exchange their memory", "[tape]") {
  nn::Sequential module(nn::Linear(7, 6), nn::BatchNorm1d(6), nn::Linear(6, 5));
  Subject subject = classifier(module, {4, 7});
  subject.accumulates = true;  // with new tensors each time
  torch::manual_seed(2);
  const auto replayed = make_tape(subject);
  Tensors others = copies_of(subject.held);
  for (int i = 0; i < 5; ++i) {
    check_replays(subject, *replayed, 1);
    for (std::size_t k = 0; k < others.size(); ++k) {  // as an average of the weights that takes their place
      const at::Tensor mine = subject.held[k].data();
      subject.held[k].set_data(others[k]);
      others[k] = mine;
    }
  }
}

TEST_CASE("Tape: its arena may move, grow and serve other tapes", "[tape]") {
  const auto arena = std::make_shared<tape::Arena>();
  const Subject little = net();
  const Subject large = classifier(nn::Sequential(nn::Linear(30, 60), nn::Tanh(), nn::Linear(60, 5)), {50, 30});
  const auto one = make_tape(little, arena);
  const auto two = make_tape(large, arena);
  check_replays(little, *one, 1);
  const std::size_t bytes = arena->bytes();
  CHECK(bytes == static_cast<std::size_t>(one->report().arena_bytes));
  check_replays(large, *two, 1);
  CHECK(arena->bytes() > bytes);
  Tensors blocks;  // so that memory comes from elsewhere
  for (int i = 0; i < 5; ++i) {
    check_replays(little, *one, 2);
    arena->release();
    blocks.push_back(torch::zeros({two->report().arena_bytes}, at::kByte));
    check_replays(little, *one, 1);
    check_replays(large, *two, 1);
  }
  for (const at::Tensor& block : blocks) {
    CHECK(block.sum().item<std::int64_t>() == 0);
  }
}

}  // namespace
