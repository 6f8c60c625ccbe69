// Options of `optim` and `sched` that have no effect.
#pragma once

#include <string>
#include <vector>

#include <danling/optim/options.hpp>

namespace danling::inline v0::detail {

/// The set keys that apply only when the config builds the optimizer.
std::vector<std::string> keys_of_type(const optim::OptimizerSpec& spec);
/// The same for a schedule. @param set  true if the program set it: then some keys apply
std::vector<std::string> keys_of_type(const optim::SchedulerSpec& spec, bool set);

/// @param part  the word for the section's object. @param unread  the section's keys_of_type()
/// @param set  true if the program set the object itself
/// @return a warning if the program set it, else an empty text
/// @throws ConfigError for keys without a type
std::string check_unread(const std::string& section, const std::string& part, bool has_type,
                         std::vector<std::string> unread, bool set);

}  // namespace danling::inline v0::detail
