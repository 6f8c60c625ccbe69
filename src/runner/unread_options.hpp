// Options of `optim` and `sched` that nothing reads.
#pragma once

#include <string>
#include <vector>

#include <danling/optim/options.hpp>

namespace danling::inline v0::detail {

/// The set keys that are read only when the config builds the optimizer.
std::vector<std::string> keys_of_type(const optim::OptimizerSpec& spec);
/// The same for a schedule. @param set whether the program set it: then some are read
std::vector<std::string> keys_of_type(const optim::SchedulerSpec& spec, bool set);

/// @param part a word for what the section describes; `unread` its keys_of_type()
/// @param set whether the program set the part itself
/// @return a warning where the program set it, else empty
/// @throws ConfigError for keys without a type
std::string check_unread(const std::string& section, const std::string& part, bool has_type,
                         std::vector<std::string> unread, bool set);

}  // namespace danling::inline v0::detail
