// `ft`: processes that are killed, stopped and started while others train.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <support/catch.hpp>
#include <support/temp_dir.hpp>

#include "launched.hpp"
#include "same_run.hpp"

namespace {

namespace fs = std::filesystem;
using danling_test::TempDir;
using reliability::content;
using reliability::lines_in;
using reliability::wait_until;

/// A process of the run.
class Replica {
 public:
  Replica(const std::vector<std::string>& arguments, const fs::path& output) : output_(output) {
    std::vector<std::string> words = {DANLING_FORGETFUL, "--forget", "nothing"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (auto& word : words) {
      argv.push_back(word.data());
    }
    argv.push_back(nullptr);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
        signal(number, SIG_DFL);
      }
      if (chdir(output_.parent_path().c_str()) != 0) {  // not in a repository, whose state would name the run
        _exit(98);
      }
      const int file = open(output_.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
      dup2(file, 1);
      dup2(file, 2);
      execv(argv[0], argv.data());
      _exit(99);
    }
  }
  ~Replica() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  void send(int signal) const { REQUIRE(kill(pid_, signal) == 0); }
  std::string output() const { return content(output_); }
  bool ended() {
    if (pid_ > 0 && waitpid(pid_, &status_, WNOHANG) == pid_) {
      pid_ = -1;
    }
    return pid_ < 0;
  }
  /// The exit code, or minus the signal that ended it.
  int wait() {
    wait_until("the end of a process", [&] { return ended(); });
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
  }

 private:
  fs::path output_;
  pid_t pid_ = -1;
  int status_ = 0;
};

/// The processes of a run, and the same run by one process without interruptions.
class Replicas {
 public:
  Replicas(std::vector<std::string> program, std::vector<std::string> ft, int size)
      : program_(std::move(program)), ft_(std::move(ft)), size_(size) {
    for (int number = 0; number < size; ++number) {
      start(number);
    }
  }

  void start(int number, const std::vector<std::string>& more = {}) {
    auto words = program_;
    words.insert(words.end(), {"--workspace_root", root().string(), "--ft.enabled", "true", "--ft.replica_id",
                               std::to_string(number), "--ft.group_size", std::to_string(size_), "--auto_resume",
                               "true", "--comm.init_timeout_seconds", "20"});
    words.insert(words.end(), ft_.begin(), ft_.end());
    words.insert(words.end(), more.begin(), more.end());
    replicas.push_back(std::make_unique<Replica>(words, dir_ / ("out-" + std::to_string(started_++))));
  }
  /// Starts one and waits until the others know it. While one of them lives, no other set-up begins, which is not
  /// protected.
  void start_known(int number) {
    const auto before = entries();
    start(number);
    wait_until("the entry of a process", [&] {
      const auto now = entries();
      return replicas.back()->ended() || !std::includes(before.begin(), before.end(), now.begin(), now.end());
    });
  }
  void wait_for_lines(std::size_t count) const {
    wait_until("lines of metrics", [&] { return lines_in(root()) >= count; });
  }
  fs::path root() const { return dir_ / "run"; }

  void check_finished_like_one() {
    for (const auto& replica : replicas) {
      const int code = replica->wait();
      INFO(replica->output());
      CHECK(code == 0);
    }
    reliability::check_same_run(root(), reference_of(program_));
    CHECK_FALSE(fs::exists(root() / ".ft"));
  }

  std::vector<std::unique_ptr<Replica>> replicas;

 private:
  /// The undisturbed run, which several tests compare with.
  static fs::path reference_of(std::vector<std::string> words) {
    static const TempDir all;
    static std::map<std::vector<std::string>, fs::path> known;
    const auto [entry, added] = known.try_emplace(words, all / std::to_string(known.size()));
    if (added) {
      words.insert(words.end(), {"--workspace_root", entry->second.string()});
      Replica one(words, all / ("out-" + entry->second.filename().string()));
      REQUIRE(one.wait() == 0);
    }
    return entry->second;
  }

