// The example under `danling supervise`: killed and stopped, it ends with the bytes of an undisturbed run.
#ifdef DANLING_MNIST_BINARY

#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "launched.hpp"

namespace {

namespace fs = std::filesystem;
using Catch::Matchers::EndsWith;
using danling_test::read_file;
using danling_test::TempDir;
using reliability::Launched;
using reliability::lines_of;
using reliability::wait_until;
using Words = Launched::Words;

fs::path find(const fs::path& root, const std::string& name) {
  std::error_code changes;
  for (fs::recursive_directory_iterator entry(root, changes), end; !changes && entry != end; entry.increment(changes)) {
    if (entry->path().filename() == name && entry->path().string().find("/attempts/") == std::string::npos) {
      return entry->path();
    }
  }
  return {};
}

std::string model_of(const TempDir& dir) {
  const fs::path file = find(dir.path(), "model.safetensors");
  REQUIRE(!file.empty());
  return read_file(file);
}

std::size_t lines_of_metrics(const TempDir& dir) {
  const fs::path file = find(dir.path(), "metrics.jsonl");
  return file.empty() ? 0 : lines_of(read_file(file)).size();
}

Words example(const TempDir& dir, const Words& options) {
  Words out = {DANLING_MNIST_BINARY,
               "--workspace_root",
               dir.path().string(),
               "--seed",
               "1",
               "--channels",
               "2",
               "--console",
               "false",
               "--log_interval",
               "2"};
  out.insert(out.end(), options.begin(), options.end());
  return out;
}

Words behind(Words options, const Words& program) {
  options.insert(options.end(), program.begin(), program.end());
  return options;
}

void run_undisturbed(const Words& program) {
  Launched launched(behind({"--max-failures", "1", "--"}, program), {}, "supervise");
  const int code = launched.wait();
  INFO(launched.err());
  REQUIRE(code == 0);
}

/// The process of the newest start.
pid_t program_of(const Launched& launched) {
  const std::string text = launched.err();
  const std::string mark = "(pid ";
  const auto at = text.find(mark, text.rfind("[supervise] start "));
  return static_cast<pid_t>(std::stol(text.substr(at + mark.size())));
}

int count_of(const std::string& text, const std::string& part) {
  int out = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++out;
  }
  return out;
}

TEST_CASE("supervise: the example, killed at random steps, ends with the same model", "[supervise][mnist]") {
  const Words options = {"--steps", "160", "--checkpoint.interval", "10"};
  const TempDir reference;
  run_undisturbed(example(reference, options));
  const std::uint32_t seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);

  const TempDir dir;
  Launched launched(behind({"--backoff", "0.01", "--"}, example(dir, options)), {}, "supervise");
  std::size_t lines = 0;
  for (int kills = 0; kills < 3; ++kills) {
    lines += 6 + random() % 10;  // of 80 for the whole run
    wait_until("the run to reach a step", [&] {
      return lines_of_metrics(dir) >= lines && count_of(launched.err(), "[supervise] start ") == kills + 1;
    });
    REQUIRE(kill(program_of(launched), SIGKILL) == 0);
    wait_until("the next start", [&] { return count_of(launched.err(), "[supervise] start ") == kills + 2; });
  }
  const int code = launched.wait();
  INFO(launched.err());
  CHECK(code == 0);
  CHECK(model_of(dir) == model_of(reference));
  CHECK(count_of(launched.err(), " was ended by SIGKILL (Killed)") == 3);
}

TEST_CASE("supervise: the example, stopped in the middle, is a hang, and ends with the same model",
          "[supervise][mnist]") {
  const Words options = {"--steps", "400", "--checkpoint.interval", "10"};
  const TempDir reference;
  run_undisturbed(example(reference, options));
  const TempDir dir;
  Launched launched(behind({"--backoff", "0.01", "--hang-timeout", "5", "--"}, example(dir, options)), {}, "supervise");
  wait_until("the run to reach a step", [&] { return lines_of_metrics(dir) >= 4; });
  REQUIRE(kill(program_of(launched), SIGSTOP) == 0);
  const int code = launched.wait();
  INFO(launched.err());
  CHECK(code == 0);
  CHECK(model_of(dir) == model_of(reference));
  CHECK_THAT(launched.err(), ContainsSubstring("[supervise] hang: rank 0 of 1 (pid "));
  CHECK_THAT(launched.err(), ContainsSubstring("; mnist: T (stopped)\n"));
  CHECK_THAT(launched.err(), ContainsSubstring(" ended with exit code 143 at step "));  // it saved
}

TEST_CASE("supervise: a wrong option of the example ends it at once", "[supervise][mnist]") {
  const TempDir dir;
  Launched launched(behind({"--"}, example(dir, {"--optim.lr", "fast"})), {}, "supervise");
  CHECK(launched.wait() == 2);
  CHECK_THAT(launched.err(), ContainsSubstring("'optim.lr'"));
  CHECK_THAT(launched.err(),
             EndsWith("[supervise] not restarted: exit code 2 (an error of the config) would occur again\n"));
}

TEST_CASE("supervise: workers of launch, of which one is stopped, are started again and end with the same model",
          "[supervise][mnist]") {
  const Words options = {"--steps",         "400",  "--checkpoint.interval",    "10",
                         "--deterministic", "true", "--parallel.virtual_ranks", "2"};
  const Words launch = {DANLING_COMMAND, "launch", "-n", "2", "--grace-seconds", "1", "--"};
  const TempDir reference;
  run_undisturbed(behind(launch, example(reference, options)));
  const TempDir dir;
  Launched launched(behind({"--backoff", "0.01", "--hang-timeout", "5", "--"}, behind(launch, example(dir, options))),
                    {}, "supervise");
  wait_until("the run to reach a step", [&] { return lines_of_metrics(dir) >= 4; });
  wait_until("the heartbeat of rank 1", [&] { return !find(dir.path(), "rank-00001.json").empty(); });
  const auto heartbeat = nlohmann::json::parse(read_file(find(dir.path(), "rank-00001.json")));
  REQUIRE(kill(heartbeat["pid"].get<pid_t>(), SIGSTOP) == 0);
  const int code = launched.wait();
  INFO(launched.err());
  CHECK(code == 0);
  CHECK(model_of(dir) == model_of(reference));
  CHECK(count_of(launched.err(), "[supervise] start ") == 2);
}

}  // namespace

#endif
