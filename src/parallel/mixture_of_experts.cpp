#include <danling/parallel/mixture_of_experts.hpp>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <danling/core/error.hpp>
#include <danling/parallel/expert_exchange.hpp>
#include <danling/parallel/slices.hpp>

#include <parallel/axis_group.hpp>
#include <parallel/expert_axis.hpp>
#include <parallel/expert_routing.hpp>

namespace danling::inline v0::parallel {
namespace {

constexpr auto mixture_name = "parallel.MixtureOfExperts";

void check_options(const MixtureOfExpertsOptions& options) {
  check<ConfigError>(options.dim > 0 && options.hidden_dim > 0 && options.num_experts > 0, mixture_name,
                     "expected dim, hidden_dim and num_experts above 0, got ", options.dim, ", ", options.hidden_dim,
                     " and ", options.num_experts);
  check<ConfigError>(options.top_k > 0 && options.top_k <= options.num_experts, mixture_name,
                     "expected top_k of 1 to num_experts, ", options.num_experts, ", got ", options.top_k);
  check<ConfigError>(options.capacity_factor > 0 && options.eval_capacity_factor > 0, mixture_name,
                     "expected capacity_factor and eval_capacity_factor above 0, got ", options.capacity_factor,
                     " and ", options.eval_capacity_factor);
  check<ConfigError>(options.jitter >= 0 && options.jitter < 1, mixture_name, "expected a jitter of 0 to below 1, got ",
                     options.jitter);
  check<ConfigError>(
      options.top_k > 1 || !options.normalize_gates.value_or(false), mixture_name,
      "expected top_k above 1 with normalize_gates, got 1: the weight of the only expert would be 1, and "
      "the router would get no gradient of the output");
}

/// Scatters values to the given rows, which differ; drops values whose place is one past the end.
at::Tensor place_rows(const at::Tensor& values, const at::Tensor& places, std::int64_t rows) {
  return at::zeros({rows + 1, values.size(1)}, values.options()).index_copy(0, places, values).narrow(0, 0, rows);
}

/// Gathers the values at the given places; zeros for places past the end.
at::Tensor take_rows(const at::Tensor& values, const at::Tensor& places) {
  return at::cat({values, at::zeros({1, values.size(1)}, values.options())}).index_select(0, places);
}

/// The router's decisions for this rank's tokens, and sums over the tokens of all ranks.
struct Decisions {
  at::Tensor chosen;  ///< int64 [top_k, tokens]
  at::Tensor gates;   ///< [top_k, tokens]
  at::Tensor probability_sum, z_sum;
};

Decisions decide(const at::Tensor& tokens, const at::Tensor& weight, const MixtureOfExpertsOptions& options) {
  const at::Tensor logits = at::linear(tokens, weight);
  const at::Tensor probabilities = at::softmax(logits, 1);
  auto [gates, chosen] = at::topk(probabilities, options.top_k, 1);
  if (options.normalize_gates.value_or(options.top_k > 1)) {
    gates = gates / gates.sum(1, /*keepdim=*/true);
  }
  return {chosen.t().contiguous(), gates.t(), probabilities.sum(0), at::logsumexp(logits, 1).square().sum()};
}

}  // namespace

MixtureOfExpertsImpl::MixtureOfExpertsImpl(const MixtureOfExpertsOptions& options_) : options(options_) {
  check_options(options);
  MixtureOfExpertsImpl::reset();
}

at::Tensor MixtureOfExpertsImpl::make_parameter(const std::string& name, std::vector<std::int64_t> sizes,
                                                std::int64_t inputs) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(inputs));  // torch.nn.Linear's bound
  const at::NoGradGuard no_grad;
  return register_parameter(name, at::empty(sizes).uniform_(-bound, bound));
}

