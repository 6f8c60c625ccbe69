// Operators on nested tensors on a GPU: values and gradients of the same tensor on the CPU.
#include <functional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <danling/tensors/nested_tensor.hpp>

#include <nested/autocast.hpp>
#include <nested/device_layers.hpp>
#include <support/catch.hpp>
#include <support/cuda.hpp>

namespace nested_devices {
namespace {

struct Outcome {
  Results values, gradients;
};

Tensor packed(const Tensor& x) { return NestedTensor::is_nested(x) ? NestedTensor(x).concat() : x; }

Outcome run(const Case& one, Inputs inputs) {
  Outcome out;
  out.values = one.call(inputs);
  Tensor loss = torch::zeros({}, torch::TensorOptions(torch::kFloat).device(inputs.device));
  for (const Tensor& result : out.values) {
    CHECK(result.device().type() == inputs.device.type());
    if (const Tensor values = packed(result); values.requires_grad()) {
      loss = loss + (values * values_of(values.sizes().vec(), 0.29).to(inputs.device)).sum();
    }
  }
  if (!loss.requires_grad()) {
    return out;
  }
  out.gradients = torch::autograd::grad({loss}, inputs.leaves, {}, {}, false, /*allow_unused=*/true);
  return out;
}

void check_close(const Tensor& got, const Tensor& expected, double tolerance = 1e-4) {
  INFO("got " << got.sizes() << " of " << got.scalar_type() << ", expected " << expected.sizes() << " of "
              << expected.scalar_type());
  if (NestedTensor::is_nested(got) != NestedTensor::is_nested(expected) || got.sizes() != expected.sizes() ||
      got.scalar_type() != expected.scalar_type()) {
    FAIL_CHECK("another kind of tensor");
    return;
  }
  if (NestedTensor::is_nested(got)) {
    CHECK(NestedTensor(got).shapes() == NestedTensor(expected).shapes());
    CHECK(NestedTensor(got).batch_first() == NestedTensor(expected).batch_first());
  }
  const Tensor left = packed(got).detach().cpu().to(torch::kDouble),
               right = packed(expected).detach().to(torch::kDouble);
  INFO("largest difference " << (left.numel() > 0 ? (left - right).abs().max().item<double>() : 0));
  CHECK(torch::allclose(left, right, tolerance, tolerance, /*equal_nan=*/true));
}

void check_table(const std::vector<Case>& table, const Shapes& shapes, torch::Device device) {
  for (const Case& one : table) {
    INFO(one.name << ", " << shapes.size() << " elements, the first of " << torch::IntArrayRef(shapes[0]));
    try {
      const Outcome got = run(one, {shapes, device, true}), expected = run(one, {shapes, torch::kCPU, true});
      REQUIRE(got.values.size() == expected.values.size());
      for (std::size_t at = 0; at < got.values.size(); ++at) {
        INFO("result " << at);
        check_close(got.values[at], expected.values[at]);
      }
      REQUIRE(got.gradients.size() == expected.gradients.size());
      for (std::size_t at = 0; at < got.gradients.size(); ++at) {
        INFO("gradient of leaf " << at);
        CHECK(got.gradients[at].defined() == expected.gradients[at].defined());
        if (got.gradients[at].defined() && expected.gradients[at].defined()) {
          check_close(got.gradients[at], expected.gradients[at]);
        }
      }
    } catch (const std::exception& e) {  // the next operators are of interest too
      FAIL_CHECK(e.what());
    }
  }
}

void check_tables(torch::Device device) {
  check_table(of_tokens(), {{3, 4}, {5, 4}, {1, 4}}, device);
  check_table(of_tokens(), {{300, 4}, {7, 4}, {129, 4}, {64, 4}}, device);
  check_table(of_layers(), {{3, 4}, {5, 4}, {1, 4}}, device);
  check_table(of_layers(), {{300, 4}, {7, 4}, {129, 4}, {64, 4}}, device);
  check_table(of_channels(), {{4, 3}, {4, 5}, {4, 2}}, device);
  check_table(of_channels(), {{4, 200}, {4, 33}, {4, 2}}, device);
  check_table(of_pictures(), {{4, 3, 5}, {4, 6, 2}, {4, 2, 2}}, device);
}

/// Reductions, scans and sorts of each type, which kernels may lack.
void check_types(torch::Device device) {
  for (const auto type :
       {torch::kLong, torch::kInt, torch::kByte, torch::kBool, torch::kDouble, torch::kHalf, torch::kBFloat16}) {
    const bool floating = torch::isFloatingType(type);
    using Call = std::function<Tensor(const Tensor&, std::int64_t)>;
    std::vector<std::pair<std::string, Call>> calls = {
        {"sum", [](const Tensor& x, auto d) { return x.sum(d); }},
        {"amax", [](const Tensor& x, auto d) { return x.amax(d); }},
        {"amin", [](const Tensor& x, auto d) { return x.amin(d); }},
        {"any", [](const Tensor& x, auto d) { return x.any(d); }},
        {"all", [](const Tensor& x, auto d) { return x.all(d); }},
        {"cumsum", [](const Tensor& x, auto d) { return x.cumsum(d); }},
        {"sort", [](const Tensor& x, auto d) { return std::get<0>(x.sort(d)); }},
        {"flip", [](const Tensor& x, auto d) { return x.flip(d); }},
        {"tensor", [](const Tensor& x, auto) { return NestedTensor(x).tensor(); }},
    };
    if (floating) {
      calls.emplace_back("mean", [](const Tensor& x, auto d) { return x.mean(d); });
      calls.emplace_back("softmax", [](const Tensor& x, auto d) { return x.softmax(d); });
      calls.emplace_back("logsumexp", [](const Tensor& x, auto d) { return x.logsumexp(d); });
    }
    std::vector<Tensor> elements;
    for (const std::int64_t length : {3, 70, 1}) {
      elements.push_back((values_of({length, 4}) * (floating ? 1 : 9)).abs().to(type));
    }
    const NestedTensor host(elements), x(host.to(device));
    for (const auto& [name, call] : calls) {
      for (const std::int64_t dim : {1, 2}) {
        INFO(name << " of " << type << " along " << dim);
        try {
          const Tensor got = call(x, dim), expected = call(host, dim);
          check_close(got, expected, type == torch::kBFloat16 ? 2e-2 : type == torch::kHalf ? 3e-3 : 1e-6);
        } catch (const std::exception& e) {
          FAIL_CHECK(e.what());
        }
      }
    }
  }
}

void check_moves(torch::Device device) {
  std::vector<Tensor> elements, there;
  for (const std::int64_t length : {3, 5, 1}) {
    elements.push_back(values_of({length, 4}));
    there.push_back(elements.back().to(device));
  }
  const NestedTensor host(elements, {.requires_grad = true, .batch_first = false, .padding_value = 2});
  const NestedTensor x(host.to(device));
  CHECK(x.device().type() == device.type());
  CHECK(x.is_cuda() == device.is_cuda());
  for (const Tensor& part : {x.concat(), x.tensor(), x.mask(), x.offsets(), x[1]}) {
    CHECK(part.device().type() == device.type());
  }
  CHECK(x.shapes() == host.shapes());
  CHECK_FALSE(x.batch_first());
  CHECK(x.padding_value() == 2);
  const NestedTensor back(x.cpu());
  CHECK(back.is_cpu());
  CHECK(back.concat().equal(host.concat()));
  CHECK(NestedTensor(x.to(torch::kHalf)).concat().equal(host.concat().to(torch::kHalf).to(device)));
  NestedTensor((x * x).cpu()).concat().sum().backward();
  CHECK(host.grad().is_cpu());
  CHECK(torch::allclose(NestedTensor(host.grad()).concat(), 2 * host.concat()));
  CHECK(NestedTensor(there).device().type() == device.type());
  CHECK(NestedTensor(there, {.device = torch::kCPU}).concat().equal(host.concat()));
  CHECK(NestedTensor(elements, {.device = device}).concat().equal(x.concat()));
  CHECK(NestedTensor(there).tolist<float>() == NestedTensor(elements).tolist<float>());
  CHECK(torch::zeros_like(x).device().type() == device.type());
  CHECK(torch::randn_like(x).sizes() == x.sizes());
  CHECK(x.to_torch_nested().device().type() == device.type());
  CHECK(NestedTensor(there).to_string().find("0.") != std::string::npos);
  const NestedTensor empty = NestedTensor::from_concatenated(torch::empty({0, 4}).to(device), {{0, 4}, {0, 4}});
  CHECK(empty.sum(1).equal(torch::zeros({2, 4}).to(device)));
  CHECK(empty.softmax(1).numel() == 0);
}

/// Computes products in float32 while it lives.
class ExactProducts {
 public:
  ExactProducts() {
    at::globalContext().setAllowTF32CuBLAS(false);
    at::globalContext().setAllowTF32CuDNN(false);
  }
  ~ExactProducts() {
    at::globalContext().setAllowTF32CuBLAS(products_);
    at::globalContext().setAllowTF32CuDNN(convolutions_);
  }
  ExactProducts(const ExactProducts&) = delete;
  ExactProducts& operator=(const ExactProducts&) = delete;

