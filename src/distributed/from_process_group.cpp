// Groups over a LibTorch process group that the program has created.
#include <ATen/core/ivalue.h>
#ifdef USE_DISTRIBUTED
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

#include <danling/core/error.hpp>

#include <distributed/c10d_wire.hpp>
#include <distributed/group_impl.hpp>

namespace danling::inline v0 {

#ifdef USE_DISTRIBUTED

Group Group::from_process_group(const c10::intrusive_ptr<c10d::ProcessGroup>& processes) {
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
  GroupOptions options;
  try {
    options.timeout = backend->getBackendOptions()->timeout;
  } catch (const std::exception&) {  // the backend does not report it; its timeout applies
    options.timeout = detail::longest_timeout;
  }
  detail::Connection connection;
  connection.address = concat("process group ", quote(processes->getGroupName()));
  connection.wire = std::make_unique<C10dWire>(backend);
  for (const c10::Device device : processes->getDeviceTypes()) {
    const auto other = device.is_cpu() ? backend : processes->getBackend(device.type());
    if (other != backend) {
      connection.device_wire = std::make_unique<C10dWire>(other);
      connection.device_type = device.type();
    }
  }
  std::vector<std::int64_t> ranks;
  for (int rank = 0; rank < processes->getSize(); ++rank) {
    ranks.push_back(rank);
  }
  return Group(std::make_shared<Impl>(std::move(connection), "", std::move(ranks), options));
}

#else

Group Group::from_process_group(const c10::intrusive_ptr<c10d::ProcessGroup>&) {
  fail<DistributedError>("group.over", "expected a LibTorch with distributed support, got one built without");
}

#endif

}  // namespace danling::inline v0