void MixtureOfExpertsImpl::reset() {
  const auto [experts, dim, hidden] = std::tuple(options.num_experts, options.dim, options.hidden_dim);
  router = register_module("router", torch::nn::Linear(torch::nn::LinearOptions(dim, experts).bias(false)));
  const bool gated = options.activation == ExpertActivation::swiglu;
  if (gated) {
    gate_weight = make_parameter("gate_weight", {experts, dim, hidden}, dim);
  }
  up_weight = make_parameter("up_weight", {experts, dim, hidden}, dim);
  down_weight = make_parameter("down_weight", {experts, hidden, dim}, hidden);
  if (options.bias) {
    if (gated) {
      gate_bias = make_parameter("gate_bias", {experts, hidden}, dim);
    }
    up_bias = make_parameter("up_bias", {experts, hidden}, dim);
    down_bias = make_parameter("down_bias", {experts, dim}, hidden);
  }
}

std::shared_ptr<torch::nn::Module> MixtureOfExpertsImpl::clone(const std::optional<at::Device>& device) const {
  auto out = Cloneable::clone(device);
  auto& copy = dynamic_cast<MixtureOfExpertsImpl&>(*out);
  copy.declare_slices();
  copy.auxiliary_loss_.reset();
  copy.statistics_ = {};
  return out;
}

void MixtureOfExpertsImpl::parallelize(const ParallelContext& context) {
  check<StateError>(experts_.alone() && hidden_.alone(), mixture_name,
                    "expected one call of parallelize, got a second on a module that holds slices");
  experts_ = detail::axis_group(context, "expert");
  hidden_ = detail::axis_group(context, "expert_tensor");
  const at::NoGradGuard no_grad;
  const auto experts = expert_axis::part_of(options.num_experts, experts_.size(), experts_.rank());
  const auto hidden = expert_axis::part_of(options.hidden_dim, hidden_.size(), hidden_.rank());
  const auto keep = [&](at::Tensor& parameter, std::int64_t hidden_dim) {
    if (parameter.defined() && (experts_.size() > 1 || hidden_.size() > 1)) {
      at::Tensor slice = parameter.narrow(0, experts.begin, experts.count);
      slice = hidden_dim < 0 ? slice : slice.narrow(hidden_dim, hidden.begin, hidden.count);
      // Keeps the object, which an optimizer may hold.
      parameter.set_data(slice.detach().clone(at::MemoryFormat::Contiguous));
      parameter.mutable_grad().reset();
    }
  };
  keep(gate_weight, 2);
  keep(up_weight, 2);
  keep(down_weight, 1);
  keep(gate_bias, 1);
  keep(up_bias, 1);
  keep(down_bias, -1);
  declare_slices();
}

void MixtureOfExpertsImpl::declare_slices() const {
  const auto experts = expert_axis::part_of(options.num_experts, experts_.size(), experts_.rank());
  const auto hidden = expert_axis::part_of(options.hidden_dim, hidden_.size(), hidden_.rank());
  const auto declare = [&](const at::Tensor& parameter, std::int64_t hidden_dim) {
    std::vector<Slice> slices;
    if (experts_.size() > 1) {
      slices.push_back({"expert", 0, options.num_experts, experts.begin});
    }
    if (hidden_.size() > 1 && hidden_dim > 0) {
      slices.push_back({"expert_tensor", hidden_dim, options.hidden_dim, hidden.begin});
    }
    if (parameter.defined() && !slices.empty()) {
      set_slices(parameter, std::move(slices));
    }
  };
  declare(gate_weight, 2);
  declare(up_weight, 2);
  declare(down_weight, 1);
  declare(gate_bias, 1);
  declare(up_bias, 1);
  declare(down_bias, -1);
}

std::int64_t MixtureOfExpertsImpl::capacity(std::int64_t tokens) const {
  const double factor = is_training() ? options.capacity_factor : options.eval_capacity_factor;
  const double places = factor * static_cast<double>(options.top_k) / static_cast<double>(options.num_experts);
  if (places >= 1) {
    return tokens;
  }
  // The tolerance avoids an additional place if a product such as 1.1 * 10 rounds up.
  return static_cast<std::int64_t>(std::ceil(places * static_cast<double>(tokens) * (1 - 1e-12)));
}

