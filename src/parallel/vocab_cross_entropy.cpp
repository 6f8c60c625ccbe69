#include <danling/parallel/vocab_cross_entropy.hpp>

#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/functional/loss.h>

#include <danling/core/error.hpp>
#include <danling/parallel/tensor_functions.hpp>

#include <parallel/tensor_slices.hpp>

namespace danling::inline v0::parallel {
namespace {

constexpr std::string_view loss_name = "parallel.vocab_cross_entropy";

/// This rank's classes among all.
struct ClassRange {
  std::int64_t begin = 0, end = 0, all = 0;
};

ClassRange find_classes(std::int64_t mine, std::int64_t all, const Group& group) {
  if (all > 0) {
    const auto sizes = part_sizes(all, group.size());
    const std::int64_t expected = sizes[static_cast<std::size_t>(group.rank())];
    check<DataError>(expected == mine, loss_name, "expected logits of ", expected, " of ", all, " classes on rank ",
                     group.rank(), " of ", group.size(), ", got ", mine);
    const std::int64_t begin = danling::detail::part_offset(sizes, group.rank());
    return {begin, begin + mine, all};
  }
  ClassRange out;
  const auto texts = group.all_gather(std::string_view(reinterpret_cast<const char*>(&mine), sizeof mine));
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    std::int64_t count = 0;
    std::memcpy(&count, texts[rank].data(), sizeof count);
    out.begin += rank < static_cast<std::size_t>(group.rank()) ? count : 0;
    out.all += count;
  }
  out.end = out.begin + mine;
  return out;
}

struct ClassLoss : torch::CustomClassHolder {
  Group group;
  ClassRange classes;
  std::int64_t ignored = -100;
  double smoothing = 0;
};

/// Loss over rows of logits (rows, this rank's classes): one value per row, 0 for ignored targets.
struct SlicedCrossEntropy : torch::autograd::Function<SlicedCrossEntropy> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& logits,
                            const at::Tensor& target, const c10::intrusive_ptr<ClassLoss>& loss) {
    const ClassRange& classes = loss->classes;
    const bool is_empty = classes.begin == classes.end;
    const at::Tensor values = logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
    at::Tensor maximum = is_empty
                             ? at::full({values.size(0)}, -std::numeric_limits<double>::infinity(), values.options())
                             : values.amax(1);
    loss->group.all_reduce(maximum, ReduceOp::max);
    const at::Tensor shifted = values - maximum.unsqueeze(1);

    // Targets of other ranks read the first class here. A target out of range is in the first or last slice, where
    // gather throws.
    at::Tensor elsewhere = target.eq(loss->ignored);
    if (classes.begin > 0) {
      elsewhere.logical_or_(target.lt(classes.begin));
    }
    if (classes.end < classes.all) {
      elsewhere.logical_or_(target.ge(classes.end));
    }
    const at::Tensor local = (target - classes.begin).masked_fill_(elsewhere, 0);
    const at::Tensor picked = is_empty
                                  ? at::zeros_like(maximum)
                                  : at::gather(shifted, 1, local.unsqueeze(1)).squeeze(1).masked_fill(elsewhere, 0);
    std::vector<at::Tensor> addends{shifted.exp().sum(1), picked};
    if (loss->smoothing > 0) {
      addends.push_back(shifted.sum(1));
    }
    at::Tensor sums = at::stack(addends);
    loss->group.all_reduce(sums);
    const at::Tensor log_sum = sums[0].log();
    at::Tensor out = log_sum - sums[1];
    if (loss->smoothing > 0) {
      const at::Tensor even = log_sum - sums[2] / static_cast<double>(classes.all);
      out = out * (1 - loss->smoothing) + even * loss->smoothing;
    }
    context->save_for_backward({logits, target, local, elsewhere, maximum + log_sum});
    context->saved_data["loss"] = c10::IValue::make_capsule(loss);
    return out.masked_fill_(target.eq(loss->ignored), 0);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& outputs) {
    check<StateError>(!c10::GradMode::is_enabled(), loss_name,
                      "expected a backward pass without create_graph, got one with it: second derivatives over ranks "
                      "are not implemented");
    const auto saved = context->get_saved_variables();
    const at::Tensor &logits = saved[0], &target = saved[1], &local = saved[2], &elsewhere = saved[3];
    const auto held = context->saved_data["loss"].toCapsule();
    const auto& loss = static_cast<const ClassLoss&>(*held);
    if (loss.classes.begin == loss.classes.end) {
      return {at::zeros_like(logits), {}, {}};
    }
    const at::Tensor normalizer = saved[4].unsqueeze(1);
    at::Tensor gradient = (logits.to(normalizer.scalar_type()) - normalizer).exp_();  // the softmax
    if (loss.smoothing > 0) {
      gradient.sub_(loss.smoothing / static_cast<double>(loss.classes.all));
    }
    const at::Tensor subtracted = elsewhere.logical_not().to(gradient.scalar_type()).mul_(loss.smoothing - 1);
    gradient.scatter_add_(1, local.unsqueeze(1), subtracted.unsqueeze(1));
    const at::Tensor factor = outputs[0].masked_fill(target.eq(loss.ignored), 0);
    return {gradient.mul_(factor.unsqueeze(1)).to(logits.scalar_type()), {}, {}};
  }
};

