// The log of a run: its level, the pattern of its lines and the rotation of its file.
#include <regex>

#include <danling/workspace/run_directory.hpp>

#include "fixture.hpp"
#include "parse.hpp"
#include "printed.hpp"

namespace runner_test {
namespace {

/// Returns the output of a run of one epoch with a line for each step.
std::string printed_run(const Folder& folder, const std::vector<std::string>& more, int expected,
                        const std::function<void(TinyRunner&)>& prepare = {}) {
  std::vector<std::string> words = {
      "program", "--workspace_root", folder.path().string(), "--console", "true", "--epochs", "1", "--log_interval",
      "1"};
  words.insert(words.end(), more.begin(), more.end());
  std::vector<char*> arguments;
  for (auto& word : words) {
    arguments.push_back(word.data());
  }
  const auto train = [&](TinyRunner& runner) {
    if (prepare) {
      prepare(runner);
    }
    runner.train();
  };
  return printed_by([&] {
    const int code = dl::run<TinyRunner, TinyConfig>(static_cast<int>(arguments.size()), arguments.data(), train);
    CHECK(code == expected);
  });
}

struct LoggedRun {
  explicit LoggedRun(const std::vector<std::string>& more)
      : printed(printed_run(folder, more, dl::exit_success)), dir(find_file(folder, "results.json").parent_path()) {}

  Folder folder;
  std::string printed;
  fs::path dir;
};

TEST_CASE("log_level: debug adds lines, warning leaves those of problems, on the console and in the log", "[runner]") {
  const LoggedRun all({"--log_level", "debug"});
  CHECK_THAT(all.printed, ContainsSubstring("\ndebug: split 'train': begins a pass at batch 0 of 7\n"));
  CHECK_THAT(logs_of(all.dir), ContainsSubstring(" debug    checkpoint: training waited "));
  CHECK_THAT(logs_of(all.dir), ContainsSubstring(" debug    set up: rank 0 of 1 on cpu, "));
  CHECK_THAT(logs_of(all.dir), ContainsSubstring(" info     epoch 1/1  train loss "));

  const LoggedRun warnings({"--log_level", "warning", "--score_name", "unknown"});
  const std::regex lines("(warning: [^\n]*\n)+");
  CHECK(std::regex_match(warnings.printed, lines));
  CHECK(std::regex_match(logs_of(warnings.dir), std::regex("([-0-9]{10} [0-9:.]{12} warning  [^\n]*\n)+")));

  const LoggedRun none({"--log_level", "off"});
  CHECK(none.printed + logs_of(none.dir) == "");
}

TEST_CASE("log_level: the error that ends a run is printed with every level", "[runner]") {
  const Folder folder;
  const std::string printed = printed_run(folder, {"--log_level", "off"}, dl::exit_failure,
                                          [](TinyRunner& runner) { throw_before(runner, 2); });
  CHECK_THAT(printed, StartsWith("error: ") && ContainsSubstring("a bad batch"));
}

TEST_CASE("log_max_size: the run's log is rotated, and log_pattern writes its lines", "[runner]") {
  const LoggedRun run({"--log_pattern", "<%l> %v", "--log_max_size", "1000B", "--log_max_files", "9"});
  const fs::path log =
      dl::RunDirectory(run.dir).log_file().value();  // the current file, which `danling runs show` prints
  std::string text;
  std::size_t rotated = 0;
  for (const char index : std::string("987654321")) {
    const fs::path file = log.parent_path() / (log.stem().string() + "." + index + ".log");
    if (fs::exists(file)) {
      CHECK(fs::file_size(file) <= 1000);
      text += read_file(file);
      ++rotated;
    }
  }
  CHECK(rotated >= 1);
  CHECK(fs::file_size(log) <= 1000);
  CHECK(logs_of(run.dir).size() == (text += read_file(log)).size());
  // Outside of a repository, the first line is that of git.
  CHECK_THAT(text, StartsWith("<info> ") && ContainsSubstring("<info> train: train; evaluate: val\n"));
  CHECK_THAT(text, ContainsSubstring("\n<info> epoch 1/1  train loss ") && ContainsSubstring("\n<info> resume: "));
}

TEST_CASE("log_level, log_pattern, log_max_size, log_max_files: wrong values are errors", "[runner]") {
  CHECK(
      error_of_options("--log_level", "verbose") ==
      "[config.parse] expected one of debug, info, warning, error, off for 'log_level', got 'verbose' (command line)");
  CHECK(error_of_options("--log_pattern", "%l") ==
        "[logger.pattern] expected a pattern with %v, the text of a line, got '%l'");
  CHECK(error_of_options("--log_max_size", "0") == "[config.validate] expected 'log_max_size' above 0, got 0");
  CHECK(error_of_options("--log_max_files", "3") ==
        "[config.validate] expected 'log_max_size' beside 'log_max_files', got none");
  CHECK(error_of_options("--log_max_size", "1MiB", "--log_max_files", "0") ==
        "[config.parse] expected a value of at least 1 for 'log_max_files', got 0 (command line)");
}

}  // namespace
}  // namespace runner_test
