// Common part of a group's collectives: comparison of requests, waiting, failures.
#include <algorithm>
#include <cstring>

#include <c10/core/InferenceMode.h>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>
#include <danling/tape/observer.hpp>

#include <distributed/group_impl.hpp>
#include <distributed/shapes.hpp>

namespace danling::inline v0 {
namespace {

// Every collective begins with one packet per rank: the request, and as much of its data as fits.
constexpr std::size_t packet_bytes = 1024;
constexpr std::size_t header_bytes = sizeof(std::uint64_t) * 2;
constexpr std::size_t payload_bytes = packet_bytes - header_bytes;

// Interval at which a waiting rank checks if another rank has failed.
constexpr auto turn = std::chrono::milliseconds(200);

constexpr const char* collective_names[] = {"barrier",
                                            "all_reduce",
                                            "all_gather of bytes",
                                            "all_gather of rows",
                                            "reduce",
                                            "broadcast",
                                            "broadcast of bytes",
                                            "gather of bytes",
                                            "gather of rows",
                                            "scatter",
                                            "reduce_scatter",
                                            "all_to_all",
                                            "all_to_all_single",
                                            "split",
                                            "start_all_reduce",
                                            "start_all_gather",
                                            "start_all_to_all_single"};

const char* name_of_collective(std::uint64_t collective) {
  return collective < std::size(collective_names) ? collective_names[collective] : "something unknown";
}

const char* name_of_collective(Collective collective) {
  return name_of_collective(static_cast<std::uint64_t>(collective));
}

struct TimedOut : std::runtime_error {
  TimedOut() : std::runtime_error("timed out") {}
};

}  // namespace

GroupCall::GroupCall(Group::Impl& group, Collective collective) : GroupCall(group, collective, group.number + 1) {
  group.number = number_;
  if (group.connection.watch) {
    group.connection.watch->enter(group.place, number_, name_of_collective(collective));
  }
}

GroupCall::GroupCall(Group::Impl& group, Collective collective, const at::Tensor& data) : GroupCall(group, collective) {
  set_bytes(data);
}

GroupCall::GroupCall(Group::Impl& group, Collective collective, std::int64_t number)
    : group_(group),
      number_(number),
      collective_(collective),
      limit_(group.timeout),
      pending_(name_of_collective(collective), number) {
  group.check_usable();
  const bool exchanges = collective == Collective::all_gather_rows || collective == Collective::all_to_all ||
                         collective == Collective::all_to_all_single || collective == Collective::reduce_scatter;
  group.exchanges += exchanges ? 1 : 0;
  if (tape::Observer* const observer = tape::observer()) {
    observer->mark_unrecordable(concat("processes exchange values inside of it: ", name_of_collective(collective)));
  }
}

GroupCall::GroupCall(Group::Impl& group, std::string text, int peer)
    : group_(group), text_(std::move(text)), limit_(group.timeout), pending_(text_.c_str()) {
  group.check_usable();
  ++group.exchanges;
  if (tape::Observer* const observer = tape::observer()) {
    observer->mark_unrecordable(concat("processes exchange values inside of it: ", text_));
  }
  ranks_ = peer < 0 ? group.ranks : std::vector<std::int64_t>{group.ranks[static_cast<std::size_t>(peer)]};
}

std::shared_ptr<detail::Watch> GroupCall::watch_of(const Group& group) {
  return group.impl_ == nullptr ? nullptr : group.impl_->connection.watch;
}

std::vector<std::int64_t> GroupCall::ranks_of(const Group& group) {
  return group.impl_ == nullptr ? std::vector<std::int64_t>{0} : group.impl_->ranks;
}

std::int64_t GroupCall::exchanges_of(const Group& group) { return group.impl_ == nullptr ? 0 : group.impl_->exchanges; }

void GroupCall::fail_in_memory(const Group& group, std::string_view operation,
                               const detail::SharedMemory::Failure& failure) {
  const auto watch = watch_of(group);
  if (watch == nullptr) {
    throw failure;
  }
  using Kind = detail::RankReport::Kind;
  detail::RankReport report;
  report.kind = failure.timed_out ? Kind::timed_out : Kind::failed;
  report.text = concat(detail::ranks_text(failure.ranks),
                       failure.timed_out ? " waits elsewhere, computes or has been stopped" : " has ended");
  report.limit = group.timeout();
  report.failed_at = {group.impl_->name, failure.ranks, 0, std::string(operation)};
  const std::string wanted = concat("all ", group.size(), " ranks to join the ", operation);
  fail_for(*group.impl_, wanted, watch->report(std::move(report)));
}

GroupCall::~GroupCall() {
  if (restore_timeout_) {
    group_.set_wire_timeout(group_.timeout);
  }
}

void GroupCall::set_timeout(std::chrono::milliseconds limit) {
  limit_ = limit;
  group_.set_wire_timeout(limit);
  restore_timeout_ = true;
}

std::vector<std::string> GroupCall::exchange(std::string_view payload) {
  const c10::InferenceMode normal(false);
  pending_.set_bytes(static_cast<std::int64_t>(payload.size()));
  Wire& wire = *group_.connection.wire;
  const auto gather = [&](const at::Tensor& mine) {
    std::vector<at::Tensor> all;
    for (int rank = 0; rank < wire.size(); ++rank) {
      all.push_back(detail::bytes_tensor(mine.numel()));
    }
    run([&] { return wire.all_gather(all, mine); });
    return all;
  };
  const at::Tensor packet = detail::bytes_tensor(packet_bytes);
  auto* const data = static_cast<char*>(packet.data_ptr());
  const std::uint64_t header[] = {static_cast<std::uint64_t>(collective_), payload.size()};
  std::memset(data, 0, packet_bytes);
  std::memcpy(data, header, header_bytes);
  payload.copy(data + header_bytes, payload_bytes);

  std::vector<std::string> asked;
  std::vector<std::string> gathered;
  std::vector<std::size_t> sizes;
  for (const at::Tensor& other : gather(packet)) {
    std::uint64_t theirs[2] = {};
    const auto* begin = static_cast<const char*>(other.const_data_ptr());
    std::memcpy(theirs, begin, header_bytes);
    asked.emplace_back(name_of_collective(theirs[0]));
    sizes.push_back(theirs[1]);
    gathered.emplace_back(begin + header_bytes, std::min(theirs[1], payload_bytes));
  }
  check_agreement(asked, "group.collective", "the same collective");

  const std::size_t longest = *std::max_element(sizes.begin(), sizes.end());
  if (longest > payload_bytes) {
    const at::Tensor rest = detail::bytes_tensor(static_cast<std::int64_t>(longest - payload_bytes));
    if (payload.size() > payload_bytes) {
      std::memcpy(rest.data_ptr(), payload.data() + payload_bytes, payload.size() - payload_bytes);
    }
    const auto rests = gather(rest);
    for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
      if (sizes[rank] > payload_bytes) {
        gathered[rank].append(static_cast<const char*>(rests[rank].const_data_ptr()), sizes[rank] - payload_bytes);
      }
    }
  }
  return gathered;
}

