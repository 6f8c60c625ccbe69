#include <danling/nn/sync_batch_norm.hpp>

#include <cstring>
#include <ostream>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <danling/core/error.hpp>

#include <tensors/raw.hpp>

namespace danling::inline v0::nn {
namespace {

constexpr auto layer_type = "nn.SyncBatchNorm";
constexpr char forward_pass = 'f', backward_pass = 'b';

using Exchange = SyncBatchNormImpl::Exchange;
using Numbers = std::vector<double>;

at::ScalarType statistics_dtype(const at::Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor tensor_of(Numbers numbers, const at::Tensor& like) {
  const auto size = static_cast<std::int64_t>(numbers.size());
  return at::from_blob(numbers.data(), {size}, at::kDouble)
      .to(statistics_dtype(like), false, /*copy=*/true)
      .to(like.device());
}

void append(Numbers& numbers, const at::Tensor& values) {
  const at::Tensor host = tensors::raw(values.to(at::kCPU, at::kDouble));  // waits for the device
  const auto* begin = host.const_data_ptr<double>();
  numbers.insert(numbers.end(), begin, begin + host.numel());
}

std::string pack(char pass, const Numbers& numbers) {
  std::string out(1, pass);
  return out.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double));
}

// Unpacks the share of a rank; empty for a rank without a batch.
Numbers unpack(char pass, const std::vector<std::string>& shares, std::size_t rank, std::size_t count) {
  const std::string& share = shares[rank];
  if (share.empty()) {
    return {};
  }
  check<DistributedError>(share.front() == pass && share.size() == 1 + count * sizeof(double), layer_type,
                          "expected the same layer in the same pass on all ranks, got ",
                          share.front() == pass
                              ? concat(share.size() - 1, " bytes where ", count * sizeof(double), " were expected")
                              : concat(pass == forward_pass ? "a backward" : "a forward", " pass"),
                          " on rank ", rank, "; all ranks must call the layers equally often and in the same order");
  Numbers out(count);
  std::memcpy(out.data(), share.data() + 1, count * sizeof(double));
  return out;
}

/// The exchange function, stored for the backward pass.
struct HeldExchange : torch::CustomClassHolder {
  explicit HeldExchange(Exchange held) : exchange(std::move(held)) {}
  Exchange exchange;
};

/// Normalizes with given statistics, which depend on the inputs of all ranks.
struct Normalize : torch::autograd::Function<Normalize> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& mean,
                            const at::Tensor& var, double eps, double count, const Exchange& exchange) {
    context->save_for_backward({input, weight, mean, var});
    context->saved_data["eps"] = eps;
    context->saved_data["count"] = count;
    context->saved_data["exchange"] = c10::IValue::make_capsule(c10::make_intrusive<HeldExchange>(exchange));
    if (input.numel() == 0) {
      return at::empty_like(input);
    }
    const auto dtype = mean.scalar_type();
    return std::get<0>(at::native_batch_norm(input, weight.to(dtype), bias.to(dtype), mean, var, /*training=*/false,
                                             /*momentum=*/0.0, eps));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list outputs) {
    check<StateError>(!c10::GradMode::is_enabled(), layer_type,
                      "expected a backward pass without create_graph, got one with it: second derivatives over all "
                      "ranks are not implemented");
    const auto saved = context->get_saved_variables();
    const at::Tensor &weight = saved[1], &mean = saved[2], &var = saved[3];
    const double eps = context->saved_data["eps"].toDouble();
    const auto dtype = mean.scalar_type();
    const at::Tensor input = saved[0].to(dtype), output = outputs[0].to(dtype);
    const bool is_empty = input.numel() == 0;

    // Sums of dy, and of dy times the normalized input: the gradients of bias and weight.
    at::Tensor sum = at::zeros_like(mean), product = at::zeros_like(mean);
    if (!is_empty) {
      std::tie(std::ignore, product, sum) = at::native_batch_norm_backward(output, input, {}, mean, var, {}, {},
                                                                           /*train=*/false, eps, {false, true, true});
    }
    torch::autograd::variable_list gradients(8);
    gradients[1] = product.to(weight.scalar_type());
    gradients[2] = sum.to(weight.scalar_type());
    if (!context->needs_input_grad(0)) {
      return gradients;
    }
    const auto channels = static_cast<std::size_t>(mean.numel());
    Numbers own;
    append(own, sum);
    append(own, product);
    const auto held = context->saved_data["exchange"].toCapsule();
    const auto& exchange = static_cast<const HeldExchange&>(*held).exchange;
    const auto shares = exchange(pack(backward_pass, own));
    check<StateError>(!shares.empty(), layer_type,
                      "expected the backward pass in the training step of the forward pass, got one outside");
    const double count = context->saved_data["count"].toDouble();
    Numbers means_of_sum(channels), means_of_product(channels);
    for (std::size_t rank = 0; rank < shares.size(); ++rank) {
      const Numbers share = unpack(backward_pass, shares, rank, 2 * channels);
      for (std::size_t i = 0; !share.empty() && i < channels; ++i) {
        means_of_sum[i] += share[i] / count;
        means_of_product[i] += share[channels + i] / count;
      }
    }
    if (is_empty) {
      gradients[0] = at::empty_like(saved[0]);
      return gradients;
    }
    // factor * (dy - mean(dy) - normalized * mean(dy * normalized))
    const at::Tensor factor = var.add(eps).rsqrt_().mul_(weight.to(dtype));
    const at::Tensor rest = std::get<0>(
        at::native_batch_norm(input, -factor * tensor_of(std::move(means_of_product), mean),
                              -factor * tensor_of(std::move(means_of_sum), mean), mean, var, false, 0.0, eps));
    std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
    shape[1] = mean.numel();
    gradients[0] = rest.addcmul(output, factor.view(shape)).to(saved[0].scalar_type());
    return gradients;
  }
};

}  // namespace

