#include <danling/workspace/run_directory.hpp>

#include <cmath>
#include <filesystem>
#include <limits>

#include <danling/core/error.hpp>
#include <danling/workspace/timestamp.hpp>
#include <danling/workspace/workspace.hpp>

#include <support/child.hpp>
#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

namespace fs = std::filesystem;

using danling::CodeIdentity;
using danling::LockInfo;
using danling::NumberedResult;
using danling::Result;
using danling::RunDirectory;
using danling::RunSummary;
using danling::Workspace;
using danling_test::TempDir;
using danling_test::write_file;

danling::WorkspaceOptions recorded_options(const TempDir& dir,
                                           const std::string& timestamp = "20260102-030405-000006") {
  danling::WorkspaceOptions options;
  options.root = (dir / "experiments").string();
  options.code_id = "1234abcd";
  options.config_id = "0123456789ab";
  options.timestamp = timestamp;
  options.checkpoint_dir_name = "saved";
  return options;
}

constexpr const char* run_config =
    "epochs: 20\nscore_split: null\nscore_name: acc\nscore_mode: null\ntrain_splits: null\noptim:\n  type: adamw\n"
    "  lr: 0.003\ntest_splits: [test]\ncheckpoint:\n  dir_name: saved\nparts:\n- name: a\n- name: b\nname: 'x: y'\n";

Workspace recorded_run(const TempDir& dir) {
  Workspace workspace(recorded_options(dir));
  workspace.open(false);
  CodeIdentity code;
  code.commit = "1234abcd00000000000000000000000000000000";
  code.dirty = true;
  code.diff = "a patch\n";
  workspace.write_metadata(run_config, "optim:\n  lr: 0.003\n", "epochs: 20\n", code);
  const auto row = [](std::int64_t index, double loss, double acc) {
    NumberedResult out{index, {}};
    out.result["train"].set("loss", loss);
    out.result["val"].set("acc", acc);
    out.result["val"].set("table", Result::Array{{2, 2}, {1, 2, 3, 4}});
    out.result["val"].set("list", std::vector<double>{5, 6});
    return out;
  };
  const auto best = row(1, std::numeric_limits<double>::infinity(), 0.75);
  workspace.write_results({best, row(2, 0.5, NAN)}, row(2, 0.5, NAN), &best);
  RunSummary summary;
  summary.status = "crashed";
  summary.error = "no luck";
  summary.exit_code = 1;
  summary.global_step = 40;
  summary.seconds = 1.5;
  summary.facts = {{"best_index", std::int64_t{1}}, {"test_weights", std::string("last")}};
  summary.details["best"] = best.result;
  workspace.write_summary(summary);
  write_file(workspace.metrics_file(),
             "{\"split\":\"train\",\"mode\":\"train\",\"epoch\":0,\"global_step\":20,\"loss\":1}\n"
             "{\"split\":\"val\",\"mode\":\"evaluate\",\"epoch\":1,\"global_step\":40,\"acc\":1}\n{\"split\":\"tr");
  write_file(workspace.checkpoint_dir() / "latest.pth", "0123");
  fs::create_hard_link(workspace.checkpoint_dir() / "latest.pth", workspace.checkpoint_dir() / "best.pth");
  write_file(workspace.checkpoint_dir() / ".latest.pth.tmp-1-1", "half");
  write_file(workspace.checkpoint_dir() / "notes.txt", "none");
  return workspace;
}

