// Memory that tapes use in turn, and the places of results in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <c10/core/Allocator.h>

namespace danling::inline v0::tape {

/// As large as the largest tape needs. For tapes that replay one after another.
class Arena {
 public:
  /// At least `bytes`; what was there before is gone if it had to grow.
  void* reserve(std::size_t bytes);
  /// Returns the memory to the system; the next replay takes it again.
  void release();
  /// release(), and the allocator returns what it has free to the system: before a step that needs more than others.
  void make_room();
  std::size_t bytes() const { return size_; }

 private:
  c10::DataPtr data_;
  std::size_t size_ = 0;
};

/// A result's size, and the calls between which it lives, both included.
struct Lifetime {
  std::size_t bytes = 0, first = 0, last = 0;
};
struct Places {
  std::vector<std::size_t> offsets;
  std::size_t bytes = 0;
};
/// Places in one block such that results that live at the same time do not overlap: the largest first, each at the
/// lowest address that is free.
Places place(const std::vector<Lifetime>& lifetimes);

}  // namespace danling::inline v0::tape
