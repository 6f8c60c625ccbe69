// Ranks that die, stop, stay away or give up, in every order; parts of groups.
#include <atomic>
#include <thread>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <danling/core/error.hpp>
#include <danling/distributed/group.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

namespace failures_test {

using danling::DistributedError;
using danling::Group;
using danling::detail::concat;
using danling_test::check_ranks;
using danling_test::expect;
using danling_test::run_groups;
using danling_test::run_ranks;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::string failed(const std::function<void()>& call) {
  try {
    call();
  } catch (const DistributedError& error) {
    return error.what();
  }
  return "no error";
}

at::Tensor large() { return at::ones({8'000'000}); }

/// Sums large tensors until that fails; a rank that should fail does so meanwhile.
std::string sum_until_failure(const Group& group) {
  at::Tensor tensor = large();
  for (;;) {
    const std::string text = failed([&] { group.all_reduce(tensor); });
    if (text != "no error") {
      return text;
    }
  }
}

/// Sends a signal to this process in a while, from a thread.
void signal_self_soon(int number) {
  std::thread([number] {
    std::this_thread::sleep_for(300ms);
    kill(getpid(), number);
  }).detach();
}

TEST_CASE("Failures: a rank that is killed in the middle of a large sum is named by the others", "[distributed]") {
  const std::vector<int> victims = {0, 1, 3};
  const auto by_group = run_groups(3, 4, [&](int number, const Group& group) {
    group.barrier();
    if (group.rank() == victims[static_cast<std::size_t>(number)]) {
      signal_self_soon(SIGKILL);
    }
    return sum_until_failure(group);
  });
  for (std::size_t number = 0; number < victims.size(); ++number) {
    const int victim = victims[number];
    const auto& texts = by_group[number];
    for (int rank = 0; rank < 4; ++rank) {
      INFO("victim " << victim << ", rank " << rank);
      const std::string& text = texts[static_cast<std::size_t>(rank)];
      if (rank == victim) {
        CHECK(text == "ended by 9");
      } else {
        CHECK_THAT(text, ContainsSubstring("[group.collective] expected all 4 ranks at 127.0.0.1:"));
        CHECK_THAT(text, ContainsSubstring(
                             concat(" to join all_reduce, got on rank ", rank, ": rank ", victim, " has ended")));
      }
    }
  }
}

TEST_CASE("Failures: two ranks that are killed are both named", "[distributed]") {
  const auto texts = run_ranks(4, [](const Group& group) {
    group.barrier();
    if (group.rank() == 1 || group.rank() == 2) {
      kill(getpid(), SIGKILL);
    }
    return failed([&] { group.barrier(); });
  });
  CHECK_THAT(texts[0], ContainsSubstring("got on rank 0: ranks 1, 2 have ended: "));
  CHECK_THAT(texts[3], ContainsSubstring("got on rank 3: ranks 1, 2 have ended: "));
}

TEST_CASE("Failures: a rank that stays away is named with the collective, and where it was last", "[distributed]") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const auto texts = run_ranks(
      3,
      [&](const Group& group) {
        group.barrier();
        if (group.rank() == 1) {
          char byte = 0;
          for (int other = 0; other < 2; ++other) {
            expect(read(ends[0], &byte, 1) == 1, "the word of another rank that it has waited");
          }
          return failed([&] { group.barrier(); });
        }
        at::Tensor tensor = at::ones({3});
        const std::string text = failed([&] { group.all_reduce(tensor); });
        expect(write(ends[1], "x", 1) == 1, "a pipe that can be written");
        return text;
      },
      4s);
  close(ends[0]);
  close(ends[1]);
  for (const int rank : {0, 2}) {
    CHECK_THAT(texts[static_cast<std::size_t>(rank)],
               ContainsSubstring(concat(" to join all_reduce, got on rank ", rank,
                                        ": rank 1 did not join all_reduce number 3 within 4 s (ranks 0, 2 did); rank "
                                        "1 was last in barrier number 2: ")));
  }
  CHECK_THAT(texts[1], ContainsSubstring("[group.collective] expected a usable group, got one that failed before (rank "
                                         "1 did not join all_reduce number 3 within 4 s (ranks 0, 2 did)"));
}

