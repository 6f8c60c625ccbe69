// danling sweep, with the example and with small programs in its place.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>

#include <danling/workspace/run_directory.hpp>

#include <apps/command.hpp>

namespace {

using danling_test::CommandResult;
using danling_test::read_file;
using danling_test::run_danling;
using danling_test::TempDir;
using danling_test::write_file;
using nlohmann::json;
namespace fs = std::filesystem;

/// A program that records a run as danling's do: its score is --x, plus --epochs / 1000. `body` may do more before,
/// with $x, $epochs, $run (its directory) and $mark (a directory of the test).
std::string sweep_program(const TempDir& dir, const std::string& body = "") {
  const auto path = dir / "program.sh";
  write_file(
      path,
      "#!/bin/bash\nmark='" + dir.path().string() +
          "'\nepochs=0\nwords=\"$*\"\nwhile [ $# -gt 1 ]; do\n"
          "  case $1 in --workspace_root) root=$2;; --lineage) name=$2;; --x) x=$2;; --epochs) epochs=$2;; "
          "--num_threads) threads=$2;; esac\n  shift 2\ndone\n"
          "run=$root/$name/0123456789ab\nmkdir -p $run/metadata\n"
          "printf 'pid: 1\\nhost: h\\ntimestamp: 20260102-030405-000006\\n' > $run/.lock\n"
          "echo \"$name $epochs OMP_NUM_THREADS=$OMP_NUM_THREADS $words\" >> $mark/starts\n" +
          body +
          "\nprintf 'epochs: %s\\n' $epochs > $run/metadata/config.full.yaml\n"
          "printf '{\"results\": {\"1\": {\"val\": {\"acc\": %s}}}}' $x$(printf '%03d' $epochs) > $run/results.json\n"
          "printf '{\"status\": \"finished\", \"epoch\": %s, \"timestamp\": \"20260102-030405-000006\"}' "
          "$epochs > $run/summary.json\n");
  fs::permissions(path, fs::perms::owner_all);
  return path.string();
}

std::string sweep_file(const TempDir& dir, const std::string& text) {
  write_file(dir / "spec.yaml", text);
  return (dir / "spec.yaml").string();
}

std::vector<std::string> lines_of(const fs::path& path) {
  std::vector<std::string> out;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    out.push_back(line);
  }
  return out;
}

json sweep_json(const TempDir& dir) { return json::parse(read_file(dir / "sweep/sweep.json")); }

