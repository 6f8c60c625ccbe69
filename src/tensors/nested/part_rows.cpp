#include <tensors/nested/part_rows.hpp>

#include <algorithm>

#include <ATen/ops/arange.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tensors/nested/blocks.hpp>

namespace danling::inline v0::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct PartPlan : torch::CustomClassHolder {
  RaggedPtr whole;
  std::int64_t parts = 1;
  bool split = true;  ///< false: the inverse
};

/// Returns (rows, parts): for each row of a whole element, the rows of its parts. On the device, from cached indices.
at::Tensor places_of_parts(const PartPlan& plan, at::Device device) {
  const at::Tensor offsets = plan.whole->offsets_on(device), elements = plan.whole->elements_on(device);
  const at::Tensor first = offsets.index_select(0, elements), next = offsets.slice(0, 1).index_select(0, elements);
  const at::Tensor row = at::arange(plan.whole->rows(), first.options()).sub_(first).add_(first, plan.parts);
  return row.unsqueeze(1).add(next.sub(first).unsqueeze(1).mul(at::arange(plan.parts, first.options())));
}

at::Tensor move_parts(const at::Tensor& values, const PartPlan& plan) {
  const Ragged& whole = *plan.whole;
  const std::int64_t skip = plan.split ? 2 : 1;  // dimensions before those of a part's row
  c10::DimVector sizes =
      plan.split ? c10::DimVector{whole.rows() * plan.parts} : c10::DimVector{whole.rows(), plan.parts};
  sizes.insert(sizes.end(), values.sizes().begin() + skip, values.sizes().end());
  at::Tensor out = at::empty(sizes, values.options());
  if (!values.is_cpu() && whole.rank() == 1) {  // one kernel instead of one per run
    const at::Tensor places = places_of_parts(plan, values.device()).flatten();
    return plan.split ? out.index_copy_(0, places, values.flatten(0, 1)) : values.index_select(0, places).view(sizes);
  }
  // Views `rows` rows from `first` on as (elements, rows, parts, ...), in either of the two orders.
  const auto view = [&](const at::Tensor& tensor, bool of_wholes, const Run& run) {
    const std::int64_t rows = whole.rows_of(run.first), own = tensor.stride(0);
    c10::DimVector shape = {run.count, rows, plan.parts}, strides;
    if (of_wholes) {
      strides = {rows * own, own, tensor.stride(1)};
    } else {
      strides = {rows * plan.parts * own, own, rows * own};
    }
    const std::int64_t from = of_wholes ? 2 : 1;
    shape.insert(shape.end(), tensor.sizes().begin() + from, tensor.sizes().end());
    strides.insert(strides.end(), tensor.strides().begin() + from, tensor.strides().end());
    const std::int64_t before = whole.begin(run.first) * own * (of_wholes ? 1 : plan.parts);
    return at::as_strided(tensor, shape, strides, tensor.storage_offset() + before);
  };
  // Runs of elements with equally many rows; their layout along ragged dimensions is the same in both orders.
  std::vector<Run> runs;
  for (std::int64_t element = 0; element < whole.batch(); ++element) {
    if (runs.empty() || whole.rows_of(element) != whole.rows_of(element - 1)) {
      runs.push_back({element, 0});
    }
    ++runs.back().count;
  }
  const auto work = [&](const Run& run) {
    return 8 * static_cast<double>(run.count * whole.rows_of(run.first)) * static_cast<double>(out.numel()) /
           static_cast<double>(std::max<std::int64_t>(whole.rows(), 1));
  };
  each_run_in_parallel(runs, values.is_cpu(), work, [&](const Run& run) {
    const at::Tensor to = view(out, !plan.split, run), from = view(values, plan.split, run);
    // LibTorch transposes by tiles only for matrices.
    run.count == 1 ? to.select(0, 0).copy_(from.select(0, 0)) : to.copy_(from);
  });
  return out;
}

struct MoveParts : torch::autograd::Function<MoveParts> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& values,
                            const c10::intrusive_ptr<PartPlan>& plan) {
    context->saved_data["plan"] = c10::IValue::make_capsule(plan);
    return move_parts(values, *plan);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto plan = c10::static_intrusive_pointer_cast<PartPlan>(context->saved_data["plan"].toCapsule());
    return {
        plan->split ? rows_of_wholes(gradients[0], plan->whole, plan->parts) : rows_of_parts(gradients[0], plan->whole),
        at::Tensor()};
  }
};

at::Tensor move_parts_of(const at::Tensor& values, const RaggedPtr& whole, std::int64_t parts, bool split) {
  auto plan = c10::make_intrusive<PartPlan>();
  plan->whole = whole;
  plan->parts = parts;
  plan->split = split;
  return c10::GradMode::is_enabled() && values.requires_grad() ? MoveParts::apply(values, plan)
                                                               : move_parts(values, *plan);
}

}  // namespace

at::Tensor rows_of_parts(const at::Tensor& values, const RaggedPtr& whole) {
  return move_parts_of(values, whole, values.size(1), true);
}

at::Tensor rows_of_wholes(const at::Tensor& values, const RaggedPtr& whole, std::int64_t parts) {
  return move_parts_of(values, whole, parts, false);
}

}  // namespace danling::inline v0::detail
