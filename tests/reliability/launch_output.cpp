// `danling launch`: the lines of its workers.
#include <algorithm>
#include <filesystem>
#include <map>
#include <string>

#include "launched.hpp"

namespace {

using reliability::Launched;
using reliability::lines_of;
using reliability::shell;
using reliability::wait_until;

TEST_CASE("launch: lines of many workers are whole, in order, and each has its rank", "[launch]") {
  // Both streams into one file, where they could mix.
  Launched launched({"-n", "8", "--", DANLING_LAUNCH_WORKER, "lines", "4000"}, [] { dup2(1, 2); });
  CHECK(launched.wait() == 0);
  std::map<std::string, int> next;
  for (const auto& line : lines_of(launched.out())) {
    const std::string stream = line.substr(0, line.find(' ', 4));  // [rank] out, or [rank] err
    const int number = next[stream]++;
    const std::string filler(static_cast<std::size_t>(number % 211), 'x');
    std::string expected = stream + " " + std::to_string(number);
    expected += " " + filler + ".";
    REQUIRE(line == expected);
  }
  REQUIRE(next.size() == 16);
  for (int rank = 0; rank < 8; ++rank) {
    for (const std::string stream : {"out", "err"}) {
      std::string name = "[" + std::to_string(rank) + "] ";
      name += stream;
      CHECK(next[name] == 4000);
    }
  }
}

TEST_CASE("launch: stdout goes to stdout and stderr to stderr", "[launch]") {
  Launched launched(shell({"-n", "1"}, "echo one; echo two >&2"));
  CHECK(launched.wait() == 0);
  CHECK(launched.out() == "[0] one\n");
  CHECK(launched.err() == "[0] two\n");
}

TEST_CASE("launch: --no-prefix leaves lines as they are", "[launch]") {
  Launched launched(shell({"-n", "2", "--no-prefix"}, "echo [a] line; echo; printf 'no end'"));
  CHECK(launched.wait() == 0);
  auto lines = lines_of(launched.out());
  std::sort(lines.begin(), lines.end());
  CHECK(lines == Launched::Words{"", "", "[a] line", "[a] line", "no end", "no end"});
}

TEST_CASE("launch: empty lines, a last line without an end, and bytes of any kind", "[launch]") {
  Launched launched(shell({"-n", "1"}, "printf 'a\\n\\nb\\000c\\377\\nend'"));
  CHECK(launched.wait() == 0);
  CHECK(launched.out() == std::string("[0] a\n[0] \n[0] b\0c\377\n[0] end\n", 28));
}

TEST_CASE("launch: a line of more than a mebibyte is cut, and loses nothing", "[launch]") {
  Launched launched(shell({"-n", "1"}, "head -c 2500000 /dev/zero | tr '\\000' x; echo"));
  CHECK(launched.wait() == 0);
  const auto lines = lines_of(launched.out());
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == "[0] " + std::string(1048576, 'x'));
  CHECK(lines[1] == lines[0]);
  CHECK(lines[2] == "[0] " + std::string(2500000 - 2 * 1048576, 'x'));
}

TEST_CASE("launch: of a line that begins again and again, its last state is a line", "[launch]") {
  Launched fast(shell({"-n", "1"}, "printf 'a\\rb\\rc\\rd\\n\\re\\r\\nf\\r'"));
  CHECK(fast.wait() == 0);
  // The first state is shown at once, the next ones at most each second.
  CHECK(fast.out() == "[0] a\n[0] d\n[0] e\n[0] f\n");

  Launched slow(shell({"-n", "1"}, "printf '10%%\\r'; sleep 0.1; printf '20%%\\r'; sleep 1.2; printf '30%%\\r40%%'"));
  CHECK(slow.wait() == 0);
  const auto lines = lines_of(slow.out());
  CHECK(lines.front() == "[0] 10%");
  CHECK(lines.back() == "[0] 40%");
  CHECK(lines.size() <= 4);
}

TEST_CASE("launch: the run goes on when nobody reads its output any more", "[launch]") {
  const danling_test::TempDir dir;
  const std::string file = (dir / "end").string();
  Launched launched(shell({"-n", "2"},
                          "for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.05; done; echo at the end >&2;"
                          "echo done >> '" +
                              file + "'"),
                    [] {
                      int ends[2];
                      (void)!pipe(ends);
                      dup2(ends[1], 1);
                      close(ends[0]);
                      close(ends[1]);
                    });
  CHECK(launched.wait() == 0);
  CHECK(danling_test::read_file(file) == "done\ndone\n");
  auto lines = lines_of(launched.err());
  std::sort(lines.begin(), lines.end());
  CHECK(lines == Launched::Words{"[0] at the end", "[1] at the end",
                                 "[launch] expected to write output to stdout, got Broken pipe; drops such output "
                                 "and continues"});
}

TEST_CASE("launch: standard streams that are closed at the start are not taken for pipes", "[launch]") {
  Launched launched(shell({"-n", "2"}, "echo out; echo $RANK is here >&2; read x || exit 5"), [] {
    close(0);
    close(1);
  });
  CHECK(launched.wait() == 5);
  CHECK_THAT(launched.err(), ContainsSubstring("is here\n"));
}

TEST_CASE("launch: a reader that stands still holds the workers back, but not a signal", "[launch]") {
  const danling_test::TempDir dir;
  const std::string counts = (dir / "count").string();
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  Launched launched(
      shell({"-n", "1", "--grace-seconds", "0.25"},
            "trap '' TERM; while :; do head -c 65536 /dev/zero | tr '\\000' '\\n'; echo x >> '" + counts + "'; done"),
      [&] {
        dup2(ends[1], 1);
        close(ends[0]);
        close(ends[1]);
      });
  close(ends[1]);
  wait_until("the worker to be held back", [&] {
    std::error_code none;
    const auto before = std::filesystem::file_size(counts, none);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return !none && std::filesystem::file_size(counts, none) == before;
  });
  launched.send(SIGTERM);
  CHECK(launched.wait() == 137);
  close(ends[0]);
}

}  // namespace
