#include <core/host_name.hpp>

#include <unistd.h>

#include <array>

namespace danling::inline v0::detail {

std::string host_name() {
  std::array<char, 256> name{};  // the system may leave a cut name without its end
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace danling::inline v0::detail
