// Waits until every rank has joined a rendezvous exactly once.
#include <distributed/meeting.hpp>

#ifdef USE_C10D_GLOO

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/core/signals.hpp>

#include <core/host_name.hpp>
#include <distributed/packing.hpp>
#include <distributed/sockets.hpp>
#include <distributed/wire.hpp>

namespace danling::inline v0::detail {
namespace {

using std::chrono::milliseconds;

// Keys of the store. Rank 0 writes the expected values; the first rank that writes a verdict decides for all.
constexpr const char* expected_key = "expected";
constexpr const char* arrived_key = "arrived";
constexpr const char* verdict_key = "verdict";
constexpr const char* heard_key = "heard";
constexpr const char* complete = "complete";
// Time for which rank 0 serves other ranks after an error, so that they read it too.
constexpr auto farewell = std::chrono::seconds(5);
// Time after the deadline in which a store may answer: a busy machine.
constexpr auto answer_grace = std::chrono::seconds(2);

std::string here_key(int rank) { return "here/" + std::to_string(rank); }
std::string rank_key(int rank) { return "rank/" + std::to_string(rank); }
std::vector<std::uint8_t> bytes_of(std::string_view text) { return {text.begin(), text.end()}; }
std::string text_of(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

/// A process as it describes itself.
struct Record {
  std::int64_t world_size = 0;
  std::string job;
  std::string process;  ///< description for messages
  std::int64_t token = 0;

  std::string packed() const {
    Packer packer;
    packer.number(world_size);
    packer.number(token);
    packer.text(job);
    packer.text(process);
    return packer.take();
  }
  static Record of(std::string_view packed) {
    Unpacker unpacker(packed);
    Record out;
    out.world_size = unpacker.number();
    out.token = unpacker.number();
    out.job = unpacker.text();
    out.process = unpacker.text();
    return out;
  }
};

Record own_record(const ProcessIdentity& identity) {
  std::random_device entropy;
  // Containers may have equal host names and process ids.
  const auto token = static_cast<std::int64_t>((std::uint64_t{entropy()} << 32) | entropy());
  return {identity.world_size, identity.job, concat("process ", getpid(), " on ", host_name()), token};
}

class Roll {
 public:
  Roll(c10d::Store& store, const Meeting& meeting, const ProcessIdentity& identity, milliseconds timeout,
       Deadline deadline)
      : store_(store), meeting_(meeting), identity_(identity), timeout_(timeout), deadline_(deadline) {}

  void call() {
    std::string refusal;
    std::string verdict;
    try {
      refusal = introduce();
      if (refusal.empty() && store_.add(arrived_key, 1) == identity_.world_size) {
        claim(verdict_key, complete);
      }
      verdict = refusal.empty() ? await(verdict_key) : decide(refusal);
    } catch (const DistributedError&) {
      throw;
    } catch (const std::exception& error) {
      if (meets_in_spite_of_signal()) {
        return;
      }
      fail<DistributedError>(connect_where, "expected ", identity_.world_size, " processes at ", meeting_.address,
                             " within ", format_seconds(timeout_), ", got on rank ", identity_.rank, ": ",
                             reason_of(error), "; see the log of rank 0, and start all again");
    }
    if (verdict == complete && refusal.empty()) {
      return;
    }
    part(verdict.find("got none of rank") != std::string::npos, std::chrono::steady_clock::now() + farewell);
    // A process that arrives after all others have joined is the only one that throws.
    throw DistributedError(refusal.empty() ? verdict : refusal);
  }

  /// Makes the other ranks throw, because this process cannot join.
  void decline(std::string_view reason) {
    declines_ = concat("[", connect_where, "] expected all ranks to start, got an error on rank ", identity_.rank, ": ",
                       reason);
    if (introduce().empty()) {
      decide(declines_);
    }
    part(false, deadline_);
  }

 private:
  /// Handles a stop signal: the other ranks need not wait for this process. If all ranks have joined already, it
  /// continues with them, and the run stops later.
  /// @return true if it continues; false without a signal
  bool meets_in_spite_of_signal() {
    const int signal = v0::stop_signal();
    if (signal == 0) {
      return false;
    }
    const std::string stopped = concat("[", connect_where, "] expected all ranks to start, got ", signal_name(signal),
                                       " on rank ", identity_.rank);
    try {
      if (decide(stopped) == complete) {
        return true;
      }
      part(true, std::chrono::steady_clock::now() + farewell);
    } catch (const std::exception&) {  // the store has ended, and the other ranks with it
    }
    throw DistributedError(stopped);
  }

  /// Registers this process; returns the reason if it must not join.
  std::string introduce() {
    const Record mine = own_record(identity_);
    store_.set(here_key(identity_.rank), bytes_of("1"));
    Record first = mine;
    if (identity_.rank == 0) {
      require_rank_zero();
      first = Record::of(claim(expected_key, mine.packed()));
    } else {
      std::string verdict = await(expected_key);
      if (!verdict.empty()) {
        return verdict;
      }
      first = Record::of(text_of(store_.get(expected_key)));
    }
    check<DistributedError>(first.job == mine.job, connect_where, "expected rank ", identity_.rank,
                            " to meet its job at ", meeting_.address, ", got the ranks of another job (", first.process,
                            " is its rank 0); choose another MASTER_PORT");
    if (first.world_size != mine.world_size) {
      return concat("[", connect_where, "] expected the same world size on all ranks, got ", first.world_size,
                    " on rank 0 and ", mine.world_size, " on rank ", identity_.rank,
                    "; start all ranks with the same WORLD_SIZE");
    }
    if (identity_.rank != 0) {
      first = Record::of(claim(rank_key(identity_.rank), mine.packed()));
    }
    if (first.token != mine.token) {
      superfluous_ = true;
      return concat("[", connect_where, "] expected one process of rank ", identity_.rank, " at ", meeting_.address,
                    ", got two: ", first.process, " and ", mine.process,
                    "; start each rank once, and each run at a MASTER_PORT that no other uses");
    }
    return {};
  }

  /// Throws if another program, not a rank 0, holds this rank 0's port.
  void require_rank_zero() {
    const Deadline soon = std::min(deadline_, std::chrono::steady_clock::now() + farewell);
    while (meeting_.taken && !store_.check({expected_key})) {
      check<DistributedError>(std::chrono::steady_clock::now() < soon, connect_where, "expected rank 0 to listen at ",
                              meeting_.address, ", got port ", meeting_.port,
                              " in use by another program; end that program, or choose another MASTER_PORT");
      std::this_thread::sleep_for(milliseconds(10));
    }
  }

  /// Writes `value` unless the key exists; returns the stored value.
  std::string claim(const std::string& key, const std::string& value) {
    return text_of(store_.compareSet(key, {}, bytes_of(value)));
  }

  std::string decide(const std::string& refusal) { return claim(verdict_key, refusal); }

  /// Waits for `key`. Returns the verdict if that is the key or at the deadline, else an empty string.
  std::string await(const char* key) {
    // Polls, to answer for its port and to notice a signal. The interval grows with the world size.
    const milliseconds slowest = std::clamp(milliseconds(identity_.world_size), milliseconds(20), milliseconds(500));
    milliseconds pause(1);
    while (require_store(), !store_.check({key})) {
      if (std::chrono::steady_clock::now() >= deadline_) {
        return decide(declines_.empty() ? missing() : declines_);
      }
      pause_for(pause);
      pause = std::min(2 * pause, slowest);
    }
    return key == verdict_key ? text_of(store_.get(verdict_key)) : "";
  }

  void require_store() const {
    check_no_signal();
    if (meeting_.store->ended()) {
      throw std::runtime_error(identity_.launcher_hosts_store ? "the launcher has ended" : "rank 0 has ended");
    }
  }

  std::string missing() {
    std::vector<int> ranks;
    for (int rank = 0; rank < identity_.world_size; ++rank) {
      if (!store_.check({here_key(rank)})) {
        ranks.push_back(rank);
      }
    }
    if (ranks.empty()) {
      return concat("[", connect_where, "] expected ", identity_.world_size, " processes to meet at ", meeting_.address,
                    " within ", format_seconds(timeout_),
                    ", got all of them, but one does not continue; end all processes, "
                    "and start them again");
    }
    return concat("[", connect_where, "] expected ", identity_.world_size, " processes at ", meeting_.address,
                  " within ", format_seconds(timeout_), ", got none of rank ", join(ranks),
                  "; see the logs of those processes, and start all again");
  }

  /// Rank 0 serves until the other ranks have read the verdict: those that have joined, or all if none is known to be
  /// missing.
  void part(bool some_missing, Deadline last) noexcept {
    try {
      if (identity_.rank != 0 || superfluous_) {
        store_.add(heard_key, superfluous_ ? 0 : 1);
        return;
      }
      std::int64_t others = 0;
      for (int rank = 1; rank < identity_.world_size; ++rank) {
        others += !some_missing || store_.check({here_key(rank)}) ? 1 : 0;
      }
      while (!identity_.launcher_hosts_store && std::chrono::steady_clock::now() < last &&
             store_.add(heard_key, 0) < others) {
        pause_for(milliseconds(10));
      }
    } catch (const std::exception&) {  // the current error explains more
    }
  }

  /// Rank 0 answers processes that look for its port while it waits.
  void pause_for(milliseconds time) const {
    if (meeting_.name) {
      meeting_.name->answer(meeting_.port, time);
    } else {
      std::this_thread::sleep_for(time);
    }
  }

  c10d::Store& store_;
  const Meeting& meeting_;
  const ProcessIdentity& identity_;
  milliseconds timeout_;
  Deadline deadline_;
  bool superfluous_ = false;  ///< another process has this rank
  std::string declines_;      ///< reason why this process cannot join
};

}  // namespace

void wait_for_all_ranks(c10d::Store& store, const Meeting& meeting, const ProcessIdentity& identity,
                        milliseconds timeout, Deadline deadline) {
  meeting.store->answer_by(deadline + answer_grace);
  Roll(store, meeting, identity, timeout, deadline).call();
  meeting.store->answer_by(std::nullopt);
}

void report_failed_rank(c10d::Store& store, const Meeting& meeting, const ProcessIdentity& identity,
                        std::string_view reason, milliseconds timeout, Deadline deadline) {
  meeting.store->answer_by(deadline + answer_grace);
  Roll(store, meeting, identity, timeout, deadline).decline(reason);
}

}  // namespace danling::inline v0::detail

#endif
