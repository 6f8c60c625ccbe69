// Restores an object of the run from its part of a checkpoint.
#pragma once

#include <string>

#include <danling/core/error.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0::detail {

/// Calls `load(state)`. @throws CheckpointError that explains how to skip a part that does not fit
template <class Load>
void load_part(const std::string& part, const State& state, const Load& load) {
  try {
    load(state);
  } catch (const Error& error) {
    throw CheckpointError(concat(error.what(), "; put '", part,
                                 "' into checkpoint.exclude_from_loading to reset it, or set `pretrained` to load only "
                                 "weights"));
  }
}

}  // namespace danling::inline v0::detail
