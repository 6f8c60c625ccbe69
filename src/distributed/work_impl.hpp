// State of a Work: a collective or a point-to-point message.
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
  std::int64_t bytes = 0;   ///< size of this rank's data, for messages
  TransferPtr transfer;
  std::function<void()> finish;  ///< copies the wire's result to its destination; keeps the tensors alive until then
  std::string message = {};      ///< description of a point-to-point message, for errors; empty for a collective
  int peer = 0;
  bool waited = false;
};

}  // namespace danling::inline v0
