// Output of a run on a terminal, to a pipe, and with `quiet`.
#include <sys/stat.h>

#include <set>
#include <thread>

#include <danling/telemetry/text.hpp>

#include <support/environment.hpp>
#include <support/screen.hpp>

#include "fixture.hpp"
#include "printed.hpp"

namespace runner_test {
namespace {

using danling_test::Screen;
using danling_test::Variable;
using Lines = std::vector<std::string>;

/// Two epochs; `pauses`: in the first so many steps of each, longer than the time between two drawings.
int run_slowly(const Folder& folder, std::vector<std::string> words, std::int64_t stop_at = -1,
               std::int64_t pauses = 100) {
  words.insert(words.begin(), {"program", "--workspace_root", folder.path().string(), "--console", "true", "--epochs",
                               "2", "--log_interval", "2"});
  std::vector<char*> arguments;
  for (auto& word : words) {
    arguments.push_back(word.data());
  }
  return dl::run<TinyRunner, TinyConfig>(static_cast<int>(arguments.size()), arguments.data(), [&](TinyRunner& runner) {
    const auto pause_at = [pauses](std::int64_t number) {
      std::this_thread::sleep_for(std::chrono::milliseconds(number < pauses ? 105 : 0));
    };
    const auto pause = [stop_at, pause_at](TinyRunner& self, std::int64_t number) {
      pause_at(number);
      if (number == stop_at) {
        self.request_stop();
      }
    };
    runner.before_step = pause;
    runner.before_evaluation_step = [pause_at](TinyRunner&, std::int64_t number) { pause_at(number); };
    runner.train();
  });
}

/// The bytes that arrive at a terminal of 80 columns which the process writes to.
std::string bytes_on_terminal(const std::function<void()>& run) {
  int master = -1, slave = -1;
  const winsize size{24, 80, 0, 0};
  REQUIRE(openpty(&master, &slave, nullptr, nullptr, &size) == 0);
  std::string out;
  std::thread reader([&] {
    char block[4096];
    for (ssize_t got = 0; (got = ::read(master, block, sizeof block)) > 0;) {
      out.append(block, static_cast<std::size_t>(got));
    }
  });
  const int before_out = ::dup(STDOUT_FILENO), before_error = ::dup(STDERR_FILENO);
  std::fflush(stdout);
  ::dup2(slave, STDOUT_FILENO);
  ::dup2(slave, STDERR_FILENO);
  ::close(slave);
  run();
  std::fflush(stdout);
  ::dup2(before_out, STDOUT_FILENO);
  ::dup2(before_error, STDERR_FILENO);
  ::close(before_out);
  ::close(before_error);
  reader.join();  // no one has the terminal open
  ::close(master);
  return out;
}

/// Returns the lines on the screen after each drawing and at the end.
std::vector<Lines> frames_of(const std::string& bytes) {
  static const std::string end_of_drawing = "\x1b[?7h";
  std::vector<Lines> out;
  Screen screen(80, 24);
  std::size_t from = 0;
  for (std::size_t at = 0; (at = bytes.find(end_of_drawing, from)) != std::string::npos;) {
    screen.feed(bytes.substr(from, at + end_of_drawing.size() - from));
    from = at + end_of_drawing.size();
    out.push_back(screen.lines());
  }
  screen.feed(bytes.substr(from));
  out.push_back(screen.lines());
  return out;
}

bool has(const Lines& lines, const std::string& begin, const std::string& part) {
  return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
    return line.starts_with(begin) && line.find(part) != std::string::npos;
  });
}

bool any(const std::vector<Lines>& frames, const std::string& begin, const std::string& part) {
  return std::any_of(frames.begin(), frames.end(), [&](const Lines& lines) { return has(lines, begin, part); });
}

