#include <danling/runner/parallelism.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include <torch/csrc/autograd/autograd.h>

#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>
#include <danling/optim/clip.hpp>

#include <runner/rank_messages.hpp>

namespace danling::inline v0 {
namespace {

// Names of ParallelContext in the specification.
constexpr std::array<std::string_view, 7> axes = {"replicate", "shard",  "context",      "pipeline",
                                                  "tensor",    "expert", "expert_tensor"};

ProcessIdentity identity_of(const Group& group) {
  ProcessIdentity out = read_process_identity();
  out.rank = group.rank();
  out.world_size = group.size();
  return out;
}

// True if ranks that have not ended their pass exchange statistics inside a step.
bool are_inside_step(const std::vector<detail::Message>& messages) {
  const auto is = [](detail::Purpose purpose) {
    return [purpose](const detail::Message& message) { return message.purpose == purpose; };
  };
  const auto inside = std::count_if(messages.begin(), messages.end(), is(detail::Purpose::statistics));
  const auto ended = std::count_if(messages.begin(), messages.end(), is(detail::Purpose::ended));
  return inside > 0 && inside + ended == std::ssize(messages);
}

std::vector<std::string> shares_of(const std::vector<detail::Message>& messages) {
  std::vector<std::string> out;
  for (const detail::Message& message : messages) {
    out.push_back(message.purpose == detail::Purpose::statistics ? message.body : std::string());
  }
  return out;
}

}  // namespace

Parallelism::Parallelism(Group group) : identity_(identity_of(group)), group_(std::move(group)) {}

Parallelism::~Parallelism() = default;

AxisPlace Parallelism::axis(std::string_view name) const {
  if (std::find(axes.begin(), axes.end(), name) == axes.end()) {
    const std::vector<std::string> known(axes.begin(), axes.end());
    fail<ConfigError>("parallelism.axis", "expected an axis among [", join(known), "], got ", quote(name),
                      did_you_mean(name, known));
  }
  return {};
}

std::optional<std::int64_t> Parallelism::generators_from(const State&, std::int64_t ranks) const {
  return identity_.rank < ranks ? std::optional<std::int64_t>(identity_.rank) : std::nullopt;
}

void Parallelism::prepare(ModelHandle& model, at::Device device) { model.to(device); }

void Parallelism::prepare_optimizers(const std::vector<optim::Optimizer*>&) {}

std::shared_ptr<void> Parallelism::gather_full_state(const std::vector<const optim::Optimizer*>&, bool) {
  return nullptr;
}

State detail::axes_of(const Parallelism& parallelism) {
  State out{State::Map()};
  for (const std::string_view axis : axes) {
    if (const auto size = parallelism.axis(axis).size; size > 1) {
      out[axis] = size;
    }
  }
  return out;
}

std::optional<TensorShard> Parallelism::shard_of(const at::Tensor&) const { return std::nullopt; }

State Parallelism::state_dict() const { return {}; }

std::string Parallelism::load_state_dict(const State& state) {
  return state.is_null()
             ? ""
             : concat("the state of gradients between processes, which stack ", quote(name()), " does not use");
}

void Parallelism::begin_step(const WindowPlace&) {}

void Parallelism::set_loss_scale(const optim::Optimizer&, const at::Tensor&) {}

void Parallelism::begin_backward(const WindowPlace&) {}

std::string Parallelism::unrecordable_reason() const {
  return name() == "single" ? std::string() : concat("the stack ", quote(name()), " does not support it");
}

void Parallelism::backward(const at::Tensor& loss, const at::Tensor& seed, const WindowPlace&,
                           const BackwardOptions& options) {
  torch::autograd::backward({loss}, {seed}, options.retain_graph, /*create_graph=*/false, options.inputs);
}

StepPacket Parallelism::exchange_packets(const StepPacket& mine) {
  if (group_.alone()) [[likely]] {
    return mine;
  }
  const Wait wait(*this);
  std::string text(sizeof(StepPacket), '\0');
  std::memcpy(text.data(), &mine, sizeof(StepPacket));  // all ranks run the same program on the same kind of machine
  const auto purpose = mine.exhausted ? detail::Purpose::ended : detail::Purpose::update;
  std::vector<detail::Message> messages = detail::meet(group_, purpose, text);
  while (mine.exhausted && are_inside_step(messages)) {
    join_exchange(shares_of(messages));
    messages = detail::meet(group_, purpose, text);
  }
  detail::check_outside_step(messages, "parallelism.agree");
  StepPacket all{.all_ended = true};
  std::int64_t rank = -1;
  const auto logs = [](const detail::Message& message) { return message.purpose == detail::Purpose::log; };
  if (!mine.exhausted && std::any_of(messages.begin(), messages.end(), logs)) {
    detail::fail_apart(messages, "parallelism.agree");  // the ranks have different numbers of batches per update
  }
  for (const detail::Message& message : messages) {
    ++rank;
    all.exhausted |= message.purpose == detail::Purpose::ended;
    all.logs |= message.purpose == detail::Purpose::log;
    all.all_ended &= message.purpose == detail::Purpose::ended;
    if (message.body.size() != sizeof(StepPacket)) {
      if (message.purpose == detail::Purpose::exchange) {
        detail::fail_apart(messages, "parallelism.agree");
      }
      continue;
    }
    StepPacket other;
    std::memcpy(&other, message.body.data(), sizeof(StepPacket));
    if (!other.exhausted) {
      check<DistributedError>(all.learner < 0 || other.learner < 0 || all.learner == other.learner, "parallelism.agree",
                              "expected all processes to update the same model, got number ", all.learner, " and ",
                              other.learner, "; the order of step(name) must be the same on all ranks");
      all.learner = std::max(all.learner, other.learner);
      all.source = all.source < 0 ? rank : all.source;
    }
    check<DistributedError>(all.unit == 0 || other.unit == 0 || all.unit == other.unit, "parallelism.agree",
                            "expected loss normalizers of the batches of all ranks or of none, got both (seen at rank ",
                            rank, "); set a loss_normalizer in all batches, or in none");
    all.unit = std::max(all.unit, other.unit);
    all.micro_step = std::max(all.micro_step, other.micro_step);
    all.iteration = std::max(all.iteration, other.iteration);
    all.regroup |= other.regroup;
    all.missing |= other.missing;
    all.late |= other.late;
    all.weight += sums_gradients() ? other.weight : 0.0;
    all.signal = std::max(all.signal, other.signal);
    all.stop |= other.stop;
    all.end |= other.end;
    all.evaluate |= other.evaluate;
    all.save |= other.save;
    all.timed_out |= other.timed_out;
    all.nonfinite |= other.nonfinite;
    all.loss += other.loss;
    all.loss_weight += other.loss_weight;
  }
  all.weight = sums_gradients() ? all.weight : mine.weight;
  return all;
}

void Parallelism::join_exchange(const std::vector<std::string>&) {}

void Parallelism::reduce_gradients(optim::Optimizer&) {}

void Parallelism::end_shard(optim::Optimizer&) {}

at::Tensor Parallelism::nonfinite_flag(const std::vector<at::Tensor>& params) { return optim::nonfinite_flag(params); }

void Parallelism::clip_grad_value(const std::vector<at::Tensor>& params, double max_value, double divisor) {
  optim::clip_grad_value(params, max_value, divisor);
}

at::Tensor Parallelism::clip_grad_norm(const std::vector<at::Tensor>& params, double max_norm,
                                       optim::GradScale& scale) {
  return optim::clip_grad_norm(params, max_norm, scale);
}

void Parallelism::zero_grad(optim::Optimizer& optimizer) { optimizer.zero_grad(); }

void Parallelism::end_step(const WindowPlace&) noexcept {}

void Parallelism::abort(std::string_view words) {
  if (group_.abort_reaches_others()) {
    group_.abort(words);
  } else if (!group_.alone()) {
    detail::report_failure(group_, words);
  }
}

void Parallelism::set_timeout(std::chrono::milliseconds timeout) { group_.set_timeout(timeout); }

void Parallelism::drop_gradients(optim::Optimizer& optimizer) { zero_grad(optimizer); }

}  // namespace danling::inline v0
