#include <danling/distributed/group.hpp>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <thread>

#include <danling/core/error.hpp>

#include <distributed/group_impl.hpp>
#include <distributed/local_error.hpp>
#include <distributed/packing.hpp>
#include <distributed/shared_wire.hpp>

namespace danling::inline v0 {
namespace {

bool debug_by_environment() {
  const char* const value = std::getenv("DANLING_DISTRIBUTED_DEBUG");
  return value != nullptr && std::string_view(value) == "1";
}

std::chrono::milliseconds checked_timeout(std::string_view where, std::chrono::milliseconds timeout) {
  check<detail::LocalError>(timeout.count() > 0, where, "expected a timeout above 0, got ", timeout.count(), " ms");
  return std::min<std::chrono::milliseconds>(timeout, detail::longest_timeout);
}

/// Enables debug mode on all ranks if any rank has it.
void agree_on_debug(Group& group, bool& debug) {
  for (const std::string& theirs : group.all_gather(debug ? "1" : "0")) {
    debug = debug || theirs == "1";
  }
}

}  // namespace

std::vector<std::int64_t> detail::all_ranks(int size) {
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

Group::Impl::Impl(detail::Connection connected, std::string group_name, std::vector<std::int64_t> members,
                  const GroupOptions& options)
    : connection(std::move(connected)),
      name(std::move(group_name)),
      ranks(std::move(members)),
      timeout(options.timeout),
      debug(options.debug || debug_by_environment()) {
  if (connection.watch) {
    place = connection.watch->add(name, ranks);
  }
}

Group::Impl::~Impl() {
  if (connection.watch) {
    connection.watch->remove(place);
  }
  if (!failure().empty() || (connection.watch && connection.watch->failed())) {
    // A backend waits for operations in flight, which no rank will complete.
    auto wires = std::make_shared<detail::Connection>(std::move(connection));
    connection.watch = wires->watch;
    wires->watch.reset();
    detail::ends_within(detail::teardown_time, [wires = std::move(wires)]() mutable { wires.reset(); });
  }
  connection.device_wire.reset();
  connection.wire.reset();
}

void Group::Impl::set_wire_timeout(std::chrono::milliseconds time) const {
  connection.wire->set_timeout(time);
  if (connection.device_wire) {
    connection.device_wire->set_timeout(time);
  }
}

void Group::Impl::check_usable() {
  std::string reason = failure();
  if (reason.empty() && connection.watch && connection.watch->failed()) [[unlikely]] {
    reason = connection.watch->reason();
    set_failure(reason);
  }
  if (!reason.empty()) [[unlikely]] {
    fail<DistributedError>("group.collective", "expected a usable group, got one that failed before (", reason,
                           "); start all processes again");
  }
}

std::string Group::Impl::failure() const {
  const std::lock_guard<std::mutex> lock(failure_mutex_);
  return failure_;
}

void Group::Impl::set_failure(std::string text) {
  const std::lock_guard<std::mutex> lock(failure_mutex_);
  failure_ = failure_.empty() ? std::move(text) : failure_;
}

Group Group::connect(const ProcessIdentity& identity, const GroupOptions& options) {
  if (!identity.distributed()) {
    return Group();
  }
  GroupOptions checked = options;
  checked.timeout = checked_timeout("group.connect", options.timeout);
  Group group(std::make_shared<Impl>(detail::connect_gloo(identity, checked), "",
                                     detail::all_ranks(identity.world_size), checked));
  agree_on_debug(group, group.impl_->debug);
  group.impl_->share_messages(group);
  return group;
}

void Group::abort_connect(const ProcessIdentity& identity, std::string_view reason,
                          std::chrono::milliseconds timeout) noexcept {
  if (identity.distributed()) {
    detail::decline_gloo(identity, reason, std::min<std::chrono::milliseconds>(timeout, detail::longest_timeout));
  }
}

// A message over loopback wakes two threads on each side: half a millisecond on busy cores, in every step.
void Group::Impl::share_messages(const Group& group) {
  const std::int64_t number_of_last = number;
  if (auto memory = detail::SharedMemory::create(group, detail::shared_wire_memory())) {
    connection.wire = detail::make_shared_wire(std::move(memory), std::move(connection.wire));
  }
  number = number_of_last;
}

void Group::run_threads(int size, const std::function<void(Group& group)>& body, const GroupOptions& options) {
  check<DistributedError>(size > 0, "group.run_threads", "expected at least one thread, got ", size);
  if (size == 1) {
    Group alone;
    body(alone);
    return;
  }
  GroupOptions checked = options;
  checked.timeout = checked_timeout("group.run_threads", options.timeout);
  std::vector<Group> groups;
  for (detail::Connection& connection : detail::connect_threads(size, checked)) {
    groups.push_back(Group(std::make_shared<Impl>(std::move(connection), "", detail::all_ranks(size), checked)));
  }
  std::mutex mutex;
  std::exception_ptr first;
  const auto keep = [&](std::exception_ptr error) {
    const std::lock_guard<std::mutex> lock(mutex);
    first = first ? first : std::move(error);
  };
  std::vector<std::jthread> threads;
  for (Group& mine : groups) {
    const auto run = [&keep, &body, &mine] {
      Group group = std::exchange(mine, Group());
      try {
        body(group);
      } catch (const std::exception& error) {
        keep(std::current_exception());
        group.abort(detail::reason_of(error));
      } catch (...) {
        keep(std::current_exception());
        group.abort("an exception of an unknown type");
      }
    };
    try {
      threads.emplace_back(run);
    } catch (const std::exception& error) {  // running threads wait for this rank
      mine.abort(detail::reason_of(error));
      throw;
    }
  }
  threads.clear();  // joins the threads
  if (first) {
    std::rethrow_exception(first);
  }
}

int Group::rank() const { return impl_ == nullptr ? 0 : impl_->rank(); }
int Group::size() const { return impl_ == nullptr ? 1 : impl_->size(); }

bool Group::abort_reaches_others() const { return impl_ != nullptr && impl_->connection.watch != nullptr; }

std::chrono::milliseconds Group::timeout() const { return impl_ == nullptr ? GroupOptions().timeout : impl_->timeout; }

void Group::set_timeout(std::chrono::milliseconds timeout) const {
  const auto checked = checked_timeout("group.set_timeout", timeout);
  if (impl_ != nullptr) {
    impl_->timeout = checked;
    impl_->set_wire_timeout(checked);
  }
}

void Group::abort(std::string_view reason) const {
  if (impl_ == nullptr) {
    return;
  }
  if (impl_->connection.watch) {
    impl_->connection.watch->abort(reason);
  } else {
    impl_->set_failure(concat("rank ", impl_->rank(), ": ", reason));
  }
}

Group Group::split(int color, int key) const {
  if (impl_ == nullptr) {
    return Group();
  }
  constexpr const char* where = "group.split";
  Impl& impl = *impl_;
  GroupCall call(impl, Collective::split);
  detail::Packer packer;
  packer.number(color);
  packer.number(key);
  std::vector<std::pair<std::int64_t, int>> members;  // key and rank
  int rank = 0;
  for (const std::string& packed : call.exchange(packer.take())) {
    detail::Unpacker unpacker(packed);
    const std::int64_t their_color = unpacker.number();
    if (their_color == color) {
      members.emplace_back(unpacker.number(), rank);
    }
    ++rank;
  }
  const std::int64_t part = ++impl.parts;
  if (color < 0 || members.size() == 1) {
    return Group();
  }
  check<DistributedError>(static_cast<bool>(impl.connection.connect_part), where,
                          "expected a group of Group::connect, got one over a process group of the program; make its "
                          "parts with LibTorch, and each a group with Group::from_process_group");
  std::sort(members.begin(), members.end());
  std::vector<std::int64_t> ranks;
  for (const auto& member : members) {
    ranks.push_back(impl.ranks[static_cast<std::size_t>(member.second)]);
  }
  const std::string name = concat(impl.name, "/", part, ".", color);
  detail::Connection connection;
  connection.address = impl.connection.address;
  connection.watch = impl.connection.watch;
  connection.connect_part = impl.connection.connect_part;
  try {
    connection.wire = connection.connect_part(ranks, name);
  } catch (const std::exception& error) {
    call.fail_with(error);
  }
  GroupOptions options;
  options.timeout = impl.timeout;
  options.debug = impl.debug;
  Group group(std::make_shared<Impl>(std::move(connection), name, std::move(ranks), options));
  group.set_timeout(impl.timeout);
  group.barrier();
  return group;
}

Group Group::subgroup(const std::vector<int>& ranks) const {
  constexpr const char* where = "group.subgroup";
  if (impl_ != nullptr) {
    detail::check_agreement<DistributedError>(all_gather(join(ranks)), where, "the same ranks", impl_->ranks);
  }
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  const bool distinct = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  check<DistributedError>(!ranks.empty() && distinct && sorted.front() >= 0 && sorted.back() < size(), where,
                          "expected different ranks of a group of ", size(), ", got ", join(ranks));
  if (impl_ == nullptr) {
    return Group();
  }
  const auto found = std::find(ranks.begin(), ranks.end(), rank());
  return split(found == ranks.end() ? -1 : 0, static_cast<int>(found - ranks.begin()));
}

void Group::barrier() const {
  if (impl_ != nullptr) {
    GroupCall(*impl_, Collective::barrier).exchange({});
  }
}

void Group::barrier(std::chrono::milliseconds timeout) const {
  const auto checked = checked_timeout("group.barrier", timeout);
  if (impl_ != nullptr) {
    GroupCall call(*impl_, Collective::barrier);
    call.set_timeout(checked);
    call.exchange({});
  }
}

}  // namespace danling::inline v0
