// Default options of a loader, from the declarations of the sample type and the use of the data.
#pragma once

#include <danling/data/datum.hpp>
#include <danling/data/loader_options.hpp>
#include <danling/data/source.hpp>

namespace danling::inline v0::data {

/// Returns the batch size and workers that the sample type declares (`train_batch_size` for training data,
/// `val_batch_size` otherwise; by default 1 and no workers). Training data is shuffled, unless it is a stream, and
/// drops incomplete batches.
inline LoaderOptions default_options(const LoaderDefaults& declared, bool train, bool stream) {
  LoaderOptions out;
  out.batch_size = (train ? declared.train_batch_size : declared.val_batch_size).value_or(1);
  out.num_workers = declared.num_workers.value_or(0);
  out.shuffle = train && !stream;
  out.drop_last = train;
  return out;
}

/// The same for a dataset or stream, by its `train()`: the runner's defaults where the config sets none. For loaders
/// without a runner: `Loader<B> loader(source, default_options(source))`.
template <class B>
LoaderOptions default_options(const Source<B>& source) {
  LoaderOptions out = default_options(source.loader_defaults(), source.train(), source.is_stream());
  out.split = source.split();
  return out;
}

}  // namespace danling::inline v0::data
