// Ranks begin a run alike: equal draws of the constructor, equal weights, the same step.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include <support/ranks.hpp>

#include "fixture.hpp"
#include "run_files.hpp"

namespace runner_test {
namespace {

void start_as(int rank, int port) {
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", "2", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
}

std::vector<std::string> as_two(const std::function<std::string(int rank)>& body) {
  const int port = danling_test::free_port();
  return danling_test::run_processes(2, [&](int rank) {
    start_as(rank, port);
    return body(rank);
  });
}

struct Drawing : TinyRunner {
  explicit Drawing(const TinyConfig& config) : TinyRunner(config), drawn(torch::rand({}).item<float>()) {}
  ~Drawing() override { close(); }
  float drawn;
};

TEST_CASE("ranks: the constructor draws the same numbers on all of them, the run others, rank 0 as one process",
          "[runner]") {
  const auto draws = [] {
    const Folder folder;
    Drawing runner((TinyConfig(folder)));
    runner.initialize();
    const auto later = torch::rand({}).item<float>();
    return dl::detail::concat(runner.drawn, " ", later);
  };
  const std::string one = draws();
  const auto two = as_two([&](int) { return draws(); });
  CHECK(two[0] == one);
  CHECK(two[1] != one);
  CHECK(two[1].substr(0, two[1].find(' ')) == one.substr(0, one.find(' ')));
}

TEST_CASE("ranks: the group is refused before they have met", "[runner]") {
  const auto texts = as_two([](int) {
    const Folder folder;
    TinyRunner runner((TinyConfig(folder)));
    const std::string early = error_of<dl::StateError>([&] { (void)runner.group(); });
    runner.initialize();
    return dl::detail::concat(early, "; ", runner.group().size());
  });
  danling_test::check_ranks(texts,
                            "[runner.group] expected a call after the 2 processes have met, in a hook from "
                            "init_distributed on or after initialize(), got one before; rank() and world_size() are "
                            "known in the constructor; 2");
}

TEST_CASE("ranks: a checkpoint that only one of them reaches is an error on all", "[runner]") {
  const Folder shared, other;
  const auto train = [&](int epochs, bool apart) {
    return as_two([&, apart](int rank) -> std::string {
      TinyConfig config(apart && rank == 1 ? other : shared);
      config.epochs = epochs;
      config.auto_resume = true;
      TinyRunner runner(config);
      try {
        runner.train();
      } catch (const dl::DistributedError& error) {
        return error.what();
      }
      return "trained";
    });
  };
  danling_test::check_ranks(train(1, false), "trained");
  for (const std::string& text : train(3, true)) {
    CHECK_THAT(text, StartsWith("[runner.auto_restore] expected all ranks at the same step, got in epoch 2, at step "));
    CHECK_THAT(text, ContainsSubstring("latest.pth on rank 0 and in epoch 1, at step 0 without a checkpoint on rank "
                                       "1; set workspace_root to a directory that all processes share"));
  }
}

TEST_CASE("ranks: pretrained weights that differ between them are an error on all", "[runner]") {
  const Folder folders[2];
  for (int which = 0; which < 2; ++which) {
    TinyConfig config(folders[which]);
    config.seed = which;
    config.epochs = 1;
    TinyRunner runner(config);
    runner.train();
    runner.close();
    fs::copy(find_file(folders[which], "model.pth"), folders[which].path() / "weights.pth");
  }
  const Folder run;
  const auto texts = as_two([&](int rank) {
    danling_test::expect(chdir(folders[rank].path().c_str()) == 0, "a directory");
    TinyConfig config(run);
    config.pretrained = "weights.pth";
    TinyRunner runner(config);
    return error_of<dl::DistributedError>([&] { runner.train(); });
  });
  for (const std::string& text : texts) {
    CHECK_THAT(text, StartsWith("[runner.auto_restore] expected the same weights on all ranks, got others "));
    CHECK_THAT(text, EndsWith("resume, pretrained and workspace_root must lead to the same files on all of them"));
  }
}

TEST_CASE("ranks: other splits or other kinds of metrics on one of them are an error on all before training",
          "[runner]") {
  const auto error_with = [](const std::function<void(TinyRunner&)>& change) {
    return as_two([&](int rank) {
      const Folder folder;
      TinyConfig config(folder);
      config.epochs = 1;
      TinyRunner runner(config);
      if (rank == 1) {
        change(runner);
      }
      return error_of<ConfigError>([&] { runner.train(); });
    });
  };
  danling_test::check_ranks(
      error_with([](TinyRunner& runner) { runner.datasets["test"] = Points{make_points(8, 0), false}; }),
      "[runner.train] expected the same splits on all ranks, got [train, val] on rank 0 and "
      "[train, test, val] on rank 1; set the same datasets in every process");
  const auto texts = error_with([](TinyRunner& runner) { runner.metrics = nullptr; });
  danling_test::check_ranks(texts, texts[0]);
  CHECK_THAT(texts[0],
             StartsWith("[runner.train] expected the same kinds of metrics on all ranks, got [metrics: danling::"));
  CHECK_THAT(texts[0], EndsWith(", criterion: torch::nn::CrossEntropyLossImpl] on rank 0 and [criterion: torch::nn::"
                                "CrossEntropyLossImpl] on rank 1; set the same metrics and losses in every process"));
}

TEST_CASE("ranks: one that does not see the directory of the run is named in the log", "[runner]") {
  const Folder shared;
  const auto texts = as_two([&](int rank) {
    const Folder own;
    TinyConfig config(own);
    config.workspace_root = "runs";
    config.epochs = 1;
    fs::current_path(rank == 0 ? shared.path() : own.path());
    TinyRunner runner(config);
    runner.train();
    runner.close();
    return rank == 0 ? read_file(runner.workspace().log_file()) : std::string();
  });
  CHECK_THAT(texts[0], ContainsSubstring("rank 1 does not see the run's directory "));
  CHECK_THAT(texts[0], ContainsSubstring(": its log is not written, and it could not resume; set workspace_root to a "
                                         "directory that all processes share"));
}

TEST_CASE("ranks: an error of one in initialize reaches the others with its words", "[runner]") {
  struct Unready : TinyRunner {
    using TinyRunner::TinyRunner;
    ~Unready() override { close(); }

   protected:
    void build_dataloaders() override {
      if (rank() == 1) {
        dl::detail::fail<dl::DataError>("reader", "expected data in train.csv, got none");
      }
      TinyRunner::build_dataloaders();
    }
  };
  const Folder folder;
  const auto texts = as_two([&](int rank) {
    Unready runner((TinyConfig(folder)));
    return rank == 1 ? error_of<dl::DataError>([&] { runner.initialize(); })
                     : error_of<dl::DistributedError>([&] { runner.initialize(); });
  });
  CHECK(texts[1] == "[reader] expected data in train.csv, got none");
  CHECK_THAT(texts[0], ContainsSubstring("rank 1: [reader] expected data in train.csv, got none"));
}

TEST_CASE("ranks: an error of one in an evaluation of the program reaches the others with its words", "[runner]") {
  const Folder folder;
  const auto texts = as_two([&](int rank) {
    TinyRunner runner((TinyConfig(folder)));
    runner.initialize();
    runner.before_evaluation_step = [rank](TinyRunner&, std::int64_t) {
      if (rank == 1) {
        dl::detail::fail<dl::DataError>("reader", "expected 3 columns, got 2");
      }
    };
    std::string text = "no error";
    try {
      runner.evaluate();
    } catch (const dl::Error& error) {
      text = error.what();
    }
    if (rank == 1) {  // as a program does that catches the error and lives on
      std::this_thread::sleep_for(std::chrono::seconds(2));
    }
    return text;
  });
  CHECK_THAT(texts[1], StartsWith("[reader] expected 3 columns, got 2"));
  CHECK_THAT(texts[0], ContainsSubstring("rank 1: [reader] expected 3 columns, got 2"));
}

TEST_CASE("ranks: evaluations of other splits are an error on all", "[runner]") {
  const Folder folder;
  danling_test::check_ranks(
      as_two([&](int rank) {
        TinyRunner runner((TinyConfig(folder)));
        const std::string error = error_of<ConfigError>([&] { runner.evaluate({rank == 0 ? "val" : "train"}); });
        return dl::detail::concat(error.substr(0, error.find(" with [")), "; then ", runner.evaluate({"val"}).size());
      }),
      "[runner.evaluate] expected the same split and kinds of metrics on all ranks, got 'val'; then 1");
}

TEST_CASE("ranks: a wrong message in the step of one reaches the others with its words", "[runner]") {
  const Folder folder;
  const auto texts = as_two([&](int rank) {
    TinyConfig config(folder);
    config.epochs = 1;
    TinyRunner runner(config);
    runner.before_step = [rank](TinyRunner& of, std::int64_t) {
      if (rank == 1) {
        of.group().send(torch::ones(3), 1);
      }
    };
    return error_of<dl::DistributedError>([&] { runner.train(); });
  });
  CHECK_THAT(texts[1], StartsWith("[group.send] expected another rank of 0 to 1, got 1 on rank 1; in train_step"));
  CHECK_THAT(texts[0], ContainsSubstring("rank 1: [group.send] expected another rank of 0 to 1, got 1 on rank 1"));
}

TEST_CASE("ranks: a last save that fails on the main one is an error of all, also in a program's own loop",
          "[runner]") {
  struct Breaking : dl::Callback {
    std::string name() const override { return "breaking"; }
    void on_round_end(const dl::RoundEvent& event) override {
      const fs::path checkpoints = event.runner.workspace().checkpoint_dir();
      if (event.runner.is_main_process()) {
        fs::remove_all(checkpoints);
        std::ofstream(checkpoints) << "not a directory";
      }
    }
  };
  for (const bool own_loop : {false, true}) {
    const Folder folder;
    const auto texts = as_two([&](int rank) {
      TinyConfig config(folder);
      config.epochs = own_loop ? std::optional<std::int64_t>() : 1;
      TinyRunner runner(config);
      runner.add(Breaking());
      try {
        if (own_loop) {
          runner.train_on_batch(make_points(4, 4 * rank));
          runner.finish_training();
        } else {
          runner.train();
        }
      } catch (const dl::Error& error) {
        return std::string(error.what());
      }
      return std::string("no error");
    });
    CHECK_THAT(texts[0], StartsWith("[checkpoint."));
    CHECK_THAT(texts[1], ContainsSubstring("rank 0: [checkpoint."));
  }
}

TEST_CASE("ranks: the last save may take longer than the time-out of training", "[runner]") {
  struct Slow : dl::Callback {
    std::string name() const override { return "slow"; }
    void on_save(const dl::SaveEvent& event) override {
      if (event.runner.is_main_process()) {
        std::this_thread::sleep_for(std::chrono::seconds(6));
      }
    }
  };
  const Folder folder;
  const auto texts = as_two([&](int) {
    TinyConfig config(folder);
    config.epochs = 1;
    config.comm.train_timeout_seconds = 4;
    TinyRunner runner(config);
    runner.add(Slow());
    runner.train();
    return dl::detail::concat("step ", runner.state().train.global_step);
  });
  danling_test::check_ranks(texts, "step 4");
}

}  // namespace
}  // namespace runner_test
