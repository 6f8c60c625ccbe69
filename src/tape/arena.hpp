// Memory shared by tapes that replay in turn, and the placement of results in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <c10/core/Allocator.h>

namespace danling::inline v0::tape {

/// One block, as large as the largest tape needs. Only one tape may replay at a time.
class Arena {
 public:
  /// Returns at least `bytes`; growing discards the contents.
  void* reserve(std::size_t bytes);
  /// Returns the memory to the system; the next replay allocates it again.
  void release();
  /// release(), and makes the allocator return its free memory to the system: call it before a step with a higher peak.
  void make_room();
  std::size_t bytes() const { return size_; }

 private:
  c10::DataPtr data_;
  std::size_t size_ = 0;
};

/// Size of a result, and the first and last call between which it is alive (inclusive).
struct Lifetime {
  std::size_t bytes = 0, first = 0, last = 0;
};
struct Places {
  std::vector<std::size_t> offsets;
  std::size_t bytes = 0;
};
/// Assigns offsets in one block so that results alive at the same time do not overlap: largest first, each at the
/// lowest free address.
Places place(const std::vector<Lifetime>& lifetimes);

}  // namespace danling::inline v0::tape