TEST_CASE("RunDirectory: reads back what a workspace has written", "[workspace]") {
  const TempDir dir;
  auto workspace = recorded_run(dir);
  const RunDirectory run(workspace.dir());
  CHECK(run.id() == "1234abcd-0123456789ab");
  CHECK(run.folder() == "lin-1234abcd");
  CHECK(run.lineage() == "lin");
  CHECK(run.config()->at("optim").at("lr").number() == 0.003);
  CHECK(run.config(RunDirectory::ConfigText::diff)->at("epochs").integer() == 20);
  CHECK(*run.config_text(RunDirectory::ConfigText::canonical) == "optim:\n  lr: 0.003\n");

  const auto code = run.code_identity(/*with_diff=*/true);
  CHECK(code->code.id == "1234abcd");
  CHECK(code->code.commit == "1234abcd00000000000000000000000000000000");
  CHECK(code->code.dirty);
  CHECK(code->code.diff == "a patch\n");
  CHECK(code->timestamp == "20260102-030405-000006");

  const auto rows = run.results();
  REQUIRE(rows->size() == 2);
  CHECK((*rows)[0].number == 1);
  CHECK(std::isinf(*(*rows)[0].result.number("train.loss")));
  CHECK(std::isnan(*(*rows)[1].result.number("val.acc")));
  CHECK(*(*rows)[1].result.number("val.table.1.0") == 3);
  CHECK(*(*rows)[1].result.number("val.list.1") == 6);
  CHECK(run.latest()->number == 2);
  CHECK(run.best()->number == 1);
  CHECK_FALSE(run.best()->result.contains("index"));
  CHECK_FALSE(run.best()->result.contains("name"));

  const auto summary = run.summary();
  CHECK(summary->name == "lin-exp");
  CHECK(summary->run.status == "crashed");
  CHECK(summary->run.error == "no luck");
  CHECK(summary->run.signal == 0);
  CHECK(summary->run.exit_code == 1);
  CHECK(summary->run.global_step == 40);
  CHECK(summary->run.seconds == 1.5);
  CHECK(summary->pid == getpid());
  CHECK(summary->run.facts.size() == 2);
  CHECK(*summary->run.details.number("best.val.acc") == 0.75);

  // The line behind the last line end is being written.
  CHECK(run.last_line()->split == "val");
  CHECK(run.last_line()->epoch == 1);
  CHECK(run.last_line()->global_step == 40);

  const auto files = run.checkpoints();
  REQUIRE(files.size() == 2);
  CHECK(files[0].path.filename() == "best.pth");
  CHECK(files[0].inode == files[1].inode);
  CHECK(files[1].bytes == 4);
  CHECK(danling::is_run_directory(workspace.dir()));
}

TEST_CASE("RunDirectory: a process that holds the lock runs there, until it ends", "[workspace]") {
  const TempDir dir;
  auto workspace = recorded_run(dir);
  const RunDirectory run(workspace.dir());
  CHECK(run.lock().state == LockInfo::State::held);
  CHECK(run.lock().pid == getpid());
  CHECK(run.lock().timestamp == "20260102-030405-000006");
  CHECK(danling::run_status(run.lock(), run.summary(), run.last_line()) == "running");
  workspace.close();
  CHECK(run.lock().state == LockInfo::State::free);
  CHECK(danling::run_status(run.lock(), run.summary(), run.last_line()) == "crashed");
}

TEST_CASE("RunDirectory: an attempt that ended without a summary is dead", "[workspace]") {
  const TempDir dir;
  auto workspace = recorded_run(dir);
  RunSummary summary;
  summary.status = "finished";
  summary.global_step = 40;
  workspace.write_summary(summary);
  workspace.close();
  Workspace again(recorded_options(dir, "20260102-040000-000000"));
  again.open(/*resuming=*/true);
  again.close();
  const RunDirectory run(again.dir());
  // It found nothing to do, and kept the summary of the attempt that finished.
  CHECK(danling::run_status(run.lock(), run.summary(), run.last_line()) == "finished");
  write_file(again.metrics_file(), "{\"split\":\"train\",\"epoch\":2,\"global_step\":41}\n");
  CHECK(danling::run_status(run.lock(), run.summary(), run.last_line()) == "dead");
  fs::remove(again.dir() / "summary.json");
  CHECK(danling::run_status(run.lock(), run.summary(), run.last_line()) == "dead");
}

TEST_CASE("Workspace: opens while others look whether its lock is free", "[workspace]") {
  const TempDir dir;
  Workspace(recorded_options(dir)).open(false);
  const RunDirectory run(Workspace(recorded_options(dir)).dir());
  const danling_test::Child looker([&](const auto&) {
    for (;;) {
      run.lock();
    }
    return 0;
  });
  for (int i = 0; i < 300; ++i) {
    Workspace(recorded_options(dir)).open(true);
  }
}

