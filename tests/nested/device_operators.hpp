// Operators to compare devices, and their arguments: nested and plain tensors with equal values on each device.
#pragma once

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include <torch/torch.h>

#include <danling/tensors/nested_tensor.hpp>

namespace nested_devices {

namespace F = torch::nn::functional;
using danling::NestedTensor;
using torch::Tensor;
using torch::indexing::Ellipsis;
using torch::indexing::Slice;
using Results = std::vector<Tensor>;
using Shapes = std::vector<std::vector<std::int64_t>>;

/// Values that do not repeat, the same for every device.
inline Tensor values_of(const std::vector<std::int64_t>& sizes, double step = 0.37) {
  const std::int64_t count = c10::multiply_integers(sizes);
  return (torch::arange(count, torch::kDouble) * step + count).sin().view(sizes).to(torch::kFloat);
}

/// The arguments of an operator, on one device.
struct Inputs {
  Inputs(const Shapes& shapes, torch::Device place, bool batch_first) : device(place) {
    std::vector<Tensor> first, second, numbers;
    for (const auto& shape : shapes) {
      first.push_back(values_of(shape));
      second.push_back(values_of(shape, 0.61));
      numbers.push_back(torch::arange(shape[0]).remainder(4));
    }
    const auto with_gradients = [&](const std::vector<Tensor>& elements) {
      return NestedTensor(elements, {.device = place, .requires_grad = true, .batch_first = batch_first});
    };
    x = with_gradients(first), y = with_gradients(second);
    labels = NestedTensor(numbers, {.device = place, .batch_first = batch_first});
    leaves = {x, y};
  }
  /// A plain tensor that gradients flow to.
  Tensor plain(const std::vector<std::int64_t>& sizes) {
    leaves.push_back((values_of(sizes, 0.83) * 0.5).to(device).requires_grad_());
    return leaves.back();
  }
  Tensor indices(const std::vector<std::int64_t>& list) const { return torch::tensor(list).to(device); }
  /// A module with parameters that are the same on each device.
  template <class Module>
  Module module(Module made) {
    made->to(device);
    const torch::NoGradGuard no_gradients;
    for (Tensor& parameter : made->parameters()) {
      parameter.copy_(values_of(parameter.sizes().vec(), 0.83) * 0.5);
      leaves.push_back(parameter);
    }
    return made;
  }

