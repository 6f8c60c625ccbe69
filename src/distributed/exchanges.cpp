// Collectives in which each rank sends different tensors to different ranks.
#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

#include <danling/core/error.hpp>

#include <distributed/group_impl.hpp>
#include <distributed/reduction.hpp>
#include <distributed/shapes.hpp>

namespace danling::inline v0 {

at::Tensor Group::scatter(const std::vector<at::Tensor>& parts, int root, at::Device device) const {
  constexpr const char* where = "group.scatter";
  const auto check_parts = [&](std::size_t count) {
    check<DistributedError>(count == static_cast<std::size_t>(size()), where, "expected ", size(),
                            " parts on the root, got ", count);
  };
  if (impl_ == nullptr) {
    check_parts(parts.size());
    return parts.front();
  }
  const c10::NoGradGuard no_grad;
  GroupCall call(*impl_, Collective::scatter);
  const bool own = root == rank();
  detail::Packer packer;
  packer.number(root);
  packer.number(own ? static_cast<std::int64_t>(parts.size()) : 0);
  for (std::size_t index = 0; own && index < parts.size(); ++index) {
    detail::pack_shape(packer, parts[index], false);
  }
  std::vector<std::string> roots;
  std::vector<detail::Shape> shapes;
  for (const std::string& packed : call.exchange(packer.take())) {
    detail::Unpacker unpacker(packed);
    roots.push_back(concat("rank ", unpacker.number()));
    for (std::int64_t left = unpacker.number(); left > 0; --left) {
      shapes.push_back(detail::unpack_shape(unpacker));
    }
  }
  call.check_agreement(roots, where, "the same root");
  detail::check_root(where, root, size());
  check_parts(shapes.size());
  const c10::InferenceMode normal(false);
  const std::vector<std::int64_t> sizes = detail::bytes_of(shapes);
  const std::vector<std::int64_t> none(sizes.size(), 0);
  const auto mine = static_cast<std::size_t>(rank());
  std::vector<std::int64_t> received = none;
  received[static_cast<std::size_t>(root)] = sizes[mine];
  const at::Tensor input = own ? detail::pack_bytes(parts, at::kCPU) : detail::bytes_tensor(0);
  const at::Tensor output = detail::bytes_tensor(sizes[mine]);
  if (detail::total(sizes) > 0) {
    call.run([&] { return impl_->connection.wire->all_to_all(output, input, received, own ? sizes : none); });
  }
  return own ? parts[mine] : detail::unpack_bytes(output, {shapes[mine]}, device).front();
}

std::vector<at::Tensor> Group::all_to_all(const std::vector<at::Tensor>& parts) const {
  constexpr const char* where = "group.all_to_all";
  const auto check_parts = [&](std::size_t count, std::int64_t rank) {
    check<DistributedError>(count == static_cast<std::size_t>(size()), where, "expected ", size(),
                            " parts on each rank, got ", count, " on rank ", rank);
  };
  if (impl_ == nullptr) {
    check_parts(parts.size(), 0);
    return parts;
  }
  const c10::NoGradGuard no_grad;
  GroupCall call(*impl_, Collective::all_to_all);
  const auto mine = static_cast<std::size_t>(rank());
  bool carries = true;
  for (const at::Tensor& part : parts) {
    carries = carries && part.defined() && impl_->carries(part.device());
  }
  detail::Packer packer;
  packer.number(static_cast<std::int64_t>(parts.size()));
  for (const at::Tensor& part : parts) {
    detail::pack_shape(packer, part, carries);
  }
  std::vector<detail::Shape> theirs;  // shapes of the parts for this rank
  std::vector<std::size_t> counts;
  bool stays = true;
  for (const std::string& packed : call.exchange(packer.take())) {
    detail::Unpacker unpacker(packed);
    counts.push_back(static_cast<std::size_t>(unpacker.number()));
    theirs.emplace_back();
    for (std::size_t part = 0; part < counts.back(); ++part) {
      const detail::Shape shape = detail::unpack_shape(unpacker);
      theirs.back() = part == mine ? shape : theirs.back();
      stays = stays && shape.stays;
    }
  }
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    check_parts(counts[rank], impl_->ranks[rank]);
  }
  const c10::InferenceMode normal(false);
  const auto some = std::find_if(parts.begin(), parts.end(), [](const at::Tensor& part) { return part.defined(); });
  const at::Device device = some == parts.end() ? at::Device(at::kCPU) : some->device();
  const at::Tensor input = detail::pack_bytes(parts, stays ? device : at::Device(at::kCPU));
  std::vector<std::int64_t> sent;
  for (const at::Tensor& part : parts) {
    sent.push_back(part.defined() ? static_cast<std::int64_t>(part.nbytes()) : 0);
  }
  const std::vector<std::int64_t> received = detail::bytes_of(theirs);
  const at::Tensor output = at::empty({detail::total(received)}, input.options());
  call.run([&] { return impl_->wire_of(input).all_to_all(output, input, received, sent); });
  return detail::unpack_bytes(output, theirs, device);
}