/// Number of values per channel, their mean, and the sum of squared distances from it.
struct SyncBatchNormImpl::Statistics {
  double count = 0;
  Numbers mean, squares;

  explicit Statistics(std::size_t channels) : mean(channels), squares(channels) {}

  static Statistics of(const at::Tensor& input) {
    Statistics out(static_cast<std::size_t>(input.size(1)));
    if (input.numel() == 0) {
      return out;
    }
    const at::NoGradGuard no_grad;
    const at::Tensor values = input.detach().to(statistics_dtype(input));
    const auto [mean, var] = at::batch_norm_update_stats(values, {}, {}, 0.0);
    out.count = static_cast<double>(values.numel() / values.size(1));
    out.mean.clear();
    out.squares.clear();
    append(out.mean, mean);
    append(out.squares, var);
    for (double& square : out.squares) {
      square *= out.count;
    }
    return out;
  }

  std::string share() const {
    Numbers numbers = {count};
    numbers.insert(numbers.end(), mean.begin(), mean.end());
    numbers.insert(numbers.end(), squares.begin(), squares.end());
    return pack(forward_pass, numbers);
  }

  // Chan, Golub and LeVeque, 1979.
  static Statistics over(const std::vector<std::string>& shares, std::size_t channels) {
    Statistics out(channels);
    for (std::size_t rank = 0; rank < shares.size(); ++rank) {
      const Numbers share = unpack(forward_pass, shares, rank, 1 + 2 * channels);
      const double count = share.empty() ? 0 : share.front();
      if (count == 0) {
        continue;
      }
      const double all = out.count + count;
      for (std::size_t i = 0; i < channels; ++i) {
        const double distance = share[1 + i] - out.mean[i];
        out.mean[i] += distance * (count / all);
        out.squares[i] += share[1 + channels + i] + distance * distance * (out.count * count / all);
      }
      out.count = all;
    }
    check<DataError>(out.count > 1, layer_type,
                     "expected more than one value per channel over all ranks in training, got ",
                     static_cast<std::int64_t>(out.count), "; use larger batches, or set dataloader.drop_last");
    return out;
  }