void check_loss(const at::Tensor& logits, const at::Tensor& target, const VocabParallelCrossEntropyOptions& options) {
  check<DataError>(logits.dim() > 0 && logits.is_floating_point(), loss_name,
                   "expected floating logits of at least one dimension, got ", c10::toString(logits.scalar_type()),
                   " of ", logits.dim());
  check<DataError>(at::isIntegralType(target.scalar_type(), false), loss_name,
                   "expected classes as targets, got values of ", c10::toString(target.scalar_type()),
                   "; targets that are probabilities need all classes: use gather_output");
  auto expected = logits.sizes().vec();
  expected.erase(expected.begin() + (logits.dim() > 1 ? 1 : 0));
  check<DataError>(target.sizes() == expected, loss_name, "expected targets of shape [", join(expected), "], got [",
                   join(target.sizes()), "]");
  check<ConfigError>(options.label_smoothing() >= 0 && options.label_smoothing() <= 1, loss_name,
                     "expected label_smoothing from 0 to 1, got ", options.label_smoothing());
}

}  // namespace

at::Tensor vocab_parallel_cross_entropy(const at::Tensor& logits, const at::Tensor& target, const Group& group,
                                        const VocabParallelCrossEntropyOptions& options) {
  if (group.alone()) {
    return torch::nn::functional::cross_entropy(logits, target,
                                                torch::nn::functional::CrossEntropyFuncOptions()
                                                    .ignore_index(options.ignore_index())
                                                    .label_smoothing(options.label_smoothing())
                                                    .reduction(options.reduction()));
  }
  check_loss(logits, target, options);
  const std::int64_t class_dim = logits.dim() > 1 ? 1 : 0;
  auto loss = c10::make_intrusive<ClassLoss>();
  loss->group = group;
  loss->classes = find_classes(logits.size(class_dim), options.num_classes(), group);
  loss->ignored = options.ignore_index();
  loss->smoothing = options.label_smoothing();
  const at::Tensor rows = logits.movedim(class_dim, -1).reshape({target.numel(), logits.size(class_dim)});
  const at::Tensor flat = target.reshape({-1}).to(at::kLong);
  const at::Tensor each = SlicedCrossEntropy::apply(rows, flat, loss);
  if (std::holds_alternative<torch::enumtype::kNone>(options.reduction())) {
    return each.view(target.sizes());
  }
  const at::Tensor sum = each.sum();
  // Divided by the counted targets; 0 / 0 without any, as F::cross_entropy.
  return std::holds_alternative<torch::enumtype::kSum>(options.reduction())
             ? sum
             : sum / flat.ne(options.ignore_index()).sum().to(sum.scalar_type());
}

VocabParallelCrossEntropyImpl::VocabParallelCrossEntropyImpl(const VocabParallelCrossEntropyOptions& of)
    : options(of) {}

void VocabParallelCrossEntropyImpl::slice(std::string_view) {}

at::Tensor VocabParallelCrossEntropyImpl::forward(const at::Tensor& logits, const at::Tensor& target) {
  return vocab_parallel_cross_entropy(logits, target, group(), options);
}

void VocabParallelCrossEntropyImpl::pretty_print(std::ostream& stream) const {
  stream << "VocabParallelCrossEntropy(ignore_index=" << options.ignore_index()
         << ", label_smoothing=" << options.label_smoothing() << ")";
}

}  // namespace danling::inline v0::parallel