TEST_CASE("RunDirectory: files that are missing, half written or of another form are facts with a reason",
          "[workspace]") {
  const TempDir dir;
  const fs::path path = dir / "experiments/lin/0123456789ab";
  const RunDirectory run(path);
  CHECK(run.summary().problem == "no file '" + (path / "summary.json").string() + "'");
  CHECK(run.config().problem == "no file '" + (path / "metadata/config.full.yaml").string() + "'");
  CHECK(run.last_line().problem == "no file '" + (path / "metrics.jsonl").string() + "'");
  CHECK(run.lock().state == LockInfo::State::free);
  CHECK(run.checkpoints().empty());
  CHECK(run.attempts().empty());
  CHECK(run.bytes() == 0);
  CHECK_FALSE(danling::is_run_directory(path));

  write_file(path / "summary.json", "{\"status\": \"fini");
  write_file(path / "results.json", "");
  write_file(path / "best.json", "{\"val\": {\"acc\": 1}}");
  write_file(path / "metrics.jsonl", "{\"split\":\"train\"");
  write_file(path / "metadata/config.full.yaml", "a: [1");
  write_file(path / "metadata/git.yaml", "- a list");
  CHECK(run.summary().problem ==
        "expected a JSON object in '" + (path / "summary.json").string() + "', got other or truncated text");
  CHECK(run.results().problem ==
        "expected a JSON object in '" + (path / "results.json").string() + "', got an empty file");
  CHECK(run.best().problem == "expected an index in '" + (path / "best.json").string() + "', got none");
  CHECK(run.last_line().problem ==
        "expected a complete line of JSON at the end of '" + (path / "metrics.jsonl").string() + "', got none");
  CHECK_THAT(run.config().problem, ContainsSubstring("config.full.yaml"));
  CHECK(run.code_identity().problem ==
        "expected a mapping in '" + (path / "metadata/git.yaml").string() + "', got a list");
  CHECK_FALSE(danling::is_run_directory(path));

  // Of a newer version: what is known is read.
  write_file(path / "summary.json", "{\"status\": \"paused\", \"epoch\": \"three\", \"new\": [1, {\"a\": 2}]}");
  write_file(path / "metrics.jsonl", "{\"split\":7,\"epoch\":null,\"global_step\":12,\"new\":{}}\n");
  CHECK(run.summary()->run.status == "paused");
  CHECK(run.summary()->run.epoch == 0);
  CHECK(run.last_line()->global_step == 12);
  CHECK_FALSE(run.last_line()->epoch);
}

TEST_CASE("RunDirectory: its log file is the newest of the first rank", "[workspace]") {
  const TempDir dir;
  fs::create_directories(dir / "logs");
  const RunDirectory run(dir.path());
  write_file(dir / "logs/20260102-030405-000006.rank1.log", "");
  CHECK(!run.log_file());
  for (const char* name : {"20260102-030405-000006.log", "20260102-030405-000006.1.log", "20260101-000000-000000.log",
                           "20260102-030405-000006.txt"}) {
    write_file(dir / "logs" / name, "");
  }
  CHECK(run.log_file() == dir / "logs/20260102-030405-000006.log");
}

TEST_CASE("RunDirectory: a last line longer than a block is found", "[workspace]") {
  const TempDir dir;
  for (const std::size_t length : {100, 4096, 70000, 1100000}) {
    write_file(dir / "metrics.jsonl",
               "{\"global_step\":1}\n{\"global_step\":2,\"x\":\"" + std::string(length, 'a') + "\"}\n{\"global");
    CHECK(RunDirectory(dir.path()).last_line()->global_step == 2);
    write_file(dir / "metrics.jsonl", "{\"global_step\":3,\"x\":\"" + std::string(length, 'a') + "\"}\n");
    CHECK(RunDirectory(dir.path()).last_line()->global_step == 3);
  }
}

TEST_CASE("RunDirectory: bytes counts a hard link once and follows no link", "[workspace]") {
  const TempDir dir;
  write_file(dir / "run/a/one", "12345");
  write_file(dir / "outside", "123456789");
  fs::create_hard_link(dir / "run/a/one", dir / "run/two");
  fs::create_symlink(dir / "outside", dir / "run/link");
  fs::create_directory_symlink(dir.path(), dir / "run/around");
  CHECK(RunDirectory(dir / "run").bytes() == 5);
}

