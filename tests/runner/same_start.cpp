// What the ranks of a run must have alike when it begins: draws of the constructor, weights, the step.
#include <unistd.h>

#include <cstdlib>

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
    return dl::concat(runner.drawn, " ", later);
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
    return dl::concat(early, "; ", runner.group().size());
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

TEST_CASE("ranks: an error of one in initialize reaches the others with its words", "[runner]") {
  struct Unready : TinyRunner {
    using TinyRunner::TinyRunner;
    ~Unready() override { close(); }

   protected:
    void build_dataloaders() override {
      if (rank() == 1) {
        dl::fail<dl::DataError>("reader", "expected data in train.csv, got none");
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

}  // namespace
}  // namespace runner_test