void GroupCall::check_agreement(const std::vector<std::string>& texts, std::string_view where,
                                std::string_view what) const {
  detail::check_agreement<DistributedError>(texts, where, what, group_.ranks);
}

void GroupCall::wait(Transfer& transfer) {
  try {
    transfer.resumable() ? wait_in_turns(transfer) : wait_for_message(transfer);
  } catch (const DistributedError&) {
    throw;
  } catch (const std::exception& error) {
    fail_with(error);
  }
}

void GroupCall::wait_in_turns(Transfer& transfer) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + limit_;
  const auto left = [&] { return std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()); };
  while (!transfer.wait_for(std::clamp<std::chrono::milliseconds>(left(), std::chrono::milliseconds(1), turn))) {
    const auto& watch = group_.connection.watch;
    if (watch && watch->failed()) {
      fail_for(watch->reason());
    }
    if (const std::string failure = group_.failure(); !failure.empty()) {
      fail_for(failure);
    }
    if (Clock::now() >= deadline) {
      throw TimedOut();
    }
  }
}

void GroupCall::wait_for_message(Transfer& transfer) {
  struct Cancel {
    Cancel(detail::Watch* of, Transfer& waited) : watch(of) {
      if (watch != nullptr) {
        watch->on_failure([&waited] { waited.cancel(); });
      }
    }
    ~Cancel() {
      if (watch != nullptr) {
        watch->on_failure({});
      }
    }
    detail::Watch* watch;
  };
  const Cancel cancel(group_.connection.watch.get(), transfer);
  if (!transfer.wait_for(limit_)) {
    throw std::runtime_error("cancelled");
  }
}

void GroupCall::fail_with(const std::exception& error) {
  const std::string cause = detail::reason_of(error);
  const auto& watch = group_.connection.watch;
  if (!watch) {
    fail_for(cause);
  }
  detail::RankReport report;
  const bool timed_out = cause.find("imed out") != cause.npos || cause.find("timeout") != cause.npos;
  report.kind = timed_out ? detail::RankReport::Kind::timed_out : detail::RankReport::Kind::failed;
  report.text = cause;
  report.limit = limit_;
  report.failed_at = {group_.name, number_ > 0 ? group_.ranks : ranks_, number_,
                      number_ > 0 ? name_of_collective(collective_) : text_};
  fail_for(watch->report(std::move(report)));
}

void GroupCall::fail_for(const std::string& reason) {
  const std::string wanted = number_ == 0 ? "a " + text_
                                          : concat("all ", group_.size(), " ranks at ", group_.connection.address,
                                                   " to join ", name_of_collective(collective_));
  fail_for(group_, wanted, reason);
}

void GroupCall::fail_for(Group::Impl& group, std::string_view wanted, const std::string& reason) {
  const auto& watch = group.connection.watch;
  const std::int64_t rank = group.ranks[static_cast<std::size_t>(group.rank())];
  group.set_failure(reason);
  if (watch && watch->aborted()) {
    fail<DistributedError>("group.collective", "expected ", wanted, ", got an abort of ", reason);
  }
  fail<DistributedError>("group.collective", "expected ", wanted, ", got on rank ", rank, ": ", reason,
                         "; a process has ended or waits elsewhere: see the logs of the others, and start all again");
}

}  // namespace danling::inline v0
