#include <danling/workspace/files.hpp>

#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <ctime>
#include <limits>
#include <regex>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>
#include <danling/workspace/timestamp.hpp>

#include <support/child.hpp>
#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

namespace fs = std::filesystem;
using danling_test::TempDir;

TEST_CASE("disk_usage: a file takes its space once, whatever its names; folders below count", "[workspace]") {
  const TempDir dir;
  CHECK(danling::disk_usage(dir / "missing").files == 0);
  danling::write_atomic(dir / "latest.pth", std::string(1000, 'x'));
  fs::create_hard_link(dir / "latest.pth", dir / "best.pth");
  fs::create_directory(dir / "adapter");
  danling::write_atomic(dir / "adapter/model.safetensors", std::string(24, 'x'));
  fs::create_symlink("latest.pth", dir / "link");
  const auto usage = danling::disk_usage(dir.path());
  CHECK(usage.files == 3);
  CHECK(usage.bytes == 1024);
}

TEST_CASE("write_atomic: writes and replaces, and leaves nothing else behind", "[workspace]") {
  const TempDir dir;
  danling::write_atomic(dir / "a.json", "one");
  danling::write_atomic(dir / "a.json", "second");
  CHECK(danling_test::read_file(dir / "a.json") == "second");
  CHECK(danling::read_text(dir / "a.json") == "second");
  CHECK(std::distance(fs::directory_iterator(dir.path()), {}) == 1);
}

TEST_CASE("write_atomic: a reader never sees half of a file", "[workspace]") {
  const TempDir dir;
  const std::string a(200000, 'a');
  const std::string b(150000, 'b');
  danling::write_atomic(dir / "f", a);
  danling_test::Child writer([&](auto ready) {
    ready();
    for (int i = 0; i < 100; ++i) {
      danling::write_atomic(dir / "f", i % 2 == 0 ? b : a);
    }
    return 0;
  });
  writer.wait_ready();
  bool whole = true;
  for (int i = 0; i < 2000; ++i) {
    const std::string text = danling::read_text(dir / "f");
    whole = whole && (text == a || text == b);
  }
  CHECK(writer.wait() == 0);
  CHECK(whole);
  CHECK(danling::read_text(dir / "f") == a);
}

TEST_CASE("ensure_dir: makes what is missing, gives the path, and says what is in the way", "[workspace]") {
  const TempDir dir;
  const fs::path deep = dir / "a/b/c";
  CHECK(danling::ensure_dir(deep) == deep);
  CHECK(fs::is_directory(deep));
  CHECK(danling::ensure_dir(deep) == deep);
  danling::write_atomic(dir / "file", "text");
  CHECK(danling_test::error_of<danling::Error>([&] { danling::ensure_dir(dir / "file"); }) ==
        "[workspace.ensure_dir] expected a directory " + danling::detail::quote((dir / "file").string()) +
            " that exists or can be created, got errno 20 (Not a directory)");
}

TEST_CASE("write_atomic: says what failed and keeps what was there", "[workspace]") {
  const TempDir dir;
  CHECK(danling_test::error_of<danling::Error>([&] { danling::write_atomic(dir / "no/such/a", "x"); }) ==
        "[workspace.write] expected to create '" + (dir / "no/such/a").string() +
            "', got errno 2 (No such file or directory)");
  fs::create_directories(dir / "folder/inside");
  CHECK(danling_test::error_of<danling::Error>([&] { danling::write_atomic(dir / "folder", "x"); }) ==
        "[workspace.write] expected to rename the new file to '" + (dir / "folder").string() +
            "', got errno 21 (Is a directory)");
  CHECK(std::distance(fs::directory_iterator(dir.path()), {}) == 1);
  CHECK(danling_test::error_of<danling::Error>([&] { danling::read_text(dir / "absent"); }) ==
        "[workspace.read] expected a readable file, got '" + (dir / "absent").string() +
            "': No such file or directory");
}

