// A program on a grid of processes in which one is killed, throws or stops: all others end with one line that says so.
#include <fcntl.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include <danling/runner/parallel_runner.hpp>
#include <danling/runner/run.hpp>

#include <parallel/failures_support.hpp>

#include "../../examples/language_model_parallel/gpt.hpp"
#include "rank_runner.hpp"

namespace runner_test {
namespace {

enum class GridEnding { killed, threw, stopped };

struct GridFailure {
  std::string name;
  int processes;
  std::vector<std::string> options;
  bool between_steps = false;  ///< the rank ends where the others agree about the next step
};

struct GridFailureConfig : dl::RunnerConfig {
  GridFailureConfig() {
    stack = "parallel";
    steps = 1000;
    console = false;
    record = false;
    dataloader.batch_size = 4;
    optim.type = "sgd";
    optim.lr = 1e-3;
    parallel.pipeline_microbatch_size = 2;
  }
};

struct GridTokens {
  std::int64_t size() const { return 64; }
  dl::data::Sample get(std::int64_t index) const {
    const auto all = torch::arange(9).add(index).remainder(11);
    return {.input = all.narrow(0, 0, 8), .target = all.narrow(0, 1, 8)};
  }
};

/// Of the processes that are forked later.
struct GridVictim {
  int rank = 0;
  GridEnding ending = GridEnding::killed;
  bool between_steps = false;
};
GridVictim grid_victim;

class GridFailureRunner : public dl::ParallelRunner {
 public:
  explicit GridFailureRunner(const GridFailureConfig& config) : ParallelRunner(config) {
    datasets["train"] = GridTokens();
    model =
        gpt::Gpt(gpt::GptOptions{.vocabulary = 11, .width = 16, .heads = 4, .layers = 4, .length = 8, .dropout = 0});
    criterion = torch::nn::CrossEntropyLoss();
    dl::parallel::register_stage_type<gpt::EmbeddingImpl>();
    dl::parallel::register_stage_type<gpt::BlockImpl>();
    dl::parallel::register_stage_type<gpt::HeadImpl>();
    struct Ends : dl::Callback {
      void on_step(const dl::StepEvent&) override {
        if (grid_victim.between_steps) {
          end_now();
        }
      }
    };
    add(Ends());
  }
  ~GridFailureRunner() override { close(); }

 protected:
  StepOutput train_step(dl::Batch& batch) override {
    if (!grid_victim.between_steps) {
      end_now();
    }
    return ParallelRunner::train_step(batch);
  }

 private:
  static void end_now() {
    static int calls = 0;
    if (++calls < 4 || std::stoi(std::getenv("RANK")) != grid_victim.rank) {
      return;
    }
    switch (grid_victim.ending) {
      case GridEnding::killed:
        kill(getpid(), SIGKILL);
        return;
      case GridEnding::threw:
        throw std::runtime_error("no such token: 12");
      case GridEnding::stopped:
        kill(getpid(), SIGSTOP);
        return;
    }
  }
};

struct GridEnd {
  int code = 0;  ///< minus the signal that ended it
  std::vector<std::string> lines;
};

struct StartedGrid {
  std::string path(int rank) const { return (folder->path() / dl::detail::concat("err", rank)).string(); }
  GridFailure failure;
  std::unique_ptr<Folder> folder = std::make_unique<Folder>();
  std::vector<pid_t> pids = {};
};

/// Starts a program with the variables of a launcher in each process.
StartedGrid start_grid(const GridFailure& failure, int port) {
  StartedGrid out{failure};
  for (int rank = 0; rank < failure.processes; ++rank) {
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      for (const int number : {SIGTERM, SIGINT, SIGABRT, SIGSEGV, SIGFPE, SIGILL}) {
        signal(number, SIG_DFL);
      }
      alarm(120);
      dup2(open(out.path(rank).c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600), STDERR_FILENO);
      at::set_num_threads(1);
      const std::string size = std::to_string(failure.processes);
      for (const auto& [name, value] : std::map<std::string, std::string>{{"RANK", std::to_string(rank)},
                                                                          {"LOCAL_RANK", std::to_string(rank)},
                                                                          {"WORLD_SIZE", size},
                                                                          {"LOCAL_WORLD_SIZE", size},
                                                                          {"MASTER_ADDR", "127.0.0.1"},
                                                                          {"MASTER_PORT", std::to_string(port)}}) {
        setenv(name.c_str(), value.c_str(), 1);
      }
      std::vector<std::string> words = {"program", "--workspace_root", out.folder->path().string()};
      words.insert(words.end(), failure.options.begin(), failure.options.end());
      if (grid_victim.ending == GridEnding::stopped) {
        words.insert(words.end(), {"--comm.train_timeout_seconds", "4"});
      }
      std::vector<char*> argv;
      for (std::string& word : words) {
        argv.push_back(word.data());
      }
      _exit(dl::run<GridFailureRunner, GridFailureConfig>(static_cast<int>(argv.size()), argv.data()));
    }
    out.pids.push_back(pid);
  }
  return out;
}

/// A rank that is stopped is killed once all others have ended.
std::vector<GridEnd> end_of(const StartedGrid& grid) {
  const std::vector<pid_t>& pids = grid.pids;
  std::vector<GridEnd> out(pids.size());
  const auto wait = [&](int rank) {
    int status = 0;
    while (waitpid(pids[static_cast<std::size_t>(rank)], &status, 0) < 0 && errno == EINTR) {
    }
    GridEnd& end = out[static_cast<std::size_t>(rank)];
    end.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    std::ifstream file(grid.path(rank));
    for (std::string line; std::getline(file, line);) {
      // LibTorch warns with a stack where rank 0, which has the store, ends.
      if (!line.starts_with("[W") && !line.starts_with("Exception raised from ") && !line.starts_with("frame #") &&
          !line.empty()) {
        end.lines.push_back(line);
      }
    }
  };
  for (int rank = 0; rank < grid.failure.processes; ++rank) {
    if (rank != grid_victim.rank) {
      wait(rank);
    }
  }
  if (grid_victim.ending == GridEnding::stopped) {
    kill(pids[static_cast<std::size_t>(grid_victim.rank)], SIGKILL);
  }
  wait(grid_victim.rank);
  return out;
}

std::vector<GridFailure> grid_failures() {
  const std::string two_stages = "['embedding, blocks.0, blocks.1', 'blocks.2, blocks.3, head']";
  const auto piped = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--parallel.axes.pipeline", "2", "--parallel.module_fqns_per_model_part", two_stages});
    return more;
  };
  return {
      {"shard", 2, {"--parallel.axes.shard", "2", "--fsdp.units", "['Block']"}},
      {"replicate", 2, {"--parallel.axes.replicate", "2"}},
      {"tensor", 2, {"--parallel.axes.tensor", "2"}},
      {"context", 2, {"--parallel.axes.context", "2"}},
      {"pipeline", 2, piped({})},
      {"shard x pipeline", 4, piped({"--parallel.axes.shard", "2", "--fsdp.units", "['Block']"})},
      {"shard x tensor", 4, {"--parallel.axes.shard", "2", "--parallel.axes.tensor", "2"}},
      {"shard x pipeline, between steps", 4, piped({"--parallel.axes.shard", "2"}), true},
  };
}

