// What `checkpoint.exclude_from_loading` names: parts of a checkpoint that stay as the running object has them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <danling/state/state.hpp>

namespace danling::inline v0::detail {

using StatePath = std::vector<Key>;

/// DanLing's other names of parts replaced: "dataloader.train" is "dataloaders.train".
std::string part_name(std::string_view text);

/// The keys that lead to what `path` names, keys joined by dots; keys may have dots of their own, items of lists are
/// numbers. Nothing where it is not there.
std::optional<StatePath> find_path(const State& tree, std::string_view path);

/// Gives what `path` leads to in `checkpoint` the value that it has in `own`, and removes what is not in `own`.
/// Leaves a checkpoint alone that has not even what the value belongs to.
/// @throws ConfigError for an item of a list that `own` does not have
void keep_own(State& checkpoint, const State& own, const StatePath& path, std::string_view text);

}  // namespace danling::inline v0::detail