at::Tensor MixtureOfExpertsImpl::run_experts(const at::Tensor& tokens) const {
  const auto product = [](const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias) {
    const at::Tensor out = at::bmm(rows, weight);
    return bias.defined() ? out + bias.unsqueeze(1).to(out.scalar_type()) : out;
  };
  const at::Tensor rows = expert_axis::sum_gradients(tokens, hidden_);
  at::Tensor hidden = product(rows, up_weight, up_bias);
  hidden = gate_weight.defined() ? at::silu(product(rows, gate_weight, gate_bias)) * hidden : at::gelu(hidden);
  const at::Tensor out = expert_axis::sum_values(at::bmm(hidden, down_weight), hidden_);
  return down_bias.defined() ? out + down_bias.unsqueeze(1).to(out.scalar_type()) : out;
}

MixtureOutput MixtureOfExpertsImpl::forward_with_loss(const at::Tensor& input) {
  check<DataError>(input.dim() > 0 && input.size(-1) == options.dim && input.is_floating_point(), mixture_name,
                   "expected floating [..., ", options.dim, "], got ", c10::toString(input.scalar_type()), " [",
                   join(input.sizes()), "]");
  const at::Tensor all = input.reshape({-1, options.dim});
  const std::int64_t tokens = all.size(0);
  const expert_routing::Sizes sizes = {.experts = options.num_experts,
                                       .top_k = options.top_k,
                                       .capacity = capacity(tokens),
                                       .ranks = experts_.size(),
                                       .rank = experts_.rank()};
  const at::Tensor own = expert_axis::split_rows(all, experts_);

  Decisions decisions;
  at::Tensor counts, sums;
  {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto type = input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    at::Tensor read = own.to(type);
    if (options.jitter > 0 && is_training()) {
      // Drawn for all tokens: with equal generators, the same numbers for any number of ranks.
      const at::Tensor noise = at::empty_like(all, all.options().dtype(type).requires_grad(false))
                                   .uniform_(1 - options.jitter, 1 + options.jitter);
      const auto part = expert_axis::part_of(tokens, experts_.size(), experts_.rank());
      read = read * noise.narrow(0, part.begin, part.count);
    }
    decisions = decide(read, expert_axis::sum_gradients(router->weight, experts_).to(type), options);
  }
  const at::Tensor keys = expert_routing::keys_of(decisions.chosen);
  const at::Tensor own_counts = expert_routing::count_keys(keys, sizes).unsqueeze(0);
  {
    // One message: this rank's counts in its row, and the sums for the losses. float64 holds counts exactly.
    const at::Tensor losses = at::cat({decisions.probability_sum, decisions.z_sum.unsqueeze(0)});
    at::Tensor rows = own_counts;
    sums = losses;
    if (sizes.ranks > 1) {
      rows = at::zeros({sizes.ranks, own_counts.size(1)}, losses.options().dtype(at::kDouble).requires_grad(false));
      rows.select(0, sizes.rank).copy_(own_counts.squeeze(0));
      const at::Tensor message = expert_axis::sum_values(at::cat({rows.flatten(), losses.to(at::kDouble)}), experts_);
      sums = message.narrow(0, rows.numel(), losses.numel()).to(losses.scalar_type());
      rows = message.detach().narrow(0, 0, rows.numel()).view(rows.sizes()).to(at::kLong);
    }
    counts = rows;
  }

  const expert_routing::Queues queues = expert_routing::find_queues(keys, counts, sizes);
  const at::Tensor choices = own.repeat({options.top_k, 1});
  const std::int64_t own_experts = up_weight.size(0), places = own_experts * sizes.capacity;
  at::Tensor results, rows;
  if (sizes.ranks == 1) {
    rows = expert_routing::slots_of(keys, queues, sizes);
    const at::Tensor slots = place_rows(choices, rows, places).view({own_experts, sizes.capacity, options.dim});
    results = run_experts(slots).flatten(0, 1);
  } else {
    const expert_routing::Messages messages = expert_routing::plan_messages(keys, queues, counts, sizes);
    rows = messages.rows;
    const at::Tensor received =
        all_to_all(place_rows(choices, rows, messages.count_sent()), experts_, messages.sent, messages.received);
    const at::Tensor slots =
        place_rows(received, messages.slots, places).view({own_experts, sizes.capacity, options.dim});
    results = all_to_all(run_experts(slots).flatten(0, 1).index_select(0, messages.slots), experts_, messages.received,
                         messages.sent);
  }
  const at::Tensor weighted = take_rows(results, rows).view({options.top_k, -1, options.dim}) *
                              decisions.gates.unsqueeze(2).to(results.scalar_type());
  const at::Tensor output = expert_axis::gather_rows(weighted.sum(0), experts_);

  const at::Tensor load = counts.view({sizes.ranks, sizes.experts, sizes.top_k}).sum(at::IntArrayRef{0, 2});
  const auto divisor = static_cast<double>(std::max<std::int64_t>(tokens, 1));
  const at::Tensor shares = load.to(sums.scalar_type()) / (divisor * static_cast<double>(options.top_k));
  const at::Tensor balance =
      (shares * sums.narrow(0, 0, sizes.experts)).sum() * (static_cast<double>(options.num_experts) / divisor);
  const at::Tensor z = sums[sizes.experts] / divisor;
  count(load, sizes.capacity);
  statistics_.balance_loss = balance.detach();
  statistics_.router_z_loss = z.detach();
  return {output.view(input.sizes()), balance * options.balance_weight + z * options.router_z_weight};
}

