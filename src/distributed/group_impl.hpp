// State of a group, and the common part of its collectives: comparison of requests, waiting, failures.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <danling/distributed/group.hpp>

#include <distributed/pending.hpp>
#include <distributed/shared_memory.hpp>
#include <distributed/watch.hpp>
#include <distributed/wire.hpp>

namespace danling::inline v0 {

namespace detail {

/// The connections of a group; `connect` returns one, and `split` creates another through `connect_part`.
struct Connection {
  std::unique_ptr<Wire> wire;         ///< for host memory
  std::unique_ptr<Wire> device_wire;  ///< for device memory; null without a backend for it
  at::DeviceType device_type = at::kCPU;
  /// Address at which the processes joined; for messages.
  std::string address;
  std::shared_ptr<Watch> watch;  ///< null over a process group of the program
  /// Connects the members of a subgroup, listed by rank in the first group. All members call it with a unique name.
  /// Empty over a process group of the program.
  std::function<std::unique_ptr<Wire>(const std::vector<std::int64_t>& members, const std::string& name)> connect_part;
};

/// Returns 0, ..., `size` - 1.
std::vector<std::int64_t> all_ranks(int size);

/// Joins the other processes at the master address and connects to each over Gloo.
Connection connect_gloo(const ProcessIdentity& identity, const GroupOptions& options);
void decline_gloo(const ProcessIdentity& identity, std::string_view reason, std::chrono::milliseconds timeout) noexcept;
/// Creates a connection for each of `size` threads of this process.
std::vector<Connection> connect_threads(int size, const GroupOptions& options);

}  // namespace detail

struct Group::Impl {
  Impl(detail::Connection connected, std::string group_name, std::vector<std::int64_t> members,
       const GroupOptions& options);
  ~Impl();

  int rank() const { return connection.wire->rank(); }
  int size() const { return connection.wire->size(); }
  /// Returns true if tensors on `device` are transferred without a host copy.
  bool carries(at::Device device) const { return connection.device_wire && device.type() == connection.device_type; }
  Wire& wire_of(const at::Tensor& tensor) const {
    return carries(tensor.device()) ? *connection.device_wire : *connection.wire;
  }
  /// Sends small messages through shared memory if all ranks are on one machine. Called by all ranks.
  void share_messages(const Group& group);
  void set_wire_timeout(std::chrono::milliseconds time) const;
  /// @throws DistributedError if the group has failed.
  void check_usable();
  /// Returns the error that made the group unusable, or an empty string. `abort` sets it from any thread.
  std::string failure() const;
  void set_failure(std::string text);

  detail::Connection connection;
  std::string name;                 ///< equal on all ranks and unique among groups
  std::vector<std::int64_t> ranks;  ///< ranks of the members in the first group
  std::chrono::milliseconds timeout;
  bool debug = false;
  std::int64_t number = 0;     ///< number of the last collective
  std::int64_t exchanges = 0;  ///< count of messages, gathers and tensor exchanges
  std::int64_t parts = 0;      ///< number of subgroups created
  detail::Watch::Entry place;

 private:
  mutable std::mutex failure_mutex_;
  std::string failure_;
};

/// Identifies a collective when ranks compare requests.
enum class Collective : std::uint64_t {
  barrier,
  all_reduce,
  all_gather_bytes,
  all_gather_rows,
  reduce,
  broadcast,
  broadcast_bytes,
  gather_bytes,
  gather_rows,
  scatter,
  reduce_scatter,
  all_to_all,
  all_to_all_single,
  split,
  start_all_reduce,
  start_all_gather,
  start_all_to_all_single,
};

/// One operation of a group, from start to end.
class GroupCall {
 public:
  /// Assigns the next number to the collective. @throws DistributedError if the group has failed.
  GroupCall(Group::Impl& group, Collective collective);
  /// The same, and records the size of `data` for messages.
  GroupCall(Group::Impl& group, Collective collective, const at::Tensor& data);
  /// Waits for a collective that already has a number.
  GroupCall(Group::Impl& group, Collective collective, std::int64_t number);
  /// A point-to-point message, described by `text` without an article; a negative `peer` is any rank.
  GroupCall(Group::Impl& group, std::string text, int peer);
  ~GroupCall();
  GroupCall(const GroupCall&) = delete;
  GroupCall& operator=(const GroupCall&) = delete;

  /// Returns the watch of the first group, which outlives the group; null for a process alone and over a process group
  /// of the program.
  static std::shared_ptr<detail::Watch> watch_of(const Group& group);
  /// Returns the members' ranks in the first group.
  static std::vector<std::int64_t> ranks_of(const Group& group);
  /// Returns the number of messages, gathers and tensor exchanges of this rank. Models make them in each step, runners
  /// do not.
  static std::int64_t exchanges_of(const Group& group);
  /// Fails the group after a failed wait in its shared memory, as a failed collective does.
  /// @param operation  without an article
  [[noreturn]] static void fail_in_memory(const Group& group, std::string_view operation,
                                          const detail::SharedMemory::Failure& failure);

  std::int64_t number() const { return number_; }
  void set_timeout(std::chrono::milliseconds limit);
  /// Records the size of this rank's data, for messages.
  void set_bytes(const at::Tensor& data) {
    if (data.defined()) {
      pending_.set_bytes(data.numel() * static_cast<std::int64_t>(data.element_size()));
    }
  }

  void set_bytes(std::int64_t bytes) { pending_.set_bytes(bytes); }

  /// First step of a collective: returns each rank's `payload`, of any length, in rank order.
  /// @throws DistributedError on all ranks if they called different collectives.
  std::vector<std::string> exchange(std::string_view payload);
  /// Throws unless all ranks passed the same text; an empty text matches any.
  void check_agreement(const std::vector<std::string>& texts, std::string_view where, std::string_view what) const;

  /// Starts a transfer and waits for it. @throws DistributedError, after which the group is unusable.
  template <class Start>
  void run(Start start) {
    wait(*started(start));
  }
  template <class Start>
  TransferPtr started(Start start) {
    try {
      return start();
    } catch (const std::exception& error) {
      fail_with(error);
    }
  }
  void wait(Transfer& transfer);
  [[noreturn]] void fail_with(const std::exception& error);

 private:
  void wait_in_turns(Transfer& transfer);
  void wait_for_message(Transfer& transfer);
  [[noreturn]] void fail_for(const std::string& reason);
  [[noreturn]] static void fail_for(Group::Impl& group, std::string_view wanted, const std::string& reason);

  Group::Impl& group_;
  std::string text_;
  std::int64_t number_ = 0;
  Collective collective_ = Collective::barrier;
  std::vector<std::int64_t> ranks_;
  std::chrono::milliseconds limit_;
  bool restore_timeout_ = false;
  detail::PendingScope pending_;
};

}  // namespace danling::inline v0