/// Waits until something holds; the alarm of the command ends a test that waits in vain.
void wait_until(const std::function<bool()>& holds) {
  for (int i = 0; i < 55000 && !holds(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  REQUIRE(holds());
}

CommandResult run_sweep(const TempDir& dir, const std::string& file, std::vector<std::string> words,
                        const std::function<void(pid_t)>& meanwhile = {}) {
  words.insert(words.begin(), {"sweep", file, "--dir", (dir / "sweep").string()});
  return run_danling(words, meanwhile, /*limit=*/600);
}

TEST_CASE("danling sweep: a grid runs every combination once and ends with a table, best first", "[apps]") {
  const TempDir dir;
  const auto file = sweep_file(dir, "program: ['" + sweep_program(dir) +
                                        "']\nscore: val.acc\nparameters:\n  x: [0.25, 0.75, 0.5]\n  y: {int: [1, 2]}\n"
                                        "  fixed: [1]\n");
  const auto result = run_sweep(dir, file, {"--jobs", "2", "--threads", "3"});
  CHECK(result.err == "");
  CHECK(result.code == 0);
  const auto table = result.out.substr(result.out.find("\ntrial ") + 1);
  CHECK(table.find("trial      val.acc     x  y  status    time\n"
                   "---------  -------  ----  -  --------  ----\n"
                   "trial-002   0.7500  0.75  1  finished  ") == 0);
  CHECK(table.find("trial-003   0.7500  0.75  2") < table.find("trial-004   0.5000   0.5  1"));
  CHECK(table.ends_with("best: " + (dir / "sweep/runs/trial-002/0123456789ab").string() + "\n"));
  CHECK(lines_of(dir / "starts").size() == 6);
  const auto state = sweep_json(dir);
  CHECK(state.at("status") == "finished");
  CHECK(state.at("trials").size() == 6);
  CHECK(state.at("trials")[3].at("values") == json({{"x", "0.75"}, {"y", "2"}, {"fixed", "1"}}));
  CHECK(state.at("trials")[3].at("scores")[0].at("score") == 0.75);
  // Keys, threads and places reach the program.
  for (const auto& line : lines_of(dir / "starts")) {
    CHECK_THAT(line, ContainsSubstring(" OMP_NUM_THREADS=3 "));
    CHECK_THAT(line, ContainsSubstring(" --auto_resume true --num_threads 3 --x 0."));
  }
  // Each has a log of its own, which begins with its command.
  CHECK_THAT(read_file(dir / "sweep/logs/trial-003.log"), ContainsSubstring("--x 0.75 --y 2 --fixed 1\n"));
}

TEST_CASE("danling sweep: the example, killed in the middle, goes on and ends as if it had not been", "[apps]") {
#ifdef DANLING_MNIST_BINARY
  const TempDir whole;
  const TempDir dir;
  const std::string text = "score: val.acc\nparameters:\n  optim.lr: [0.001, 0.003, 0.01]\n  channels: [4]\n";
  const std::vector<std::string> words = {"--jobs", "1", "--threads", "1", "--", DANLING_MNIST_BINARY, "--epochs", "4"};
  CHECK(run_sweep(whole, sweep_file(whole, text), words).code == 0);
  const auto file = sweep_file(dir, text);
  const auto runs_of = [&](const std::string& trial) {
    std::vector<fs::path> out;
    for (const auto& run : fs::exists(dir / "sweep/runs") ? danling::list_runs(dir / "sweep/runs") : out) {
      if (danling::RunDirectory(run).lineage() == trial) {
        out.push_back(run);
      }
    }
    return out;
  };
  const auto killed = run_sweep(dir, file, words, [&](pid_t sweep) {
    // In the second trial, when it has a checkpoint to go on from.
    wait_until([&] {
      const auto runs = runs_of("trial-001");
      return !runs.empty() && fs::exists(runs[0] / "checkpoints/latest.pth");
    });
    kill(sweep, SIGKILL);
  });
  CHECK(killed.code == -SIGKILL);
  CHECK(sweep_json(dir).at("status") == "running");
  const auto result = run_sweep(dir, file, words);
  CHECK(result.err == "");
  CHECK(result.code == 0);
  CHECK_THAT(result.out, ContainsSubstring("continues"));
  const auto expected = sweep_json(whole);
  const auto state = sweep_json(dir);
  CHECK(state.at("trials")[0].at("starts") == 1);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(state.at("trials")[i].at("scores") == expected.at("trials")[i].at("scores"));
    CHECK(runs_of(danling::detail::concat("trial-00", i)).size() == 1);
  }
  // Nothing is done twice.
  const auto again = run_sweep(dir, file, words);
  CHECK(again.code == 0);
  CHECK(again.out.find("started") == std::string::npos);
  CHECK(sweep_json(dir).at("trials") == state.at("trials"));
#endif
}

TEST_CASE("danling sweep: halving promotes the best third of each rung, which go on from their checkpoint", "[apps]") {
  const TempDir dir;
  const auto file =
      sweep_file(dir,
                 "method: halving\ntrials: 9\nseed: 3\nscore: val.acc\nparameters:\n  x: {uniform: [0.1, 0.9]}\n"
                 "halving: {min: 1, max: 9, factor: 3}\n");
  const std::vector<std::string> words = {"--jobs", "2", "--", sweep_program(dir)};
  const auto result = run_sweep(dir, file, words);
  CHECK(result.err == "");
  CHECK(result.code == 0);
  const auto state = sweep_json(dir);
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t i = 0; i < 9; ++i) {
    order.emplace_back(-std::stod(state.at("trials")[i].at("values").at("x").get<std::string>()), i);
  }
  std::sort(order.begin(), order.end());
  for (std::size_t place = 0; place < 9; ++place) {
    std::vector<std::int64_t> goals;
    for (const auto& score : state.at("trials")[order[place].second].at("scores")) {
      goals.push_back(score.at("goal").get<std::int64_t>());
    }
    CHECK(goals == (place == 0   ? std::vector<std::int64_t>{1, 3, 9}
                    : place <= 2 ? std::vector<std::int64_t>{1, 3}
                                 : std::vector<std::int64_t>{1}));
  }
  CHECK(lines_of(dir / "starts").size() == 9 + 3 + 1);
  CHECK_THAT(result.out, ContainsSubstring(danling::detail::concat("\ntrial-00", order[0].second, "   0.")));
}