void MixtureOfExpertsImpl::count(const at::Tensor& load, std::int64_t capacity) {
  const at::NoGradGuard no_grad;
  const c10::InferenceMode normal(false);  // a later training step adds to the counters in place
  if (!statistics_.routed.defined() || statistics_.routed.device() != load.device()) {
    const auto on_device = [&](const at::Tensor& number) {
      return number.defined() ? number.to(load.device()) : at::zeros({}, load.options());
    };
    statistics_.routed = on_device(statistics_.routed);
    statistics_.dropped = on_device(statistics_.dropped);
    statistics_.expert_load = at::empty_like(load);
  }
  statistics_.routed.add_(load.sum());
  statistics_.dropped.add_((load - capacity).clamp_min_(0).sum());
  statistics_.expert_load.copy_(load);
}

at::Tensor MixtureOfExpertsImpl::forward(const at::Tensor& input) {
  MixtureOutput out = forward_with_loss(input);
  auxiliary_loss_ = std::move(out.auxiliary_loss);
  return out.output;
}

const at::Tensor& MixtureOfExpertsImpl::auxiliary_loss() const {
  check<StateError>(auxiliary_loss_.defined(), mixture_name, "expected a forward pass before auxiliary_loss, got none");
  return auxiliary_loss_;
}

void MixtureOfExpertsImpl::reset_statistics() {
  if (statistics_.routed.defined()) {
    statistics_.routed.zero_();
    statistics_.dropped.zero_();
  }
}

void MixtureOfExpertsImpl::pretty_print(std::ostream& stream) const {
  stream << "danling::parallel::MixtureOfExperts(" << options.dim << ", hidden_dim=" << options.hidden_dim
         << ", num_experts=" << options.num_experts << ", top_k=" << options.top_k
         << ", capacity_factor=" << options.capacity_factor
         << ", activation=" << (options.activation == ExpertActivation::swiglu ? "swiglu" : "gelu")
         << ", ranks=" << experts_.size() << "x" << hidden_.size() << ")";
}

}  // namespace danling::inline v0::parallel
