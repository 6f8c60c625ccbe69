// Point-to-point messages.
#include <array>
#include <cstring>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarType.h>

#include <danling/core/error.hpp>

#include <distributed/group_impl.hpp>
#include <distributed/local_error.hpp>
#include <distributed/reduction.hpp>
#include <distributed/shapes.hpp>
#include <distributed/work_impl.hpp>

namespace danling::inline v0 {
namespace {

// A message has two parts: dtype and shape of the tensor, then its bytes. A backend ends the process if a message is
// larger than its buffer.
constexpr std::size_t most_dims = 30;
using MessageHeader = std::array<std::int64_t, most_dims + 2>;

at::Tensor header_tensor() { return detail::bytes_tensor(sizeof(MessageHeader)); }

void check_peer(std::string_view where, int peer, int own, int size, int tag) {
  check<detail::LocalError>(peer >= 0 && peer < size && peer != own, where, "expected another rank of 0 to ", size - 1,
                            ", got ", peer, " on rank ", own);
  check<detail::LocalError>(tag >= 0, where, "expected a tag of 0 or above, got ", tag);
}

void check_plain_bytes(std::string_view where, const at::Tensor& bytes) {
  check<detail::LocalError>(bytes.defined() && bytes.device().is_cpu() && bytes.scalar_type() == at::kByte &&
                                bytes.is_contiguous() && bytes.numel() > 0,
                            where, "expected contiguous bytes in host memory, got ", detail::request_text(bytes));
}

}  // namespace

void Group::send(const at::Tensor& tensor, int to, int tag) const {
  constexpr const char* where = "group.send";
  check_peer(where, to, rank(), size(), tag);
  check<detail::LocalError>(tensor.defined() && static_cast<std::size_t>(tensor.dim()) <= most_dims, where,
                            "expected a tensor of at most ", most_dims, " dimensions, got ",
                            detail::request_text(tensor));
  const c10::NoGradGuard no_grad;
  const c10::InferenceMode normal(false);
  MessageHeader header = {static_cast<std::int64_t>(tensor.scalar_type()), tensor.dim()};
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), header.begin() + 2);
  const at::Tensor head = header_tensor();
  std::memcpy(head.data_ptr(), header.data(), sizeof header);
  Wire& wire = *impl_->connection.wire;
  GroupCall call(*impl_, concat("message to rank ", impl_->ranks[static_cast<std::size_t>(to)], " with tag ", tag), to);
  call.run([&] { return wire.send(head, to, tag); });
  if (tensor.numel() > 0) {
    const at::Tensor data = detail::plain_on(at::kCPU, tensor);
    call.run([&] { return wire.send(detail::as_bytes(data), to, tag); });
  }
}

int Group::recv(at::Tensor& tensor, int from, int tag) const {
  constexpr const char* where = "group.recv";
  check_peer(where, from == any_rank ? (rank() == 0 ? 1 : 0) : from, rank(), size(), tag);
  const c10::NoGradGuard no_grad;
  const c10::InferenceMode normal(false);
  Wire& wire = *impl_->connection.wire;
  const auto name = [&](int rank) { return concat("rank ", impl_->ranks[static_cast<std::size_t>(rank)]); };
  GroupCall call(*impl_, concat("message of ", from < 0 ? "any rank" : name(from), " with tag ", tag), from);
  const at::Tensor head = header_tensor();
  const TransferPtr first = call.started([&] { return wire.recv(head, from, tag); });
  call.wait(*first);
  const int sender = from < 0 ? first->source() : from;

  MessageHeader header;
  std::memcpy(header.data(), head.const_data_ptr(), sizeof header);
  const auto type = static_cast<at::ScalarType>(header[0]);
  const at::IntArrayRef shape(header.data() + 2, static_cast<std::size_t>(header[1]));
  const at::Tensor sent = at::empty(shape, at::TensorOptions().dtype(type));
  const bool alike = tensor.defined() && tensor.scalar_type() == type && tensor.sizes() == shape;
  const bool in_place =
      alike && tensor.device().is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
  const at::Tensor data = in_place ? tensor.detach() : sent;
  if (data.numel() > 0) {
    call.run([&] { return wire.recv(detail::as_bytes(data), sender, tag); });
  }
  check<detail::LocalError>(alike || !tensor.defined(), where, "expected ", detail::request_text(tensor), ", got ",
                            detail::request_text(sent), " of ", name(sender), " with tag ", tag);
  if (!tensor.defined()) {
    tensor = data;
  } else if (!in_place) {
    tensor.detach().copy_(data);
  }
  return sender;
}

Work Group::start_send(const at::Tensor& bytes, int to, int tag) const {
  constexpr const char* where = "group.start_send";
  check_peer(where, to, rank(), size(), tag);
  check_plain_bytes(where, bytes);
  std::string text = concat("message to rank ", impl_->ranks[static_cast<std::size_t>(to)], " with tag ", tag);
  GroupCall call(*impl_, text, to);
  TransferPtr transfer = call.started([&] { return impl_->connection.wire->send(bytes, to, tag); });
  return Work(
      std::make_shared<Work::Impl>(Work::Impl{impl_, {}, 0, 0, std::move(transfer), {}, std::move(text), to, false}));
}

Work Group::start_recv(const at::Tensor& bytes, int from, int tag) const {
  constexpr const char* where = "group.start_recv";
  check_peer(where, from, rank(), size(), tag);
  check_plain_bytes(where, bytes);
  std::string text = concat("message of rank ", impl_->ranks[static_cast<std::size_t>(from)], " with tag ", tag);
  GroupCall call(*impl_, text, from);
  TransferPtr transfer = call.started([&] { return impl_->connection.wire->recv(bytes, from, tag); });
  return Work(
      std::make_shared<Work::Impl>(Work::Impl{impl_, {}, 0, 0, std::move(transfer), {}, std::move(text), from, false}));
}

}  // namespace danling::inline v0