TEST_CASE("danling sweep: trials that stop at their time limit leave it unfinished, with a command to continue",
          "[apps]") {
  const TempDir dir;
  const auto program = sweep_program(dir, "if [ $x = 0.5 ] && [ ! -e $mark/more ]; then exit 75; fi\n");
  const auto file = sweep_file(dir, "score: val.acc\nparameters: {x: [0.25, 0.5]}\n");
  const std::vector<std::string> words = {"--jobs", "1", "--retry-failed", "--", program, "--name", "it's mine"};
  auto result = run_sweep(dir, file, words);
  CHECK(result.code == 1);
  CHECK_THAT(result.out, ContainsSubstring("trial-001 stopped at its time limit\n"));
  CHECK_THAT(result.out, ContainsSubstring("to continue: danling sweep " + file + " --dir " + (dir / "sweep").string() +
                                           " --jobs 1 -- " + program + " --name 'it'\\''s mine'\n"));
  write_file(dir / "more", "");
  CHECK(run_sweep(dir, file, words).code == 0);
}

TEST_CASE("danling sweep: only names of accuracies and losses have a direction by themselves", "[apps]") {
  const TempDir dir;
  for (const std::string score : {"val.mape", "val.iou_loss", "val.mae", "val.mapping"}) {
    const auto file = sweep_file(dir, "score: " + score + "\nparameters: {x: [0.25]}\n");
    const auto result = run_sweep(dir, file, {"--dry-run", "--", "true"});
    CHECK(result.code == 2);
    CHECK_THAT(result.err, ContainsSubstring("expected mode: min or max with score: " + score + ", got none"));
  }
  for (const std::string score : {"val.map", "val.acc5", "val.f1_macro", "val.loss", "val.losses.mse"}) {
    const auto file = sweep_file(dir, "score: " + score + "\nparameters: {x: [0.25]}\n");
    CHECK(run_sweep(dir, file, {"--dry-run", "--", "true"}).code == 0);
  }
}

TEST_CASE("danling sweep: a failed trial is recorded with its last line and does not stop the others", "[apps]") {
  const TempDir dir;
  const auto program = sweep_program(dir,
                                     "if [ $x = 0.5 ] && [ ! -e $mark/mended ]; then echo begins; echo 'no luck' >&2; "
                                     "echo; exit 1; fi\nif [ $x = 0.6 ]; then kill -9 $$; fi\n");
  const auto file = sweep_file(dir, "score: val.acc\nparameters: {x: [0.25, 0.5, 0.6, 0.75]}\n");
  auto result = run_sweep(dir, file, {"--jobs", "1", "--", program});
  CHECK(result.code == 0);
  CHECK_THAT(result.out, ContainsSubstring("trial-001 failed: no luck\n"));
  CHECK_THAT(result.out, ContainsSubstring("trial-002 failed: ended by SIGKILL, as the kernel does without memory\n"));
  CHECK_THAT(result.out, ContainsSubstring("trial-003   0.7500  0.75  finished"));
  CHECK(sweep_json(dir).at("trials")[1].at("error") == "no luck");
  CHECK(lines_of(dir / "starts").size() == 4);
  write_file(dir / "mended", "");
  result = run_sweep(dir, file, {"--jobs", "1", "--retry-failed", "--", program});
  CHECK(result.code == 0);
  CHECK(sweep_json(dir).at("trials")[1].at("status") == "finished");
  CHECK(lines_of(dir / "starts").size() == 6);
}

TEST_CASE("danling sweep: too many failures end it", "[apps]") {
  const TempDir dir;
  const auto program = sweep_program(dir, "exit 3\n");
  const auto file = sweep_file(dir, "score: val.acc\nmax_failures: 1\nparameters: {x: [0.1, 0.2, 0.3, 0.4]}\n");
  const auto result = run_sweep(dir, file, {"--jobs", "1", "--", program});
  CHECK(result.code == 1);
  CHECK_THAT(result.out, ContainsSubstring("[sweep] 2 trials have failed, more than max_failures: 1\n"));
  CHECK_THAT(result.out, ContainsSubstring("trial-000 failed: exit code 3\n"));
  CHECK(lines_of(dir / "starts").size() == 2);
}

