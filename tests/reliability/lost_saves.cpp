// The files of a run at its end, after the disk failed for some saves.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include <support/catch.hpp>
#include <support/temp_dir.hpp>

#include "program.hpp"

namespace {

namespace fs = std::filesystem;
using danling_test::read_file;
using danling_test::TempDir;
using reliability::Ended;

Ended start(const TempDir& dir, const std::string& rules, const std::string& words) {
  const auto root = fs::canonical(dir.path()).string();
  return reliability::run("sh -c \"cd '" + root + "' && DANLING_FAULTS_UNDER='" + root + "' DANLING_FAULTS='" + rules +
                          "' " + reliability::preload() + " '" DANLING_FORGETFUL "' --workspace_root '" + root +
                          "' --seed 1 --epochs 6 --log_interval 1 --console true --auto_resume true " + words + "\"");
}

fs::path run_in(const TempDir& dir) {
  for (const auto& entry : fs::recursive_directory_iterator(dir.path())) {
    if (entry.path().filename() == "metrics.jsonl") {
      return entry.path().parent_path();
    }
  }
  FAIL("expected a run");
  return {};
}

std::string metrics_of(const fs::path& run) {
  std::ifstream in(run / "metrics.jsonl");
  std::string out;
  for (std::string line; std::getline(in, line);) {
    out += line.substr(0, line.find(",\"telemetry\"")) + "\n";
  }
  return out;
}

int epoch_in(const fs::path& file) {
  const auto shown =
      reliability::run("'" DANLING_COMMAND "' ckpt show --key state.train.epoch '" + file.string() + "'");
  const auto at = shown.output.find("epoch  ");
  return at == std::string::npos ? -1 : std::stoi(shown.output.substr(at + 7));
}

TEST_CASE("lost saves: lines of metrics that a full disk refused are there after a kill and a resume",
          "[reliability]") {
  const TempDir undisturbed;
  REQUIRE(start(undisturbed, "", "").code == 0);
  const TempDir dir;
  // Metrics alone find no room; the process is killed in its fourth save, and the third has its name.
  CHECK(start(dir, "write@*metrics.jsonl:20+:ENOSPC;rename@*/latest.pth:4:kill", "").code == 128 + 9);
  const auto cut = metrics_of(run_in(dir));
  CHECK(std::count(cut.begin(), cut.end(), '\n') == 19);
  const auto resumed = start(dir, "", "");
  INFO(resumed.output);
  CHECK(resumed.code == 0);
  CHECK(resumed.output.find("are missing") == std::string::npos);
  CHECK(metrics_of(run_in(dir)) == metrics_of(run_in(undisturbed)));
}

TEST_CASE("lost saves: after one transient error the best checkpoint is the best", "[reliability]") {
  for (const std::string rules : {"open@*.latest.pth*:4:ENOSPC", "fsync@*.latest.pth*:4:EIO", "rename@*/best.pth:4:EIO",
                                  "rename@*/best.pth:4:EAGAIN", "write@*.latest.pth*:7:EDQUOT",
                                  "rename@*/latest.pth:4:EINTR", "link@*best*:4+:EMLINK;clone:*:ENOTSUP"}) {
    for (const std::string mode : {"async", "disabled"}) {
      const TempDir dir;
      const auto ended = start(dir, rules, "--scores 6,5,4,1,2,3 --checkpoint.async_mode " + mode);
      INFO(rules + " " + mode + "\n" + ended.output);
      CHECK(ended.code == 0);
      const auto run = run_in(dir);
      CHECK(epoch_in(run / "checkpoints" / "best.pth") == 4);
      CHECK(epoch_in(run / "checkpoints" / "ckpt-e000004.pth") == 4);
      CHECK_THAT(read_file(run / "best.json"), ContainsSubstring("\"index\": 4\n"));
      CHECK(ended.output.find("not saved") == std::string::npos);
    }
  }
}

TEST_CASE("lost saves: a best state that is lost for good is the last word, and best.json agrees with best.pth",
          "[reliability]") {
  const TempDir dir;
  const auto ended = start(dir, "open@*.latest.pth*:4:ENOSPC;open@*.best.pth*:*:ENOSPC", "--scores 6,5,4,1,2,3");
  INFO(ended.output);
  CHECK(ended.code == 0);
  const auto run = run_in(dir);
  CHECK(epoch_in(run / "checkpoints" / "best.pth") == 3);
  CHECK_THAT(read_file(run / "best.json"), ContainsSubstring("\"index\": 3\n"));
  CHECK_THAT(ended.output, ContainsSubstring("epoch 4 (best, not saved)"));
  const auto last = ended.output.substr(ended.output.rfind('\n', ended.output.size() - 2) + 1);
  CHECK(last ==
        "warning: checkpoint: the best state, of epoch 4, is not on disk; best.pth holds epoch 3: "
        "[checkpoint.write] expected to create '" +
            (fs::canonical(run) / "checkpoints" / "latest.pth").string() +
            "', got errno 28 (No space left on device)\n");
}

TEST_CASE("lost saves: best.json that a full disk refused before a kill is there after the resume", "[reliability]") {
  const TempDir dir;
  const std::string words = "--scores 6,5,4,1,2,3";
  CHECK(start(dir, "rename@*best.json*:2+:ENOSPC;rename@*/latest.pth:5:kill", words).code == 128 + 9);
  CHECK_THAT(read_file(run_in(dir) / "best.json"), ContainsSubstring("\"index\": 1\n"));
  CHECK(start(dir, "", words).code == 0);
  CHECK(epoch_in(run_in(dir) / "checkpoints" / "best.pth") == 4);
  CHECK_THAT(read_file(run_in(dir) / "best.json"), ContainsSubstring("\"index\": 4\n"));
}

TEST_CASE("lost saves: SIGHUP saves and ends with its code, and nohup keeps the run going", "[reliability]") {
  const auto hang_up = [](const std::string& before) {
    const TempDir dir;
    const auto root = fs::canonical(dir.path()).string();
    return reliability::run(
        "cd '" + root + "' && (" + before +
        " '" DANLING_FORGETFUL
        "' --workspace_root . --seed 1 --epochs 400 --console true > out 2>&1 & pid=$!; while ! "
        "ls lin*/*/checkpoints/latest.pth >/dev/null 2>&1; do sleep 0.01; done; kill -HUP $pid; wait "
        "$pid; echo code $?; tail -n 2 out)");
  };
  const auto stopped = hang_up("exec");
  CHECK_THAT(stopped.output, ContainsSubstring("code 129"));
  CHECK_THAT(stopped.output, ContainsSubstring("[runner.stop] stopped by SIGHUP in epoch "));
  CHECK_THAT(stopped.output, ContainsSubstring("the run is saved"));
  CHECK_THAT(hang_up("trap '' HUP; exec").output, ContainsSubstring("code 0"));
}

}  // namespace
