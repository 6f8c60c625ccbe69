// NestedTensors in several threads at once, the first use in the process included.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <torch/nn.h>

#include <nested/element_checks.hpp>

namespace nested_threads {
namespace {

using danling::NestedTensor;
using element_checks::Elements;
using torch::Tensor;

/// Each thread's own tensors; all threads read `shared`.
std::vector<Tensor> work_on(const NestedTensor& shared, const Tensor& weight, const Elements& elements) {
  const NestedTensor own(elements);
  const NestedTensor hidden(torch::relu(torch::linear(own, weight)));
  const NestedTensor scores(torch::matmul(hidden, hidden.transpose(1, 2)));
  const Tensor leaf = shared.concat().detach().requires_grad_();
  const NestedTensor joined = NestedTensor::from_concatenated(leaf, shared.shapes());
  const Tensor padded = torch::linear(joined, weight.detach()).relu();
  const Tensor gradient = torch::autograd::grad({NestedTensor(padded).tensor().square().sum()}, {leaf})[0];
  return {scores.concat(), gradient, shared.tensor(), shared.mask(), shared.offsets()};
}

void check_in_threads(const NestedTensor& shared, const Tensor& weight, const Elements& elements) {
  constexpr std::size_t count = 4;
  std::vector<std::vector<Tensor>> got(count);
  std::vector<std::thread> threads;
  for (std::size_t at = 0; at < count; ++at) {
    threads.emplace_back([&, at] {
      for (int repeat = 0; repeat < 20; ++repeat) {
        got[at] = work_on(shared, weight, elements);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const std::vector<Tensor> expected = work_on(shared, weight, elements);
  for (const auto& results : got) {
    REQUIRE(results.size() == expected.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      CHECK(torch::equal(results[i], expected[i]));
    }
  }
}

TEST_CASE("threads: one tensor is read and others are made in several threads at once", "[nested][threads]") {
  torch::manual_seed(30);
  const Elements elements = {torch::randn({3, 4}), torch::randn({0, 4}), torch::randn({6, 4})};
  check_in_threads(NestedTensor(elements), torch::randn({4, 4}).requires_grad_(), elements);
}

TEST_CASE("threads: backward in one thread of what others made", "[nested][threads]") {
  torch::manual_seed(31);
  torch::nn::Linear model(4, 4);
  const Elements elements = {torch::randn({3, 4}), torch::randn({5, 4})};
  std::vector<Tensor> losses(4);
  std::vector<std::thread> threads;
  for (Tensor& loss : losses) {
    threads.emplace_back([&] { loss = NestedTensor(model->forward(NestedTensor(elements))).concat().square().sum(); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  torch::stack(losses).sum().backward();
  const Tensor got = model->weight.grad().clone();
  model->zero_grad();
  (model->forward(torch::cat(elements)).square().sum() * 4).backward();
  CHECK(torch::allclose(got, model->weight.grad(), 1e-5, 1e-5));
}

// In a process of its own: no other test has used a NestedTensor before.
TEST_CASE("threads: the first NestedTensors of a process, in several threads", "[.nested-first-use]") {
  std::vector<std::thread> threads;
  std::vector<Tensor> out(4);
  for (std::size_t at = 0; at < out.size(); ++at) {
    threads.emplace_back([&, at] {
      const NestedTensor x({torch::ones({2, 3}), torch::ones({4, 3})});
      out[at] = NestedTensor(torch::linear(x, torch::ones({1, 3}))).concat();
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const Tensor& one : out) {
    CHECK(one.equal(torch::full({6, 1}, 3.0F)));
  }
}

TEST_CASE("threads: the first use of a process may be in several threads", "[nested][threads]") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  CHECK(std::system(("'" + self + "' '[.nested-first-use]' > /dev/null").c_str()) == 0);
}

}  // namespace
}  // namespace nested_threads
