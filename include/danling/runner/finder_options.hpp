// Options of the learning rate finder and of the batch size finder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <danling/config/fields.hpp>
#include <danling/core/quantity.hpp>

namespace danling::inline v0 {

/// Smith's range test: the learning rate grows exponentially from `min` to `max` over `steps` updates.
struct FindLrOptions {
  double min = 1e-7;
  double max = 10.0;
  std::int64_t steps = 100;
  double smoothing = 0.98;  ///< weight of the earlier losses in the running average, as in fastai and Lightning
  double divergence = 4.0;  ///< ends the test when the smoothed loss exceeds `divergence` times its minimum
  std::string model = {};   ///< name of the model whose rate grows; the others keep theirs. Empty: `model`
  std::string svg = {};     ///< path of the plot; empty: none
  void fields(Fields& f);
};

/// `find_lr` of a config: with `enabled`, `dl::run` runs the finder instead of training.
struct FindLrConfig : FindLrOptions {
  bool enabled = false;
  void fields(Fields& f);
};

/// Tries growing batch sizes until memory runs out.
struct FindBatchSizeOptions {
  std::int64_t min = 1;
  std::int64_t max = 65536;
  std::int64_t steps = 3;  ///< measured updates per size, after one unmeasured
  /// Limit for the memory of training: the model and all tensors of a step. Unset: all memory of the device, or on the
  /// CPU half of the memory that is available to the process.
  std::optional<MemorySize> memory_limit = {};
  std::string svg = {};  ///< path of the plot; empty: none
  void fields(Fields& f);
};

/// `find_batch_size` of a config.
struct FindBatchSizeConfig : FindBatchSizeOptions {
  bool enabled = false;
  void fields(Fields& f);
};

}  // namespace danling::inline v0
