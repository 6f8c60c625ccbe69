// SyncBatchNorm on several ranks against torch's BatchNorm over the whole batch.
#include <danling/nn/sync_batch_norm.hpp>

#include <torch/torch.h>

#include <danling/core/error.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

namespace sync_batch_norm_test {

using danling::DataError;
using danling::DistributedError;
using danling::Group;
using danling::StateError;
using danling::detail::concat;
using danling::nn::SyncBatchNorm;
using danling::nn::SyncBatchNormOptions;
using danling_test::check_ranks;
using danling_test::error_of;
using danling_test::expect;
using danling_test::run_ranks;

constexpr std::int64_t channels = 3;

struct Case {
  std::vector<std::int64_t> shares;      // samples of each rank
  std::vector<std::int64_t> inner = {};  // dimensions behind the channels
  at::ScalarType dtype = at::kDouble;    // of the input
  at::ScalarType params = at::kDouble;   // of weights and statistics
  double tolerance = 1e-11;
  std::optional<double> momentum = 0.1;
  bool affine = true, tracks = true;
  bool channels_last = false;
};

/// Outputs, gradients and running statistics of three steps.
struct Seen {
  std::vector<at::Tensor> outputs, inputs;  // gradients of the inputs
  at::Tensor weight, bias, mean, var, batches;
};

at::Tensor batch_of(const Case& c, int step) {
  std::int64_t samples = 0;
  for (const std::int64_t share : c.shares) {
    samples += share;
  }
  std::vector<std::int64_t> shape = {samples, channels};
  shape.insert(shape.end(), c.inner.begin(), c.inner.end());
  torch::manual_seed(100 + step);
  // A mean far from 0 in the last channel: E[x^2] - E[x]^2 would lose it.
  std::vector<std::int64_t> along(shape.size(), 1);
  along[1] = channels;
  at::Tensor out = torch::randn(shape, at::kDouble) + torch::tensor({0.0, -2.0, 30.0}, at::kDouble).view(along);
  out = out.to(c.dtype);
  return c.channels_last ? out.contiguous(at::MemoryFormat::ChannelsLast) : out;
}

template <class Layer>
Seen steps_of(Layer& layer, const Case& c, std::int64_t from, std::int64_t count, at::ScalarType compute) {
  Seen seen;
  for (int step = 0; step < 3; ++step) {
    const at::Tensor whole = batch_of(c, step);
    torch::manual_seed(200 + step);
    const at::Tensor factors = torch::randn(whole.sizes(), at::kDouble).to(c.dtype).to(compute);
    at::Tensor input = whole.narrow(0, from, count).clone().to(compute).requires_grad_();
    const at::Tensor output = layer->forward(input);
    expect(output.scalar_type() == compute && output.sizes() == input.sizes(), "the shape and dtype of the input");
    const at::Tensor part = factors.narrow(0, from, count);
    (output * part + output * output * part).sum().backward();  // a gradient that depends on the output
    seen.outputs.push_back(output.detach());
    seen.inputs.push_back(input.grad());
  }
  if (c.affine) {
    seen.weight = layer->weight.grad();
    seen.bias = layer->bias.grad();
  }
  seen.mean = layer->running_mean;
  seen.var = layer->running_var;
  seen.batches = layer->num_batches_tracked;
  return seen;
}

void expect_close(const at::Tensor& got, const at::Tensor& reference, double tolerance, const std::string& what) {
  const auto a = got.to(at::kDouble), b = reference.to(at::kDouble);
  expect(a.sizes() == b.sizes(), concat(what, " of the reference's shape"));
  if (b.numel() > 0) {
    const double size = std::max(b.abs().max().item<double>(), 1e-3);
    const double difference = (a - b).abs().max().item<double>() / size;
    expect(difference <= tolerance, concat(what, " within ", tolerance, ", got ", difference));
  }
}

template <class Layer>
void fill(Layer& layer, const Case& c, at::ScalarType dtype) {
  layer->to(dtype);
  if (c.affine) {
    const at::NoGradGuard no_grad;
    layer->weight.copy_(torch::tensor({0.5, -1.5, 2.0}));
    layer->bias.copy_(torch::tensor({1.0, 0.25, -3.0}));
  }
}

void compare(const std::string& name, const Case& c) {
  INFO(name);
  const auto options = [&] {
    return SyncBatchNormOptions(channels).momentum(c.momentum).affine(c.affine).track_running_stats(c.tracks);
  };
  const auto texts = run_ranks(static_cast<int>(c.shares.size()), [&](const Group& group) {
    // The reference: float64 over the whole batch, whose values are those of the input's dtype.
    const std::int64_t all = batch_of(c, 0).size(0);
    Seen whole;
    if (c.inner.size() == 2) {
      torch::nn::BatchNorm2d layer(options());
      fill(layer, c, at::kDouble);
      whole = steps_of(layer, c, 0, all, at::kDouble);
    } else {
      torch::nn::BatchNorm1d layer(options());
      fill(layer, c, at::kDouble);
      whole = steps_of(layer, c, 0, all, at::kDouble);
    }
    SyncBatchNorm layer(options(), group);
    fill(layer, c, c.params);
    std::int64_t from = 0;
    for (int rank = 0; rank < group.rank(); ++rank) {
      from += c.shares[static_cast<std::size_t>(rank)];
    }
    const std::int64_t count = c.shares[static_cast<std::size_t>(group.rank())];
    Seen own = steps_of(layer, c, from, count, c.dtype);
    for (std::size_t step = 0; step < 3; ++step) {
      expect_close(own.outputs[step], whole.outputs[step].narrow(0, from, count), c.tolerance, "outputs");
      expect_close(own.inputs[step], whole.inputs[step].narrow(0, from, count), c.tolerance, "gradients of inputs");
    }
    if (c.affine) {
      group.all_reduce(own.weight);
      group.all_reduce(own.bias);
      expect_close(own.weight, whole.weight, c.tolerance, "the gradient of the weight");
      expect_close(own.bias, whole.bias, c.tolerance, "the gradient of the bias");
    }
    if (c.tracks) {
      expect_close(own.mean, whole.mean, c.tolerance, "running means");
      expect_close(own.var, whole.var, c.tolerance, "running variances");
      expect(own.batches.item<std::int64_t>() == 3, "three batches");
      const auto bytes = [](const at::Tensor& t) {
        return std::string(static_cast<const char*>(t.const_data_ptr()), t.nbytes());
      };
      for (const std::string& other : group.all_gather(bytes(own.mean) + bytes(own.var))) {
        expect(other == bytes(own.mean) + bytes(own.var), "the same bits on all ranks");
      }
    }
    return std::string("ok");
  });
  check_ranks(texts, "ok");
}

TEST_CASE("SyncBatchNorm: ranks with parts of a batch equal torch's BatchNorm over the whole batch", "[nn]") {
  const Case cases[] = {
      {.shares = {4, 4}},
      {.shares = {4, 4}, .inner = {5}},
      {.shares = {2, 2}, .inner = {3, 4}},
      {.shares = {2, 2}, .inner = {3, 4}, .channels_last = true},
      {.shares = {5, 1, 3}},
      {.shares = {5, 1, 3}, .inner = {3, 4}},
      {.shares = {1, 1}, .tolerance = 1e-9},  // one value of each rank: gradients cancel
      {.shares = {0, 6}},
      {.shares = {3, 0, 2}, .inner = {2, 2}},
      {.shares = {3, 4}, .momentum = std::nullopt},
      {.shares = {3, 4}, .affine = false},
      {.shares = {3, 4}, .tracks = false},
      {.shares = {40, 24, 0}, .dtype = at::kFloat, .params = at::kFloat, .tolerance = 1e-5},
      {.shares = {4, 3}, .inner = {5, 5}, .dtype = at::kFloat, .params = at::kFloat, .tolerance = 1e-5},
      {.shares = {40, 24, 0}, .dtype = at::kBFloat16, .params = at::kFloat, .tolerance = 2e-2},
      {.shares = {4, 3}, .inner = {5, 5}, .dtype = at::kBFloat16, .params = at::kBFloat16, .tolerance = 2e-2},
      {.shares = {4, 3}, .inner = {5, 5}, .dtype = at::kHalf, .params = at::kFloat, .tolerance = 4e-3},
  };
  for (const Case& c : cases) {
    compare(concat("case ", &c - cases), c);
  }
}

TEST_CASE("SyncBatchNorm: 16-bit inputs have float32 statistics", "[nn]") {
  // 257 values of 1 and one of 3: their mean, 1.0078, is no bfloat16.
  check_ranks(run_ranks(2,
                        [](const Group& group) {
                          SyncBatchNorm layer(SyncBatchNormOptions(1).momentum(1.0), group);
                          at::Tensor input = torch::ones({129, 1}, at::kBFloat16);
                          input[0][0] = group.rank() == 0 ? 1 : 3;
                          layer->forward(input);
                          const double mean = 260.0 / 258.0;
                          const double squares = 257 * (1 - mean) * (1 - mean) + (3 - mean) * (3 - mean);
                          expect_close(layer->running_mean, torch::tensor({mean}, at::kDouble), 1e-7, "the mean");
                          expect_close(layer->running_var, torch::tensor({squares / 257}, at::kDouble), 1e-5,
                                       "the unbiased variance");
                          return std::string("ok");
                        }),
              "ok");
}

TEST_CASE("SyncBatchNorm: alone, and in evaluation, it is torch's BatchNorm bit for bit", "[nn]") {
  torch::manual_seed(1);
  const at::Tensor x = torch::randn({6, 4, 3, 3});
  const auto options = SyncBatchNormOptions(4).momentum(0.3);
  SyncBatchNorm own(options);
  torch::nn::BatchNorm2d reference(options);
  CHECK(at::equal(own->forward(x), reference->forward(x)));
  CHECK(at::equal(own->running_var, reference->running_var));
  check_ranks(run_ranks(2,
                        [&](const Group& group) {
                          own->set_group(group);
                          own->eval();
                          reference->eval();
                          const at::Tensor part = x.narrow(0, 0, group.rank() + 1);  // not called equally often either
                          expect(group.rank() == 1 || at::equal(own->forward(part), reference->forward(part)), "bits");
                          return std::string("ok");
                        }),
              "ok");
}

TEST_CASE("SyncBatchNorm: names of its state are those of BatchNorm, and a clone has its values, group and mode",
          "[nn]") {
  check_ranks(run_ranks(2,
                        [](const Group& group) {
                          SyncBatchNorm own(SyncBatchNormOptions(4), group);
                          const torch::nn::BatchNorm2d reference(4);
                          expect(own->named_parameters().keys() == reference->named_parameters().keys() &&
                                     own->named_buffers().keys() == reference->named_buffers().keys(),
                                 "the same names");
                          own->weight.set_requires_grad(false);
                          own->forward(torch::randn({2, 4}) * 3 + group.rank());
                          torch::nn::Sequential net(own);
                          const auto copied = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone());
                          auto& copy = copied->at<danling::nn::SyncBatchNormImpl>(0);
                          expect(at::equal(copy.running_var, own->running_var) &&
                                     !copy.running_var.is_same(own->running_var) && !copy.weight.requires_grad() &&
                                     copy.bias.requires_grad() && copy.group().size() == 2,
                                 "an equal copy");
                          const at::Tensor x = torch::ones({2, 4}) * group.rank();
                          expect(at::equal(copied->forward(x), net->forward(x)), "the same outputs");
                          return concat(c10::str(*own));
                        }),
              "danling::nn::SyncBatchNorm(4, eps=1e-05, momentum=0.1, affine=true, track_running_stats=true)");
}

