// State of a work: a collective, or a message between two ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <danling/distributed/work.hpp>

#include <distributed/group_impl.hpp>

namespace danling::inline v0 {

struct Work::Impl {
  std::shared_ptr<Group::Impl> group;
  Collective collective = {};
  std::int64_t number = 0;  ///< of a collective
  std::int64_t bytes = 0;   ///< of this rank's data, for messages
  TransferPtr transfer;
  std::function<void()> finish;  ///< puts what the wire left where it belongs, and holds it until then
  std::string message = {};      ///< between two ranks, as errors name it; empty for a collective
  int peer = 0;
  bool waited = false;
};

}  // namespace danling::inline v0
