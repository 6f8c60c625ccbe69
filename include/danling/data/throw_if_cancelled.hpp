// Early end of a batch's reading, between its samples.
#pragma once

namespace danling::inline v0::data {

/// Cancels the reading of a batch that its loader no longer needs, by an exception that the loader catches; does
/// nothing otherwise, also outside workers. Loaders and combinators call it for every sample, so that a stop waits for
/// one sample and not for a batch. Call it in the loops of a custom `get_batch`, `next` or `read`, which must be
/// exception-safe there.
void throw_if_cancelled();

}  // namespace danling::inline v0::data
