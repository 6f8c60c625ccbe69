// `danling verify-resume` on programs that resume and on programs that do not.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <support/catch.hpp>
#include <support/temp_dir.hpp>

#include "program.hpp"

namespace {

using danling_test::TempDir;
using reliability::Ended;

Ended verify(const std::string& options, const std::string& command) {
  return reliability::run("'" DANLING_COMMAND "' verify-resume " + options + " -- " + command);
}

std::string forgetful(const std::string& what) { return "'" DANLING_FORGETFUL "' --forget " + what; }

// Running processes with `text` in their command line.
int processes_that_name(const std::string& text) {
  int found = 0;
  std::error_code ended;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ended)) {
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    const std::string words{std::istreambuf_iterator<char>(file), {}};
    found += words.find(text) != std::string::npos ? 1 : 0;
  }
  return found;
}

TEST_CASE("verify-resume: a program that saves all it needs is identical, and nothing is left behind",
          "[reliability]") {
  const TempDir dir;
  const auto ended = verify("--kills 10 --fault-seed 5 --dir '" + dir.path().string() + "'", forgetful("nothing"));
  INFO(ended.output);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.output, ContainsSubstring("identical after 10 interruptions"));
  CHECK_THAT(ended.output, ContainsSubstring("--fault-seed 5"));
  CHECK(std::filesystem::is_empty(dir.path()));
}

TEST_CASE("verify-resume: a checkpoint that is missing after a save that failed and was made good is told",
          "[reliability]") {
  const TempDir dir;
  const auto ended =
      verify("--kills 8 --fault-seed 3 --faults io --dir '" + dir.path().string() + "'", forgetful("history"));
  INFO(ended.output);
  CHECK(ended.code == 1);
  CHECK_THAT(ended.output, Catch::Matchers::Matches("(.|\n)*DIFFERENT, round [0-9]+ at its end:\n  "
                                                    "checkpoints/ckpt-e000003.pth: missing\n(.|\n)*"));
}

TEST_CASE("verify-resume: a run that finished after failed saves and is then found finished is identical",
          "[reliability]") {
  const TempDir dir;
  const auto ended = verify("--kills 6 --fault-seed 1 --faults io --dir '" + dir.path().string() + "'",
                            forgetful("nothing") + " --checkpoint.last_save_model_only true");
  INFO(ended.output);
  CHECK(ended.code == 0);
}

TEST_CASE("verify-resume: fp16 with a loss scale, clipping, statistics and roll-backs is identical", "[reliability]") {
  const std::string options =
      " --precision fp16 --scaler.init_scale 16777216 --scaler.growth_interval 9 --max_grad_norm 0.5 --accum_steps 2 "
      "--log_grad_norm true --log_noise_scale true --on_nonfinite rollback --spike.action skip --spike.window 8 "
      "--bad 25,44 ";
  for (const std::string length : {"--epochs 8", "--steps 24 --checkpoint.interval 4"}) {
    const TempDir dir;
    const auto ended = verify("--kills 12 --fault-seed 7 --dir '" + dir.path().string() + "'",
                              forgetful("nothing") + options + length);
    INFO(ended.output);
    CHECK(ended.code == 0);
    CHECK_THAT(ended.output, ContainsSubstring("identical after 12 interruptions"));
  }
}

TEST_CASE("verify-resume: a program with virtual ranks resumes on other numbers of processes", "[reliability]") {
  // By steps, every checkpoint but the last is in the middle of a pass: it holds the meters and metrics of all ranks.
  for (const std::string length : {"--epochs 8", "--steps 24 --checkpoint.interval 4"}) {
    const TempDir dir;
    const auto ended = verify("--processes 1,2,4 --kills 4 --fault-seed 4 --faults kill,term,save --verbose --dir '" +
                                  dir.path().string() + "'",
                              forgetful("nothing") + " --deterministic true --parallel.virtual_ranks 4 " + length);
    INFO(ended.output);
    CHECK(ended.code == 0);
    CHECK_THAT(ended.output, ContainsSubstring("identical after 4 interruptions"));
    CHECK_THAT(ended.output, Catch::Matchers::Matches("(.|\n)*\nprocesses  starts\n(.|\n)*"));
    CHECK_THAT(ended.output, Catch::Matchers::Matches("(.|\n)*\nsignal to +SIGKILL +SIGTERM or SIGINT\n(.|\n)*"));
    CHECK(std::filesystem::is_empty(dir.path()));
    CHECK(processes_that_name(dir.path().string()) == 0);
  }
}

