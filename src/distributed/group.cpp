#include <danling/distributed/group.hpp>

#include <algorithm>
#include <cstring>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarType.h>

#include <danling/core/error.hpp>

#include <distributed/packing.hpp>
#include <distributed/wire.hpp>

namespace danling::inline v0 {
namespace {

// Every collective begins with one packet per rank: the request, and as much of its data as fits.
constexpr std::size_t packet_bytes = 1024;
constexpr std::size_t header_bytes = sizeof(std::uint64_t) * 2;
constexpr std::size_t payload_bytes = packet_bytes - header_bytes;
// From this size on, rows travel rank by rank instead of all at once, padded to the longest.
constexpr std::int64_t padded_bytes = 1 << 20;

constexpr const char* operations[] = {"barrier", "all_reduce", "all_gather of bytes", "all_gather of rows"};
enum Operation : std::uint64_t { barrier_operation, reduce_operation, bytes_operation, rows_operation };

at::Tensor bytes_tensor(std::int64_t size) { return at::empty({size}, at::TensorOptions().dtype(at::kByte)); }

/// Runs one step of a collective; an exception makes the group unusable.
template <class Step>
auto guarded(const Wire& wire, std::string& failure, const char* operation, Step step) {
  check<DistributedError>(failure.empty(), "group.collective", "expected a usable group, got one that failed before (",
                          failure, "); start all processes again");
  try {
    return step();
  } catch (const std::exception& error) {
    failure = detail::reason_of(error);
    fail<DistributedError>("group.collective", "expected an answer of all ", wire.size(), " ranks at ", wire.address(),
                           " to ", operation, ", got on rank ", wire.rank(), ": ", failure,
                           "; a process has ended or waits elsewhere: see the logs of the others, and start all again");
  }
}

/// The bytes of each rank in this operation, in the order of ranks.
std::vector<std::string> exchange(const Wire& wire, std::string& failure, Operation operation,
                                  std::string_view payload) {
  const char* name = operations[operation];
  const c10::InferenceMode normal(false);
  const at::Tensor packet = bytes_tensor(packet_bytes);
  auto* const data = static_cast<char*>(packet.data_ptr());
  const std::uint64_t header[] = {operation, payload.size()};
  std::memset(data, 0, packet_bytes);
  std::memcpy(data, header, header_bytes);
  payload.copy(data + header_bytes, payload_bytes);
  const auto packets = guarded(wire, failure, name, [&] { return wire.all_gather(packet); });

  std::vector<std::string> asked;
  std::vector<std::string> gathered;
  std::vector<std::size_t> sizes;
  for (const at::Tensor& other : packets) {
    std::uint64_t theirs[2] = {};
    const auto* begin = static_cast<const char*>(other.const_data_ptr());
    std::memcpy(theirs, begin, header_bytes);
    asked.emplace_back(theirs[0] < std::size(operations) ? operations[theirs[0]] : "something unknown");
    sizes.push_back(theirs[1]);
    gathered.emplace_back(begin + header_bytes, std::min(theirs[1], payload_bytes));
  }
  detail::check_agreement<DistributedError>(asked, "group.collective", "the same collective");

  const std::size_t longest = *std::max_element(sizes.begin(), sizes.end());
  if (longest > payload_bytes) {
    const at::Tensor rest = bytes_tensor(static_cast<std::int64_t>(longest - payload_bytes));
    if (payload.size() > payload_bytes) {
      std::memcpy(rest.data_ptr(), payload.data() + payload_bytes, payload.size() - payload_bytes);
    }
    const auto rests = guarded(wire, failure, name, [&] { return wire.all_gather(rest); });
    for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
      if (sizes[rank] > payload_bytes) {
        gathered[rank].append(static_cast<const char*>(rests[rank].const_data_ptr()), sizes[rank] - payload_bytes);
      }
    }
  }
  return gathered;
}

std::string tensor_text(at::ScalarType type, at::IntArrayRef shape) {
  return concat(c10::toString(type), " [", join(shape), "]");
}

/// The type in which the wire sums `type`.
at::ScalarType sum_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
    case at::kInt:
    case at::kLong:
    case at::kByte:
    case at::kChar:
      return type;
    default:
      check<DistributedError>(at::isIntegralType(type, /*includeBool=*/true), "group.all_reduce",
                              "expected integers, bools or floating numbers of 16 bits and more, got ",
                              c10::toString(type));
      return at::kLong;
  }
}

/// Kind and number of one rank's rows.
struct Rows {
  bool any = false;
  at::ScalarType type = at::kByte;
  std::vector<std::int64_t> shape;

  std::int64_t bytes() const {
    std::int64_t count = any ? static_cast<std::int64_t>(c10::elementSize(type)) : 0;
    for (const std::int64_t size : shape) {
      count *= size;
    }
    return count;
  }
  /// Without the number of rows.
  std::string text() const {
    std::string out = concat(c10::toString(type), " rows of shape [");
    return out + join(std::vector<std::int64_t>(shape.begin() + 1, shape.end())) + "]";
  }
};

std::string pack_rows(const at::Tensor& rows) {
  detail::Packer packer;
  packer.number(std::int64_t{rows.defined()});
  if (rows.defined()) {
    packer.number(static_cast<std::int64_t>(rows.scalar_type()));
    packer.numbers(rows.sizes());
  }
  return packer.take();
}