TEST_CASE("Failures: a stopped rank does not answer, and nobody waits much longer than the timeout", "[distributed]") {
  const std::vector<int> victims = {0, 2};
  int pipes[2][2];
  REQUIRE(pipe(pipes[0]) == 0);
  REQUIRE(pipe(pipes[1]) == 0);
  const auto by_group = run_groups(
      2, 3,
      [&](int number, const Group& group) {
        const int victim = victims[static_cast<std::size_t>(number)];
        const int* const ends = pipes[number];
        pid_t stopped = getpid();
        group.barrier();
        for (int rank = 0; rank < 3; ++rank) {
          const pid_t theirs = std::stoi(group.all_gather(std::to_string(getpid()))[static_cast<std::size_t>(rank)]);
          stopped = rank == victim ? theirs : stopped;
        }
        if (group.rank() == victim) {
          kill(getpid(), SIGSTOP);
          return std::string("continued");
        }
        const auto begin = Clock::now();
        std::string text = failed([&] { group.barrier(); });
        text += Clock::now() - begin < 4s + 10s ? "" : " late";
        // The last of the others lets the stopped one end.
        expect(write(ends[1], "x", 1) == 1, "a pipe that can be written");
        if (group.rank() == 1) {
          char byte = 0;
          expect(read(ends[0], &byte, 1) == 1 && read(ends[0], &byte, 1) == 1, "the word of both");
          kill(stopped, SIGCONT);
        }
        return text;
      },
      4s);
  for (std::size_t number = 0; number < victims.size(); ++number) {
    const int victim = victims[number];
    const auto& texts = by_group[number];
    close(pipes[number][0]);
    close(pipes[number][1]);
    CHECK(texts[static_cast<std::size_t>(victim)] == "continued");
    for (int rank = 0; rank < 3; ++rank) {
      if (rank != victim) {
        const std::string& text = texts[static_cast<std::size_t>(rank)];
        INFO(text);
        CHECK_THAT(text, ContainsSubstring(victim == 0 ? ": rank 0 does not answer: "
                                                       : ": rank 2 did not join barrier number 6 within 4 s (ranks 0, "
                                                         "1 did) and does not answer: "));
        CHECK_THAT(text, !ContainsSubstring(" late"));
      }
    }
  }
}

TEST_CASE("Failures: the words of a rank that gives up reach waiting and later collectives within a second",
          "[distributed]") {
  for (const int victim : {0, 2}) {
    const auto texts = run_ranks(4, [&](const Group& group) {
      group.barrier();
      if (group.rank() == victim) {
        std::this_thread::sleep_for(500ms);
        group.abort("the disk is full");
        return failed([&] { group.barrier(); });
      }
      if (group.rank() == 1) {  // is elsewhere meanwhile
        std::this_thread::sleep_for(1500ms);
      }
      std::string text = failed([&] { group.barrier(); }) + "\n";
      return text + failed([&] { group.all_gather("x"); });
    });
    for (int rank = 0; rank < 4; ++rank) {
      INFO("victim " << victim << ", rank " << rank);
      const std::string& text = texts[static_cast<std::size_t>(rank)];
      const std::string words = concat("rank ", victim, ": the disk is full");
      const std::string later = concat("[group.collective] expected a usable group, got one that failed before (",
                                       words, "); start all processes again");
      if (rank == victim) {
        CHECK(text == later);
      } else if (rank == 1) {
        CHECK(text == later + "\n" + later);
      } else {
        CHECK_THAT(text, ContainsSubstring(concat(" to join barrier, got an abort of ", words, "\n", later)));
      }
    }
  }
}

