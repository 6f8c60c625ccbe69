// Groups over a process group that the program has made itself.
#include <ATen/ops/full.h>

#include <danling/core/error.hpp>
#include <danling/distributed/group.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>
#include <support/temp_dir.hpp>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace process_group_test {

using danling::Group;

c10::intrusive_ptr<c10d::ProcessGroup> make_processes(const std::string& file, int rank, int size) {
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::FileStore>(file, size);
  auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(30));
  options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
  auto processes = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  processes->setGroupName("of the program");
  processes->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO,
                        c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options));
  return processes;
}

TEST_CASE("Group: works over a process group that the program has", "[distributed]") {
  const danling_test::TempDir dir;
  const auto texts = danling_test::run_processes(2, [&](int rank) {
    Group group;
    {
      // The group outlives the program's handle.
      const auto processes = make_processes((dir / "store").string(), rank, 2);
      group = Group::from_process_group(processes);
    }
    danling_test::expect(group.rank() == rank && group.size() == 2, "the rank and size of the process group");
    at::Tensor sum = at::full({2}, rank + 1.0);
    group.all_reduce(sum);
    return group.all_gather(std::to_string(rank))[1] + danling::to_text(sum[1].item().toDouble());
  });
  danling_test::check_ranks(texts, "13.0");
}

TEST_CASE("Group: a process group that cannot carry host memory is refused, one process is a world of one",
          "[distributed]") {
  using danling::DistributedError;
  CHECK(danling_test::error_of<DistributedError>([] { Group::from_process_group({}); }) ==
        "[group.over] expected a process group, got none");
  CHECK_THAT(danling_test::error_of<DistributedError>(
                 [] { Group::from_process_group(c10::make_intrusive<c10d::ProcessGroup>(0, 2)); }),
             ContainsSubstring("[group.over] expected a process group with a backend for host memory, such as "
                               "cpu:gloo, got: "));
  CHECK(Group::from_process_group(c10::make_intrusive<c10d::ProcessGroup>(0, 1)).alone());
}

}  // namespace process_group_test
