// The runs of a config, over versions of the code.
#include <chrono>
#include <filesystem>
#include <string>
#include <utility>

#include <danling/workspace/workspace.hpp>

#include <support/catch.hpp>
#include <support/temp_dir.hpp>

#include "workspace_in.hpp"

namespace workspace_test {

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

  auto any_config = options_in(dir);
  any_config.config_id.clear();
  const auto all = danling::find_runs(any_config);
  REQUIRE(all.size() == 4);
  CHECK(all[0].dir == dir / "experiments/lin-aaaaaaaa/aaaaaaaa-ffffffffffff");
  CHECK(all[1].dir == found[0].dir);
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

}  // namespace workspace_test
