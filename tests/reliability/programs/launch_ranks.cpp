// A worker of `danling launch` that joins the others, and sums their ranks and their restart counts.
#include <cstdio>

#include <ATen/ops/tensor.h>

#include <danling/distributed/group.hpp>
#include <danling/distributed/process.hpp>
#include <danling/runner/run.hpp>

namespace dl = danling;

// apps/danling/launch_attempt.cpp repeats both, since it includes no LibTorch.
static_assert(dl::exit_config == 2 && dl::exit_time_limit == 75);

int main() {
  try {
    const auto identity = dl::read_process_identity();
    const auto group = dl::Group::connect(identity);
    auto sum = at::tensor({identity.rank, identity.restart_count}, at::kLong);
    group.all_reduce(sum);
    std::printf("%s: rank %d of %d, sum %lld, restarts %lld\n", identity.launcher.c_str(), identity.rank, group.size(),
                static_cast<long long>(sum[0].item<std::int64_t>()),
                static_cast<long long>(sum[1].item<std::int64_t>()));
    group.barrier();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