  torch::Device device;
  NestedTensor x, y;
  NestedTensor labels;
  std::vector<Tensor> leaves;
};

struct Case {
  std::string name;
  std::function<Results(Inputs&)> call;
};

// `x.sum({0, 1})` would be ambiguous: two numbers in braces could be names.
inline Tensor sum_over(const Tensor& x, const std::vector<std::int64_t>& dims) { return x.sum(dims); }

template <class Tuple>
Results both(const Tuple& pair) {
  return {std::get<0>(pair), std::get<1>(pair)};
}

/// Of tokens: (batch, length, 4).
inline const std::vector<Case>& of_tokens() {
  static const std::vector<Case> all = {
      // Each value by itself, and broadcasting.
      {"arithmetic", [](auto& in) { return Results{in.x * 2 + in.y / (in.y.abs() + 1) - 0.5}; }},
      {"functions", [](auto& in) { return Results{in.x.exp(), in.x.tanh(), torch::gelu(in.x), torch::silu(in.y)}; }},
      {"leaky_relu", [](auto& in) { return Results{torch::leaky_relu(in.x, 0.1)}; }},
      {"powers", [](auto& in) { return Results{in.x.square(), in.x.abs().add(1).pow(in.y), in.x.abs().rsqrt()}; }},
      {"clamp", [](auto& in) { return Results{in.x.clamp(-0.5, 0.3), in.x.maximum(in.y), in.x.relu()}; }},
      {"lerp", [](auto& in) { return Results{in.x.lerp(in.y, 0.3), in.x.atan2(in.y), in.x.hypot(in.y)}; }},
      {"a row", [](auto& in) { return Results{in.x * in.plain({4}) + in.plain({1})}; }},
      {"a row of each element", [](auto& in) { return Results{in.x * in.plain({in.x.size(0), 1, 4})}; }},
      {"a row of each token", [](auto& in) { return Results{in.x * in.plain({in.x.size(1), 4})}; }},
      {"a padded tensor", [](auto& in) { return Results{in.x + in.plain(in.x.sizes().vec())}; }},
      {"a number of the host", [](auto& in) { return Results{in.x * torch::tensor(2.5F)}; }},
      {"in place",
       [](auto& in) {
         NestedTensor y(in.x * 1);
         y.mul_(in.y).add_(1).clamp_min_(0.5);
         return Results{y};
       }},
      // Comparisons and masks.
      {"comparisons", [](auto& in) { return Results{in.x > in.y, in.x <= 0.1, (in.x / 0).isfinite()}; }},
      {"logic", [](auto& in) { return Results{(in.x > 0).logical_and(in.y > 0), (in.x > 0) ^ (in.y > 0)}; }},
      {"where",
       [](auto& in) { return Results{torch::where(in.x > 0, in.x, in.y), torch::where(in.x > 0, in.x, 2.0)}; }},
      {"masked_fill", [](auto& in) { return Results{in.x.masked_fill(in.y > 0, -3)}; }},
      {"masked_select", [](auto& in) { return Results{in.x.masked_select(in.y > 0)}; }},
      {"tensor and mask", [](auto& in) { return Results{in.x.tensor(), in.x.mask(), in.x.offsets(), in.x.concat()}; }},
      {"with a value of padding", [](auto& in) { return Results{in.x.with_padding_value(-7).tensor()}; }},
      {"from_tensor_mask",
       [](auto& in) { return Results{NestedTensor::from_tensor_mask(in.x.tensor(), in.x.mask())}; }},
      {"nested_like", [](auto& in) { return Results{in.x.nested_like(in.plain(in.x.sizes().vec()))}; }},
      // Reductions over static, ragged and batch dimensions.
      {"sum", [](auto& in) { return Results{in.x.sum(2), in.x.sum(1), in.x.sum(0), in.x.sum()}; }},
      {"sum of two dimensions",
       [](auto& in) { return Results{sum_over(in.x, {0, 1}), sum_over(in.x, {1, 2}), sum_over(in.x, {0, 2})}; }},
      {"mean", [](auto& in) { return Results{in.x.mean(2), in.x.mean(1), in.x.mean(0), in.x.mean()}; }},
      {"mean, kept", [](auto& in) { return Results{in.x - in.x.mean(1, true), in.x - in.x.mean(2, true)}; }},
      {"amax and amin", [](auto& in) { return Results{in.x.amax(2), in.x.amax(1), in.x.amin(1), in.x.amin(0)}; }},
      {"max of a sequence", [](auto& in) { return both(in.x.max(1)); }},
      {"min of a row", [](auto& in) { return both(in.x.min(2)); }},
      {"argmax", [](auto& in) { return Results{in.x.argmax(1), in.x.argmin(2)}; }},
      {"prod", [](auto& in) { return Results{(in.x * 0.1 + 1).prod(1), in.x.prod(2)}; }},
      {"var and std", [](auto& in) { return Results{in.x.var(1, false), in.x.std(2, 1), in.x.var(0, false)}; }},
      {"var_mean", [](auto& in) { return both(torch::var_mean(in.x, 1, false)); }},
      {"norm", [](auto& in) { return Results{in.x.norm(2, 1), in.x.norm(1, 2), in.x.norm()}; }},
      {"logsumexp", [](auto& in) { return Results{in.x.logsumexp(1), in.x.logsumexp(2)}; }},
      {"any and all", [](auto& in) { return Results{(in.x > 0.9).any(1), (in.x > -0.9).all(2), (in.x > 0).any()}; }},
      {"count_nonzero", [](auto& in) { return Results{torch::count_nonzero(in.x.relu(), torch::IntArrayRef({1}))}; }},
      {"median", [](auto& in) { return both(in.x.median(1)); }},
      {"quantile", [](auto& in) { return Results{in.x.quantile(0.3, 1), in.x.quantile(0.3, 2)}; }},
      // Along a dimension.
      {"softmax", [](auto& in) { return Results{in.x.softmax(1), in.x.softmax(2), in.x.log_softmax(1)}; }},
      {"cumsum", [](auto& in) { return Results{in.x.cumsum(1), in.x.cumsum(2)}; }},
      {"cumprod", [](auto& in) { return Results{(in.x * 0.1 + 1).cumprod(1), in.x.cumprod(2)}; }},
      {"logcumsumexp", [](auto& in) { return Results{in.x.logcumsumexp(1)}; }},
      {"cummax", [](auto& in) { return both(in.x.cummax(1)); }},
      {"diff", [](auto& in) { return Results{torch::diff(in.x, 1, 1), torch::diff(in.x, 1, 2)}; }},
      {"sort", [](auto& in) { return both(in.x.sort(1)); }},
      {"sort, descending", [](auto& in) { return both(in.x.sort(2, true)); }},
      {"argsort", [](auto& in) { return Results{in.x.argsort(std::int64_t{1})}; }},
      {"topk of a sequence", [](auto& in) { return both(in.x.topk(1, 1)); }},
      {"topk of a row", [](auto& in) { return both(in.x.topk(3, 2)); }},
      {"kthvalue", [](auto& in) { return both(in.x.kthvalue(1, 1)); }},
      {"cosine_similarity", [](auto& in) { return Results{torch::cosine_similarity(in.x, in.y, 2)}; }},
      {"rfft", [](auto& in) { return Results{torch::fft_rfft(in.x, {}, 2).abs()}; }},
      // Indices, parts and joins.
      {"first and last tokens", [](auto& in) { return Results{in.x.select(1, 0), in.x.select(1, -1)}; }},
      {"slices", [](auto& in) { return Results{in.x.slice(1, 1), in.x.slice(1, 0, -1), in.x.slice(2, 1, 3)}; }},
      {"an element", [](auto& in) { return Results{in.x[1], in.x.select(0, 0)}; }},
      {"chosen elements", [](auto& in) { return Results{in.x.index({in.indices({2, 0})})}; }},
      {"chosen features", [](auto& in) { return Results{in.x.index_select(2, in.indices({3, 1}))}; }},
      {"a mask as index", [](auto& in) { return Results{in.x.index({in.x > 0})}; }},
      {"gather",
       [](auto& in) {
         return Results{in.x.gather(2, in.x.argsort(std::int64_t{2})), in.x.gather(1, in.x.argsort(std::int64_t{1}))};
       }},
      {"index_put_",
       [](auto& in) {
         NestedTensor y(in.x * 1);
         y.index_put_({Slice(), Slice(1)}, 0);
         y.index_put_({Ellipsis, Slice(0, 2)}, torch::tensor(3.0F).to(in.device));
         return Results{y};
       }},
      {"set",
       [](auto& in) {
         NestedTensor y(in.x * 1);
         y.set(1, values_of({2, 4}).to(in.device));
         y.set({Slice(0, 2), 0}, values_of({4}).to(in.device));
         return Results{y};
       }},
      {"flip and roll", [](auto& in) { return Results{in.x.flip(1), in.x.flip(2), in.x.roll(1, 1)}; }},
      {"chunk and split", [](auto& in) { return in.x.chunk(2, 2); }},
      {"unbind", [](auto& in) { return in.x.unbind(0); }},
      {"cat", [](auto& in) { return Results{torch::cat({in.x, in.y}), torch::cat({in.x, in.y}, 1)}; }},
      {"cat of features", [](auto& in) { return Results{torch::cat({in.x, in.y}, 2), torch::stack({in.x, in.y}, 1)}; }},
      {"pad", [](auto& in) { return Results{torch::constant_pad_nd(in.x, {1, 0, 2, 1}, 0.5)}; }},
      {"repeat", [](auto& in) { return Results{in.x.repeat({1, 2, 1}), in.x.repeat_interleave(2, 1)}; }},
      // Shapes.
      {"permute", [](auto& in) { return Results{in.x.permute({0, 2, 1}) * 2, in.x.transpose(0, 1).cos()}; }},
      {"heads of each token",
       [](auto& in) {
         return Results{in.x.view({in.x.size(0), in.x.size(1), 2, 2}).permute({0, 2, 1, 3}).contiguous()};
       }},
      {"heads as elements",
       [](auto& in) {
         const std::int64_t batch = in.x.size(0), length = in.x.size(1);
         const Tensor first = in.x.transpose(0, 1).contiguous().view({length, batch * 2, 2}).transpose(0, 1);
         return Results{first, first.cos().transpose(0, 1).contiguous().view({length, batch, 4})};
       }},
      {"unsqueeze and flatten", [](auto& in) { return Results{in.x.unsqueeze(2), in.x.unsqueeze(2).flatten(2, 3)}; }},
      // Products.
      {"linear", [](auto& in) { return Results{torch::linear(in.x, in.plain({3, 4}), in.plain({3}))}; }},
      {"matmul with a matrix", [](auto& in) { return Results{torch::matmul(in.x, in.plain({4, 5}))}; }},
      {"matmul of sequences", [](auto& in) { return Results{torch::matmul(in.x, in.y.transpose(1, 2))}; }},
      {"einsum", [](auto& in) { return Results{torch::einsum("bld,ble->bde", {in.x, in.y})}; }},
      {"scores and values",
       [](auto& in) { return Results{in.x.matmul(in.y.transpose(1, 2)).softmax(-1).matmul(in.y)}; }},
      {"attention", [](auto& in) { return Results{torch::scaled_dot_product_attention(in.x, in.y, in.x * 2)}; }},
      {"causal attention",
       [](auto& in) { return Results{torch::scaled_dot_product_attention(in.x, in.y, in.x, {}, 0, true)}; }},
      // Layers.
      {"layer_norm", [](auto& in) { return Results{torch::layer_norm(in.x, {4}, in.plain({4}), in.plain({4}))}; }},
      {"rms_norm", [](auto& in) { return Results{torch::rms_norm(in.x, {4}, in.plain({4}), 1e-5)}; }},
      {"glu", [](auto& in) { return Results{torch::glu(in.x, 2)}; }},
      {"embedding", [](auto& in) { return Results{torch::embedding(in.plain({4, 6}), in.labels)}; }},
      {"lstm",
       [](auto& in) {
         auto layer = in.module(torch::nn::LSTM(torch::nn::LSTMOptions(4, 3).num_layers(2).batch_first(true)));
         const auto [out, states] = layer->forward(in.x);
         return Results{out, std::get<0>(states), std::get<1>(states)};
       }},
      {"gru",
       [](auto& in) {
         return both(in.module(torch::nn::GRU(torch::nn::GRUOptions(4, 3).bidirectional(true).batch_first(true)))
                         ->forward(in.x));
       }},
      // Losses.
      {"mse and l1", [](auto& in) { return Results{torch::mse_loss(in.x, in.y), torch::l1_loss(in.x, in.y)}; }},
      {"huber", [](auto& in) { return Results{torch::huber_loss(in.x, in.y), torch::smooth_l1_loss(in.x, in.y)}; }},
      {"padded target", [](auto& in) { return Results{torch::mse_loss(in.x, in.y.tensor())}; }},
      {"binary_cross_entropy_with_logits",
       [](auto& in) { return Results{torch::binary_cross_entropy_with_logits(in.x, in.y.sigmoid(), {}, {})}; }},
      {"cross_entropy", [](auto& in) { return Results{torch::cross_entropy_loss(in.x, in.labels)}; }},
      {"cross_entropy, weighted",
       [](auto& in) {
         const Tensor weight = torch::tensor({1.0F, 2.0F, 0.5F, 1.5F}).to(in.device);
         return Results{torch::cross_entropy_loss(in.x, in.labels, weight, at::Reduction::Mean, 2)};
       }},
      {"nll", [](auto& in) { return Results{torch::nll_loss_nd(in.x.log_softmax(2), in.labels)}; }},
      {"kl_div", [](auto& in) { return Results{torch::kl_div(in.x.log_softmax(2), in.y.softmax(2))}; }},
      {"cosine_embedding",
       [](auto& in) {
         const Tensor signs = NestedTensor((in.labels > 1).to(torch::kFloat) * 2 - 1);
         return Results{torch::cosine_embedding_loss(in.x, in.y, signs, 0.1)};
       }},
  };
  return all;
}

/// Of channels: (batch, 4, length).
inline const std::vector<Case>& of_channels() {
  static const std::vector<Case> all = {
      {"sum", [](auto& in) { return Results{in.x.sum(2), in.x.sum(1), in.x.sum(0), in.x.amax(2)}; }},
      {"softmax", [](auto& in) { return Results{in.x.softmax(1), in.x.softmax(2)}; }},
      {"cumsum", [](auto& in) { return Results{in.x.cumsum(1), in.x.cumsum(2)}; }},
      {"sort", [](auto& in) { return both(in.x.sort(2)); }},
      {"tensor and mask", [](auto& in) { return Results{in.x.tensor(), in.x.mask()}; }},
      {"slices", [](auto& in) { return Results{in.x.slice(2, 1), in.x.slice(1, 1, 3), in.x.select(2, 0)}; }},
      {"tokens", [](auto& in) { return Results{in.x.transpose(1, 2).contiguous()}; }},
      {"conv1d", [](auto& in) { return Results{torch::conv1d(in.x, in.plain({3, 4, 3}), in.plain({3}), 1, 1)}; }},
      {"conv1d, strided",
       [](auto& in) { return Results{torch::conv1d(in.x, in.plain({4, 2, 2}), in.plain({4}), 2, 1, 1, 2)}; }},
      {"conv_transpose1d",
       [](auto& in) { return Results{torch::conv_transpose1d(in.x, in.plain({4, 3, 3}), in.plain({3}), 2)}; }},
      {"pools", [](auto& in) { return Results{torch::max_pool1d(in.x, 2, 1), torch::avg_pool1d(in.x, 2, 1)}; }},
      {"batch_norm",
       [](auto& in) {
         auto layer = in.module(torch::nn::BatchNorm1d(4));
         const Tensor training = layer->forward(in.x);
         layer->eval();
         return Results{training, layer->forward(in.y), layer->running_mean, layer->running_var};
       }},
      {"group_norm", [](auto& in) { return Results{torch::group_norm(in.x, 2, in.plain({4}), in.plain({4}))}; }},
      {"instance_norm",
       [](auto& in) {
         return Results{torch::instance_norm(in.x, in.plain({4}), in.plain({4}), {}, {}, true, 0.1, 1e-5, false)};
       }},
      {"interpolate",
       [](auto& in) {
         return Results{F::interpolate(
             in.x, F::InterpolateFuncOptions().scale_factor(std::vector<double>{2.0}).mode(torch::kNearest))};
       }},
  };
  return all;
}

/// Of pictures: (batch, 4, height, width), both ragged.
inline const std::vector<Case>& of_pictures() {
  static const std::vector<Case> all = {
      {"sum", [](auto& in) { return Results{sum_over(in.x, {2, 3}), in.x.sum(1), in.x.mean({1, 2, 3}), in.x.sum(3)}; }},
      {"amax", [](auto& in) { return Results{in.x.amax({2, 3}), in.x.amax(2)}; }},
      {"softmax", [](auto& in) { return Results{in.x.softmax(1), in.x.softmax(2), in.x.softmax(3)}; }},
      {"tensor and mask", [](auto& in) { return Results{in.x.tensor(), in.x.mask()}; }},
      {"slices", [](auto& in) { return Results{in.x.slice(2, 1), in.x.slice(3, 0, -1), in.x.flip(3)}; }},
      {"permute", [](auto& in) { return Results{in.x.permute({0, 2, 3, 1}), in.x.transpose(2, 3)}; }},
      {"conv2d", [](auto& in) { return Results{torch::conv2d(in.x, in.plain({3, 4, 3, 3}), in.plain({3}), 1, 1)}; }},
      {"batch_norm", [](auto& in) { return Results{in.module(torch::nn::BatchNorm2d(4))->forward(in.x)}; }},
      {"group_norm", [](auto& in) { return Results{torch::group_norm(in.x, 2, in.plain({4}), in.plain({4}))}; }},
  };
  return all;
}

}  // namespace nested_devices
