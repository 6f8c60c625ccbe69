// Errors of one rank that other ranks do not see.
#pragma once

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {

/// Invalid arguments, found before anything was sent, or a received message of an unexpected shape. The group stays
/// usable.
class LocalError final : public DistributedError {
 public:
  using DistributedError::DistributedError;
};

}  // namespace danling::inline v0::detail