TEST_CASE("verify-resume: a program whose number of processes shows in its bits is refused", "[reliability]") {
  const TempDir dir;
  const auto without = verify("--processes 1,2 --dir '" + dir.path().string() + "'", forgetful("nothing"));
  CHECK(without.code == 2);
  CHECK_THAT(without.output,
             ContainsSubstring("[verify-resume] expected a program whose results do not depend on its number of "
                               "processes, got parallel.virtual_ranks: null, deterministic: false; add --deterministic "
                               "true --parallel.virtual_ranks V to its arguments, V a power of two of at least 2\n"));
  CHECK(std::filesystem::is_empty(dir.path()));
  const auto few = verify("--processes 1,4 --dir '" + dir.path().string() + "'",
                          forgetful("nothing") + " --deterministic true --parallel.virtual_ranks 2");
  CHECK(few.code == 2);
  CHECK_THAT(few.output, ContainsSubstring("[verify-resume] expected --processes of at most 2 (parallel.virtual_ranks "
                                           "of the program), got 4\n"));
}

TEST_CASE("verify-resume: checkpoints of shards are identical as a whole, also after failed saves", "[reliability]") {
  const TempDir dir;
  const auto ended =
      verify("--kills 10 --fault-seed 6 --faults kill,save,term,io,full --dir '" + dir.path().string() + "'",
             forgetful("nothing") + " --checkpoint.backend dcp --steps 24 --checkpoint.interval 4");
  INFO(ended.output);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.output, ContainsSubstring("identical after 10 interruptions"));
  CHECK(std::filesystem::is_empty(dir.path()));
}

TEST_CASE("verify-resume: layouts without virtual ranks need a tolerance", "[reliability]") {
  const TempDir dir;
  const auto ended =
      verify("--layouts '2:;1:--parallel.axes.shard 1' --dir '" + dir.path().string() + "'", forgetful("nothing"));
  CHECK(ended.code == 2);
  CHECK_THAT(ended.output,
             ContainsSubstring("V a power of two of at least 2; or set --tolerance, to compare values\n"));
  CHECK(std::filesystem::is_empty(dir.path()));
}

TEST_CASE("verify-resume: what a program forgets exceeds a tolerance, and is told with its place and values",
          "[reliability]") {
  for (const std::string backend : {"file", "dcp"}) {
    const TempDir dir;
    const auto ended =
        verify("--kills 30 --fault-seed 2 --faults kill,save,term --tolerance 1e-6 --dir '" + dir.path().string() + "'",
               forgetful("noise") + " --checkpoint.backend " + backend);
    INFO(ended.output);
    CHECK(ended.code == 1);
    CHECK_THAT(ended.output, Catch::Matchers::Matches(
                                 "(.|\n)*\n  checkpoints/ckpt-e[0-9]+.(pth|pointer): at step [0-9]+, epoch "
                                 "[0-9]+\n    model.0.weight: [0-9]+ of 32 numbers differ, by at most [0-9.e-]+; "
                                 "first at \\[[0-9], [0-9]\\]: [0-9.e-]+ in the reference, [0-9.e-]+ "
                                 "here\n(.|\n)*"));
  }
}

TEST_CASE("verify-resume: paths may have spaces", "[reliability]") {
  const TempDir dir;
  const auto folder = dir / "a folder";
  std::filesystem::create_directories(folder);
  for (const std::filesystem::path from : {DANLING_COMMAND, DANLING_FAULTS_LIBRARY}) {
    std::filesystem::copy_file(from, folder / from.filename());
  }
  const auto ended =
      reliability::run("'" + (folder / "danling").string() + "' verify-resume --kills 2 --fault-seed 5 --dir '" +
                       (folder / "runs").string() + "' -- " + forgetful("nothing"));
  INFO(ended.output);
  CHECK(ended.code == 0);
}

