// The lock of a run's directory: other processes, other runners of the process, a directory that is removed.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include <danling/core/error.hpp>
#include <danling/workspace/workspace.hpp>

#include <support/child.hpp>
#include <support/error.hpp>
#include <support/temp_dir.hpp>

#include "workspace_in.hpp"

namespace workspace_test {

using danling_test::error_of;
using danling_test::read_file;

TEST_CASE("Workspace: two processes cannot run in one directory, and a dead one does not block it", "[workspace]") {
  const TempDir dir;
  danling_test::Child other([&](auto ready) {
    Workspace workspace(options_in(dir));
    workspace.open(false);
    danling_test::write_file(workspace.metrics_file(), "theirs\n");
    ready();
    pause();
    return 0;
  });
  other.wait_ready();
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  Workspace workspace(options_in(dir));
  for (const bool resuming : {false, true}) {
    CHECK(error_of<danling::StateError>([&] { workspace.open(resuming); }) ==
          "[workspace.lock] expected " + workspace.dir().string() + " to be free, got process " +
              std::to_string(other.pid()) + " on " + host +
              " running in it; wait for it, stop it, or change the config");
  }
  CHECK(read_file(workspace.metrics_file()) == "theirs\n");

  other.send(SIGKILL);
  CHECK(other.wait() == -SIGKILL);
  const auto moved = workspace.open(false);
  CHECK(read_file(moved / "metrics.jsonl") == "theirs\n");
}

TEST_CASE("Workspace: where a launcher started a program several times, the lock's message says it", "[workspace]") {
  const TempDir dir;
  danling_test::Child other([&](auto ready) {
    Workspace workspace(options_in(dir));
    workspace.open(false);
    ready();
    pause();
    return 0;
  });
  other.wait_ready();
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  ::setenv("PMIX_RANK", "1", 1);
  Workspace workspace(options_in(dir));
  const auto refusal = error_of<danling::StateError>([&] { workspace.open(false); });
  ::setenv("OMPI_COMM_WORLD_SIZE", "2", 1);  // Open MPI sets both
  const auto with_rank = error_of<danling::StateError>([&] { workspace.open(false); });
  ::unsetenv("OMPI_COMM_WORLD_SIZE");
  ::unsetenv("PMIX_RANK");
  const std::string text = "[workspace.lock] expected " + workspace.dir().string() + " to be free, got process " +
                           std::to_string(other.pid()) + " on " + host +
                           " running in it; wait for it, stop it, or change the config";
  CHECK(with_rank == text);
  CHECK(refusal == text +
                       "; PMIX_RANK=1 is not read as the rank of this process: set RANK and WORLD_SIZE, or "
                       "start it once");
}

TEST_CASE("Workspace: two in one process exclude each other until one is closed", "[workspace]") {
  const TempDir dir;
  Workspace first(options_in(dir));
  first.open(false);
  Workspace second(options_in(dir));
  CHECK(error_of<danling::StateError>([&] { second.open(true); }) ==
        "[workspace.lock] expected " + second.dir().string() +
            " to be free, got another runner of this process in it; close() that one first, or give one of them "
            "another lineage or workspace_root");
  CHECK_FALSE(second.is_open());
  first.close();
  first.close();
  second.open(true);
  CHECK(second.is_open());
  CHECK(error_of<danling::StateError>([&] { second.open(true); }) ==
        "[workspace.open] expected to be called once, got a second call for " + second.dir().string());
}

TEST_CASE("Workspace: a directory that was removed while it is open is taken again, and locked", "[workspace]") {
  const TempDir dir;
  Workspace first(options_in(dir));
  first.open(/*resuming=*/true);
  CHECK(first.reopen().empty());
  fs::path gone;
  SECTION("removed") {
    gone = first.dir();
    fs::remove_all(gone);
  }
  SECTION("moved away") {
    gone = first.dir();
    fs::rename(gone, dir / "elsewhere");
  }
  SECTION("its lock alone") {
    gone = first.dir() / ".lock";
    fs::remove(gone);
  }
  CHECK(first.reopen() == gone);
  CHECK(first.reopen().empty());
  CHECK(fs::is_directory(first.dir() / "logs"));
  CHECK(fs::is_directory(first.dir() / "metadata"));
  CHECK_THAT(read_file(first.dir() / ".lock"), ContainsSubstring("timestamp: " + first.timestamp() + "\n"));
  Workspace second(options_in(dir));
  CHECK_THROWS_AS(second.open(/*resuming=*/true), danling::StateError);
  // Whoever finds another one there gives it up.
  fs::remove_all(first.dir());
  second.open(/*resuming=*/true);
  CHECK_THROWS_AS(first.reopen(), danling::StateError);
  CHECK_FALSE(first.is_open());
  CHECK(first.reopen().empty());
  CHECK(second.reopen().empty());
}

}  // namespace workspace_test