TEST_CASE("write_atomic: a limit of file size is an error and not the end of the process", "[workspace]") {
  const TempDir dir;
  const fs::path path = dir / "a.json";
  danling::write_atomic(path, "old");
  danling_test::Child child([&](auto) {
    const rlimit limit{4096, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, SIG_DFL);
    const auto text =
        danling_test::error_of<danling::Error>([&] { danling::write_atomic(path, std::string(5000, 'x')); });
    sigset_t pending;
    sigpending(&pending);
    const bool told =
        text == "[workspace.write] expected to write '" + path.string() + "', got errno 27 (File too large)";
    return told && sigismember(&pending, SIGXFSZ) == 0 ? 0 : 1;
  });
  CHECK(child.wait() == 0);
  CHECK(danling::read_text(path) == "old");
  CHECK(std::distance(fs::directory_iterator(dir.path()), {}) == 1);
}

TEST_CASE("to_json: keeps order, rounds as Python's round, and is valid for what JSON cannot say", "[workspace]") {
  danling::Result result;
  result.set("loss", 0.123456789123);
  result.set("acc", 1.0);
  result.set("nan", std::numeric_limits<double>::quiet_NaN());
  result.set("per_class", std::vector<double>{0.5, std::numeric_limits<double>::infinity()});
  result["val"].set("low", -std::numeric_limits<double>::infinity());
  result["val"].set("big", 1.5e300);
  const auto json = nlohmann::ordered_json::parse(danling::to_json(result));
  CHECK(
      json.dump() ==
      R"({"loss":0.12345679,"acc":1.0,"nan":"NaN","per_class":[0.5,"Infinity"],"val":{"low":"-Infinity","big":1.5e+300}})");
  // Python 3.11: round(2.675, 2), round(1.005, 2) and round(0.5000000050000001, 8).
  danling::Result close;
  close.set("a", 2.675);
  close.set("b", 1.005);
  CHECK(nlohmann::json::parse(danling::to_json(close, 2)).dump() == R"({"a":2.67,"b":1.0})");
  danling::Result eight;
  eight.set("a", 0.5000000050000001);
  CHECK(nlohmann::json::parse(danling::to_json(eight))["a"].get<double>() == 0.50000001);
}

TEST_CASE("to_json: numbers near zero keep eight digits, so that a smaller loss stays smaller", "[workspace]") {
  danling::Result result;
  result.set("a", 7.1530001234e-10);
  result.set("b", -0.0123456789);
  result.set("c", 0.0);
  result.set("d", 5e-324);
  const auto json = nlohmann::json::parse(danling::to_json(result));
  CHECK(json["a"].get<double>() == 7.1530001e-10);
  CHECK(json["b"].get<double>() == -0.012345679);
  CHECK(json["c"].get<double>() == 0.0);
  CHECK(json["d"].get<double>() == 5e-324);
}

TEST_CASE("to_json: a name that is no UTF-8 does not spoil the file", "[workspace]") {
  danling::Result result;
  result.set("a\xff", 1.0);
  CHECK_NOTHROW(nlohmann::json::parse(danling::to_json(result)));
}

TEST_CASE("make_timestamp: unique, in order, safe as a name", "[workspace]") {
  std::string last;
  for (int i = 0; i < 2000; ++i) {
    const std::string now = danling::make_timestamp();
    CHECK(now > last);
    last = now;
  }
  CHECK(std::regex_match(last, std::regex("[0-9]{8}-[0-9]{6}-[0-9]{6}")));

  std::vector<std::string> many[2];
  std::thread threads[2];
  for (int t = 0; t < 2; ++t) {
    threads[t] = std::thread([&many, t] {
      for (int i = 0; i < 1000; ++i) {
        many[t].push_back(danling::make_timestamp(true));
      }
    });
  }
  std::set<std::string> all;
  for (int t = 0; t < 2; ++t) {
    threads[t].join();
    all.insert(many[t].begin(), many[t].end());
  }
  CHECK(all.size() == 2000);
}

TEST_CASE("make_timestamp: is the time of the clock, in UTC when asked", "[workspace]") {
  const std::time_t before = std::time(nullptr);
  const std::string text = danling::make_timestamp(true);
  const std::time_t after = std::time(nullptr);
  std::tm time{};
  REQUIRE(strptime(text.c_str(), "%Y%m%d-%H%M%S", &time) != nullptr);
  const std::time_t stamp = timegm(&time);
  CHECK(stamp >= before);
  CHECK(stamp <= after + 1);

  const std::string iso = danling::make_utc_time();
  CHECK(std::regex_match(iso, std::regex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z")));
}

}  // namespace
