// A best state, or one of the history, that could not be written under all its names: kept until it can be.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <danling/state/state.hpp>

#include "directory.hpp"

namespace danling::inline v0 {

/// Training goes on after a save that failed, and the next one would leave such a state behind for good. One is kept
/// at most, in a copy of its own: the best before one of the history, the newer of two of a kind. One thread at a time.
class OwedSave {
 public:
  OwedSave();
  ~OwedSave();

  bool empty() const { return kept_ == nullptr; }
  /// Keeps `state` where `done`, what came of writing `what`, lacks `best` or the name of the history. Keeps nothing
  /// without memory for the copy.
  void keep(const Publication& what, const State& state, const Published& done);
  /// The run goes back behind the state.
  void give_up();
  /// A newer save takes its names.
  void supersede(const Publication& newer);

  struct MadeGood {
    std::vector<std::string> names;  ///< that the directory has now
    std::string name;                ///< of the save that failed, when nothing of it is missing any more
    std::string error;               ///< that it failed by
    std::string notice;              ///< see Published
  };
  /// Tries to write what is missing.
  MadeGood make_good(CheckpointDirectory& directory);

 private:
  struct Kept;
  std::unique_ptr<Kept> kept_;
};

/// Whether a state lacks the name of the best checkpoint that it was to get.
bool lacks_best(const Publication& what, const Published& done);

}  // namespace danling::inline v0