TEST_CASE("danling sweep: a program without the score fails with the names that it has", "[apps]") {
  const TempDir dir;
  const auto file = sweep_file(dir, "score: val.ac\nmode: max\nparameters: {x: [0.1]}\n");
  const auto result = run_sweep(dir, file, {"--", sweep_program(dir)});
  CHECK(result.code == 1);
  CHECK_THAT(result.out, ContainsSubstring("trial-000 failed: no number 'val.ac' in its results, which have "
                                           "[val.acc]; did you mean 'val.acc'?"));
}

TEST_CASE("danling sweep: SIGINT lets the trials save, and the same command goes on", "[apps]") {
  const TempDir dir;
  const auto program =
      sweep_program(dir,
                    "if [ ! -e $mark/go ]; then trap 'echo saved > $mark/saved; exit 143' TERM; touch $mark/ready; "
                    "while [ ! -e $mark/go ]; do sleep 0.02; done; fi\n");
  const auto file = sweep_file(dir, "score: val.acc\nparameters: {x: [0.25, 0.5]}\n");
  const auto result = run_sweep(dir, file, {"--jobs", "1", "--", program}, [&](pid_t sweep) {
    wait_until([&] { return fs::exists(dir / "ready"); });
    kill(sweep, SIGINT);
  });
  CHECK(result.code == 128 + SIGINT);
  CHECK_THAT(result.out,
             ContainsSubstring("[sweep] SIGINT; asks 1 trial to save and stop\n[sweep] trial-000 stopped\n"));
  CHECK_THAT(result.out, ContainsSubstring("to continue: danling sweep " + file));
  CHECK(sweep_json(dir).at("status") == "stopped");
  write_file(dir / "go", "");
  const auto again = run_sweep(dir, file, {"--jobs", "1", "--", program});
  CHECK(again.code == 0);
  CHECK_THAT(again.out, ContainsSubstring("trial-000 continues"));
  CHECK(lines_of(dir / "starts").size() == 3);
}

TEST_CASE("danling sweep: a trial that outlives its sweep is not started twice", "[apps]") {
  const TempDir dir;
  const auto program =
      sweep_program(dir, "trap '' TERM\ntouch $mark/ready\nwhile [ ! -e $mark/go ]; do sleep 0.02; done\n");
  const auto file = sweep_file(dir, "score: val.acc\nparameters: {x: [0.25, 0.5]}\n");
  const auto killed = run_sweep(dir, file, {"--jobs", "1", "--", program}, [&](pid_t sweep) {
    wait_until([&] { return fs::exists(dir / "ready"); });
    kill(sweep, SIGKILL);
  });
  CHECK(killed.code == -SIGKILL);
  const auto result = run_sweep(dir, file, {"--jobs", "2", "--", program}, [&](pid_t) {
    wait_until([&] { return lines_of(dir / "starts").size() == 2; });  // the second trial runs beside it
    write_file(dir / "go", "");
  });
  CHECK(result.code == 0);
  CHECK_THAT(result.out, ContainsSubstring("trial-000 still runs, started by a killed sweep: waits for it\n"));
  CHECK_THAT(result.out, ContainsSubstring("trial-000 finished: val.acc 0.2500"));
  CHECK(lines_of(dir / "starts").size() == 2);
}

TEST_CASE("danling sweep: as many trials run as their measured memory leaves room for", "[apps]") {
  const TempDir dir;
  // Each takes 60 MB, and says how many run beside it.
  const auto program = sweep_program(
      dir,
      "big=$(head -c 60000000 /dev/zero | tr '\\0' a)\nmkdir $mark/$name.runs\necho {} > $run/metrics.jsonl\n"
      "sleep 0.5\nls -d $mark/*.runs | wc -l >> $mark/counts\nrmdir $mark/$name.runs\n");
  const auto file = sweep_file(dir, "score: val.acc\nparameters: {x: [0.1, 0.2, 0.3, 0.4]}\n");
  const auto result = run_sweep(dir, file, {"--jobs", "4", "--memory", "100MiB", "--", program});
  CHECK(result.code == 0);
  CHECK_THAT(result.out, ContainsSubstring("[sweep] memory: a trial needs "));
  CHECK(lines_of(dir / "counts") == std::vector<std::string>(4, "1"));
  CHECK(sweep_json(dir).at("trials")[0].at("peak_bytes") > 60000000);
}

