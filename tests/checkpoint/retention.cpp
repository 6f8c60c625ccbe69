// Which history checkpoints stay.
#include <checkpoint/retention.hpp>

#include <cmath>
#include <set>

#include <danling/checkpoint/file.hpp>
#include <danling/checkpoint/file_manager.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

using danling::HistoryEntry;
using danling::State;
using danling::superseded;
using danling_test::error_of;

constexpr std::int64_t kHour = 3600LL * 1000 * 1000 * 1000;

std::vector<HistoryEntry> hourly(const std::vector<std::optional<double>>& scores) {
  std::vector<HistoryEntry> out;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    out.push_back({std::to_string(i), static_cast<std::int64_t>(i) * kHour, scores[i]});
  }
  return out;
}

using Text = std::vector<std::string>;

TEST_CASE("superseded: without rules everything stays, and the newest always does", "[checkpoint]") {
  const auto history = hourly({1.0, 2.0, std::nullopt, 0.5});
  CHECK(superseded(history, {}).empty());
  CHECK(superseded(history, {.latest = 2}) == Text{"0", "1"});
  CHECK(superseded(history, {.latest = 9}).empty());
  CHECK(superseded(history, {.best = 1, .higher_is_better = true}) == Text{"0", "2"});
  CHECK(superseded({}, {.latest = 1}).empty());
}

TEST_CASE("superseded: the best stay by their score, the newer among equals, and one without a score never",
          "[checkpoint]") {
  const auto history = hourly({0.3, 0.1, 0.2, 0.1, std::nullopt, NAN, 0.9});
  CHECK(superseded(history, {.best = 1}) == Text{"0", "1", "2", "4", "5"});
  CHECK(superseded(history, {.best = 2}) == Text{"0", "2", "4", "5"});
  CHECK(superseded(history, {.best = 2, .higher_is_better = true}) == Text{"1", "2", "3", "4", "5"});
  CHECK(superseded(history, {.latest = 2, .best = 1}) == Text{"0", "1", "2", "4"});
}

TEST_CASE("superseded: the first of every span of hours stays", "[checkpoint]") {
  const auto history = hourly({1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0});
  CHECK(superseded(history, {.every_hours = 3.0}) == Text{"1", "2", "4", "5"});
  CHECK(superseded(history, {.every_hours = 0.5}).empty());
  CHECK(superseded(history, {.latest = 3, .every_hours = 100.0}) == Text{"1", "2", "3", "4"});
}

TEST_CASE("FileCheckpointManager: the best of the history stay, also those of an earlier process", "[checkpoint]") {
  const danling_test::TempDir directory;
  const std::vector<double> losses = {0.5, 0.1, 0.4, 0.2, 0.3, 0.9, 0.8};
  for (std::size_t epoch = 0; epoch < losses.size(); ++epoch) {
    State state;
    state["epoch"] = static_cast<std::int64_t>(epoch);
    danling::FileCheckpointManager manager(
        {.directory = directory.path(), .interval = 1, .keep_latest_k = 1, .keep_best_k = 2}, [&] { return state; },
        [&] { return state; });
    manager.save_checkpoint({.epoch = static_cast<std::int64_t>(epoch), .score = losses[epoch]});
    CHECK(manager.close());
  }
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    names.insert(entry.path().filename().string());
  }
  CHECK(names == std::set<std::string>{"latest.pth", "previous.pth", "ckpt-e000002.pth", "ckpt-e000004.pth",
                                       "ckpt-e000007.pth"});
  CHECK(danling::load_file(directory / "ckpt-e000002.pth").at("checkpoint").at("score").number() == 0.1);
}

TEST_CASE("FileCheckpointManager: options below zero are refused by name", "[checkpoint]") {
  const auto refuse = [](danling::CheckpointOptions options) {
    return error_of<danling::ConfigError>([&] { danling::FileCheckpointManager(std::move(options), {}, {}); });
  };
  CHECK(refuse({.directory = "nowhere", .keep_best_k = -2}) == "[checkpoint.keep_best_k] expected 0 or more, got -2");
  CHECK(refuse({.directory = "nowhere", .keep_every_hours = -0.5}) ==
        "[checkpoint.keep_every_hours] expected 0 or more, got -0.5");
  CHECK(refuse({.directory = "nowhere", .async_mode = "asynch"}) ==
        "[checkpoint.async_mode] expected one of disabled, async, async_with_pinned_mem, got 'asynch'");
}

TEST_CASE("superseded: hours that a rule has counted before are not counted again by the times of a copy",
          "[checkpoint]") {
  std::vector<HistoryEntry> copied;
  for (int i = 0; i < 6; ++i) {
    copied.push_back({std::to_string(i), 100 * kHour + (i * 7919) % 5});  // all in one moment, in any order
  }
  danling::mark_kept_by_hours(copied, {.latest = 2, .every_hours = 3.0});
  CHECK(superseded(copied, {.latest = 2, .every_hours = 3.0}).empty());
  // Those that no other rule kept are safe; the young ones are decided when they leave the newest.
  copied.push_back({"6", 101 * kHour});
  copied.push_back({"7", 102 * kHour});
  const auto gone = superseded(copied, {.latest = 2, .every_hours = 3.0});
  CHECK(std::set<std::string>(gone.begin(), gone.end()).count("3") == 0);
  // A clock that went back decides nothing.
  const std::vector<HistoryEntry> jumped = {{"0", 9 * kHour}, {"1", 2 * kHour}, {"2", 3 * kHour}, {"3", 6 * kHour}};
  CHECK(superseded(jumped, {.every_hours = 3.0}) == Text{"2"});
}

TEST_CASE("FileCheckpointManager: retention goes by the counters, not by the times of files", "[checkpoint]") {
  const danling_test::TempDir directory;
  const auto save = [&](std::int64_t epoch) {
    State state;
    state["epoch"] = epoch;
    danling::FileCheckpointManager manager(
        {.directory = directory.path(), .interval = 1, .keep_latest_k = 3}, [&] { return state; },
        [&] { return state; });
    manager.save_checkpoint({.epoch = epoch});
    CHECK(manager.close());
  };
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    save(epoch);
  }
  // As after `cp -r`, in the order of its choice: the oldest was copied last.
  const auto now = std::filesystem::file_time_type::clock::now();
  for (int epoch = 1; epoch <= 3; ++epoch) {
    std::filesystem::last_write_time(directory / ("ckpt-e00000" + std::to_string(epoch) + ".pth"),
                                     now - std::chrono::hours(epoch));
  }
  save(3);
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    names.insert(entry.path().filename().string());
  }
  CHECK(names == std::set<std::string>{"latest.pth", "previous.pth", "ckpt-e000002.pth", "ckpt-e000003.pth",
                                       "ckpt-e000004.pth"});
}

}  // namespace
