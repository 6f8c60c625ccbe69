// Diagnosis of a rank that hangs: notes in the store, and the operations that its threads wait in.
#include "distributed/rank_notes.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include <ATen/ops/ones.h>

#include <danling/core/error.hpp>

#include <support/ranks.hpp>

#include "distributed/pending.hpp"

namespace rank_notes_test {

using danling::Group;
using danling::detail::concat;
using danling::detail::RankNotes;
using danling_test::run_ranks;
using namespace std::chrono_literals;

std::string text_of(const std::map<std::int64_t, std::string>& notes) {
  std::string out;
  for (const auto& [rank, note] : notes) {
    out += concat(out.empty() ? "" : ", ", rank, ": ", note);
  }
  return out;
}

TEST_CASE("RankNotes: ranks read each other's notes without a collective, whatever the others do", "[distributed]") {
  const auto texts = run_ranks(3, [](const Group& group) {
    if (group.rank() == 2) {  // it waits for the others in a collective, and leaves no note
      std::this_thread::sleep_for(100ms);
      group.barrier();
      return std::string("2 joined");
    }
    const RankNotes notes(group);
    const auto found = notes.exchange(concat("here is ", group.rank()), 3s);
    notes.leave(found, 30s);
    group.barrier();  // the group is as usable as before
    return text_of(found);
  });
  CHECK(texts == std::vector<std::string>{"0: here is 0, 1: here is 1", "0: here is 0, 1: here is 1", "2 joined"});
}

TEST_CASE("RankNotes: a rank alone, and one whose store is stopped, have their own note", "[distributed]") {
  CHECK(text_of(RankNotes(Group()).exchange("alone", 1s)) == "0: alone");
  const auto texts = run_ranks(2, [](const Group& group) {
    const std::string pid = group.all_gather(std::to_string(getpid())).front();
    group.barrier();
    if (group.rank() == 0) {
      kill(getpid(), SIGSTOP);
      return std::string("continued");
    }
    std::this_thread::sleep_for(200ms);
    const std::string found = text_of(RankNotes(group).exchange("here is 1", 1s));
    kill(static_cast<pid_t>(std::stol(pid)), SIGCONT);
    return found;
  });
  CHECK(texts == std::vector<std::string>{"continued", "1: here is 1"});
}

TEST_CASE("pending_calls: names the collective that a thread waits in, its number and its bytes", "[distributed]") {
  CHECK(danling::detail::pending_calls().empty());
  const auto texts = run_ranks(2, [](const Group& group) {
    std::string seen;
    if (group.rank() == 1) {
      group.barrier();  // number 1, as on rank 0
      std::this_thread::sleep_for(500ms);
    } else {
      group.barrier();
      const auto waiting = static_cast<pid_t>(syscall(SYS_gettid));
      std::thread reader([&] {
        for (int turn = 0; turn < 3000 && seen.empty(); ++turn) {
          for (const auto& call : danling::detail::pending_calls()) {
            if (call.thread == waiting && call.bytes > 0) {
              seen = concat(call.operation, ", ", call.bytes, " bytes");
            }
          }
          std::this_thread::sleep_for(1ms);
        }
      });
      at::Tensor tensor = at::ones({100});
      group.all_reduce(tensor);
      reader.join();
      return seen;
    }
    at::Tensor tensor = at::ones({100});
    group.all_reduce(tensor);
    return std::string();
  });
  CHECK(texts[0] == "all_reduce, 400 bytes");
  CHECK(danling::detail::pending_text({1, "all_reduce", 12, 400, std::chrono::steady_clock::now()}) ==
        "all_reduce number 12, 400 bytes, for 0 s");
}

}  // namespace rank_notes_test
