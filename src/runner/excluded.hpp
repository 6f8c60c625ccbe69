// Parts of a checkpoint that `checkpoint.exclude_from_loading` excludes: the current objects keep theirs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <danling/state/state.hpp>

namespace danling::inline v0::detail {

using StatePath = std::vector<Key>;

/// Maps DanLing's other names of parts: "dataloader.train" becomes "dataloaders.train".
std::string part_name(std::string_view text);

/// Splits `path`, keys joined by dots, into the keys of an entry; keys may contain dots, items of lists are numbers.
/// Empty if there is no such entry.
std::optional<StatePath> find_path(const State& tree, std::string_view path);

/// Replaces the entry at `path` in `checkpoint` with that in `current`, or removes it if `current` has none. Does
/// nothing if the checkpoint lacks the parent of the entry.
/// @throws ConfigError for an item of a list that `current` does not have
void keep_current(State& checkpoint, const State& current, const StatePath& path, std::string_view text);

}  // namespace danling::inline v0::detail
