// init_method and backend of the config: where the processes of a run meet, and over what.
#include <cstdlib>
#include <limits>

#include <support/ranks.hpp>

#include "fixture.hpp"
#include "parse.hpp"
#include "printed.hpp"
#include "runner/process_config.hpp"

namespace runner_test {
namespace {

/// A rank of two that torchrun's agent started; it listens at its address.
dl::ProcessIdentity agent_identity() {
  dl::ProcessIdentity identity;
  identity.rank = 1;
  identity.world_size = 2;
  identity.master_address = "node1";
  identity.master_port = 29500;
  identity.launcher_hosts_store = true;
  return identity;
}

std::string place_of(const std::optional<std::string>& init_method, const std::string& variable = "") {
  dl::RunnerConfig config;
  config.init_method = init_method;
  const auto identity = dl::detail::apply_init_method(
      agent_identity(), config, [&](const std::string& name) -> std::optional<std::string> {
        return name == "INIT_METHOD" ? std::optional(variable) : std::nullopt;
      });
  CHECK(identity.rank == 1);
  CHECK(identity.world_size == 2);
  return dl::detail::concat(identity.master_address, " ", identity.master_port,
                            identity.launcher_hosts_store ? " agent" : "");
}

TEST_CASE("init_method: an address replaces the launcher's, whose store is at its own address alone", "[runner]") {
  CHECK(place_of(std::nullopt) == "node1 29500 agent");
  CHECK(place_of("env://") == "node1 29500 agent");
  CHECK(place_of("tcp://node1:29500") == "node1 29500 agent");
  CHECK(place_of("tcp://node1:29501") == "node1 29501");
  CHECK(place_of("tcp://10.0.0.2:29500") == "10.0.0.2 29500");
  CHECK(place_of("tcp://[::1]:7") == "::1 7");
  // DanLing's variable counts where the key is unset.
  CHECK(place_of(std::nullopt, "tcp://node2:7") == "node2 7");
  CHECK(place_of("env://", "tcp://node2:7") == "node1 29500 agent");
  CHECK(
      error_of<ConfigError>([] { place_of(std::nullopt, "file:///shared"); }) ==
      "[runner.init_distributed] expected the variable INIT_METHOD to be env:// or tcp://host:port with a port of 1 to "
      "65535, got 'file:///shared'");
}

TEST_CASE("init_method: another text is an error before any process waits", "[runner]") {
  for (const char* const text : {"file:///shared", "tcp://node1", "tcp://node1:0", "tcp://node1:65536", "tcp://:7",
                                 "tcp://node1:7/", "tcp://node1:seven", "tcp://::1:7", "tcp://[]:7", "node1:7", ""}) {
    CHECK(error_of_options("--init_method", text) ==
          dl::detail::concat(
              "[config.validate] expected 'init_method' to be env:// or tcp://host:port with a port of 1 to "
              "65535, got '",
              text, "'"));
  }
}

TEST_CASE("backend: gloo joins processes, and nccl is refused where several would use it", "[runner]") {
  dl::RunnerConfig config;
  parse_options(config, "--backend", "gloo");
  CHECK(dl::detail::apply_init_method(agent_identity(), config).master_address == "node1");
  parse_options(config, "--backend", "nccl");
  CHECK(dl::detail::apply_init_method(dl::ProcessIdentity(), config).world_size == 1);
  const std::string error = error_of<ConfigError>([&] { dl::detail::apply_init_method(agent_identity(), config); });
  CHECK(error ==
        std::string("[runner.init_distributed] expected 'backend: gloo', got 'nccl', ") +
            (at::hasCUDA()
                 ? "which this release does not join: create the process group with LibTorch, and "
                   "pass a Parallelism of your own over its dl::Group::from_process_group to set_parallelism in "
                   "an override of init_distributed"
                 : "which this LibTorch lacks: it is built without CUDA; unset 'backend'"));
  CHECK_THAT(error_of_options("--backend", "mpi"), StartsWith("[config.parse] expected one of gloo, nccl"));
}

TEST_CASE("timeouts of the config: a part of a millisecond waits, and no end is 20 days", "[runner]") {
  CHECK(dl::detail::timeout_of(0.5) == std::chrono::milliseconds(500));
  CHECK(dl::detail::timeout_of(1e-6) == std::chrono::milliseconds(1));
  for (const double seconds : {1e300, std::numeric_limits<double>::infinity()}) {
    CHECK(dl::detail::timeout_of(seconds) == std::chrono::hours(20 * 24));
  }
}

TEST_CASE("init_method: processes without MASTER_ADDR meet at the address of the config", "[runner]") {
  const Folder folder;
  const int port = danling_test::free_port();
  const auto texts = danling_test::run_processes(2, [&](int rank) {
    for (const char* const name : {"MASTER_ADDR", "MASTER_PORT", "INIT_METHOD"}) {
      unsetenv(name);
    }
    setenv("RANK", std::to_string(rank).c_str(), 1);
    setenv("WORLD_SIZE", "2", 1);
    TinyConfig config(folder);
    config.epochs = 1;
    config.backend = "gloo";
    config.init_method = dl::detail::concat("tcp://127.0.0.1:", port);
    TinyRunner runner(config);
    runner.train();
    return dl::detail::concat(runner.world_size(), " ranks, ", runner.parallelism().name(), ", step ",
                              runner.state().train.global_step);
  });
  danling_test::check_ranks(texts, "2 ranks, ddp, step 4");  // 25 records each in batches of 8
}

/// Returns the output and the status of `dl::run` in one of two ranks.
template <class Runner>
std::string run_as(int rank, int port, const Folder& folder, const std::string& seconds,
                   const std::string& console = "false", bool by_option = false) {
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", "2", 1);
  if (by_option) {
    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
  } else {
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
  }
  std::vector<std::string> words = {
      "program", "--workspace_root", folder.path().string(), "--comm.init_timeout_seconds", seconds, "--console",
      console};
  if (by_option) {
    words.insert(words.end(), {"--init_method", dl::detail::concat("tcp://127.0.0.1:", port)});
  }
  std::vector<char*> arguments;
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  int code = 0;
  const std::string printed =
      printed_by([&] { code = dl::run<Runner, TinyConfig>(static_cast<int>(words.size()), arguments.data()); });
  return dl::detail::concat(printed, "code ", code);
}

TEST_CASE("run: a constructor that throws on one rank ends the others with its words, not by their time-out",
          "[runner]") {
  struct Reader : TinyRunner {
    explicit Reader(const TinyConfig& config) : TinyRunner(config) {
      if (std::getenv("MISSING_ON") == dl::detail::concat(rank())) {
        dl::detail::fail<dl::DataError>("reader", "expected data in train.csv, got none");
      }
    }
  };
  const std::string told = "[reader] expected data in train.csv, got none\ncode 1";
  for (const int missing : {0, 1}) {
    const Folder folder;
    const int port = danling_test::free_port();
    const auto texts = danling_test::run_processes(2, [&](int rank) {
      setenv("MISSING_ON", std::to_string(missing).c_str(), 1);
      return run_as<Reader>(rank, port, folder, "600");
    });
    CHECK(texts[missing == 0 ? 0 : 1] == "error: " + told);
    CHECK(texts[missing == 0 ? 1 : 0] ==
          dl::detail::concat("error: [group.connect] expected all ranks to start, got an error on rank ", missing, ": ",
                             told));
  }
}

TEST_CASE("run: a wrong command line on one rank ends the others with its words, not by their time-out", "[runner]") {
  const std::string told =
      "[config.parse] expected a number or null for 'comm.init_timeout_seconds', got 'ten' (command line)\ncode 2";
  for (const int wrong : {0, 1}) {
    for (const bool by_option : {false, true}) {
      const Folder folder;
      const int port = danling_test::free_port();
      const auto texts = danling_test::run_processes(2, [&](int rank) {
        return run_as<TinyRunner>(rank, port, folder, rank == wrong ? "ten" : "600", "false", by_option);
      });
      CHECK(texts[wrong == 0 ? 0 : 1] == dl::detail::concat("error: ", told));
      CHECK(texts[wrong == 0 ? 1 : 0] ==
            dl::detail::concat("error: [group.connect] expected all ranks to start, got an error ", "on rank ", wrong,
                               ": wrong config: ", told));
    }
  }
}

TEST_CASE("run: a main process that waits for others says so before it gives up", "[runner]") {
  const Folder folder;
  const int port = danling_test::free_port();
  const auto texts =
      danling_test::run_processes(1, [&](int) { return run_as<TinyRunner>(0, port, folder, "7", "true"); });
  CHECK_THAT(texts[0], ContainsSubstring(dl::detail::concat("waits for the other processes of 2 at 127.0.0.1:", port,
                                                            ", for at most 7 s\n")));
  CHECK_THAT(texts[0], ContainsSubstring("got none of rank 1"));
}

}  // namespace
}  // namespace runner_test
