// A pass over a loader that leaves its position as it was.
#pragma once

#include <cstdint>
#include <utility>

#include <danling/data/loader_base.hpp>

namespace danling::inline v0::data {

/// Begins an epoch at its first batch, whatever was loaded, and with `keep` goes back when it ends, however it ends:
/// the loader goes on behind the last batch that it had delivered, with the counts it had, and until then its
/// `state_dict()` is of that place. Batches that workers had read ahead are read again. A stream, which has one
/// position, is taken back by its state. For one thread; the loader must outlive it. Another visit, `start_epoch`,
/// `next` and `load_state_dict` of the loader end it.
class LoaderVisit {
 public:
  /// @throws StateError with `keep` where one process does not know the position: `in_order: false` in several.
  LoaderVisit(LoaderBase& loader, std::int64_t epoch, bool keep);
  /// Ends the visit. Where going back fails, the loader's next `start_epoch` tries again and throws.
  ~LoaderVisit();
  LoaderVisit(LoaderVisit&& other) noexcept : loader_(std::exchange(other.loader_, nullptr)), visit_(other.visit_) {}
  LoaderVisit& operator=(LoaderVisit&&) = delete;

  /// As the loader's own. @throws StateError when the visit has ended.
  bool next();
  /// Goes back now, so that an error shows.
  void end();

 private:
  LoaderBase* loader_;
  std::int64_t visit_ = 0;
};

}  // namespace danling::inline v0::data
