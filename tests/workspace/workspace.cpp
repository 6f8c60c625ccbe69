#include <danling/workspace/workspace.hpp>

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cmath>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>
#include <danling/workspace/timestamp.hpp>

#include <support/child.hpp>
#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

using danling::Workspace;
using danling::WorkspaceOptions;
using danling_test::error_of;
using danling_test::read_file;

WorkspaceOptions options_in(const TempDir& dir, const std::string& code_id = "1234abcd") {
  WorkspaceOptions options;
  options.root = (dir / "experiments").string();
  options.code_id = code_id;
  options.config_id = "0123456789ab";
  options.name = "lin-exp";
  return options;
}

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
  for (const char* name : {"logs", "attempts/x", "metadata", ".lock"}) {
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

TEST_CASE("Workspace: a move that a crash cut short is completed into one attempt", "[workspace]") {
  const TempDir dir;
  auto options = options_in(dir);
  options.timestamp = "20260101-000000-000001";
  Workspace first(options);
  first.open(false);
  danling_test::write_file(first.checkpoint_dir() / "latest.pth", "weights");
  danling_test::write_file(first.metrics_file(), "{}\n");
  first.close();
  // What a kill between two renamings leaves.
  fs::create_directories(first.dir() / "attempts/.moving");
  fs::rename(first.checkpoint_dir(), first.dir() / "attempts/.moving/checkpoints");

  options.timestamp = "20260101-000000-000002";
  Workspace second(options);
  const auto moved = second.open(false);
  CHECK(moved == second.dir() / "attempts/20260101-000000-000001");
  CHECK(read_file(moved / "checkpoints/latest.pth") == "weights");
  CHECK(read_file(moved / "metrics.jsonl") == "{}\n");
  CHECK_FALSE(fs::exists(second.dir() / "attempts/.moving"));
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

TEST_CASE("Workspace: metadata holds the config's texts and the code's state", "[workspace]") {
  const TempDir dir;
  auto options = options_in(dir, "1234abcd-d0123456789");
  options.timestamp = "20260102-030405-000006";
  Workspace workspace(options);
  danling::CodeIdentity code;
  code.id = options.code_id;
  code.commit = "1234abcd00000000000000000000000000000000";
  code.dirty = true;
  code.diff = "--- a/x\n+++ b/x\n";
  CHECK(error_of<danling::StateError>([&] { workspace.write_metadata("", "", "", code); }) ==
        "[workspace.write_metadata] expected an open workspace, got a closed one; call open() first");
  workspace.open(false);
  workspace.write_metadata("full: 1\n", "canonical: 2\n", "diff: 3\n", code);
  const auto folder = workspace.dir() / "metadata";
  CHECK(read_file(folder / "config.full.yaml") == "full: 1\n");
  CHECK(read_file(folder / "config.canonical.yaml") == "canonical: 2\n");
  CHECK(read_file(folder / "config.diff.yaml") == "diff: 3\n");
  CHECK(read_file(folder / "git.yaml") ==
        "commit: \"1234abcd-d0123456789\"\n"
        "revision: \"1234abcd00000000000000000000000000000000\"\n"
        "dirty: true\n"
        "id: \"1234abcd-d0123456789-0123456789ab\"\n"
        "timestamp: \"20260102-030405-000006\"\n"
        "problem: null\n");
  CHECK(read_file(folder / "git.diff") == code.diff);

  code.dirty = false;
  code.diff.clear();
  workspace.write_metadata("", "", "", code);
  CHECK_FALSE(fs::exists(folder / "git.diff"));
}

TEST_CASE("Workspace: results.json, latest.json and best.json as DanLing names their keys", "[workspace]") {
  const TempDir dir;
  auto options = options_in(dir);
  options.timestamp = "t";
  Workspace workspace(options);
  workspace.open(false);
  danling::Result zero;
  zero["val"].set("loss", 0.5);
  danling::Result one;
  one["val"].set("loss", 0.1234567891);
  one["val"].set("matrix", danling::Result::Array{.shape = {2, 2}, .values = {1, 0, 0.1234567891, 2}});
  std::vector<danling::NumberedResult> book = {{1, zero}};
  workspace.write_results(book, book.back(), &book.back());
  book.push_back({2, one});
  workspace.write_results(book, book.back(), nullptr);

  const auto parse = [&](const char* name) {
    return nlohmann::ordered_json::parse(read_file(workspace.dir() / name)).dump();
  };
  const std::string head = R"({"name":"lin-exp","id":"1234abcd-0123456789ab","timestamp":"t",)";
  CHECK(
      parse("results.json") ==
      head +
          R"("results":{"1":{"val":{"loss":0.5}},"2":{"val":{"loss":0.12345679,"matrix":[[1.0,0.0],[0.12345679,2.0]]}}}})");
  CHECK(parse("latest.json") == head + R"("val":{"loss":0.12345679,"matrix":[[1.0,0.0],[0.12345679,2.0]]},"index":2})");
  CHECK(parse("best.json") == head + R"("val":{"loss":0.5},"index":1})");
}

TEST_CASE("Workspace: summary.json tells how an attempt ended", "[workspace]") {
  const TempDir dir;
  Workspace workspace(options_in(dir));
  workspace.open(false);
  danling::RunSummary summary;
  summary.status = "crashed";
  summary.error = "[data.read] expected \"x\"\nsecond line";
  summary.exit_code = 1;
  summary.epoch = 3;
  summary.global_step = 1200;
  summary.seconds = 1.5;
  summary.facts = {{"best_index", std::int64_t{3}}, {"tested", "best"}};
  summary.details.set("best_score", std::nan(""));
  workspace.write_summary(summary);
  const auto json = nlohmann::json::parse(read_file(workspace.dir() / "summary.json"));
  CHECK(json["status"] == "crashed");
  CHECK(json["error"] == summary.error);
  CHECK(json["signal"].is_null());
  CHECK(json["exit_code"] == 1);
  CHECK(json["epoch"] == 3);
  CHECK(json["global_step"] == 1200);
  CHECK(json["seconds"] == 1.5);
  CHECK(json["pid"] == getpid());
  CHECK(json["dir"] == workspace.dir().string());
  CHECK(json["log_file"] == workspace.log_file().string());
  CHECK(json["details"].dump() == R"({"best_index":3,"best_score":"NaN","tested":"best"})");

  summary = {};
  summary.status = "stopped";
  summary.signal = 15;
  summary.exit_code = 143;
  workspace.write_summary(summary);
  const auto stopped = nlohmann::json::parse(read_file(workspace.dir() / "summary.json"));
  CHECK(stopped["signal"] == 15);
  CHECK(stopped["error"].is_null());
}

TEST_CASE("find_runs: every code identity of a config, the last written first", "[workspace]") {
  const TempDir dir;
  CHECK(danling::find_runs(options_in(dir)).empty());
  const auto make = [&](const std::string& lineage, const std::string& code, const std::string& config, int age) {
    auto options = options_in(dir, code);
    options.lineage = lineage;
    options.config_id = config;
    const Workspace workspace(options);
    fs::create_directories(workspace.checkpoint_dir());
    const auto time = fs::file_time_type::clock::now() - std::chrono::hours(age);
    fs::last_write_time(workspace.checkpoint_dir(), time);
    fs::last_write_time(workspace.dir(), time - std::chrono::hours(100));
  };
  make("lin", "aaaaaaaa", "0123456789ab", 3);
  make("lin", "bbbbbbbb-d0123456789", "0123456789ab", 1);
  make("lin", "", "0123456789ab", 2);
  make("lin", "aaaaaaaa", "ffffffffffff", 0);
  // Another lineage whose name starts the same.
  make("lin-two", "cccccccc", "0123456789ab", 0);
  make("lin-two", "", "0123456789ab", 0);

  const auto found = danling::find_runs(options_in(dir));
  REQUIRE(found.size() == 3);
  CHECK(found[0].code_id == "bbbbbbbb-d0123456789");
  CHECK(found[1].code_id.empty());
  CHECK(found[2].code_id == "aaaaaaaa");
  CHECK(found[2].dir == dir / "experiments/lin-aaaaaaaa/aaaaaaaa-0123456789ab");
}

TEST_CASE("find_runs: the attempt that began last goes first, whatever the times of copied directories",
          "[workspace]") {
  const TempDir dir;
  for (const auto& [code, began] :
       {std::pair("aaaaaaaa", "20260102-000000-000000"), std::pair("bbbbbbbb", "20260101-000000-000000")}) {
    auto options = options_in(dir, code);
    options.timestamp = began;
    Workspace workspace(options);
    workspace.open(/*resuming=*/false);
    workspace.write_metadata("a: 1\n", "a: 1\n", "{}\n", {});
    fs::create_directories(workspace.checkpoint_dir());
    const auto copied = fs::file_time_type::clock::now() - std::chrono::hours(code[0] == 'a' ? 3 : 1);
    fs::last_write_time(workspace.checkpoint_dir(), copied);
    fs::last_write_time(workspace.dir(), copied);
  }
  const auto found = danling::find_runs(options_in(dir));
  REQUIRE(found.size() == 2);
  CHECK(found[0].code_id == "aaaaaaaa");
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

}  // namespace
