#include <danling/parallel/rank_rng_guard.hpp>

#include <cstdint>
#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <danling/tape/observer.hpp>

namespace danling::inline v0::parallel {
namespace {

/// No two ranks have the same lower half: the host's generator uses only that.
std::uint64_t slice_seed(std::uint64_t number, int rank) {
  const auto low = static_cast<std::uint32_t>(number) + static_cast<std::uint32_t>(rank + 1) * 0x9E3779B9U;
  return (number & 0xFFFFFFFF00000000U) | low;
}

}  // namespace

RankRNGGuard::RankRNGGuard(const Group& group, at::Device device) {
  if (group.alone()) {
    return;
  }
  tape::mark_unrecordable("the random numbers of a slice restore generators");
  at::Generator host = at::detail::getDefaultCPUGenerator();
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(host.mutex());
    number = at::check_generator<at::CPUGeneratorImpl>(host)->random64();
  }
  generator_ = device.is_cpu() ? host : at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator_.mutex());
  state_ = generator_.get_state();
  generator_.set_current_seed(slice_seed(number, group.rank()));
}

RankRNGGuard::~RankRNGGuard() {
  if (generator_.defined()) {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(state_);
  }
}

}  // namespace danling::inline v0::parallel