TEST_CASE("Failures: an abort ends a wait for a message, and a sum in flight", "[distributed]") {
  const auto texts = run_ranks(3, [](const Group& group) {
    if (group.rank() == 0) {
      std::this_thread::sleep_for(500ms);
      group.abort("no data");
      return std::string("done");
    }
    at::Tensor tensor = at::ones({4});
    if (group.rank() == 1) {
      return failed([&] { group.recv(tensor, 2); });
    }
    danling::Work work = group.start_all_reduce(tensor);
    return failed([&] { work.wait(); });
  });
  CHECK(texts[0] == "done");
  CHECK(texts[1] == "[group.collective] expected a message of rank 2 with tag 0, got an abort of rank 0: no data");
  CHECK_THAT(texts[2], ContainsSubstring(" to join start_all_reduce, got an abort of rank 0: no data"));
}

TEST_CASE("Failures: ranks that give up at once are one failure", "[distributed]") {
  const auto texts = run_ranks(4, [](const Group& group) {
    group.barrier();
    if (group.rank() < 2) {
      group.abort(concat("reason ", group.rank()));
      return std::string("done");
    }
    return failed([&] { group.barrier(); });
  });
  CHECK(texts[0] == "done");
  CHECK(texts[1] == "done");
  for (const int rank : {2, 3}) {
    const std::string& text = texts[static_cast<std::size_t>(rank)];
    INFO(text);
    CHECK((text.find("rank 0: reason 0") != text.npos || text.find("rank 1: reason 1") != text.npos));
  }
}

TEST_CASE("Failures: a rank that leaves is named", "[distributed]") {
  const auto texts = run_ranks(
      3,
      [](const Group& group) {
        Group own = group;
        group.barrier();
        return group.rank() == 2 ? std::string("left") : failed([&] { group.barrier(); });
      },
      6s);
  CHECK(texts[2] == "left");
  for (const int rank : {0, 1}) {
    CHECK_THAT(texts[static_cast<std::size_t>(rank)], ContainsSubstring("rank 2 has left the group"));
  }
}

TEST_CASE("Failures: a barrier with a timeout of its own, and a new timeout of the group", "[distributed]") {
  const auto texts = run_ranks(2, [](const Group& group) {
    group.barrier(20s);
    group.set_timeout(20s);
    group.barrier();
    if (group.rank() == 1) {
      at::Tensor never;
      return failed([&] { group.recv(never, 0); });
    }
    const auto begin = Clock::now();
    const std::string text = failed([&] { group.barrier(2s); });
    return text + (Clock::now() - begin < 12s ? "" : " late");
  });
  CHECK_THAT(texts[0], ContainsSubstring("rank 1 did not join barrier number 4 within 2 s (rank 0 did)"));
  CHECK_THAT(texts[0], !ContainsSubstring(" late"));
  CHECK_THAT(texts[1], ContainsSubstring("[group.collective] expected a message of rank 0 with tag 0, got on rank 1: "
                                         "rank 1 did not join barrier number 4 within 2 s (rank 0 did)"));
}

TEST_CASE("Parts: ranks of one color form a group, ordered by key; parts have parts", "[distributed]") {
  const auto texts = run_ranks(5, [](const Group& group) {
    const int rank = group.rank();
    // Even ranks, in reverse; odd ranks; the last alone.
    const Group part = group.split(rank == 4 ? -1 : rank % 2, -rank);
    if (rank == 4) {
      expect(part.alone(), "a rank without a color to be alone");
    } else {
      expect(part.size() == 2 && part.rank() == (rank < 2 ? 1 : 0), "two ranks, the higher one first");
      at::Tensor sum = at::full({1}, rank + 1.0);
      part.all_reduce(sum);
      expect(sum.item().toDouble() == (rank % 2 == 0 ? 4 : 6), "the sum of the part");
      at::Tensor odd = at::ones({rank < 2 ? 3 : 2});
      const std::string text = failed([&] { part.all_reduce(odd); });
      const int other = rank % 2 + 2;
      expect(text == concat("[group.all_reduce] expected matching tensors on all ranks, got Float [2] on rank ", other,
                            " and Float [3] on rank ", rank % 2),
             text);
    }
    const Group some = group.subgroup({3, 0, 2});
    expect(some.alone() == (rank == 1 || rank == 4), "the listed ranks");
    if (!some.alone()) {
      const auto order = some.all_gather(std::to_string(rank));
      expect(order == std::vector<std::string>{"3", "0", "2"}, "the listed order");
      Group inner = some.split(some.rank() == 0 ? 1 : 0);
      expect(inner.alone() == (rank == 3), "a part of a part");
      if (!inner.alone()) {
        expect(inner.all_gather(std::to_string(rank)) == std::vector<std::string>{"0", "2"}, "its ranks");
      }
      inner = Group();
      some.barrier();
    }
    group.barrier();
    return std::string("done");
  });
  check_ranks(texts, "done");
}

