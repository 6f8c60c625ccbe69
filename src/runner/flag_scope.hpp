// Scopes that set or unset a flag.
#pragma once

#include <utility>

namespace danling::inline v0::detail {

class FlagScope {
 public:
  explicit FlagScope(bool& flag) : flag_(flag) { flag_ = true; }
  ~FlagScope() { flag_ = false; }
  FlagScope(const FlagScope&) = delete;
  FlagScope& operator=(const FlagScope&) = delete;

 private:
  bool& flag_;
};

/// Unsets a flag for its lifetime.
class Unset {
 public:
  explicit Unset(bool& flag) : flag_(flag), before_(std::exchange(flag, false)) {}
  ~Unset() { flag_ = before_; }
  Unset(const Unset&) = delete;
  Unset& operator=(const Unset&) = delete;

 private:
  bool& flag_;
  bool before_;
};

}  // namespace danling::inline v0::detail
