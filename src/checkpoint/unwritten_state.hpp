// A best or history state that could not be written under all its names: kept for a retry.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <danling/state/state.hpp>

#include "directory.hpp"

namespace danling::inline v0 {

/// Training continues after a failed save, and the next save would lose such a state. Keeps one at
/// most, as a copy: best before history, else the newer one. One thread at a time.
class UnwrittenState {
 public:
  UnwrittenState();
  ~UnwrittenState();

  bool empty() const { return kept_ == nullptr; }
  /// Keeps `state` if `done`, the result of writing `what`, lacks `best` or the history name. Keeps nothing without
  /// memory for the copy.
  void keep(const Publication& what, const State& state, const Published& done);
  /// Drops the state: the run resumes from before it.
  void discard();
  /// A newer save takes over its names.
  void supersede(const Publication& newer);

  struct RetryResult {
    std::vector<std::string> names;  ///< names that the directory now has
    std::string name;                ///< requested name of the failed save, once nothing of it is missing
    std::string error;               ///< its error
    std::string warning;             ///< see Published
  };
  /// Retries the missing names.
  RetryResult retry(CheckpointDirectory& directory);

 private:
  struct Kept;
  std::unique_ptr<Kept> kept_;
};

/// Whether a state that should become `best` lacks that name.
bool is_best_missing(const Publication& what, const Published& done);

}  // namespace danling::inline v0
