// comm.step_timeout_seconds: processes that hang end with the place of each rank and the stacks of their threads.
#include <fcntl.h>

#include <fstream>
#include <regex>
#include <sstream>

#include <support/ranks.hpp>

#include "fixture.hpp"

namespace runner_test {
namespace {

constexpr int hung = 70;
// Generous for a step of a busy machine.
constexpr double step_limit = 4;

[[gnu::noinline]] void hang_in_a_call_of_the_program() {
  for (volatile bool forever = true; forever;) {
    usleep(100'000);
  }
}

struct EndedRank {
  int code = 0;  ///< minus the signal that ended it
  std::string err;
  std::string last_line() const {
    const auto end = err.find_last_not_of('\n');
    const auto begin = end == std::string::npos ? end : err.rfind('\n', end);
    return err.substr(begin == std::string::npos ? 0 : begin + 1, end - begin);
  }
};

/// Processes whose exit codes and stderr are read; `body` gets its rank.
class WatchedProcesses {
 public:
  WatchedProcesses(int size, const std::function<void(int rank)>& body) {
    for (int rank = 0; rank < size; ++rank) {
      const pid_t pid = fork();
      REQUIRE(pid >= 0);
      if (pid == 0) {
        for (const int number : {SIGTERM, SIGINT, SIGABRT, SIGSEGV, SIGFPE, SIGILL}) {
          signal(number, SIG_DFL);
        }
        alarm(180);
        dup2(open(path(rank).c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600), STDERR_FILENO);
        int code = 0;
        try {
          at::set_num_threads(1);
          body(rank);
        } catch (const std::exception& error) {
          const std::string text = dl::detail::concat("error: ", error.what(), "\n");
          (void)!write(STDERR_FILENO, text.data(), text.size());
          code = 1;
        }
        _exit(code);
      }
      pids.push_back(pid);
    }
  }
  ~WatchedProcesses() {
    for (std::size_t rank = 0; rank < pids.size(); ++rank) {
      if (pids[rank] > 0) {
        kill(pids[rank], SIGKILL);
        wait(static_cast<int>(rank));
      }
    }
  }
  WatchedProcesses(const WatchedProcesses&) = delete;
  WatchedProcesses& operator=(const WatchedProcesses&) = delete;

  EndedRank wait(int rank) {
    int status = 0;
    while (waitpid(pids[static_cast<std::size_t>(rank)], &status, 0) < 0 && errno == EINTR) {
    }
    pids[static_cast<std::size_t>(rank)] = -1;
    std::ifstream file(path(rank));
    std::stringstream text;
    text << file.rdbuf();
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), text.str()};
  }
  /// Waits until a rank has written this to stderr.
  void wait_for(int rank, const std::string& text) const {
    std::stringstream all;
    for (int turn = 0; turn < 6000; ++turn) {
      std::ifstream file(path(rank));
      all = std::stringstream();
      all << file.rdbuf();
      if (all.str().find(text) != std::string::npos) {
        return;
      }
      usleep(10'000);
    }
    FAIL("expected '" << text << "' of rank " << rank << " within a minute, got '" << all.str() << "'");
  }
  std::string path(int rank) const { return (folder_.path() / dl::detail::concat("err", rank)).string(); }

  std::vector<pid_t> pids;

 private:
  Folder folder_;
};

/// Whether a line matches the expression in full, behind one that contains `after`.
bool has_line(const std::string& text, const std::string& expression, const std::string& after = "") {
  const std::regex pattern(expression);
  std::istringstream lines(text);
  bool passed = after.empty();
  for (std::string line; std::getline(lines, line);) {
    if (passed && std::regex_match(line, pattern)) {
      return true;
    }
    passed = passed || line.find(after) != std::string::npos;
  }
  return false;
}

TinyConfig watched_config(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 2;
  config.comm.step_timeout_seconds = step_limit;
  return config;
}

/// The variables that a launcher of two processes sets.
void launch_as(int rank, int port) {
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", "2", 1);
  setenv("LOCAL_WORLD_SIZE", "2", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
}

/// Two ranks of data parallel training; `before` is called before each step.
std::vector<EndedRank> train_two(const Folder& folder, const std::function<void(TinyRunner&, std::int64_t)>& before,
                                 bool debug = false) {
  const int port = danling_test::free_port();
  WatchedProcesses ranks(2, [&](int rank) {
    launch_as(rank, port);
    TinyConfig config = watched_config(folder);
    config.comm.debug = debug;
    TinyRunner runner(config);
    runner.before_step = before;
    runner.train();
  });
  return {ranks.wait(0), ranks.wait(1)};
}

std::string log_of(const std::string& last_line) {
  const auto at = last_line.find("; see ");
  std::ifstream file(at == std::string::npos ? std::string() : last_line.substr(at + 6));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_CASE("watchdog: a rank that hangs in its step ends all ranks, which know where it is", "[runner][watchdog]") {
  const Folder folder;
  const auto ends = train_two(folder, [](TinyRunner& runner, std::int64_t done) {
    if (runner.rank() == 1 && done == 3) {
      hang_in_a_call_of_the_program();
    }
  });
  const std::string first =
      R"(rank 0 of 2, train, split 'train', epoch 1, step 4, batch 4: waiting for other ranks in all_gather of bytes number \d+, \d+ bytes, for [\d.]+ s)";
  const std::string second = R"(rank 1 of 2, train, split 'train', epoch 1, step 4, batch 4: in the step)";
  for (const EndedRank& end : ends) {
    INFO(end.err);
    CHECK(end.code == hung);
    CHECK(has_line(end.err, R"(\[runner.watchdog\] no step has ended for [\d.]+ s \(comm.step_timeout_seconds\))"));
    CHECK(has_line(end.err, first, "no step has ended"));
    CHECK(has_line(end.err, second, "rank 0 of 2, train"));
    CHECK_THAT(log_of(end.last_line()), ContainsSubstring("[runner.watchdog] no step has ended for "));
    CHECK_THAT(log_of(end.last_line()), ContainsSubstring("rank 1 of 2, train, split 'train', epoch 1, step 4"));
  }
  CHECK(has_line(
      ends[0].last_line(),
      R"(\[runner.watchdog\] expected a step within 4 s, got none for [\d.]+ s in rank 0 of 2, train, split 'train', epoch 1, step 4, batch 4: waiting for other ranks; see .*\.log)"));
  CHECK(has_line(
      ends[1].last_line(),
      R"(\[runner.watchdog\] expected a step within 4 s, got none for [\d.]+ s in rank 1 of 2, train, split 'train', epoch 1, step 4, batch 4: in the step; see .*\.rank1\.log)"));
  // The stack of the loop, from the call that hangs to the runner.
  CHECK(has_line(ends[1].err, R"(thread \d+, the loop:)", "threads of rank 1 of 2:"));
  CHECK(has_line(ends[1].err, R"(  #\d+ .*hang_in_a_call_of_the_program\(\) \+ 0x.*)", ", the loop:"));
  CHECK(has_line(ends[1].err, R"(  #\d+ .*TinyRunner::train_step.*)", "hang_in_a_call_of_the_program"));
  CHECK(has_line(ends[1].err, R"(  #\d+ .*TorchRunnerBase::Internals::TrainPass::run.*)", "TinyRunner::train_step"));
  CHECK_THAT(ends[0].err, ContainsSubstring("Group::all_gather"));
  CHECK(ends[0].err.find("hang_in_a_call_of_the_program") == std::string::npos);
}

TEST_CASE("watchdog: a collective that the others do not call is named", "[runner][watchdog]") {
  const Folder folder;
  const auto ends = train_two(folder, [](TinyRunner& runner, std::int64_t done) {
    if (runner.rank() == 0 && done == 2) {
      runner.group().start_all_reduce(torch::ones({16})).wait();
    }
  });
  for (const EndedRank& end : ends) {
    INFO(end.err);
    CHECK(end.code == hung);
    CHECK(has_line(
        end.err,
        R"(rank 0 of 2.*step 3, batch 3: waiting for other ranks in start_all_reduce number \d+, 64 bytes, for [\d.]+ s)"));
    CHECK(has_line(end.err, R"(rank 1 of 2.*step 3, batch 3: waiting for other ranks in all_gather of bytes .*)"));
  }
}

TEST_CASE("comm.debug: collectives that differ between ranks are one error on all ranks", "[runner][watchdog]") {
  const Folder folder;
  const auto by_kind = train_two(
      folder,
      [](TinyRunner& runner, std::int64_t done) {
        if (runner.rank() == 0 && done == 2) {
          runner.group().start_all_reduce(torch::ones({16})).wait();
        }
      },
      /*debug=*/true);
  const auto by_shape = train_two(
      folder,
      [](TinyRunner& runner, std::int64_t done) {
        if (done == 2) {
          runner.group().start_all_reduce(torch::ones({runner.rank() == 0 ? 16 : 4})).wait();
        }
      },
      /*debug=*/true);
  for (const auto* ends : {&by_kind, &by_shape}) {
    for (const EndedRank& end : *ends) {
      INFO(end.err);
      CHECK(end.code == 1);
    }
  }
  for (int rank = 0; rank < 2; ++rank) {
    CHECK_THAT(by_kind[static_cast<std::size_t>(rank)].err,
               ContainsSubstring(
                   "error: [group.collective] expected the same collective on all ranks, got start_all_reduce "
                   "on rank 0 and all_gather of bytes on rank 1; in train_step of split 'train', epoch 1, step 3"));
    CHECK_THAT(by_shape[static_cast<std::size_t>(rank)].err,
               ContainsSubstring(
                   "error: [group.start_all_reduce] expected matching tensors on all ranks, got Float [16] on rank "
                   "0 and Float [4] on rank 1; in train_step of split 'train', epoch 1, step 3"));
  }
}

TEST_CASE("watchdog: a rank that does not run is named by the others", "[runner][watchdog]") {
  const Folder folder;
  const int port = danling_test::free_port();
  WatchedProcesses ranks(2, [&](int rank) {
    launch_as(rank, port);
    TinyRunner runner(watched_config(folder));
    runner.before_step = [](TinyRunner& run, std::int64_t done) {
      if (run.rank() == 1 && done == 3) {
        kill(getpid(), SIGSTOP);
      }
    };
    runner.train();
  });
  const EndedRank end = ranks.wait(0);
  INFO(end.err);
  CHECK(end.code == hung);
  CHECK_THAT(end.err, ContainsSubstring("\nrank 1 of 2: no answer within 5 s\n"));
}

/// A single process.
EndedRank train_alone(const std::function<void(TinyRunner&)>& prepare, const std::function<void(TinyRunner&)>& work) {
  const Folder folder;
  WatchedProcesses process(1, [&](int) {
    TinyRunner runner(watched_config(folder));
    prepare(runner);
    work(runner);
  });
  return process.wait(0);
}

struct HangingPoints : Points {
  std::int64_t batches = 0;
  dl::Batch get_batch(std::span<const std::int64_t> indices) {
    if (++batches == 3) {
      hang_in_a_call_of_the_program();
    }
    return Points::get_batch(indices);
  }
};

TEST_CASE("watchdog: also one process ends where its dataset, evaluation or save hangs", "[runner][watchdog]") {
  const auto train = [](TinyRunner& runner) { runner.train(); };
  const EndedRank reading = train_alone(
      [](TinyRunner& runner) { runner.datasets["train"] = HangingPoints{{make_points(50, 0), true}}; }, train);
  INFO(reading.err);
  CHECK(reading.code == hung);
  CHECK(has_line(
      reading.last_line(),
      R"(\[runner.watchdog\] expected a step within 4 s, got none for [\d.]+ s in train, split 'train', epoch 1, step 3, batch 3: reading data; see .*\.log)"));
  CHECK_THAT(reading.err, ContainsSubstring("HangingPoints"));

  const EndedRank evaluating = train_alone(
      [](TinyRunner& runner) {
        runner.before_evaluation_step = [](TinyRunner&, std::int64_t done) {
          if (done == 1) {
            hang_in_a_call_of_the_program();
          }
        };
      },
      [](TinyRunner& runner) { runner.evaluate_epoch("val"); });
  INFO(evaluating.err);
  CHECK(evaluating.code == hung);
  CHECK_THAT(evaluating.last_line(),
             ContainsSubstring("s in evaluate, split 'val', epoch 1, step 1, batch 2: in the step"));
  CHECK_THAT(evaluating.last_line(), EndsWith("; see above"));  // nothing is recorded before training

  struct Saved {
    dl::State state_dict() const {
      hang_in_a_call_of_the_program();
      return {};
    }
    void load_state_dict(const dl::State&) {}
  };
  const EndedRank saving = train_alone(
      [](TinyRunner& runner) {
        static Saved saved;
        runner.register_state("saved", saved);
      },
      train);
  INFO(saving.err);
  CHECK(saving.code == hung);
  CHECK_THAT(saving.last_line(), ContainsSubstring(": saving; see "));
}

bool has_thread(const std::string& name) {
  for (const auto& entry : fs::directory_iterator("/proc/self/task")) {
    std::ifstream file(entry.path() / "comm");
    std::string line;
    if (std::getline(file, line) && line == name) {
      return true;
    }
  }
  return false;
}

TEST_CASE("watchdog: slow steps, pauses of the program and stops of the process are no hang", "[runner][watchdog]") {
  const Folder folder;
  WatchedProcesses process(1, [&](int) {
    {
      TinyRunner runner(watched_config(folder));
      danling_test::expect(!has_thread("watchdog"), "no thread before a loop");
      runner.evaluate_epoch("val");
      for (int turn = 0; turn < 3000 && !has_thread("watchdog"); ++turn) {
        usleep(10'000);  // it names itself when it first runs
      }
      danling_test::expect(has_thread("watchdog"), "a thread after one");
      std::this_thread::sleep_for(std::chrono::duration<double>(step_limit * 1.5));
      runner.before_step = [](TinyRunner&, std::int64_t done) {
        usleep(500'000);  // seven seconds in all
        if (done == 2) {
          (void)!write(STDERR_FILENO, "third step\n", 11);
        }
      };
      runner.train();
      danling_test::expect(runner.micro_batches == 14, "all steps");
      runner.close();
      danling_test::expect(!has_thread("watchdog"), "no thread after the end");
    }
  });
  process.wait_for(0, "third step");
  REQUIRE(kill(process.pids[0], SIGSTOP) == 0);
  std::this_thread::sleep_for(std::chrono::duration<double>(step_limit * 1.5));
  REQUIRE(kill(process.pids[0], SIGCONT) == 0);
  const EndedRank end = process.wait(0);
  INFO(end.err);
  CHECK(end.code == 0);
  CHECK(end.err == "third step\n");
}

}  // namespace
}  // namespace runner_test