TEST_CASE("find_config_value: finds a key without reading the whole as YAML", "[workspace]") {
  const auto value = [](const char* key) { return danling::find_config_value(run_config, key); };
  CHECK(value("epochs").integer() == 20);
  CHECK(value("score_split").is_null());
  CHECK(value("optim.lr").number() == 0.003);
  CHECK(value("optim.type").string() == "adamw");
  CHECK(value("optim").at("type").string() == "adamw");
  CHECK(value("test_splits").list().size() == 1);
  CHECK(value("parts").list()[1].at("name").string() == "b");
  CHECK(value("name").string() == "x: y");
  for (const char* missing : {"lr", "type", "optim.none", "epochs.lr", "epoch", "optim.lr.x", "dir_name", ""}) {
    CHECK(value(missing).is_null());
  }
}

TEST_CASE("score_rule: as the runner chooses, by the names in a result", "[workspace]") {
  NumberedResult best{1, {}};
  best.result["train"].set("acc", 0.1);
  best.result["test"].set("acc", 0.5);
  best.result["val"].set("acc", 0.5);
  NumberedResult other = best;
  other.result["val"].set("acc", 0.75);
  const auto rule = [&](const std::string& config, std::vector<NumberedResult> rows = {}) {
    return danling::score_rule(config, best.result, rows, &best);
  };
  CHECK(rule("score_name: acc\n")->path() == "val.acc");
  CHECK(rule("score_name: acc\n")->higher_is_better);
  CHECK_FALSE(rule("score_name: acc\n")->direction_known);
  CHECK_FALSE(rule("score_name: loss\n")->higher_is_better);
  CHECK(rule("score_name: acc\nscore_split: test\n")->path() == "test.acc");
  CHECK_FALSE(rule("score_name: acc\nscore_mode: min\n")->higher_is_better);
  // 0.5 was chosen before 0.75: lower is better.
  CHECK_FALSE(rule("score_name: acc\n", {best, other})->higher_is_better);
  CHECK(rule("score_name: acc\n", {best, other})->direction_known);
  Result trained;
  trained["train"].set("acc", 1.0);
  trained["more"].set("acc", 1.0);
  CHECK_FALSE(danling::score_rule("score_name: acc\ntrain_splits: [train, more]\n", trained));
  CHECK(danling::score_rule("score_name: acc\n", trained)->path() == "more.acc");
  CHECK_FALSE(danling::score_rule("", trained));
}

TEST_CASE("list_runs: a run, the runs of a lineage, and those of all lineages", "[workspace]") {
  const TempDir dir;
  const auto root = dir / "experiments";
  const auto a = root / "lin-1/1-aa";
  const auto b = root / "other/bb";
  write_file(a / ".lock", "pid: 1\nhost: h\ntimestamp: 20260102-030405-000006\n");
  write_file(b / "summary.json", "{}");
  write_file(root / "lin-1/notes/readme", "no run");
  write_file(root / "file", "no run");
  write_file(root / "lin-1/.removing-x-1/.lock", "pid: 1\n");
  CHECK(danling::list_runs(root) == std::vector<fs::path>{a, b});
  CHECK(danling::list_runs(root / "lin-1") == std::vector<fs::path>{a});
  CHECK(danling::list_runs(a) == std::vector<fs::path>{a});
  CHECK(danling_test::error_of<danling::Error>([&] { danling::list_runs(root / "none"); }) ==
        "[runs.list] expected a directory with runs, got 'No such file or directory' for '" + (root / "none").string() +
            "'");
}

TEST_CASE("parse_timestamp: the reverse of make_timestamp", "[workspace]") {
  const auto before = std::chrono::system_clock::now();
  const auto time = danling::parse_timestamp(danling::make_timestamp());
  REQUIRE(time);
  CHECK(*time >= before - std::chrono::microseconds(1));
  CHECK(*time <= std::chrono::system_clock::now() + std::chrono::seconds(1));
  for (const char* none :
       {"", "20260102", "20260102-030405", "20260102-030405-000006x", "my attempt", "20261302-030405-000006",
        "20260102-250405-000006", "2026 1 2-030405-000006", "20260102-030405-6"}) {
    CHECK_FALSE(danling::parse_timestamp(none));
  }
}

}  // namespace
