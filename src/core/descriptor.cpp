#include <danling/core/detail/descriptor.hpp>

#include <unistd.h>

namespace danling::inline v0::detail {

Descriptor::~Descriptor() {
  if (number_ >= 0) {
    ::close(number_);
  }
}

}  // namespace danling::inline v0::detail
