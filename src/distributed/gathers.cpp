// Collectives that copy each rank's data unchanged.
#include <algorithm>
#include <cstring>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarType.h>

#include <danling/core/error.hpp>

#include <distributed/group_impl.hpp>
#include <distributed/reduction.hpp>
#include <distributed/shapes.hpp>

namespace danling::inline v0 {
namespace {

// From this size on, rows are broadcast rank by rank, instead of gathered at once with padding to the longest.
constexpr std::int64_t padded_bytes = 1 << 20;

/// Shapes of all ranks' rows, which differ only in the number of rows. The same on all ranks.
struct RowShapes {
  std::vector<detail::Shape> shapes;
  bool any = false;    ///< any rank has rows
  bool stays = false;  ///< all rows are on a device whose wire transfers them directly
};

RowShapes exchange_rows(GroupCall& call, std::string_view where, const at::Tensor& rows, bool stays,
                        std::string_view more = {}) {
  detail::Packer packer;
  detail::pack_shape(packer, rows, stays);
  packer.text(more);
  RowShapes all;
  std::vector<std::string> texts;
  std::vector<std::string> extras;
  detail::Shape some;
  bool scalar = false;
  all.stays = true;
  for (const std::string& packed : call.exchange(packer.take())) {
    detail::Unpacker unpacker(packed);
    const detail::Shape theirs = detail::unpack_shape(unpacker);
    extras.push_back(unpacker.text());
    scalar = scalar || (theirs.any && theirs.sizes.empty());
    all.stays = all.stays && theirs.stays;
    texts.push_back(theirs.rows_text());
    some = theirs.any ? theirs : some;
    all.shapes.push_back(theirs);
  }
  call.check_agreement(extras, where, "the same root");
  call.check_agreement(texts, where, "matching rows");
  check<DistributedError>(!scalar, where, "expected at least one dimension, got scalars");
  all.any = some.any;
  for (detail::Shape& theirs : all.shapes) {
    if (!theirs.any && some.any) {
      theirs = some;
      theirs.sizes[0] = 0;
    }
  }
  return all;
}

std::string root_text(int root) { return concat("rank ", root); }

}  // namespace

std::vector<std::string> Group::all_gather(std::string_view bytes) const {
  if (impl_ == nullptr) {
    return {std::string(bytes)};
  }
  return GroupCall(*impl_, Collective::all_gather_bytes).exchange(bytes);
}

std::vector<at::Tensor> Group::all_gather(const at::Tensor& rows) const {
  if (impl_ == nullptr) {
    return {rows};
  }
  const c10::NoGradGuard no_grad;
  GroupCall call(*impl_, Collective::all_gather_rows, rows);
  const bool carries = rows.defined() && impl_->carries(rows.device());
  const RowShapes all = exchange_rows(call, "group.all_gather", rows, carries);
  if (!all.any) {
    return std::vector<at::Tensor>(all.shapes.size());
  }
  std::int64_t longest = 0;
  for (const detail::Shape& theirs : all.shapes) {
    longest = std::max(longest, theirs.bytes());
  }

  const c10::InferenceMode normal(false);
  const at::Device device = rows.defined() ? rows.device() : at::Device(at::kCPU);
  const at::Device carrying = all.stays ? device : at::Device(at::kCPU);
  const at::Tensor mine = rows.defined() ? detail::carried(rows, all.stays) : at::Tensor();
  const auto bytes_on = [&](std::int64_t count) { return detail::bytes_tensor(count, carrying); };
  std::vector<at::Tensor> padded;
  const bool at_once = longest * size() <= padded_bytes;
  if (at_once && longest > 0) {
    const at::Tensor packet = bytes_on(longest);
    if (mine.defined() && mine.numel() > 0) {
      packet.narrow(0, 0, static_cast<std::int64_t>(mine.nbytes())).copy_(detail::as_bytes(mine));
    }
    for (int rank = 0; rank < size(); ++rank) {
      padded.push_back(bytes_on(longest));
    }
    call.run([&] { return impl_->wire_of(packet).all_gather(padded, packet); });
  }
  std::vector<at::Tensor> gathered;
  for (int rank = 0; rank < size(); ++rank) {
    const detail::Shape& theirs = all.shapes[static_cast<std::size_t>(rank)];
    const bool own = rank == this->rank() && rows.defined();
    const at::Tensor tensor = own ? mine : theirs.make(carrying);
    if (theirs.bytes() > 0 && at_once && !own) {
      detail::as_bytes(tensor).copy_(padded[static_cast<std::size_t>(rank)].narrow(0, 0, theirs.bytes()));
    } else if (theirs.bytes() > 0 && !at_once) {
      call.run([&] { return impl_->wire_of(tensor).broadcast(detail::as_bytes(tensor), rank); });
    }
    gathered.push_back(own ? rows : tensor.to(device));
  }
  return gathered;
}

void Group::broadcast(at::Tensor& tensor, int root) const {
  if (impl_ == nullptr) {
    return;
  }
  constexpr const char* where = "group.broadcast";
  const c10::NoGradGuard no_grad;
  GroupCall call(*impl_, Collective::broadcast, tensor);
  const bool stays = tensor.defined() && impl_->carries(tensor.device());
  const std::string request = concat(detail::request_text(tensor), " of rank ", root,
                                     stays ? concat(" on ", c10::DeviceTypeName(tensor.device().type(), true)) : "");
  call.check_agreement(call.exchange(request), where, "matching tensors");
  check<DistributedError>(tensor.defined(), where, "expected a tensor, got an undefined one");
  detail::check_root(where, root, size());
  if (tensor.numel() == 0) {
    return;
  }
  const at::Tensor sent = detail::carried(tensor, stays);
  call.run([&] { return impl_->wire_of(sent).broadcast(detail::as_bytes(sent), root); });
  if (root != rank() && !sent.is_alias_of(tensor)) {
    tensor.detach().copy_(sent);
  }
}

std::string Group::broadcast(std::string_view bytes, int root) const {
  if (impl_ == nullptr) {
    return std::string(bytes);
  }
  constexpr const char* where = "group.broadcast";
  GroupCall call(*impl_, Collective::broadcast_bytes);
  const bool own = root == rank();
  detail::Packer packer;
  packer.number(root);
  packer.number(own ? static_cast<std::int64_t>(bytes.size()) : 0);
  std::vector<std::string> roots;
  std::int64_t count = 0;
  for (const std::string& packed : call.exchange(packer.take())) {
    detail::Unpacker unpacker(packed);
    roots.push_back(root_text(static_cast<int>(unpacker.number())));
    count += unpacker.number();
  }
  call.check_agreement(roots, where, "the same root");
  detail::check_root(where, root, size());
  if (count == 0) {
    return {};
  }
  const c10::InferenceMode normal(false);
  const at::Tensor data = detail::bytes_tensor(count);
  if (own) {
    std::memcpy(data.data_ptr(), bytes.data(), bytes.size());
  }
  call.run([&] { return impl_->connection.wire->broadcast(data, root); });
  return {static_cast<const char*>(data.const_data_ptr()), static_cast<std::size_t>(count)};
}

std::vector<at::Tensor> Group::gather(const at::Tensor& rows, int root) const {
  constexpr const char* where = "group.gather";
  if (impl_ == nullptr) {
    return {rows};
  }
  const c10::NoGradGuard no_grad;
  GroupCall call(*impl_, Collective::gather_rows, rows);
  const bool carries = rows.defined() && impl_->carries(rows.device());
  const RowShapes all = exchange_rows(call, where, rows, carries, root_text(root));
  detail::check_root(where, root, size());
  const bool own = root == rank();
  if (!all.any) {
    return std::vector<at::Tensor>(own ? all.shapes.size() : 0);
  }
  const c10::InferenceMode normal(false);
  const at::Device device = rows.defined() ? rows.device() : at::Device(at::kCPU);
  const at::Device carrying = all.stays ? device : at::Device(at::kCPU);
  const auto bytes_on = [&](std::int64_t count) { return detail::bytes_tensor(count, carrying); };
  const std::vector<std::int64_t> sizes = detail::bytes_of(all.shapes);
  const std::vector<std::int64_t> none(sizes.size(), 0);
  std::vector<std::int64_t> sent = none;
  sent[static_cast<std::size_t>(root)] = sizes[static_cast<std::size_t>(rank())];
  const at::Tensor input =
      rows.defined() && rows.numel() > 0 ? detail::as_bytes(detail::carried(rows, all.stays)) : bytes_on(0);
  const at::Tensor output = bytes_on(own ? detail::total(sizes) : 0);
  if (detail::total(sizes) > 0) {
    call.run([&] { return impl_->wire_of(output).all_to_all(output, input, own ? sizes : none, sent); });
  }
  if (!own) {
    return {};
  }
  std::vector<at::Tensor> gathered = detail::unpack_bytes(output, all.shapes, device);
  gathered[static_cast<std::size_t>(root)] = rows.defined() ? rows : gathered[static_cast<std::size_t>(root)];
  return gathered;
}

std::vector<std::string> Group::gather(std::string_view bytes, int root) const {
  if (impl_ == nullptr) {
    return {std::string(bytes)};
  }
  constexpr const char* where = "group.gather";
  GroupCall call(*impl_, Collective::gather_bytes);
  detail::Packer packer;
  packer.number(root);
  packer.number(static_cast<std::int64_t>(bytes.size()));
  std::vector<std::string> roots;
  std::vector<std::int64_t> sizes;
  for (const std::string& packed : call.exchange(packer.take())) {
    detail::Unpacker unpacker(packed);
    roots.push_back(root_text(static_cast<int>(unpacker.number())));
    sizes.push_back(unpacker.number());
  }
  call.check_agreement(roots, where, "the same root");
  detail::check_root(where, root, size());
  const bool own = root == rank();
  const c10::InferenceMode normal(false);
  const std::vector<std::int64_t> none(sizes.size(), 0);
  std::vector<std::int64_t> sent = none;
  sent[static_cast<std::size_t>(root)] = static_cast<std::int64_t>(bytes.size());
  const at::Tensor input = detail::bytes_tensor(static_cast<std::int64_t>(bytes.size()));
  bytes.copy(static_cast<char*>(input.data_ptr()), bytes.size());
  const at::Tensor output = detail::bytes_tensor(own ? detail::total(sizes) : 0);
  if (detail::total(sizes) > 0) {
    call.run([&] { return impl_->connection.wire->all_to_all(output, input, own ? sizes : none, sent); });
  }
  std::vector<std::string> gathered;
  const char* data = static_cast<const char*>(output.const_data_ptr());
  for (std::size_t rank = 0; own && rank < sizes.size(); ++rank) {
    gathered.emplace_back(data, static_cast<std::size_t>(sizes[rank]));
    data += sizes[rank];
  }
  return gathered;
}

}  // namespace danling::inline v0