TEST_CASE("danling sweep: random values lie in their ranges, and more trials begin as fewer do", "[apps]") {
  const TempDir dir;
  const auto values = [&](int trials, int seed) {
    const auto file =
        sweep_file(dir, danling::detail::concat(
                            "method: random\ntrials: ", trials, "\nseed: ", seed,
                            "\nscore: val.acc\nparameters:\n  a: {uniform: [-1, 3]}\n  b: {log_uniform: [1e-4, 1]}\n"
                            "  c: {int: [2, 4]}\n  d: {choice: [sgd, 'a b', [1, 2]]}\n"));
    const auto result = run_danling({"sweep", file, "--dry-run", "--", "program"});
    REQUIRE(result.code == 0);
    return result.out;
  };
  const auto text = values(400, 7);
  CHECK(text.substr(0, values(30, 7).size()) == values(30, 7));
  CHECK(values(30, 8) != values(30, 7));
  std::map<std::string, int> counts;
  int low_a = 0;
  int low_b = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    double a = 0;
    double b = 0;
    int c = 0;
    std::array<char, 32> d{};
    REQUIRE(std::sscanf(line.c_str(), "trial-%*d  a %lf  b %lf  c %d  d %31[^\n]", &a, &b, &c, d.data()) == 4);
    CHECK((a >= -1 && a <= 3 && b >= 1e-4 && b <= 1 && c >= 2 && c <= 4));
    low_a += a < 1 ? 1 : 0;
    low_b += b < 1e-2 ? 1 : 0;
    ++counts[danling::detail::concat("c", c)];
    ++counts[d.data()];
  }
  // Halves and thirds of 400 draws, within four standard deviations.
  CHECK(std::abs(low_a - 200) < 40);
  CHECK(std::abs(low_b - 200) < 40);
  for (const char* each : {"c2", "c3", "c4", "sgd", "a b", "[1, 2]"}) {
    CHECK(std::abs(counts[each] - 400 / 3) < 38);
  }
}

TEST_CASE("danling sweep: errors of the file name file and key", "[apps]") {
  const TempDir dir;
  const auto error = [&](const std::string& text) {
    const auto file = sweep_file(dir, text);
    const auto result = run_sweep(dir, file, {"--", "program"});
    CHECK(result.code == 2);
    CHECK_FALSE(fs::exists(dir / "sweep"));
    const std::string place = " (file '" + file + "')\n";
    CHECK(result.err.ends_with(place));
    return result.err.substr(0, result.err.size() - std::min(place.size(), result.err.size()));
  };
  const std::string head = "[danling sweep] expected ";
  CHECK(error("score: val.acc\nparameter: {x: [1]}\n") == head + "parameters, the keys to vary, got none");
  CHECK(error("score: val.acc\nparameters: {x: [1]}\nmax_failure: 1\n") ==
        head +
            "one of the keys method, program, parameters, score, mode, max_failures, got 'max_failure'; did you mean "
            "'max_failures'?");
  CHECK(error("method: grit\n") ==
        head + "method to be one of grid, random, halving, got 'grit'; did you mean 'grid'?");
  CHECK(error("score: val.acc\nparameters: {x: []}\n") ==
        head + "parameters.x to be a list of at least one value, got '[]'");
  CHECK(error("score: val.acc\nparameters: {x: [1, 2, 1]}\n") ==
        head + "the values of parameters.x to differ, got '1' twice");
  const std::string random = "method: random\ntrials: 2\nscore: val.acc\nparameters: ";
  CHECK(error(random + "{x: {uniform: [2, 2]}}\n") ==
        head + "parameters.x.uniform to be a range whose low end is below its high end, got '[2, 2]'");
  CHECK(error(random + "{x: {log_uniform: [0, 1]}}\n") ==
        head + "parameters.x.log_uniform to be a range of positive numbers, which have logarithms, got '[0, 1]'");
  CHECK(error(random + "{x: {int: [0.5, 2]}}\n") ==
        head + "parameters.x.int to be two whole numbers, [low, high], got '[0.5, 2]'");
  CHECK(
      error(random + "{x: {unifrom: [1, 2]}}\n") ==
      head +
          "one of the keys choice, int, uniform, log_uniform at parameters.x, got 'unifrom'; did you mean 'uniform'?");
  CHECK(error("score: val.acc\nparameters: {x: {uniform: [1, 2]}}\n") ==
        head +
            "parameters.x of a grid to be a list or {int: [low, high]}, got a range of numbers; method: random draws "
            "from it");
  CHECK(error("score: val.acc\nparameters: {lineage: [1, 2]}\n") ==
        head + "parameters without 'lineage', which the sweep sets for each trial");
  CHECK(error("score: acc\nparameters: {x: [1, 2]}\n") ==
        head + "score to be a number of the results, such as val.acc, got 'acc'");
  CHECK(error("method: random\nscore: val.acc\nparameters: {x: [1, 2]}\n") ==
        head + "trials, how many values to draw, of 1 to 100000, got none");
  CHECK(error("method: halving\ntrials: 2\nscore: val.acc\nparameters: {x: [1, 2]}\nhalving: {min: 3}\n") ==
        head + "halving.max, the epochs of the last rung, got none");
  CHECK(
      error("method: halving\ntrials: 2\nscore: val.acc\nparameters: {epochs: [1, 2]}\nhalving: {min: 3, max: 9}\n") ==
      head + "parameters without 'epochs', which halving sets");
}

