// The exit code of a program at its time limit, and the run that the next start finishes.
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

Ended start_program(const TempDir& dir, const std::string& words) {
  return reliability::run(
      "cd '" + dir.path().string() +
      "' && '" DANLING_FORGETFUL "' --workspace_root . --seed 1 --log_interval 0 --auto_resume true " + words);
}

fs::path directory_of_run(const TempDir& dir) {
  for (const auto& entry : fs::recursive_directory_iterator(dir.path())) {
    if (entry.path().filename() == "summary.json") {
      return entry.path().parent_path();
    }
  }
  FAIL("expected a run");
  return {};
}

std::int64_t number_after(const std::string& text, const std::string& mark) {
  const auto at = text.find(mark);
  REQUIRE(at != std::string::npos);
  return std::stoll(text.substr(at + mark.size()));
}

TEST_CASE("time_limit: a program ends with code 75, and the next start finishes the same run", "[reliability]") {
  const TempDir dir;
  const auto stopped = start_program(dir, "--epochs 1000000000 --time_limit 1s");
  INFO(stopped.output);
  CHECK(stopped.code == 75);
  CHECK_THAT(stopped.output, ContainsSubstring("[runner.stop] stopped by the time limit of 1s in epoch "));
  CHECK_THAT(stopped.output, ContainsSubstring("; the run is saved\n"));
  const auto summary = read_file(directory_of_run(dir) / "summary.json");
  CHECK_THAT(summary, ContainsSubstring("\"status\": \"stopped\""));
  CHECK_THAT(summary, ContainsSubstring("\"exit_code\": 75"));
  CHECK_THAT(summary, ContainsSubstring("\"signal\": null"));
  const std::string epochs = "--epochs " + std::to_string(number_after(summary, "\"epoch\": ") + 2);

  const auto resumed = start_program(dir, epochs);
  INFO(resumed.output);
  CHECK(resumed.code == 0);
  const TempDir other;
  REQUIRE(start_program(other, epochs).code == 0);
  CHECK(read_file(directory_of_run(dir) / "checkpoints" / "model.pth") ==
        read_file(directory_of_run(other) / "checkpoints" / "model.pth"));
}

}  // namespace
