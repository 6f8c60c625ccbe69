// The schedules of torch.optim.lr_scheduler by name.
#pragma once

#include <danling/optim/build.hpp>

namespace danling::inline v0::optim::detail {

/// Adds schedules that are shapes over the position, under DanLing's names and PyTorch's.
void add_torch_schedules(SchedulerRegistry& registry);

/// ReduceLROnPlateau.
std::shared_ptr<Scheduler> build_plateau(const SchedulerSpec& spec, Optimizer& optimizer, std::optional<std::int64_t>);

/// SequentialLR: runs the parts of the chain in sequence, each from its beginning.
std::shared_ptr<Scheduler> build_sequential(const SchedulerSpec& spec, Optimizer& optimizer,
                                            std::optional<std::int64_t> total_steps);
/// ChainedScheduler: the base rate times the factor of each part.
std::shared_ptr<Scheduler> build_chained(const SchedulerSpec& spec, Optimizer& optimizer,
                                         std::optional<std::int64_t> total_steps);

}  // namespace danling::inline v0::optim::detail
