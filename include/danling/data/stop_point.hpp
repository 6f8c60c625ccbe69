// Where the reading of a batch may end early: between its samples.
#pragma once

namespace danling::inline v0::data {

/// Ends the reading of a batch that its loader no longer wants, by an exception that the loader catches; else does
/// nothing, as in threads that are no workers. Loaders and combinators call it for every sample, so that a stop waits
/// for one sample and not for a batch. For the loops of a `get_batch`, `next` or `read` of one's own: whatever it
/// changed must be as after any other exception.
void stop_point();

}  // namespace danling::inline v0::data
