// Groups of three processes in which one rank ends; many run at once, since they mostly sleep.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/distributed/group.hpp>

#include <support/ranks.hpp>

namespace parallel_failures_test {

using danling::Group;

/// Where one of the ranks ends.
class Point {
 public:
  Point() = default;
  explicit Point(std::function<void()> end) : end_(std::move(end)) {}
  void operator()() const { end_ ? end_() : void(); }

 private:
  std::function<void()> end_;
};

struct FailureCase {
  std::string name;
  /// Runs on each rank; the other ranks communicate after the point.
  std::function<void(const Group& group, const Point& point)> run;
  std::vector<std::string> awaited;  ///< what the others say they waited for: one of these
  bool between_two = false;          ///< whether messages go from rank to rank
};

enum class Ending { killed, threw, stopped };

/// Ports of the loopback address that stay reserved for the lifetime of this object.
class Ports {
 public:
  explicit Ports(std::size_t count) {
    for (; count > 0; --count) {
      const int held = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const int reuse = 1;
      REQUIRE(setsockopt(held, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse) == 0);
      sockaddr_in address = {};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      socklen_t length = sizeof address;
      REQUIRE(bind(held, reinterpret_cast<sockaddr*>(&address), length) == 0);
      REQUIRE(getsockname(held, reinterpret_cast<sockaddr*>(&address), &length) == 0);
      held_.push_back(held);
      numbers_.push_back(ntohs(address.sin_port));
    }
  }
  ~Ports() {
    for (const int held : held_) {
      close(held);
    }
  }
  Ports(const Ports&) = delete;
  Ports& operator=(const Ports&) = delete;
  int operator[](std::size_t index) const { return numbers_[index]; }

 private:
  std::vector<int> held_;
  std::vector<int> numbers_;
};

/// Numbers that all processes of a test see.
class SharedCounts {
 public:
  explicit SharedCounts(std::size_t count) : count_(count) {
    void* const memory = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    counts_ = static_cast<std::atomic<int>*>(memory);
  }
  ~SharedCounts() { munmap(counts_, bytes()); }
  SharedCounts(const SharedCounts&) = delete;
  SharedCounts& operator=(const SharedCounts&) = delete;
  std::atomic<int>& operator[](std::size_t index) { return counts_[index]; }

 private:
  std::size_t bytes() const { return count_ * sizeof(std::atomic<int>); }
  std::size_t count_;
  std::atomic<int>* counts_;
};

/// Stops this process. Another one ends it, once both other ranks have ended.
inline void stop_until(std::atomic<int>& ended) {
  const pid_t stopped = getpid();
  if (fork() == 0) {
    for (int left = 4000; left > 0 && ended.load() < 2; --left) {
      usleep(10'000);
    }
    kill(stopped, SIGKILL);
    _exit(0);
  }
  kill(stopped, SIGSTOP);
}

/// Runs all cases at once, each in three processes of which one ends, and checks the errors of the others. Cases
/// alternate between the two `victims`; if messages go from rank to rank, a case runs with each.
inline void check_failures(const std::vector<FailureCase>& kinds, Ending ending, std::array<int, 2> victims) {
  using Clock = std::chrono::steady_clock;
  using namespace std::chrono_literals;
  constexpr int size = 3;
  std::vector<FailureCase> cases;
  std::vector<int> victim_of;
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    for (std::size_t which = 0; which < victims.size(); ++which) {
      if (kinds[kind].between_two || kind % 2 == which) {
        cases.push_back(kinds[kind]);
        victim_of.push_back(victims[which]);
      }
    }
  }
  constexpr auto stop_timeout = 4s;
  constexpr auto most = 25s;  // on a busy machine; a wait for the timeout takes longer
  const Ports ports(cases.size());
  SharedCounts ended(cases.size());
  const auto body = [&](int process) -> std::string {
    const auto index = static_cast<std::size_t>(process / size);
    const int rank = process % size;
    const int victim = victim_of[index];
    danling::GroupOptions options;
    options.timeout = 60s;
    const Group group = Group::connect(danling_test::identity_of_rank(rank, size, ports[index]), options);
    group.barrier();
    if (ending == Ending::stopped) {
      group.set_timeout(stop_timeout);
    }
    auto begin = Clock::now();
    const Point point([&] {
      begin = Clock::now();
      if (group.rank() != victim) {
        return;
      }
      if (ending == Ending::killed) {
        kill(getpid(), SIGKILL);
      } else if (ending == Ending::stopped) {
        stop_until(ended[index]);
      } else {
        throw std::runtime_error("the disk is full");
      }
    });
    std::string text;
    try {
      cases[index].run(group, point);
      text = "no error";
    } catch (const danling::DistributedError& error) {
      text = error.what();
    } catch (const danling::CheckpointError& error) {  // all ranks have it
      text = error.what();
    } catch (const std::exception& error) {
      text = error.what();
      group.abort(error.what());
    }
    text += Clock::now() - begin < most ? "" : " LATE";
    ++ended[index];
    return text;
  };
  const auto texts = danling_test::run_processes(static_cast<int>(cases.size()) * size, body, 120s);
  for (std::size_t process = 0; process < texts.size(); ++process) {
    const FailureCase& tested = cases[process / size];
    const int rank = static_cast<int>(process) % size;
    const int victim = victim_of[process / size];
    const std::string& text = texts[process];
    INFO(tested.name << ", rank " << rank << ", victim " << victim << ": " << text);
    if (rank == victim) {
      const bool threw = ending == Ending::threw;
      CHECK((threw ? text.find("the disk is full") != text.npos : text == "ended by 9"));
      continue;
    }
    CHECK(text.find('\n') == text.npos);
    CHECK(text.find("LATE") == text.npos);
    const std::string name = danling::detail::concat("rank ", victim);
    CHECK(text.find(name) != text.npos);
    if (ending == Ending::threw) {
      // Between two waits, the next wait finds that the group has ended. All ranks report why a save failed.
      CHECK(text.find(name + ": ") != text.npos);
      CHECK(text.find("the disk is full") != text.npos);
      CHECK((text == name + ": the disk is full" || text.find(" an abort of ") != text.npos ||
             text.find("a usable group") != text.npos));
      continue;
    }
    const bool waited = std::any_of(tested.awaited.begin(), tested.awaited.end(),
                                    [&](const std::string& one) { return text.find(one) != text.npos; });
    // Between two waits, the next one finds that the group has ended, and why.
    CHECK((waited || text.find("a usable group, got one that failed before (" + name + " has ended") != text.npos));
  }
}

}  // namespace parallel_failures_test