  Numbers variance(double divisor) const {
    Numbers out = squares;
    for (double& square : out) {
      square /= divisor;
    }
    return out;
  }
};

SyncBatchNormImpl::SyncBatchNormImpl(const SyncBatchNormOptions& options_, Group group)
    : torch::nn::BatchNorm1dImpl(options_) {
  set_group(std::move(group));
}

void SyncBatchNormImpl::set_group(Group group) {
  Exchange exchange;
  if (!group.alone()) {
    exchange = [group](std::string_view share) { return group.all_gather(share); };
  }
  set_group(std::move(group), std::move(exchange));
}

void SyncBatchNormImpl::set_group(Group group, Exchange exchange) {
  group_ = std::move(group);
  exchange_ = std::move(exchange);
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  if (!is_training() || group_.alone() || !exchange_) {
    return torch::nn::BatchNorm1dImpl::forward(input);
  }
  _check_input_dim(input);
  const auto shares = exchange_(Statistics::of(input).share());
  if (shares.empty()) {
    return torch::nn::BatchNorm1dImpl::forward(input);
  }
  const auto all = Statistics::over(shares, static_cast<std::size_t>(options.num_features()));
  update_running(all);
  const at::Tensor mean = tensor_of(all.mean, input);
  return Normalize::apply(input, weight.defined() ? weight : at::ones_like(mean),
                          bias.defined() ? bias : at::zeros_like(mean), mean, tensor_of(all.variance(all.count), input),
                          options.eps(), all.count, exchange_);
}

void SyncBatchNormImpl::join_exchange(const std::vector<std::string>& shares) {
  for (const std::string& share : shares) {
    if (!share.empty() && share.front() == forward_pass) {
      update_running(Statistics::over(shares, static_cast<std::size_t>(options.num_features())));
      return;
    }
  }
}

void SyncBatchNormImpl::update_running(const Statistics& all) {
  if (!running_mean.defined()) {
    return;
  }
  const at::NoGradGuard no_grad;
  num_batches_tracked += 1;
  const double weight_of_new = options.momentum() ? *options.momentum() : 1.0 / num_batches_tracked.item().toDouble();
  for (auto& [running, numbers] : {std::pair(running_mean, all.mean), {running_var, all.variance(all.count - 1)}}) {
    const at::Tensor now = tensor_of(numbers, running);
    running.copy_(running.to(now.scalar_type()).mul(1.0 - weight_of_new).add_(now, weight_of_new));
  }
}

std::shared_ptr<torch::nn::Module> SyncBatchNormImpl::clone(const std::optional<at::Device>& device) const {
  const at::NoGradGuard no_grad;
  auto out = std::make_shared<SyncBatchNormImpl>(options);
  out->set_group(group_, exchange_);
  out->train(is_training());
  const auto copy = [&](const auto& from, const auto& to) {
    for (const auto& item : from) {
      at::Tensor& target = *const_cast<at::Tensor*>(to.find(item.key()));
      target.set_data(item.value().detach().clone().to(device.value_or(item.value().device())));
      target.set_requires_grad(item.value().requires_grad());
    }
  };
  copy(named_parameters(), out->named_parameters());
  copy(named_buffers(), out->named_buffers());
  return out;
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "danling::nn::SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps() << ", momentum=";
  if (options.momentum()) {
    stream << *options.momentum();
  } else {
    stream << "None";
  }
  stream << ", affine=" << std::boolalpha << options.affine()
         << ", track_running_stats=" << options.track_running_stats() << ")";
}

void SyncBatchNormImpl::_check_input_dim(const at::Tensor& input) {
  check<DataError>(input.dim() >= 2 && input.size(1) == options.num_features() && input.is_floating_point(), layer_type,
                   "expected floating input of shape (N, ", options.num_features(), ", ...), got ",
                   c10::toString(input.scalar_type()), " [", join(input.sizes()), "]");
}

}  // namespace danling::inline v0::nn