TEST_CASE("run on a terminal: a line for the run, the pass and the numbers, and none of them at the end", "[runner]") {
  const Folder folder;
  const Variable term("TERM", "xterm");
  const auto frames = frames_of(bytes_on_terminal([&] { CHECK(run_slowly(folder, {}) == dl::exit_success); }));
  REQUIRE(frames.size() > 20);
  CHECK(any(frames, "run ", "  epoch 1/2  ["));
  CHECK(any(frames, "run ", "  epoch 2/2  ["));
  CHECK(any(frames, "run ", " left"));
  CHECK(any(frames, "train ", "]  3/7  "));
  CHECK(any(frames, "evaluate val ", "]  2/3  "));
  CHECK(any(frames, "  loss ", "  acc "));
  CHECK(any(frames, "  ", " samples/s"));
  for (const Lines& lines : frames) {  // levels stand together, below all lines
    const auto run =
        std::find_if(lines.begin(), lines.end(), [](const auto& line) { return line.starts_with("run "); });
    CHECK(lines.end() - run <= 4);
  }
  const Lines& last = frames.back();
  CHECK_FALSE(has(last, "run ", ""));
  CHECK_FALSE(has(last, "train ", "/7"));
  CHECK(has(last, "epoch 2/2  train loss ", "val loss"));
}

TEST_CASE("run to a pipe: plain lines without control characters", "[runner]") {
  const Folder folder;
  const Variable term("TERM", "xterm");
  const auto text = printed_by([&] { CHECK(run_slowly(folder, {}) == dl::exit_success); });
  CHECK_THAT(text, ContainsSubstring("\ntrain epoch 1/2  3/7  loss "));
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    REQUIRE((byte == '\n' || (byte >= 0x20 && byte != 0x7f)));
  }
  CHECK_THAT(text, !ContainsSubstring("run  "));
}

TEST_CASE("quiet: only warnings and errors reach the console, all lines the log", "[runner]") {
  const Folder folder;
  const Variable term("TERM", "xterm");
  const auto warned = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--score_name", "unknown"});
    const std::string piped = printed_by([&] { CHECK(run_slowly(folder, words, -1, 2) == dl::exit_success); });
    const std::string on_terminal =
        bytes_on_terminal([&] { CHECK(run_slowly(folder, words, -1, 2) == dl::exit_success); });
    CHECK(std::count(on_terminal.begin(), on_terminal.end(), '\n') == std::count(piped.begin(), piped.end(), '\n'));
    return piped;
  };
  const std::string text = warned({"--quiet", "true"});
  std::istringstream lines(text);
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    CHECK_THAT(line, StartsWith("warning: "));
  }
  CHECK(count > 0);
  CHECK_THAT(logs_of(find_file(folder, "results.json").parent_path()),
             ContainsSubstring("info     epoch 2/2  train loss "));
  CHECK(warned({"--console", "false"}).empty());
  CHECK(warned({"--console", "false", "--quiet", "true"}).empty());
}

TEST_CASE("run: curves, disk space and how to resume are logged at the end, and after a stop", "[runner]") {
  const Folder folder;
  const Variable locale("LC_ALL", "C");
  const auto text = printed_by([&] { CHECK(run_slowly(folder, {}, -1, 0) == dl::exit_success); });
  const fs::path dir = find_file(folder, "results.json").parent_path();
  CHECK_THAT(text, ContainsSubstring("curve        first  by epoch"));
  std::uintmax_t bytes = 0;
  std::int64_t files = 0;
  std::set<std::uint64_t> seen;
  for (const auto& file : fs::directory_iterator(dir / "checkpoints")) {
    struct stat status{};
    REQUIRE(stat(file.path().c_str(), &status) == 0);
    bytes += seen.insert(status.st_ino).second ? fs::file_size(file) : 0;
    ++files;
  }
  CHECK_THAT(text, ContainsSubstring(dl::detail::concat("\ncheckpoints: ", files, " files, ", dl::format_bytes(bytes),
                                                        " in checkpoints/\n")));
  const std::string latest = (dir / "checkpoints" / "latest.pth").string();
  CHECK_THAT(text, ContainsSubstring("\nresume: --auto_resume true, or --resume " + latest +
                                     "; raise epochs to train further\n"));
  const Folder other;
  const auto stopped = printed_by([&] { CHECK(run_slowly(other, {}, /*stop_at=*/3, 0) == 128 + 15); });
  CHECK_THAT(stopped, ContainsSubstring("the run is saved\nresume: --auto_resume true, or --resume "));
  // The options continue it.
  const auto resumed =
      printed_by([&] { CHECK(run_slowly(other, {"--auto_resume", "true"}, -1, 0) == dl::exit_success); });
  CHECK_THAT(resumed, ContainsSubstring("epoch 2/2  train loss "));
}

}  // namespace
}  // namespace runner_test
