// The directory of a run: its name, earlier attempts, places that cannot be written.
#include <danling/workspace/workspace.hpp>

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include <danling/core/error.hpp>

#include <support/child.hpp>
#include <support/error.hpp>
#include <support/temp_dir.hpp>

#include "workspace_in.hpp"

namespace workspace_test {

using danling_test::error_of;
using danling_test::read_file;

TEST_CASE("Workspace: the directory is named after lineage, code and config", "[workspace]") {
  const TempDir dir;
  auto options = options_in(dir);
  options.timestamp = "20260102-030405-000006";
  const Workspace workspace(options);
  const fs::path run = dir / "experiments/lin-1234abcd/1234abcd-0123456789ab";
  CHECK(workspace.id() == "1234abcd-0123456789ab");
  CHECK(workspace.dir() == run);
  CHECK(workspace.checkpoint_dir() == run / "checkpoints");
  CHECK(workspace.log_file() == run / "logs/20260102-030405-000006.log");
  CHECK(workspace.metrics_file() == run / "metrics.jsonl");
  CHECK_FALSE(fs::exists(dir / "experiments"));

  CHECK(Workspace(options_in(dir, "")).dir() == dir / "experiments/lin/0123456789ab");
  CHECK(Workspace(options_in(dir)).timestamp() != Workspace(options_in(dir)).timestamp());
}

TEST_CASE("Workspace: names that cannot be folders are refused", "[workspace]") {
  const TempDir dir;
  const auto refusal = [&](auto change) {
    auto options = options_in(dir);
    change(options);
    return error_of<danling::ConfigError>([&] { Workspace workspace(options); });
  };
  CHECK(refusal([](auto& o) { o.root = ""; }) == "[workspace.options] expected workspace_root to be a path, got ''");
  CHECK(refusal([](auto& o) { o.lineage = "a/b"; }) ==
        "[workspace.options] expected lineage to be a folder's name, got 'a/b'");
  CHECK(refusal([](auto& o) { o.config_id = ""; }) ==
        "[workspace.options] expected the config's id to be a folder's name, got ''");
  for (const char* name : {"", "/tmp/x", "../x", "a/../../x", ".", "a/"}) {
    CHECK(refusal([&](auto& o) { o.checkpoint_dir_name = name; }) ==
          "[workspace.options] expected checkpoint.dir_name to be a folder inside the run's directory, got '" +
              std::string(name) + "'");
  }
  for (const char* name : {"logs", "attempts/x", "metadata", "bad_batches", ".lock"}) {
    CHECK(refusal([&](auto& o) { o.checkpoint_dir_name = name; }) ==
          "[workspace.options] expected a checkpoint.dir_name that no other file of a run has, got '" +
              std::string(name) + "'");
  }
}

TEST_CASE("Workspace: a fresh start moves an earlier attempt aside, whole", "[workspace]") {
  const TempDir dir;
  auto options = options_in(dir);
  options.timestamp = "20260101-000000-000001";
  Workspace first(options);
  CHECK(first.open(false).empty());
  danling_test::write_file(first.checkpoint_dir() / "latest.pth", "weights");
  danling_test::write_file(first.metrics_file(), "{}\n");
  danling_test::write_file(first.dir() / "notes/mine.txt", "mine");
  first.close();

  options.timestamp = "20260101-000000-000002";
  Workspace second(options);
  const auto moved = second.open(false);
  CHECK(moved == second.dir() / "attempts/20260101-000000-000001");
  CHECK(read_file(moved / "checkpoints/latest.pth") == "weights");
  CHECK(read_file(moved / "metrics.jsonl") == "{}\n");
  CHECK(read_file(moved / "notes/mine.txt") == "mine");
  CHECK(fs::is_empty(second.checkpoint_dir()));
  CHECK_FALSE(fs::exists(second.metrics_file()));
  CHECK_FALSE(fs::exists(second.dir() / "notes"));
  second.close();

  // A third attempt must not touch the first, even when all carry one timestamp.
  Workspace third(options);
  CHECK(third.open(false) == third.dir() / "attempts/20260101-000000-000002");
  third.close();
  Workspace fourth(options);
  CHECK(fourth.open(false) == fourth.dir() / "attempts/20260101-000000-000002-2");
  CHECK(read_file(moved / "checkpoints/latest.pth") == "weights");
}

/// Leaves the files of an attempt; returns its directory.
fs::path leave_attempt(const danling::WorkspaceOptions& options) {
  Workspace workspace(options);
  workspace.open(false);
  danling_test::write_file(workspace.checkpoint_dir() / "latest.pth", "weights");
  danling_test::write_file(workspace.metrics_file(), "{}\n");
  workspace.close();
  return workspace.dir();
}

TEST_CASE("Workspace: a move that a crash cut short is completed into one attempt", "[workspace]") {
  const TempDir dir;
  auto options = options_in(dir);
  options.timestamp = "20260101-000000-000001";
  const fs::path left = leave_attempt(options);
  // The state of the directory after a kill between two renamings.
  fs::create_directories(left / "attempts/.moving");
  fs::rename(left / "checkpoints", left / "attempts/.moving/checkpoints");

  options.timestamp = "20260101-000000-000002";
  Workspace second(options);
  const auto moved = second.open(false);
  CHECK(moved == second.dir() / "attempts/20260101-000000-000001");
  CHECK(read_file(moved / "checkpoints/latest.pth") == "weights");
  CHECK(read_file(moved / "metrics.jsonl") == "{}\n");
  CHECK_FALSE(fs::exists(second.dir() / "attempts/.moving"));
}

TEST_CASE("Workspace: a resumed attempt takes back what an interrupted move has moved", "[workspace]") {
  const TempDir dir;
  auto options = options_in(dir);
  options.timestamp = "20260101-000000-000001";
  const fs::path left = leave_attempt(options);
  fs::create_directories(left / "attempts/.moving");
  fs::rename(left / "metrics.jsonl", left / "attempts/.moving/metrics.jsonl");

  options.timestamp = "20260101-000000-000002";
  Workspace second(options);
  CHECK(second.open(true).empty());
  CHECK(read_file(second.metrics_file()) == "{}\n");
  CHECK_FALSE(fs::exists(second.dir() / "attempts/.moving"));
  second.close();

  // A file of this name was written meanwhile: both stay.
  fs::create_directories(left / "attempts/.moving");
  danling_test::write_file(left / "attempts/.moving/metrics.jsonl", "[1]\n");
  options.timestamp = "20260101-000000-000003";
  Workspace third(options);
  third.open(true);
  CHECK(read_file(third.metrics_file()) == "{}\n");
  CHECK(read_file(third.dir() / "attempts/20260101-000000-000002/metrics.jsonl") == "[1]\n");
}

TEST_CASE("Workspace: a resumed attempt keeps everything where it is", "[workspace]") {
  const TempDir dir;
  Workspace first(options_in(dir));
  first.open(false);
  danling_test::write_file(first.checkpoint_dir() / "latest.pth", "weights");
  first.close();
  Workspace second(options_in(dir));
  CHECK(second.open(true).empty());
  CHECK(read_file(second.checkpoint_dir() / "latest.pth") == "weights");
  CHECK_FALSE(fs::exists(second.dir() / "attempts"));
}

TEST_CASE("Workspace: what a process that died in a write left is removed when the run goes on", "[workspace]") {
  const TempDir dir;
  Workspace first(options_in(dir));
  first.open(false);
  danling_test::write_file(first.dir() / ".best.json.tmp-123-4", "{");
  danling_test::write_file(first.dir() / "metadata/.git.yaml.tmp-123-5", "");
  danling_test::write_file(first.dir() / "best.json", "{}");
  danling_test::write_file(first.dir() / ".notes", "a user's own");
  first.close();
  Workspace second(options_in(dir));
  second.open(true);
  CHECK_FALSE(fs::exists(second.dir() / ".best.json.tmp-123-4"));
  CHECK_FALSE(fs::exists(second.dir() / "metadata/.git.yaml.tmp-123-5"));
  CHECK(read_file(second.dir() / "best.json") == "{}");
  CHECK(read_file(second.dir() / ".notes") == "a user's own");
}

TEST_CASE("Workspace: holds what lies in it, but not earlier attempts nor a neighbour", "[workspace]") {
  const TempDir dir;
  Workspace workspace(options_in(dir));
  workspace.open(false);
  CHECK(workspace.contains(workspace.checkpoint_dir() / "latest.pth"));
  CHECK(workspace.contains(workspace.dir() / "checkpoints/../checkpoints/latest.pth"));
  CHECK_FALSE(workspace.contains(workspace.dir() / "attempts/x/checkpoints/latest.pth"));
  CHECK_FALSE(workspace.contains(workspace.dir().string() + "0/checkpoints/latest.pth"));
  CHECK_FALSE(workspace.contains(dir / "latest.pth"));
  fs::create_directory_symlink(workspace.dir(), dir / "link");
  CHECK(workspace.contains(dir / "link/checkpoints/latest.pth"));
}

TEST_CASE("Workspace: a place that cannot be written is one clear error", "[workspace]") {
  const TempDir dir;
  danling_test::write_file(dir / "experiments", "a file");
  Workspace workspace(options_in(dir));
  CHECK(error_of<danling::ConfigError>([&] { workspace.open(false); }) ==
        "[workspace.create] expected a directory that can be written, got 'Not a directory' for " +
            workspace.dir().string() + "; set workspace_root to another one");
  auto options = options_in(dir);
  options.root = "/proc/danling";
  CHECK(error_of<danling::ConfigError>([&] { Workspace(options).open(false); }) ==
        "[workspace.create] expected a directory that can be written, got 'No such file or directory' for "
        "/proc/danling/lin-1234abcd/1234abcd-0123456789ab; set workspace_root to another one");
}

TEST_CASE("Workspace: a directory that may not be written is one clear error", "[workspace]") {
  const TempDir dir;
  fs::permissions(dir.path(), static_cast<fs::perms>(0555));
  danling_test::Child child([&](auto) {
    // Root may write anywhere, unless it gives up what makes it root; in a container it may be the only user.
    __user_cap_header_struct version = {_LINUX_CAPABILITY_VERSION_3, 0};
    const __user_cap_data_struct none[2] = {};
    if (syscall(SYS_capset, &version, none) != 0) {
      return 1;
    }
    Workspace workspace(options_in(dir));
    const auto text = error_of<danling::ConfigError>([&] { workspace.open(false); });
    return text == "[workspace.create] expected a directory that can be written, got 'Permission denied' for " +
                       workspace.dir().string() + "; set workspace_root to another one"
               ? 0
               : 2;
  });
  CHECK(child.wait() == 0);
  fs::permissions(dir.path(), fs::perms::owner_all);
}

TEST_CASE("Workspace: the source of an interrupted start is that of the attempt that was moved, whatever its name",
          "[workspace]") {
  const TempDir dir;
  auto options = options_in(dir);
  // The second attempt began when the clock was an hour behind: its name sorts before that of the first.
  for (const char* began : {"20260101-120000-000000", "20260101-110000-000000"}) {
    options.timestamp = began;
    Workspace attempt(options);
    attempt.open(/*resuming=*/false);
    danling_test::write_file(attempt.checkpoint_dir() / "ckpt-e000003.pth", began);
  }
  options.timestamp = "20260101-113000-000000";
  {
    Workspace dying(options);
    dying.open(/*resuming=*/false, dying.checkpoint_dir() / "ckpt-e000003.pth");
  }
  const auto source = Workspace(options).interrupted_source();
  CHECK(danling_test::read_file(source) == "20260101-110000-000000");
  // Another one dies with a source that lies in an earlier attempt.
  const auto first = source.parent_path().parent_path().parent_path() / "20260101-120000-000000" / "checkpoints";
  {
    Workspace dying(options);
    danling_test::write_file(dying.checkpoint_dir() / "ckpt-e000003.pth", "the present one");
    dying.open(/*resuming=*/false, first / "ckpt-e000003.pth");
  }
  CHECK(Workspace(options).interrupted_source() == first / "ckpt-e000003.pth");
}

}  // namespace workspace_test
