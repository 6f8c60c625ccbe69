// Collectives that reduce over ranks.
#include <numeric>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarType.h>

#include <danling/core/error.hpp>

#include <distributed/group_impl.hpp>
#include <distributed/reduction.hpp>
#include <distributed/shapes.hpp>

namespace danling::inline v0 {
namespace detail {
namespace {

bool two_byte_float(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

/// Returns the dtype in which wires reduce `type`. Sums of float16 and bfloat16 keep their dtype to limit traffic;
/// `mean` uses a wider one, since the sum may overflow.
at::ScalarType carried_type(at::ScalarType type, ReduceOp op) {
  switch (type) {
    case at::kHalf:
    case at::kBFloat16:
      return op == ReduceOp::mean ? at::kFloat : type;
    case at::kFloat:
    case at::kDouble:
    case at::kInt:
    case at::kLong:
    case at::kByte:
    case at::kChar:
      return type;
    default:
      return at::kLong;
  }
}

/// Adds one rank's values to the total of the lower ranks.
void combine(at::Tensor& total, const at::Tensor& next, ReduceOp op) {
  const bool flags = total.scalar_type() == at::kBool;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::mean:
      flags ? total.bitwise_or_(next) : total.add_(next);
      return;
    case ReduceOp::product:
      flags ? total.bitwise_and_(next) : total.mul_(next);
      return;
    case ReduceOp::min:
      total.copy_(at::minimum(total, next));
      return;
    case ReduceOp::max:
      total.copy_(at::maximum(total, next));
      return;
    case ReduceOp::bit_and:
      total.bitwise_and_(next);
      return;
    case ReduceOp::bit_or:
      total.bitwise_or_(next);
      return;
    case ReduceOp::bit_xor:
      total.bitwise_xor_(next);
      return;
  }
}

}  // namespace

std::string request_text(const at::Tensor& tensor) {
  return tensor.defined() ? concat(c10::toString(tensor.scalar_type()), " [", join(tensor.sizes()), "]") : "nothing";
}

void check_reducible(std::string_view where, at::ScalarType type, ReduceOp op) {
  const bool floating = two_byte_float(type) || type == at::kFloat || type == at::kDouble;
  const bool integral = at::isIntegralType(type, /*includeBool=*/true);
  check<DistributedError>(floating || integral, where,
                          "expected integers, bools or floating numbers of 16 bits and more, got ",
                          c10::toString(type));
  const bool bits = op == ReduceOp::bit_and || op == ReduceOp::bit_or || op == ReduceOp::bit_xor;
  check<DistributedError>(integral || !bits, where, "expected integers or bools for ", name_of(op), ", got ",
                          c10::toString(type));
  check<DistributedError>(floating || op != ReduceOp::mean, where, "expected floating numbers for mean, got ",
                          c10::toString(type), "; sum them, or convert them first");
  const bool ordered = op == ReduceOp::min || op == ReduceOp::max;
  check<DistributedError>(type != at::kUInt64 || !ordered, where, "expected numbers that fit into a Long for ",
                          name_of(op), ", got ", c10::toString(type));
}

std::string reduction_request(const at::Tensor& tensor, ReduceOp op, bool stays) {
  return concat(request_text(tensor), op == ReduceOp::sum ? "" : concat(" by ", name_of(op)),
                stays ? concat(" on ", c10::DeviceTypeName(tensor.device().type(), true)) : "");
}

void check_alone(std::string_view operation, const at::Tensor& tensor, ReduceOp op) {
  check<DistributedError>(tensor.defined(), operation, "expected a tensor, got an undefined one");
  check_reducible(operation, tensor.scalar_type(), op);
}

Reduction::Reduction(std::string_view where, const at::Tensor& tensor, ReduceOp op, bool stays) : op_(op) {
  check<DistributedError>(tensor.defined(), where, "expected a tensor, got an undefined one");
  check_reducible(where, tensor.scalar_type(), op);
  tensor_ = tensor.detach();
  const at::Device device = stays ? tensor.device() : at::Device(at::kCPU);
  carried_ = tensor_.to(device, carried_type(tensor.scalar_type(), op)).resolve_neg().contiguous();
}

void Reduction::finish(int size) {
  if (op_ == ReduceOp::mean) {
    carried_.div_(size);
  }
  if (!carried_.is_alias_of(tensor_)) {
    tensor_.copy_(carried_);
  }
}

}  // namespace detail

void Group::all_reduce(at::Tensor& tensor, ReduceOp op) const {
  constexpr const char* where = "group.all_reduce";
  if (impl_ == nullptr) {
    detail::check_alone(where, tensor, op);
    return;
  }
  const c10::NoGradGuard no_grad;
  GroupCall call(*impl_, Collective::all_reduce, tensor);
  const bool stays = tensor.defined() && impl_->carries(tensor.device());
  call.check_agreement(call.exchange(detail::reduction_request(tensor, op, stays)), where, "matching tensors");
  detail::Reduction reduction(where, tensor, op, stays);
  if (tensor.numel() > 0) {
    call.run([&] { return impl_->wire_of(reduction.carried()).all_reduce(reduction.carried(), reduction.op()); });
    reduction.finish(size());
  }
}

void Group::reduce(at::Tensor& tensor, int root, ReduceOp op) const {
  constexpr const char* where = "group.reduce";
  if (impl_ == nullptr) {
    detail::check_alone(where, tensor, op);
    return;
  }
  const c10::NoGradGuard no_grad;
  GroupCall call(*impl_, Collective::reduce, tensor);
  const bool stays = tensor.defined() && impl_->carries(tensor.device());
  const std::string request = concat(detail::reduction_request(tensor, op, stays), " to rank ", root);
  call.check_agreement(call.exchange(request), where, "matching tensors");
  detail::check_root(where, root, size());
  // The wire overwrites its tensor, but other ranks must keep theirs.
  const at::Tensor mine = root == rank() || !tensor.defined() ? tensor : tensor.detach().clone();
  detail::Reduction reduction(where, mine, op, stays);
  if (mine.numel() > 0) {
    call.run([&] { return impl_->wire_of(reduction.carried()).reduce(reduction.carried(), root, reduction.op()); });
    if (root == rank()) {
      reduction.finish(size());
    }
  }
}

at::Tensor Group::reduce_scatter(const at::Tensor& rows, ReduceOp op, at::IntArrayRef splits) const {
  constexpr const char* where = "group.reduce_scatter";
  const auto check_splits = [&] {
    check<DistributedError>(rows.defined() && rows.dim() > 0, where, "expected at least one dimension, got ",
                            detail::request_text(rows));
    if (splits.empty()) {
      check<DistributedError>(rows.size(0) % size() == 0, where, "expected a number of rows that ", size(),
                              " ranks divide, got ", rows.size(0), "; pass the rows of each rank as `splits`");
      return;
    }
    bool counts = static_cast<int>(splits.size()) == size();
    for (const std::int64_t split : splits) {
      counts = counts && split >= 0;
    }
    check<DistributedError>(counts && std::accumulate(splits.begin(), splits.end(), std::int64_t{0}) == rows.size(0),
                            where, "expected ", size(), " counts that add up to ", rows.size(0), " rows, got ",
                            join(splits));
  };
  if (impl_ == nullptr) {
    check_splits();
    detail::check_alone(where, rows, op);
    return rows;
  }
  const c10::NoGradGuard no_grad;
  GroupCall call(*impl_, Collective::reduce_scatter, rows);
  const bool stays = rows.defined() && impl_->carries(rows.device());
  const std::string request =
      concat(detail::reduction_request(rows, op, stays), splits.empty() ? "" : concat(" in ", join(splits)));
  call.check_agreement(call.exchange(request), where, "matching tensors");
  check_splits();
  const at::ScalarType type = rows.scalar_type();
  detail::check_reducible(where, type, op);

  const c10::InferenceMode normal(false);
  const at::Tensor input = detail::carried(rows, stays);
  const std::int64_t row_bytes = rows.size(0) == 0 ? 0 : static_cast<std::int64_t>(input.nbytes()) / rows.size(0);
  std::vector<std::int64_t> sent;
  for (int rank = 0; rank < size(); ++rank) {
    sent.push_back(splits.empty() ? rows.size(0) / size() : splits[static_cast<std::size_t>(rank)]);
  }
  const std::int64_t mine = sent[static_cast<std::size_t>(rank())];
  for (std::int64_t& count : sent) {
    count *= row_bytes;
  }
  std::vector<std::int64_t> shape = rows.sizes().vec();
  shape[0] = mine;
  shape.insert(shape.begin(), size());
  const at::Tensor parts = at::empty(shape, input.options());
  if (rows.numel() > 0) {
    const std::vector<std::int64_t> received(sent.size(), mine * row_bytes);
    call.run([&] {
      return impl_->wire_of(input).all_to_all(detail::as_bytes(parts), detail::as_bytes(input), received, sent);
    });
  }
  const at::ScalarType sum_type = detail::two_byte_float(type) ? at::kFloat
                                  : type == at::kBool          ? type
                                                               : detail::carried_type(type, op);
  at::Tensor total = parts[0].to(sum_type, /*non_blocking=*/false, /*copy=*/true);
  for (int rank = 1; rank < size(); ++rank) {
    detail::combine(total, parts[rank].to(sum_type), op);
  }
  if (op == ReduceOp::mean) {
    total.div_(size());
  }
  return total.to(rows.device(), type);
}

}  // namespace danling::inline v0