  std::set<std::string> entries() const {
    std::set<std::string> out;
    std::error_code gone;
    for (const auto& file : fs::recursive_directory_iterator(root() / ".ft", gone)) {
      const std::string name = file.path().filename().string();
      if (name.starts_with("entry-") && name.find('.') == std::string::npos) {
        out.insert(name);
      }
    }
    return out;
  }

  TempDir dir_;
  std::vector<std::string> program_, ft_;
  int size_;
  int started_ = 0;
};

const std::vector<std::string> program = {"--seed",   "1",   "--deterministic", "true", "--parallel.virtual_ranks", "4",
                                          "--epochs", "250", "--log_interval",  "1"};

TEST_CASE("ft: processes that are killed at any moment and replaced leave the bits of an undisturbed run",
          "[reliability]") {
  Replicas run(program, {}, 3);
  run.wait_for_lines(1);
  std::mt19937 random(5);
  int number = 2;
  for (int kills = 0; kills < 10; ++kills) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50 + random() % 400));
    auto& all = run.replicas;
    if (std::any_of(all.begin(), all.end(), [](const auto& replica) { return replica->ended(); })) {
      break;  // finished, on a fast machine
    }
    const auto victim = all.begin() + static_cast<std::ptrdiff_t>(random() % all.size());
    (*victim)->send(SIGKILL);
    (*victim)->wait();
    all.erase(victim);
    if (all.size() < 2 || random() % 4 != 0) {
      run.start_known(++number % 3);
    }
  }
  run.check_finished_like_one();
}

TEST_CASE("ft: training waits while fewer than min_replica_size processes are left", "[reliability]") {
  Replicas run(program, {"--ft.min_replica_size", "2"}, 2);
  run.wait_for_lines(6);
  run.replicas.back()->send(SIGKILL);
  run.replicas.back()->wait();
  run.replicas.pop_back();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const std::size_t lines = lines_in(run.root());
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  CHECK(lines_in(run.root()) == lines);
  CHECK_FALSE(run.replicas.front()->ended());
  run.start(1);
  run.check_finished_like_one();
}

TEST_CASE("ft: the others go on without a process that stands still, and it ends when it wakes", "[reliability]") {
  Replicas run(program, {"--ft.process_group_timeout_ms", "1500"}, 2);
  run.wait_for_lines(6);
  const auto stopped = std::move(run.replicas.back());
  run.replicas.pop_back();
  stopped->send(SIGSTOP);
  const std::size_t lines = lines_in(run.root());
  run.wait_for_lines(lines + 10);
  stopped->send(SIGCONT);
  CHECK(stopped->wait() == 1);
  CHECK_THAT(
      stopped->output(),
      ContainsSubstring("[runner.init_fault_tolerance] expected to join generation 2 of the run, got excluded: the "
                        "others continued without this process after 1.5 s (ft.process_group_timeout_ms); start "
                        "it again"));
  run.check_finished_like_one();
}

TEST_CASE("ft: a process that joins goes on alone when the last one of the others dies meanwhile", "[reliability]") {
  auto dies = program;
  // Long, so that it does not finish before it is stopped.
  dies.insert(dies.end(), {"--forget", "life", "--epochs", "1500"});
  Replicas run(dies, {}, 1);
  run.wait_for_lines(6);
  run.replicas.front()->send(SIGSTOP);  // or it may finish before the other has joined
  run.start_known(0);
  run.replicas.front()->send(SIGCONT);
  CHECK(run.replicas.front()->wait() == -SIGKILL);
  run.replicas.erase(run.replicas.begin());
  run.check_finished_like_one();
}

TEST_CASE("ft: a process with another config is refused, and those beyond virtual_ranks wait", "[reliability]") {
  Replicas run(program, {}, 2);
  run.wait_for_lines(3);
  run.start(1, {"--ft.snapshot_interval", "2"});
  auto& other = *run.replicas.back();
  CHECK(other.wait() == 1);
  CHECK_THAT(other.output(), ContainsSubstring("[runner.init_fault_tolerance] expected the program of the run in "));
  CHECK_THAT(other.output(), ContainsSubstring("; start the same program, or wait until that run has ended"));
  run.replicas.pop_back();
  for (int number = 0; number < 4; ++number) {  // six for four shards
    run.start(number % 2);
  }
  run.check_finished_like_one();
}

