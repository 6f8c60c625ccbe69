// Exclusive use of a stream or a batch sampler by one loader, because it has a position.
#pragma once

#include <string_view>

namespace danling::inline v0::data::detail {

/// Held from the start of an epoch to its end, or to the end of the loader.
class SourceClaim {
 public:
  SourceClaim() = default;
  ~SourceClaim() { release(); }
  SourceClaim(const SourceClaim&) = delete;
  SourceClaim& operator=(const SourceClaim&) = delete;

  /// Claims `object`; returns true if this claim did not hold it before. Null is always free.
  /// @throws StateError, without changes, while another claim holds the object.
  bool take(const void* object, std::string_view kind, std::string_view split);
  void release();

 private:
  const void* object_ = nullptr;
};

}  // namespace danling::inline v0::data::detail