at::Tensor Group::all_to_all_single(const at::Tensor& rows, at::IntArrayRef splits) const {
  constexpr const char* where = "group.all_to_all_single";
  std::vector<std::int64_t> counts = splits.vec();
  // Every rank checks the requests of all ranks, so that all throw the same error.
  const auto check_counts = [&](std::int64_t given, const std::vector<std::int64_t>& theirs, std::int64_t rank) {
    bool fits = theirs.empty() ? given % size() == 0 : static_cast<int>(theirs.size()) == size();
    for (const std::int64_t count : theirs) {
      fits = fits && count >= 0;
    }
    fits = fits && (theirs.empty() || detail::total(theirs) == given);
    check<DistributedError>(fits, where, "expected ", size(), " counts that add up to the rows, got ", given,
                            " rows in ", theirs.empty() ? "equal parts" : join(theirs), " on rank ", rank);
  };
  if (impl_ == nullptr) {
    check<DistributedError>(rows.defined() && rows.dim() > 0, where, "expected at least one dimension, got ",
                            detail::request_text(rows));
    check_counts(rows.size(0), counts, 0);
    return rows;
  }
  const c10::NoGradGuard no_grad;
  GroupCall call(*impl_, Collective::all_to_all_single, rows);
  detail::Packer packer;
  detail::pack_shape(packer, rows, rows.defined() && impl_->carries(rows.device()));
  packer.numbers(counts);
  std::vector<detail::Shape> shapes;
  std::vector<std::vector<std::int64_t>> all_counts;
  std::vector<std::string> texts;
  bool stays = true;
  for (const std::string& packed : call.exchange(packer.take())) {
    detail::Unpacker unpacker(packed);
    shapes.push_back(detail::unpack_shape(unpacker));
    all_counts.push_back(unpacker.numbers());
    texts.push_back(shapes.back().any ? shapes.back().rows_text() : "nothing");
    stays = stays && shapes.back().stays;
  }
  call.check_agreement(texts, where, "matching rows");
  check<DistributedError>(rows.defined() && rows.dim() > 0, where, "expected at least one dimension, got ",
                          detail::request_text(rows));
  std::int64_t row_bytes = static_cast<std::int64_t>(rows.element_size());
  for (const std::int64_t size : rows.sizes().slice(1)) {
    row_bytes *= size;
  }
  std::vector<std::int64_t> sent;
  std::vector<std::int64_t> received;
  std::int64_t count = 0;
  for (std::size_t rank = 0; rank < shapes.size(); ++rank) {
    std::vector<std::int64_t>& theirs = all_counts[rank];
    check_counts(shapes[rank].sizes[0], theirs, impl_->ranks[rank]);
    theirs = theirs.empty() ? std::vector<std::int64_t>(shapes.size(), shapes[rank].sizes[0] / size()) : theirs;
    received.push_back(theirs[static_cast<std::size_t>(this->rank())] * row_bytes);
    count += theirs[static_cast<std::size_t>(this->rank())];
  }
  for (const std::int64_t mine : all_counts[static_cast<std::size_t>(rank())]) {
    sent.push_back(mine * row_bytes);
  }
  const c10::InferenceMode normal(false);
  const at::Tensor input = detail::carried(rows, stays);
  std::vector<std::int64_t> shape = rows.sizes().vec();
  shape[0] = count;
  const at::Tensor output = at::empty(shape, input.options());
  call.run([&] {
    return impl_->wire_of(input).all_to_all(detail::as_bytes(output), detail::as_bytes(input), received, sent);
  });
  return output.to(rows.device());
}

}  // namespace danling::inline v0