Rows unpack_rows(std::string_view text) {
  detail::Unpacker unpacker(text);
  Rows rows;
  rows.any = unpacker.number() != 0;
  if (rows.any) {
    rows.type = static_cast<at::ScalarType>(unpacker.number());
    rows.shape = unpacker.numbers();
  }
  return rows;
}

/// The bytes of a contiguous tensor on the host.
at::Tensor as_bytes(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), {static_cast<std::int64_t>(tensor.nbytes())},
                       at::TensorOptions().dtype(at::kByte));
}

}  // namespace

Group Group::connect(const ProcessIdentity& identity, const GroupOptions& options) {
  if (!identity.distributed()) {
    return Group();
  }
  constexpr const char* where = "group.connect";
  check<DistributedError>(options.timeout.count() > 0, where, "expected a timeout above 0, got ",
                          options.timeout.count(), " ms");
  Group group(std::make_shared<Impl>(detail::connect_gloo(identity, options)));
  group.barrier();
  return group;
}

int Group::rank() const { return impl_ == nullptr ? 0 : impl_->wire->rank(); }
int Group::size() const { return impl_ == nullptr ? 1 : impl_->wire->size(); }

void Group::barrier() const {
  if (impl_ != nullptr) {
    exchange(*impl_->wire, impl_->failure, barrier_operation, {});
  }
}

std::vector<std::string> Group::all_gather(std::string_view bytes) const {
  if (impl_ == nullptr) {
    return {std::string(bytes)};
  }
  return exchange(*impl_->wire, impl_->failure, bytes_operation, bytes);
}

void Group::all_reduce(at::Tensor& tensor) const {
  if (impl_ == nullptr) {
    return;
  }
  const c10::NoGradGuard no_grad;
  const auto asked = exchange(*impl_->wire, impl_->failure, reduce_operation,
                              tensor.defined() ? tensor_text(tensor.scalar_type(), tensor.sizes()) : "nothing");
  detail::check_agreement<DistributedError>(asked, "group.all_reduce", "tensors alike");
  check<DistributedError>(tensor.defined(), "group.all_reduce", "expected a tensor, got an undefined one");
  const at::ScalarType type = sum_type(tensor.scalar_type());
  at::Tensor carried = tensor.detach().to(at::kCPU, type).contiguous();
  if (carried.numel() == 0) {
    return;
  }
  guarded(*impl_->wire, impl_->failure, "all_reduce", [&] { impl_->wire->all_reduce(carried); });
  if (!carried.is_alias_of(tensor)) {
    tensor.detach().copy_(carried);
  }
}

std::vector<at::Tensor> Group::all_gather(const at::Tensor& rows) const {
  if (impl_ == nullptr) {
    return {rows};
  }
  constexpr const char* where = "group.all_gather";
  const Wire& wire = *impl_->wire;
  const c10::NoGradGuard no_grad;
  std::vector<Rows> all;
  std::vector<std::string> texts;
  Rows some;
  bool scalar = false;
  for (const std::string& packed : exchange(wire, impl_->failure, rows_operation, pack_rows(rows))) {
    all.push_back(unpack_rows(packed));
    const Rows& theirs = all.back();
    scalar = scalar || (theirs.any && theirs.shape.empty());
    texts.push_back(!theirs.any ? "" : theirs.shape.empty() ? "a scalar" : theirs.text());
    some = theirs.any ? theirs : some;
  }
  detail::check_agreement<DistributedError>(texts, where, "rows alike");
  check<DistributedError>(!scalar, where, "expected at least one dimension, got scalars");
  if (!some.any) {
    return std::vector<at::Tensor>(all.size());
  }
  std::int64_t longest = 0;
  for (Rows& theirs : all) {
    if (!theirs.any) {
      theirs = some;
      theirs.shape[0] = 0;
    }
    longest = std::max(longest, theirs.bytes());
  }

  const c10::InferenceMode normal(false);
  const at::Device device = rows.defined() ? rows.device() : at::Device(at::kCPU);
  at::Tensor mine = rows.defined() ? rows.detach().to(at::kCPU).contiguous() : at::Tensor();
  const bool at_once = longest * wire.size() <= padded_bytes;
  std::vector<at::Tensor> padded;
  if (at_once && longest > 0) {
    const at::Tensor packet = bytes_tensor(longest);
    if (mine.defined() && mine.numel() > 0) {
      std::memcpy(packet.data_ptr(), mine.const_data_ptr(), mine.nbytes());
    }
    padded = guarded(wire, impl_->failure, "all_gather", [&] { return wire.all_gather(packet); });
  }
  std::vector<at::Tensor> gathered;
  for (int rank = 0; rank < wire.size(); ++rank) {
    const Rows& theirs = all[static_cast<std::size_t>(rank)];
    const bool own = rank == wire.rank() && rows.defined();
    at::Tensor tensor = own ? mine : at::empty(theirs.shape, at::TensorOptions().dtype(theirs.type));
    if (theirs.bytes() > 0 && at_once && !own) {
      std::memcpy(tensor.data_ptr(), padded[static_cast<std::size_t>(rank)].const_data_ptr(), tensor.nbytes());
    } else if (theirs.bytes() > 0 && !at_once) {
      at::Tensor bytes = as_bytes(tensor);
      guarded(wire, impl_->failure, "all_gather", [&] { wire.broadcast(bytes, rank); });
    }
    gathered.push_back(own ? rows : tensor.to(device));
  }
  return gathered;
}

}  // namespace danling::inline v0
