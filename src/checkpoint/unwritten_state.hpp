// A best or history state that could not be written under all its names, kept for a retry.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <danling/state/state.hpp>

#include <checkpoint/directory.hpp>

namespace danling::inline v0 {

/// Training continues after a failed save, and the next save would lose such a state. Keeps at most one, as a copy:
/// best takes precedence over history, then newer over older. Use by one thread at a time.
class UnwrittenState {
 public:
  UnwrittenState();
  ~UnwrittenState();

  bool empty() const { return kept_ == nullptr; }
  /// Keeps `state` if `done`, the result of writing `what`, lacks `best` or the history name. Keeps nothing if memory
  /// for the copy is missing.
  void keep(const Publication& what, const State& state, const Published& done);
  /// Drops the state: the run resumes from an earlier one.
  void discard();
  /// Removes the names that a newer save takes over.
  void supersede(const Publication& newer);

  struct RetryResult {
    std::vector<std::string> names;  ///< names that the directory now has
    std::string name;                ///< requested name of the failed save, once none of its names is missing
    std::string error;               ///< error of the failed save
    std::string warning;             ///< see Published
  };
  /// Retries the missing names.
  RetryResult retry(CheckpointDirectory& directory);

 private:
  struct Kept;
  std::unique_ptr<Kept> kept_;
};

/// Returns whether a state that should become `best` lacks that name.
bool is_best_missing(const Publication& what, const Published& done);

}  // namespace danling::inline v0
