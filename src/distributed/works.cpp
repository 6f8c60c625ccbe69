// Asynchronous collectives and their works.
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/InferenceMode.h>

#include <danling/core/error.hpp>

#include <distributed/group_impl.hpp>
#include <distributed/local_error.hpp>
#include <distributed/reduction.hpp>
#include <distributed/shapes.hpp>
#include <distributed/work_impl.hpp>

namespace danling::inline v0 {

namespace {

/// Without debug mode, ranks have compared nothing, and other ranks do not see this rank's error.
template <class Check>
void check_locally(bool debug, const Check& checks) {
  try {
    checks();
  } catch (const DistributedError& error) {
    if (debug) {
      throw;
    }
    throw detail::LocalError(error.what());
  }
}

void check_alike(std::string_view where, const at::Tensor& tensor, const at::Tensor& like) {
  check<DistributedError>(tensor.defined() && like.defined(), where, "expected tensors, got an undefined one");
  check<DistributedError>(
      tensor.is_contiguous() && tensor.scalar_type() == like.scalar_type() && tensor.device() == like.device(), where,
      "expected contiguous tensors of one dtype and device, got ", detail::request_text(tensor), " on ",
      tensor.device().str(), " and ", detail::request_text(like), " on ", like.device().str());
}

std::vector<std::int64_t> in_bytes(at::IntArrayRef rows, const at::Tensor& tensor) {
  const std::int64_t row = tensor.size(0) == 0 ? 0 : static_cast<std::int64_t>(tensor.nbytes()) / tensor.size(0);
  std::vector<std::int64_t> out = rows.vec();
  for (std::int64_t& count : out) {
    count *= row;
  }
  return out;
}

std::int64_t byte_count(const at::Tensor& tensor) { return static_cast<std::int64_t>(tensor.nbytes()); }

}  // namespace

Work Group::start_all_reduce(const at::Tensor& tensor, ReduceOp op) const {
  constexpr const char* where = "group.start_all_reduce";
  if (impl_ == nullptr) {
    detail::check_alone(where, tensor, op);
    return Work();
  }
  const c10::NoGradGuard no_grad;
  GroupCall call(*impl_, Collective::start_all_reduce, tensor);
  const bool stays = tensor.defined() && impl_->carries(tensor.device());
  if (impl_->debug) {
    call.check_agreement(call.exchange(detail::reduction_request(tensor, op, stays)), where, "matching tensors");
  }
  std::optional<detail::Reduction> reduction;
  check_locally(impl_->debug, [&] { reduction.emplace(where, tensor, op, stays); });
  TransferPtr transfer;
  if (tensor.numel() > 0) {
    transfer = call.started(
        [&] { return impl_->wire_of(reduction->carried()).all_reduce(reduction->carried(), reduction->op()); });
  }
  const std::int64_t bytes = byte_count(reduction->carried());
  return Work(std::make_shared<Work::Impl>(
      Work::Impl{impl_,
                 Collective::start_all_reduce,
                 call.number(),
                 bytes,
                 std::move(transfer),
                 [kept = std::move(*reduction), size = size()]() mutable { kept.finish(size); },
                 {},
                 0,
                 false}));
}

Work Group::start_all_gather(const std::vector<at::Tensor>& parts, const at::Tensor& mine) const {
  constexpr const char* where = "group.start_all_gather";
  const auto checks = [&] {
    check<DistributedError>(parts.size() == static_cast<std::size_t>(size()), where, "expected a tensor for each of ",
                            size(), " ranks, got ", parts.size());
    for (const at::Tensor& part : parts) {
      check_alike(where, part, mine);
      check<DistributedError>(part.sizes() == mine.sizes() && mine.is_contiguous(), where,
                              "expected tensors of one shape, got ", detail::request_text(part), " and ",
                              detail::request_text(mine));
    }
  };
  const c10::NoGradGuard no_grad;
  if (impl_ == nullptr) {
    checks();
    parts.front().detach().copy_(mine);
    return Work();
  }
  GroupCall call(*impl_, Collective::start_all_gather, mine);
  const bool stays = mine.defined() && impl_->carries(mine.device());
  if (impl_->debug) {
    call.check_agreement(call.exchange(detail::reduction_request(mine, ReduceOp::sum, stays)), where,
                         "matching tensors");
  }
  check_locally(impl_->debug, checks);
  if (mine.numel() == 0) {
    return Work();
  }
  const c10::InferenceMode normal(false);
  const at::Tensor sent = detail::carried(mine, stays);
  std::vector<at::Tensor> received;
  std::vector<at::Tensor> bytes;
  for (const at::Tensor& part : parts) {
    received.push_back(sent.device() == part.device() ? part.detach() : at::empty_like(sent));
    bytes.push_back(detail::as_bytes(received.back()));
  }
  TransferPtr transfer = call.started(
      [&] { return impl_->wire_of(sent).for_several().all_gather(std::move(bytes), detail::as_bytes(sent)); });
  return Work(std::make_shared<Work::Impl>(Work::Impl{impl_,
                                                      Collective::start_all_gather,
                                                      call.number(),
                                                      byte_count(sent),
                                                      std::move(transfer),
                                                      [parts, received] {
                                                        for (std::size_t rank = 0; rank < parts.size(); ++rank) {
                                                          if (!received[rank].is_alias_of(parts[rank])) {
                                                            parts[rank].detach().copy_(received[rank]);
                                                          }
                                                        }
                                                      },
                                                      {},
                                                      0,
                                                      false}));
}

Work Group::start_all_to_all_single(const at::Tensor& output, const at::Tensor& input, at::IntArrayRef received,
                                    at::IntArrayRef sent) const {
  constexpr const char* where = "group.start_all_to_all_single";
  const auto fits = [&](at::IntArrayRef counts, const at::Tensor& rows) {
    return rows.dim() > 0 && counts.size() == static_cast<std::size_t>(size()) &&
           std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) == rows.size(0);
  };
  const auto checks = [&] {
    check_alike(where, output, input);
    check<DistributedError>(input.is_contiguous() && fits(received, output) && fits(sent, input), where, "expected ",
                            size(), " counts that add up to the rows, got ", join(sent), " for ",
                            detail::request_text(input), " and ", join(received), " for ",
                            detail::request_text(output));
  };
  const c10::NoGradGuard no_grad;
  if (impl_ == nullptr) {
    checks();
    output.detach().copy_(input);
    return Work();
  }
  GroupCall call(*impl_, Collective::start_all_to_all_single, input);
  const bool stays = input.defined() && impl_->carries(input.device());
  if (impl_->debug) {
    const std::string type = input.defined() ? c10::toString(input.scalar_type()) : "nothing";
    call.check_agreement(call.exchange(type), where, "matching tensors");
  }
  check_locally(impl_->debug, checks);
  const c10::InferenceMode normal(false);
  const at::Tensor from = detail::carried(input, stays);
  const at::Tensor to = from.device() == output.device() ? output.detach() : at::empty(output.sizes(), from.options());
  TransferPtr transfer = call.started([&] {
    return impl_->wire_of(from).all_to_all(detail::as_bytes(to), detail::as_bytes(from), in_bytes(received, to),
                                           in_bytes(sent, from));
  });
  return Work(std::make_shared<Work::Impl>(Work::Impl{impl_,
                                                      Collective::start_all_to_all_single,
                                                      call.number(),
                                                      byte_count(from),
                                                      std::move(transfer),
                                                      [output, to] {
                                                        if (!to.is_alias_of(output)) {
                                                          output.detach().copy_(to);
                                                        }
                                                      },
                                                      {},
                                                      0,
                                                      false}));
}

void Work::wait() {
  if (impl_ == nullptr || impl_->waited) {
    return;
  }
  if (impl_->transfer && !impl_->message.empty()) {
    GroupCall call(*impl_->group, impl_->message, impl_->peer);
    call.wait(*impl_->transfer);
  } else if (impl_->transfer) {
    GroupCall call(*impl_->group, impl_->collective, impl_->number);
    call.set_bytes(impl_->bytes);
    call.wait(*impl_->transfer);
    const c10::NoGradGuard no_grad;
    impl_->finish();
  }
  impl_->waited = true;
  impl_->finish = {};
  impl_->transfer.reset();
}

bool Work::done() const {
  if (impl_ == nullptr || impl_->waited || !impl_->transfer || impl_->transfer->done()) {
    return true;
  }
  const auto& watch = impl_->group->connection.watch;
  return !impl_->group->failure().empty() || (watch && watch->failed());
}

}  // namespace danling::inline v0
