// Cancellation of a batch that is being read, between its samples.
#pragma once

namespace danling::inline v0::data {

/// Throws an exception that the loader catches, if the loader no longer needs the batch that this worker is reading;
/// does nothing otherwise, also outside of workers. Loaders and combinators call it for every sample, so that a stop
/// waits for one sample and not for a batch. Call it in the loops of a custom `get_batch`, `next` or `read`, which must
/// be exception-safe there.
void throw_if_cancelled();

}  // namespace danling::inline v0::data
