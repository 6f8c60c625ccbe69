// StoredConfig: names of types for its messages.
#include <danling/config/stored.hpp>

#include <cxxabi.h>

#include <cstdlib>

namespace danling::inline v0::detail {

std::string readable_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 && name ? name.get() : type.name();
}

}  // namespace danling::inline v0::detail