TEST_CASE("Parts: a part outlives the group that it was made of", "[distributed]") {
  const auto texts = run_ranks(3, [](const Group& group) {
    Group own = group;
    return own.subgroup({1, 2}).all_gather("x").size() == (group.rank() == 0 ? 1U : 2U) ? std::string("done") : "";
  });
  check_ranks(texts, "done");
  const int port = danling_test::free_port();
  const auto later = danling_test::run_processes(3, [&](int rank) {
    Group part;
    {
      danling::GroupOptions options;
      options.timeout = 30s;
      const Group group = Group::connect(danling_test::identity_of_rank(rank, 3, port), options);
      part = group.subgroup({1, 2});
    }
    part.barrier();
    return danling::detail::join(part.all_gather(std::to_string(rank)));
  });
  CHECK(later == std::vector<std::string>{"0", "1, 2", "1, 2"});
}

TEST_CASE("Parts: a failure in a part names the ranks as the first group does, and ends all groups", "[distributed]") {
  const auto texts = run_ranks(4, [](const Group& group) {
    const Group part = group.split(group.rank() / 2);
    part.barrier();
    if (group.rank() == 3) {
      kill(getpid(), SIGKILL);
    }
    return failed([&] { group.rank() == 2 ? part.barrier() : group.barrier(); });
  });
  CHECK(texts[3] == "ended by 9");
  for (const int rank : {0, 1, 2}) {  // rank 1 may call after the news
    const std::string& text = texts[static_cast<std::size_t>(rank)];
    CHECK_THAT(text, ContainsSubstring(concat("got on rank ", rank, ": rank 3 has ended")) ||
                         ContainsSubstring("got one that failed before (rank 3 has ended"));
  }
}

TEST_CASE("Parts: ranks that list different ones get the same error", "[distributed]") {
  const auto texts = run_ranks(2, [](const Group& group) {
    std::string out = failed([&] { group.subgroup({0, group.rank()}); }) + "\n";
    out += failed([&] { group.subgroup({0, 0}); }) + "\n";
    group.barrier();
    return out;
  });
  check_ranks(texts,
              "[group.subgroup] expected the same ranks on all ranks, got 0, 0 on rank 0 and 0, 1 on rank 1\n"
              "[group.subgroup] expected different ranks of a group of 2, got 0, 0\n");
}

TEST_CASE("Threads: ranks of one process form a group, and one that throws ends it", "[distributed]") {
  // In a process of its own: threads of LibTorch do not outlive a fork of later tests.
  const auto texts = danling_test::run_processes(1, [](int) {
    std::atomic<int> sum = 0;
    Group::run_threads(3, [&](Group& group) {
      at::Tensor tensor = at::full({4}, group.rank() + 1.0);
      group.all_reduce(tensor);
      sum += static_cast<int>(tensor[0].item().toDouble()) + group.split(group.rank() / 2).size();
    });
    expect(sum == 3 * 6 + 2 + 2 + 1, "the sum over the threads");
    return failed([] {
      Group::run_threads(3, [](Group& group) {
        if (group.rank() == 1) {
          danling::detail::fail<DistributedError>("test", "expected data, got none");
        }
        group.barrier();
      });
    });
  });
  CHECK(texts[0] == "[test] expected data, got none");
}

}  // namespace failures_test
