// A flag that is up for as long as something lasts.
#pragma once

namespace danling::inline v0::detail {

class Raised {
 public:
  explicit Raised(bool& flag) : flag_(flag) { flag_ = true; }
  ~Raised() { flag_ = false; }
  Raised(const Raised&) = delete;
  Raised& operator=(const Raised&) = delete;

 private:
  bool& flag_;
};

}  // namespace danling::inline v0::detail
