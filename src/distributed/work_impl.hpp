// State of a work: a reduction, or a message between two ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <danling/distributed/work.hpp>

#include <distributed/group_impl.hpp>
#include <distributed/reduction.hpp>

namespace danling::inline v0 {

struct Work::Impl {
  std::shared_ptr<Group::Impl> group;
  std::optional<detail::Reduction> reduction;  ///< absent for a message
  TransferPtr transfer;
  std::int64_t number = 0;  ///< of a collective
  std::string message;      ///< as messages of errors name it
  int peer = 0;             ///< of a message
  bool waited = false;
};

}  // namespace danling::inline v0