TEST_CASE("ft: a process that waits for others says so, and where", "[reliability]") {
  Replicas run({"--epochs", "2", "--console", "true"}, {"--comm.init_timeout_seconds", "120"}, 2);
  run.replicas.pop_back();
  const auto& first = *run.replicas.front();
  wait_until("a line of the one that waits", [&] {
    return first.output().find("waits for the other processes of 2, which meet in ") != std::string::npos;
  });
  CHECK_THAT(first.output(), ContainsSubstring((run.root() / ".ft").string()));
  CHECK_THAT(first.output(), ContainsSubstring(", for at most 120 s\n"));
  run.start(1);
  for (const auto& replica : run.replicas) {
    CHECK(replica->wait() == 0);
  }
}

TEST_CASE("ft: a process that waits for others ends at a signal", "[reliability]") {
  Replicas run({"--epochs", "2", "--console", "true"}, {"--comm.init_timeout_seconds", "600"}, 2);
  run.replicas.pop_back();
  auto& first = *run.replicas.front();
  wait_until("a line of the one that waits",
             [&] { return first.output().find("waits for the other processes of 2") != std::string::npos; });
  first.send(SIGINT);
  CHECK(first.wait() == 128 + SIGINT);
  CHECK_THAT(first.output(), ContainsSubstring("got SIGINT while this one waited for them"));
}

TEST_CASE("ft: a directory of the user keeps what is not of the run", "[reliability]") {
  const TempDir shared;
  std::ofstream(shared.path() / "thesis.txt") << "chapter 1";
  fs::create_directory(shared.path() / "data");
  Replicas run({"--epochs", "2"}, {"--ft.directory", shared.path().string()}, 2);
  for (const auto& replica : run.replicas) {
    CHECK(replica->wait() == 0);
  }
  CHECK_FALSE(fs::exists(run.root() / ".ft"));
  std::vector<std::string> left;
  for (const auto& file : fs::directory_iterator(shared.path())) {
    left.push_back(file.path().filename().string());
  }
  std::sort(left.begin(), left.end());
  CHECK(left == std::vector<std::string>{"data", "thesis.txt"});
}

TEST_CASE("ft: under a launcher that ends all when one dies it trains, with a warning", "[reliability]") {
  const TempDir dir;
  reliability::Launched run({"-n", "2", "--no-prefix", "--", DANLING_FORGETFUL, "--workspace_root", dir.path().string(),
                             "--forget", "nothing", "--epochs", "2", "--console", "true", "--ft.enabled", "true"});
  CHECK(run.wait() == 0);
  CHECK_THAT(
      run.out() + run.err(),
      ContainsSubstring("expected processes without a launcher, got those of danling launch or torchrun, which "
                        "end all processes when one dies; start each with --ft.replica_id, or leave out ft.enabled"));
}

TEST_CASE("ft: groups that fail again and again while all live end, with the words of the last failure",
          "[reliability]") {
  Replicas run(program, {"--forget", "others", "--ft.process_group_timeout_ms", "4000"}, 2);
  for (std::size_t rank = 0; rank < run.replicas.size(); ++rank) {
    CHECK(run.replicas[rank]->wait() == 1);
    const std::string output = run.replicas[rank]->output();
    CHECK_THAT(output, ContainsSubstring(
                           "error: [runner.init_fault_tolerance] expected an update after a new group has formed, "
                           "got 4 failures while all 2 processes lived; the last: [group.collective] expected "));
    CHECK_THAT(output, ContainsSubstring(rank == 0 ? "got no answer from rank 1, which is alive but waits elsewhere"
                                                   : "rank 0 did not join all_gather of bytes"));
  }
}

}  // namespace
