// A pass over a loader that restores the loader's position afterwards.
#pragma once

#include <cstdint>
#include <utility>

#include <danling/data/loader_base.hpp>

namespace danling::inline v0::data {

/// Starts an epoch at its first batch, regardless of a loaded state. With `keep`, the end of the visit returns the
/// loader to the position after its last delivered batch, with its counts, also on exceptions; until then
/// `state_dict()` returns that position. Batches that workers had read ahead are read again. A stream is restored from
/// its state. Use it in one thread; the loader must outlive it. Another visit, `start_epoch`, `next` and
/// `load_state_dict` of the loader end it.
class LoaderVisit {
 public:
  /// @throws StateError with `keep`, if one process does not know the position (`in_order: false` with several
  /// processes), or between two parts of a global batch.
  LoaderVisit(LoaderBase& loader, std::int64_t epoch, bool keep);
  /// Ends the visit. If restoring fails, the loader's next `start_epoch` retries and throws.
  ~LoaderVisit();
  LoaderVisit(LoaderVisit&& other) noexcept : loader_(std::exchange(other.loader_, nullptr)), visit_(other.visit_) {}
  LoaderVisit& operator=(LoaderVisit&&) = delete;

  /// As `LoaderBase::next`. @throws StateError when the visit has ended.
  bool next();
  /// Ends the visit now; throws if restoring fails.
  void end();

 private:
  LoaderBase* loader_;
  std::int64_t visit_ = 0;
};

}  // namespace danling::inline v0::data
