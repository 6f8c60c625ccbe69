// State of a group, and the frame of its collectives: comparison of requests, waiting, failures.
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

/// What makes a group; `connect` gives one, and `split` asks for another.
struct Connection {
  std::unique_ptr<Wire> wire;         ///< of host memory
  std::unique_ptr<Wire> device_wire;  ///< of the device's memory; absent without a backend for it
  at::DeviceType device_type = at::kCPU;
  /// Address at which the processes joined; for messages.
  std::string address;
  std::shared_ptr<Watch> watch;  ///< absent over a process group of the program
  /// Connects the members of a part, listed by their ranks in the first group; called by them, with a name that no
  /// other part has. Absent over a process group of the program.
  std::function<std::unique_ptr<Wire>(const std::vector<std::int64_t>& members, const std::string& name)> connect_part;
};

/// 0 to `size` - 1.
std::vector<std::int64_t> all_ranks(int size);

/// Joins the other processes at the master's address and connects to each over Gloo.
Connection connect_gloo(const ProcessIdentity& identity, const GroupOptions& options);
void decline_gloo(const ProcessIdentity& identity, std::string_view reason, std::chrono::milliseconds timeout) noexcept;
/// One connection for each of `size` threads of this process.
std::vector<Connection> connect_threads(int size, const GroupOptions& options);

}  // namespace detail

struct Group::Impl {
  Impl(detail::Connection connected, std::string group_name, std::vector<std::int64_t> members,
       const GroupOptions& options);
  ~Impl();

  int rank() const { return connection.wire->rank(); }
  int size() const { return connection.wire->size(); }
  /// Whether tensors on `device` travel without a copy on the host.
  bool carries(at::Device device) const { return connection.device_wire && device.type() == connection.device_type; }
  Wire& wire_of(const at::Tensor& tensor) const {
    return carries(tensor.device()) ? *connection.device_wire : *connection.wire;
  }
  /// Small messages go through shared memory where all ranks are on one machine. Called by all ranks.
  void share_messages(const Group& group);
  void set_wire_timeout(std::chrono::milliseconds time) const;
  /// @throws DistributedError if the group has failed.
  void check_usable();
  /// Message of a failed operation; nothing works after it. `abort` sets it from any thread.
  std::string failure() const;
  void set_failure(std::string text);

  detail::Connection connection;
  std::string name;                 ///< the same on all ranks, and of no other group
  std::vector<std::int64_t> ranks;  ///< of the members in the first group
  std::chrono::milliseconds timeout;
  bool debug = false;
  std::int64_t number = 0;     ///< of the last collective
  std::int64_t exchanges = 0;  ///< messages, gathers and exchanges of tensors
  std::int64_t parts = 0;      ///< made of this group
  detail::Watch::Entry place;

 private:
  mutable std::mutex failure_mutex_;
  std::string failure_;
};

/// The collectives, as ranks compare them.
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

/// One operation of a group, from its start to its end.
class GroupCall {
 public:
  /// Numbers the collective. @throws DistributedError if the group has failed.
  GroupCall(Group::Impl& group, Collective collective);
  /// The same with the tensor of this rank, for messages.
  GroupCall(Group::Impl& group, Collective collective, const at::Tensor& data);
  /// Waits for one that has its number.
  GroupCall(Group::Impl& group, Collective collective, std::int64_t number);
  /// A message between two ranks, `text` says which, without an article; `peer` is negative for any.
  GroupCall(Group::Impl& group, std::string text, int peer);
  ~GroupCall();
  GroupCall(const GroupCall&) = delete;
  GroupCall& operator=(const GroupCall&) = delete;

  /// The first group's watch, which outlives the group; null over a process group of the program and alone.
  static std::shared_ptr<detail::Watch> watch_of(const Group& group);
  /// In the first group.
  static std::vector<std::int64_t> ranks_of(const Group& group);
  /// Messages, gathers and exchanges of tensors of this rank so far: what models do, and runners do not in each step.
  static std::int64_t exchanges_of(const Group& group);
  /// A wait of the group's ranks in shared memory has failed, and with it the group: as a collective does.
  /// @param operation  without an article
  [[noreturn]] static void fail_in_memory(const Group& group, std::string_view operation,
                                          const detail::SharedMemory::Failure& failure);

  std::int64_t number() const { return number_; }
  void set_timeout(std::chrono::milliseconds limit);
  /// Of this rank's data, for messages.
  void set_bytes(const at::Tensor& data) {
    if (data.defined()) {
      pending_.set_bytes(data.numel() * static_cast<std::int64_t>(data.element_size()));
    }
  }

  void set_bytes(std::int64_t bytes) { pending_.set_bytes(bytes); }

  /// The first step of a collective: each rank's `payload`, of any length, in the order of ranks.
  /// @throws DistributedError on all ranks if they called different collectives.
  std::vector<std::string> exchange(std::string_view payload);
  /// Throws unless all ranks passed the same text; an empty text agrees with any.
  void check_agreement(const std::vector<std::string>& texts, std::string_view where, std::string_view what) const;

  /// Starts a transfer, and waits for it. @throws DistributedError, after which the group is unusable.
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