TEST_CASE("verify-resume: what a program forgets is told by step and tensor, and the runs are kept", "[reliability]") {
  for (const std::string what : {"noise", "counter"}) {
    const TempDir dir;
    const auto ended = verify("--kills 30 --fault-seed 2 --faults kill,save,term --dir '" + dir.path().string() + "'",
                              forgetful(what));
    INFO(ended.output);
    CHECK(ended.code == 1);
    CHECK_THAT(ended.output, Catch::Matchers::Matches("(.|\n)*DIFFERENT from start [0-9]+ on:\n(.|\n)*"));
    CHECK_THAT(ended.output, Catch::Matchers::Matches(
                                 "(.|\n)*\n  metrics.jsonl: line [0-9]+ \\(split train, epoch [0-9]+, global_step "
                                 "[0-9]+\\): loss is [0-9.e-]+ in the reference, [0-9.e-]+ here\n(.|\n)*"));
    CHECK_THAT(ended.output,
               Catch::Matchers::Matches("(.|\n)*\n  checkpoints/ckpt-e[0-9]+.pth: at step [0-9]+, epoch [0-9]+\n    "
                                        "model.0.weight: Float \\[8, 4\\] that differ first at element "
                                        "[0-9]+\n(.|\n)*"));
    CHECK_THAT(ended.output, ContainsSubstring("kept: " + std::filesystem::canonical(dir.path()).string()));
    CHECK(std::filesystem::exists(dir / "reference"));
    CHECK(std::filesystem::exists(dir / "run"));
  }
}

TEST_CASE("verify-resume: a program that ends with code 0 without its last checkpoint is different", "[reliability]") {
  const TempDir dir;
  const auto ended = verify("--kills 20 --fault-seed 4 --faults full,io,readonly --dir '" + dir.path().string() + "'",
                            forgetful("failures"));
  INFO(ended.output);
  CHECK(ended.code == 1);
  CHECK_THAT(
      ended.output,
      Catch::Matchers::Matches(
          "(.|\n)*\nDIFFERENT: start [0-9]+ ended with code 0 after an error of the file system, "
          "and its newest checkpoint differs from the last of the reference:\n  checkpoints/latest.pth: (.|\n)*"));
}

TEST_CASE("verify-resume: a program whose uninterrupted runs differ is called so, with the first difference",
          "[reliability]") {
  const TempDir dir;
  const auto ended =
      verify("--kills 10 --fault-seed 2 --faults save --dir '" + dir.path().string() + "'", forgetful("luck"));
  INFO(ended.output);
  CHECK(ended.code == 2);
  CHECK_THAT(ended.output, Catch::Matchers::Matches(
                               "(.|\n)*\nNOT DETERMINISTIC: two uninterrupted runs differ, so resuming cannot be "
                               "verified(.|\n)*\n  metrics.jsonl: line [0-9]+ \\(split train, epoch "
                               "[0-9]+, global_step [0-9]+\\): loss is (.|\n)*"));
  CHECK(ended.output.find("DIFFERENT from") == std::string::npos);
}

TEST_CASE("verify-resume: a program whose metrics outgrow its checkpoints is hit in its saves, and is identical",
          "[reliability]") {
  // 40 epochs with a line for each of 8 steps: metrics.jsonl is several times larger than a checkpoint. Elsewhere than
  // in a repository, whose git would meet the limit too.
  const TempDir dir;
  const auto ended = reliability::run(
      "cd '" + dir.path().string() +
      "' && '" DANLING_COMMAND "' verify-resume --kills 12 --fault-seed 8 --faults size,full --dir runs -- " +
      forgetful("nothing") + " --epochs 40 --log_interval 1 --checkpoint.keep_latest_k 2");
  INFO(ended.output);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.output, ContainsSubstring("identical after 12 interruptions"));
  CHECK_THAT(ended.output,
             Catch::Matchers::Matches("(.|\n)*\nfile size limit \\(RLIMIT_FSIZE\\) +[0-9]+ +[1-9][0-9]*\n(.|\n)*"));
}

