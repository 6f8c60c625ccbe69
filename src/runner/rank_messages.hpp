// Messages between the ranks of a run: each sends one, and all act on the same list.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <danling/distributed/group.hpp>

namespace danling::inline v0::detail {

/// Why a rank comes to a meeting. Ranks at different places of the loop may meet: one that has ended its pass meets
/// those that update or log.
enum class Purpose : char {
  update = 'u',      ///< a window closes, or a round ends: with a StepPacket
  log = 'l',         ///< a line of the log
  ended = 'e',       ///< this rank's pass is over: with a StepPacket, or waiting for the end of the pass
  statistics = 's',  ///< inside a step: a layer's share of statistics over all ranks
  exchange = 'x'     ///< all ranks are at the same place
};

struct Message {
  Purpose purpose = Purpose::exchange;
  std::string body;
};

/// The messages of all ranks, in their order. Collective.
/// @throws DistributedError with that rank's words when another has failed.
std::vector<Message> meet(const Group& group, Purpose purpose, std::string_view body);
/// The bodies, where all ranks are at the same place.
std::vector<std::string> exchange(const Group& group, std::string_view body);
/// Ranks have met that are not at the same place. @throws DistributedError that names it for each
[[noreturn]] void fail_apart(const std::vector<Message>& messages, std::string_view where);
/// @throws DistributedError if a rank is inside a step, when ranks meet outside.
void check_outside_step(const std::vector<Message>& messages, std::string_view where);
/// Joins the next meeting of the others, at any place of the loop, with the reason why this rank ends.
void report_failure(const Group& group, std::string_view words);

}  // namespace danling::inline v0::detail