TEST_CASE("SyncBatchNorm: too few values, other shapes and second derivatives are errors on all ranks", "[nn]") {
  check_ranks(run_ranks(2,
                        [](const Group& group) {
                          SyncBatchNorm layer(SyncBatchNormOptions(2), group);
                          return error_of<DataError>([&] { layer->forward(torch::ones({group.rank(), 2})); });
                        }),
              "[nn.SyncBatchNorm] expected more than one value per channel over all ranks in training, got 1; use "
              "larger batches, or set dataloader.drop_last");
  check_ranks(run_ranks(2,
                        [](const Group& group) {
                          SyncBatchNorm layer(SyncBatchNormOptions(2), group);
                          return error_of<DataError>([&] { layer->forward(torch::ones({4, 3, 1})); });
                        }),
              "[nn.SyncBatchNorm] expected floating input of shape (N, 2, ...), got Float [4, 3, 1]");
  check_ranks(run_ranks(2,
                        [](const Group& group) {
                          SyncBatchNorm layer(SyncBatchNormOptions(2), group);
                          const at::Tensor x = torch::ones({4, 2}).requires_grad_();
                          const at::Tensor y = layer->forward(x);
                          return error_of<StateError>(
                              [&] { torch::autograd::grad({y.sum()}, {x}, {}, std::nullopt, /*create_graph=*/true); });
                        }),
              "[nn.SyncBatchNorm] expected a backward pass without create_graph, got one with it: second derivatives "
              "over all ranks are not implemented");
  check_ranks(run_ranks(2,
                        [](const Group& group) {
                          SyncBatchNorm first(SyncBatchNormOptions(2), group), second(SyncBatchNormOptions(3), group);
                          return error_of<DistributedError>([&] {
                                   group.rank() == 0 ? first->forward(torch::ones({4, 2}))
                                                     : second->forward(torch::ones({4, 3}));
                                 })
                              .substr(0, 77);
                        }),
              "[nn.SyncBatchNorm] expected the same layer in the same pass on all ranks, got");
}

}  // namespace sync_batch_norm_test
