// The name of this machine.
#pragma once

#include <string>

namespace danling::inline v0::detail {

/// The machine's name on the network, cut at 255 bytes; empty if the system does not know it.
std::string host_name();

}  // namespace danling::inline v0::detail
