// Transport of a group's messages: three collectives over host memory, and texts for their failures.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <danling/distributed/group.hpp>

namespace c10d {
class Backend;
}

namespace danling::inline v0 {

/// A backend of LibTorch's for host memory. Tensors are contiguous and on the host; failures throw
/// errors of LibTorch.
class Wire {
 public:
  Wire(c10::intrusive_ptr<c10d::Backend> backend, std::string address);
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Address at which the processes joined; for messages.
  const std::string& address() const { return address_; }

  /// `mine` of each rank, alike in size everywhere, in the order of ranks.
  std::vector<at::Tensor> all_gather(const at::Tensor& mine) const;
  void broadcast(at::Tensor& tensor, int root) const;
  /// Sums over all ranks in place.
  void all_reduce(at::Tensor& tensor) const;

 private:
  c10::intrusive_ptr<c10d::Backend> backend_;
  std::string address_;
  int rank_;
  int size_;
};

struct Group::Impl {
  explicit Impl(std::unique_ptr<Wire> carrier) : wire(std::move(carrier)) {}

  std::unique_ptr<Wire> wire;
  /// Message of a failed collective; nothing works after it.
  std::string failure;
};

namespace detail {

/// Message of a LibTorch exception, without its stack.
std::string reason_of(const std::exception& error);

/// Joins the other processes at the master's address and connects to each over Gloo.
std::unique_ptr<Wire> connect_gloo(const ProcessIdentity& identity, const GroupOptions& options);

}  // namespace detail

}  // namespace danling::inline v0
