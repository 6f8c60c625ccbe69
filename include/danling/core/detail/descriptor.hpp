// Descriptor: owns a descriptor of the system and closes it.
#pragma once

namespace danling::inline v0::detail {

class Descriptor {
 public:
  /// A negative number means none, as `open` returns it.
  explicit Descriptor(int number) noexcept : number_(number) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const noexcept { return number_; }

 private:
  int number_;
};

}  // namespace danling::inline v0::detail