 private:
  bool products_ = at::globalContext().allowTF32CuBLAS(), convolutions_ = at::globalContext().allowTF32CuDNN();
};

// Without a GPU, checks that the tables run.
TEST_CASE("NestedTensor: the operators tried on devices run on the CPU", "[nested]") {
  check_tables(torch::kCPU);
  check_types(torch::kCPU);
  check_moves(torch::kCPU);
}

TEST_CASE("NestedTensor on CUDA: operators give the values and gradients of the CPU", "[nested][cuda]") {
  if (danling_test::has_cuda_device()) {
    const ExactProducts exact;
    check_tables(torch::kCUDA);
  }
}

TEST_CASE("NestedTensor on CUDA: reductions, scans and sorts take each type", "[nested][cuda]") {
  if (danling_test::has_cuda_device()) {
    check_types(torch::kCUDA);
  }
}

TEST_CASE("NestedTensor on CUDA: moves between host and device keep sequences and gradients", "[nested][cuda]") {
  if (!danling_test::has_cuda_device()) {
    return;
  }
  check_moves(torch::kCUDA);
  const NestedTensor host({values_of({3, 4}), values_of({5, 4})});
  const NestedTensor pinned(host.pin_memory()), made({values_of({3, 4}), values_of({5, 4})}, {.pin_memory = true});
  CHECK(pinned.concat().is_pinned());
  CHECK(made.concat().is_pinned());
  const NestedTensor moved(pinned.to(torch::kCUDA, /*non_blocking=*/true));
  CHECK(NestedTensor(moved.cpu()).concat().equal(host.concat()));
  CHECK(NestedTensor(host.cuda()).concat().equal(moved.concat()));
}

TEST_CASE("NestedTensor on CUDA: autocast computes in half precision, with float32 gradients", "[nested][cuda]") {
  if (!danling_test::has_cuda_device()) {
    return;
  }
  torch::manual_seed(42);
  torch::nn::Linear model(8, 8);
  model->to(torch::kCUDA);
  const NestedTensor x({values_of({3, 8}), values_of({5, 8})}, {.device = torch::kCUDA});
  const auto [out, attended] = [&] {
    const nested_tests::Autocast half(at::kCUDA, at::kHalf);
    const NestedTensor hidden(model->forward(x));
    return std::pair(hidden, NestedTensor(torch::scaled_dot_product_attention(hidden, hidden, hidden)));
  }();
  CHECK(out.scalar_type() == torch::kHalf);
  CHECK(attended.scalar_type() == torch::kHalf);
  CHECK(torch::allclose(out.concat().to(torch::kFloat), model->forward(x.concat()), 1e-2, 1e-2));
  attended.concat().to(torch::kFloat).sum().backward();
  CHECK(model->weight.grad().scalar_type() == torch::kFloat);
  CHECK(model->weight.grad().isfinite().all().item<bool>());
}

}  // namespace
}  // namespace nested_devices