void check_ends(const GridFailure& failure, const std::vector<GridEnd>& ends) {
  for (int rank = 0; rank < failure.processes; ++rank) {
    const GridEnd& end = ends[static_cast<std::size_t>(rank)];
    INFO(failure.name << ", victim " << grid_victim.rank << ", rank " << rank << ": "
                      << dl::detail::join(end.lines, "\n"));
    const bool threw = grid_victim.ending == GridEnding::threw;
    if (rank == grid_victim.rank && !threw) {
      CHECK(end.code == -SIGKILL);
      continue;
    }
    CHECK(end.code == dl::exit_failure);
    REQUIRE(end.lines.size() == 1);
    const std::string& line = end.lines.front();
    CHECK_THAT(line, StartsWith("error: "));
    if (!failure.between_steps) {
      CHECK_THAT(line, ContainsSubstring("step 4"));
    }
    if (threw) {
      CHECK_THAT(line, ContainsSubstring("no such token: 12"));
    }
    if (rank != grid_victim.rank) {
      CHECK_THAT(line, StartsWith("error: [group.collective] expected ") &&
                           ContainsSubstring(dl::detail::concat("rank ", grid_victim.rank)));
    }
  }
}

/// Some grids at once: they wait most of the time.
void check_grids(GridEnding ending, std::vector<int> victims) {
  constexpr std::size_t at_once = 4;
  const std::vector<GridFailure> all = grid_failures();
  for (const int victim : victims) {
    for (std::size_t begin = 0; begin < all.size(); begin += at_once) {
      const parallel_failures_test::Ports ports(at_once);
      const auto start = std::chrono::steady_clock::now();
      std::vector<StartedGrid> grids;
      for (std::size_t i = begin; i < std::min(begin + at_once, all.size()); ++i) {
        if (victim < all[i].processes) {
          grid_victim = {victim, ending, all[i].between_steps};
          grids.push_back(start_grid(all[i], ports[i - begin]));
        }
      }
      for (const StartedGrid& grid : grids) {
        check_ends(grid.failure, end_of(grid));
      }
      CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(100));
    }
  }
}

TEST_CASE("ParallelRunner: a rank that is killed ends the run, with a line on each other rank",
          "[runner][parallel][failures]") {
  check_grids(GridEnding::killed, {0, 1, 3});
}

TEST_CASE("ParallelRunner: a rank that throws ends the run with its words", "[runner][parallel][failures]") {
  check_grids(GridEnding::threw, {0, 1, 3});
}

TEST_CASE("ParallelRunner: a rank that stops ends the run after the timeout", "[runner][parallel][failures]") {
  check_grids(GridEnding::stopped, {1, 3});
}

}  // namespace
}  // namespace runner_test
