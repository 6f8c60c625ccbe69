// Errors of one rank that the others do not know of.
#pragma once

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {

/// Arguments that cannot be used, found before anything was sent, or a message of another shape than expected. The
/// group stays usable.
class LocalError final : public DistributedError {
 public:
  using DistributedError::DistributedError;
};

}  // namespace danling::inline v0::detail
