// Messages between the ranks of a run: each sends one, and all act on the same list.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <danling/distributed/group.hpp>

namespace danling::inline v0::detail {

/// Purpose of a rank's message. Ranks at different points of the loop may meet: one that has ended its pass meets ranks
/// that update or log.
enum class Purpose : char {
  update = 'u',      ///< a window closes or a round ends: with a StepPacket
  log = 'l',         ///< a log line
  ended = 'e',       ///< this rank has ended its pass: with a StepPacket, or waiting for the end of the pass
  statistics = 's',  ///< inside a step: a layer's share of statistics over all ranks
  exchange = 'x'     ///< all ranks are at the same point
};

struct Message {
  Purpose purpose = Purpose::exchange;
  std::string body;
};

/// Exchanges the messages of all ranks, in rank order. Collective.
/// @throws DistributedError with the message of a rank that has failed
std::vector<Message> meet(const Group& group, Purpose purpose, std::string_view body);
/// The bodies of the messages; requires all ranks at the same point.
std::vector<std::string> exchange(const Group& group, std::string_view body);
/// Throws DistributedError for ranks that met at different points, and names the point of each.
[[noreturn]] void fail_apart(const std::vector<Message>& messages, std::string_view where);
/// @throws DistributedError if a rank is inside a step when ranks meet outside
void check_outside_step(const std::vector<Message>& messages, std::string_view where);
/// Joins the next exchange of the others, at any point of the loop, with the reason why this rank ends.
void report_failure(const Group& group, std::string_view words);

}  // namespace danling::inline v0::detail
