#include <distributed/wire.hpp>

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>
#ifdef USE_DISTRIBUTED
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#else
#include <ATen/core/ivalue.h>
namespace c10d {
class Backend : public c10::intrusive_ptr_target {};
}  // namespace c10d
#endif

#include <danling/core/error.hpp>

namespace danling::inline v0 {

std::string detail::reason_of(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  std::string text = of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
  text = text.substr(0, text.find('\n'));
  // Gloo's messages begin with a source file and line.
  if (text.starts_with('[')) {
    const auto end = text.find("] ");
    text = end == std::string::npos ? text : text.substr(end + 2);
  }
  return text;
}

#ifdef USE_DISTRIBUTED

Wire::Wire(c10::intrusive_ptr<c10d::Backend> backend, std::string address)
    : backend_(std::move(backend)),
      address_(std::move(address)),
      rank_(backend_->getRank()),
      size_(backend_->getSize()) {}

Wire::~Wire() = default;

std::vector<at::Tensor> Wire::all_gather(const at::Tensor& mine) const {
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int rank = 0; rank < size_; ++rank) {
    outputs.front().push_back(at::empty_like(mine));
  }
  std::vector<at::Tensor> inputs = {mine};
  backend_->allgather(outputs, inputs)->wait();
  return std::move(outputs.front());
}

void Wire::broadcast(at::Tensor& tensor, int root) const {
  std::vector<at::Tensor> tensors = {tensor};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  backend_->broadcast(tensors, options)->wait();
}

void Wire::all_reduce(at::Tensor& tensor) const {
  std::vector<at::Tensor> tensors = {tensor};
  backend_->allreduce(tensors)->wait();
}

Group Group::over(const c10::intrusive_ptr<c10d::ProcessGroup>& processes) {
  constexpr const char* where = "group.over";
  check<DistributedError>(static_cast<bool>(processes), where, "expected a process group, got none");
  if (processes->getSize() == 1) {
    return Group();
  }
  c10::intrusive_ptr<c10d::Backend> backend;
  try {
    backend = processes->getBackend(c10::DeviceType::CPU);
  } catch (const std::exception& error) {
    fail<DistributedError>(where, "expected a process group with a backend for host memory, such as cpu:gloo, got: ",
                           detail::reason_of(error));
  }
  const std::string address = concat("process group ", quote(processes->getGroupName()));
  return Group(std::make_shared<Impl>(std::make_unique<Wire>(std::move(backend), address)));
}

#else

namespace {
constexpr const char* without = "expected a LibTorch with distributed support, got one built without";
}

Wire::Wire(c10::intrusive_ptr<c10d::Backend>, std::string) { fail<DistributedError>("group.connect", without); }
Wire::~Wire() = default;
std::vector<at::Tensor> Wire::all_gather(const at::Tensor&) const { fail<DistributedError>("group.gather", without); }
void Wire::broadcast(at::Tensor&, int) const { fail<DistributedError>("group.broadcast", without); }
void Wire::all_reduce(at::Tensor&) const { fail<DistributedError>("group.all_reduce", without); }
Group Group::over(const c10::intrusive_ptr<c10d::ProcessGroup>&) { fail<DistributedError>("group.over", without); }

#endif

}  // namespace danling::inline v0