TEST_CASE("danling sweep: a directory belongs to one sweep, and one process at a time runs it", "[apps]") {
  const TempDir dir;
  const auto program = sweep_program(dir, "while [ ! -e $mark/go ]; do sleep 0.02; done\n");
  auto file = sweep_file(dir, "method: random\ntrials: 2\nscore: val.acc\nparameters: {x: {uniform: [0.1, 0.9]}}\n");
  run_sweep(dir, file, {"--jobs", "1", "--", program}, [&](pid_t) {
    wait_until([&] { return fs::exists(dir / "starts"); });
    const auto second = run_sweep(dir, file, {"--", program});
    CHECK(second.code == 2);
    CHECK(second.err == "[danling sweep] expected '" + (dir / "sweep").string() +
                            "' to be free, got another danling sweep that runs in it\n");
    write_file(dir / "go", "");
  });
  // More trials are the same sweep; other ranges, programs or scores are another.
  file = sweep_file(dir, "method: random\ntrials: 3\nscore: val.acc\nparameters: {x: {uniform: [0.1, 0.9]}}\n");
  CHECK(run_sweep(dir, file, {"--", program}).code == 0);
  CHECK(lines_of(dir / "starts").size() == 3);
  file = sweep_file(dir, "method: random\ntrials: 3\nscore: val.acc\nparameters: {x: {uniform: [0.2, 0.9]}}\n");
  const auto other = run_sweep(dir, file, {"--", program});
  CHECK(other.code == 2);
  CHECK_THAT(other.err, ContainsSubstring("expected the parameters of the sweep in '" + (dir / "sweep").string() +
                                          "', got others: trial-000 had "));
  CHECK_THAT(
      run_sweep(dir, file, {"--", program, "--more"}).err,
      ContainsSubstring("got another program: [\"" + program + "\",\"--more\"] instead of [\"" + program + "\"]"));
  write_file(dir / "sweep/sweep.json", "{\"format\": 2}");
  CHECK(run_sweep(dir, file, {"--", program}).err ==
        "[danling sweep] expected format 1, got 2, which a newer danling wrote (file '" +
            (dir / "sweep/sweep.json").string() + "')\n");
}

TEST_CASE("danling sweep: a program that cannot be started ends it at once", "[apps]") {
  const TempDir dir;
  const auto file = sweep_file(dir, "score: val.acc\nparameters: {x: [1, 2]}\n");
  const auto result = run_sweep(dir, file, {"--", "/nonexistent/program"});
  CHECK(result.code == 2);
  CHECK(result.err ==
        "[danling sweep] expected a program that can be started, got '/nonexistent/program' (No such file or "
        "directory)\n");
}

}  // namespace