TEST_CASE("verify-resume: a program that cannot be verified gives another code", "[reliability]") {
  SECTION("it starts afresh each time") {
    const auto ended = verify("--kills 5 --faults save --fault-seed 1", forgetful("checkpoints"));
    INFO(ended.output);
    CHECK(ended.code == 2);
    CHECK_THAT(ended.output, ContainsSubstring("did not resume: there was a checkpoint, and it moved the run to"));
    std::filesystem::remove_all(ended.output.substr(
        ended.output.find("kept: ") + 6, ended.output.find(" (reference/") - ended.output.find("kept: ") - 6));
  }
  SECTION("it fails by itself") {
    const TempDir dir;
    const auto ended = verify("--dir '" + dir.path().string() + "'", forgetful("nothing") + " --epochs none");
    INFO(ended.output);
    CHECK(ended.code == 2);
    CHECK_THAT(ended.output, ContainsSubstring("the program ended with code 2 without any interruption"));
    CHECK_THAT(ended.output, ContainsSubstring("error: "));
  }
  SECTION("it takes no workspace root") {
    const TempDir dir;
    const auto ended = verify("--dir '" + dir.path().string() + "'", "true");
    CHECK(ended.code == 2);
    CHECK_THAT(ended.output, ContainsSubstring("made no file call that libdanling_faults.so sees"));
  }
  SECTION("it is not there") {
    const TempDir dir;
    const auto ended = verify("--dir '" + dir.path().string() + "'", "./nowhere");
    CHECK(ended.code == 2);
    CHECK_THAT(ended.output, ContainsSubstring("[verify-resume] expected a program that can be started, got "
                                               "'./nowhere' (No such file or directory)"));
    CHECK(std::filesystem::is_empty(dir.path()));
    CHECK(reliability::run("cd '" + dir.path().string() +
                           "' && TMPDIR=. '" DANLING_COMMAND "' verify-resume -- ./nowhere")
              .code == 2);
    CHECK(std::filesystem::is_empty(dir.path()));
  }
}

TEST_CASE("verify-resume: wrong usage is one clear line", "[reliability]") {
  CHECK(verify("", "").output == "[verify-resume] expected a program after --, got none; --help shows the usage\n");
  CHECK(verify("--faults kil", "true").output ==
        "[verify-resume] expected faults among kill, save, term, int, size, full, io, readonly, quota, short, got "
        "'kil'; did you mean 'kill'?\n");
  CHECK(verify("", "true --workspace_root=x").output ==
        "[verify-resume] expected no --workspace_root among the program's arguments, which verify-resume sets, got "
        "'--workspace_root=x'\n");
  CHECK(verify("--processes 1,two", "true").output ==
        "[verify-resume] expected --processes with numbers from 1 to 1024, separated by commas, got '1,two'\n");
  CHECK(verify("--layouts '2:;four:--a 4'", "true").output ==
        "[verify-resume] expected --layouts of the form 'PROCESSES:ARGUMENTS;PROCESSES:ARGUMENTS', with 1 to 1024 "
        "processes, got 'four:--a 4'\n");
  CHECK(verify("--layouts '2:--seed=2'", "true").output ==
        "[verify-resume] expected no --seed in --layouts, got '2:--seed=2'\n");
  CHECK(verify("--layouts 2: --processes 1,2", "true").output ==
        "[verify-resume] expected one of --processes and --layouts, got both\n");
  for (const std::string wrong : {"0", "1", "close", "1e-6,", "1e-6,-1"}) {
    CHECK(verify("--tolerance " + wrong, "true").output ==
          "[verify-resume] expected --tolerance with a number above 0 and below 1, or two separated by a comma "
          "(relative, absolute), got '" +
              wrong + "'\n");
  }
  CHECK(verify("--kills 0", "true").output ==
        "[verify-resume] expected --kills with a whole number of at least 1, got '0'\n");
  CHECK(verify("--kills 0", "true").code == 2);
}

}  // namespace
