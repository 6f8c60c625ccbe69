// Which loader has what holds a place of its own, a stream or a batch sampler: one at a time.
#pragma once

#include <string_view>

namespace danling::inline v0::data::detail {

/// From the beginning of an epoch to its end, or to the end of the loader.
class SourceClaim {
 public:
  SourceClaim() = default;
  ~SourceClaim() { release(); }
  SourceClaim(const SourceClaim&) = delete;
  SourceClaim& operator=(const SourceClaim&) = delete;

  /// Returns whether it was not held already. Null is free for all. @throws StateError, and changes nothing, while
  /// another one holds the object.
  bool take(const void* object, std::string_view kind, std::string_view split);
  void release();

 private:
  const void* object_ = nullptr;
};

}  // namespace danling::inline v0::data::detail
