#include <danling/workspace/code_identity.hpp>

#include <sys/resource.h>

#include <chrono>
#include <cstdlib>

#include <workspace/command.hpp>

#include <support/child.hpp>
#include <support/environment.hpp>
#include <support/temp_dir.hpp>

namespace {

namespace fs = std::filesystem;
using danling_test::TempDir;
using danling_test::Variable;

void shell(const std::string& command) {
  INFO(command);
  REQUIRE(std::system(("(" + command + ") >/dev/null 2>&1").c_str()) == 0);
}

std::string shell_output(const std::string& command) {
  const auto out = danling::detail::run_command({"sh", "-c", command}, "", std::chrono::seconds(10), 1 << 20);
  REQUIRE(out.ok);
  return out.out.substr(0, out.out.find_last_not_of('\n') + 1);
}

/// A repository with one commit of two files; settings of the user, and of a hook that runs the tests, are not seen.
struct Repository {
  Variable settings{"GIT_CONFIG_GLOBAL", "/dev/null"};
  Variable system{"GIT_CONFIG_NOSYSTEM", "1"};
  Variable folder{"GIT_DIR", std::nullopt};
  Variable index{"GIT_INDEX_FILE", std::nullopt};
  TempDir dir;
  std::string git = "git -C '" + dir.path().string() + "' -c user.name=a -c user.email=a@b ";
  Repository() {
    danling_test::write_file(dir / "a.txt", "one\n");
    danling_test::write_file(dir / "sub/b.txt", "two\n");
    shell(git + "init && " + git + "add . && " + git + "commit -m first");
  }
};

TEST_CASE("read_code_identity: a clean tree is its commit", "[workspace]") {
  const Repository repository;
  const auto commit = shell_output(repository.git + "rev-parse HEAD");
  for (const char* folder : {".", "sub"}) {
    const auto code = danling::read_code_identity(repository.dir / folder);
    CHECK(code.commit == commit);
    CHECK(code.id == commit.substr(0, 8));
    CHECK_FALSE(code.dirty);
    CHECK(code.diff.empty());
    CHECK(code.problem.empty());
  }
}

TEST_CASE("read_code_identity: changes add the hash of the patch, which can be applied", "[workspace]") {
  const Repository repository;
  // Blocks alike, between which another is put: where its lines begin is for git to choose.
  danling_test::write_file(repository.dir / "sub/b.txt", "for a\n  x\nend\n\nfor c\n  x\nend\n");
  shell(repository.git + "commit -am second");
  const auto clean = danling::read_code_identity(repository.dir.path());
  danling_test::write_file(repository.dir / "a.txt", "changed\n");
  danling_test::write_file(repository.dir / "sub/b.txt", "for a\n  x\nend\n\nfor b\n  x\nend\n\nfor c\n  x\nend\n");
  const auto code = danling::read_code_identity(repository.dir.path());
  CHECK(code.dirty);
  CHECK(code.commit == clean.commit);
  danling_test::write_file(repository.dir / "sub/patch", code.diff);
  const std::string patch = "'" + (repository.dir / "sub/patch").string() + "'";
  const auto hash = shell_output("git hash-object " + patch);
  CHECK(code.id == clean.id + "-d" + hash.substr(0, 10));
  // The same from a folder below, and with settings that change how git prints.
  danling_test::write_file(repository.dir / "sub/order", "sub/*\n");
  for (const std::string setting :
       {"diff.noprefix true", "color.diff always", "diff.algorithm patience", "diff.relative true",
        "diff.suppressBlankEmpty true", "diff.indentHeuristic false", "diff.orderFile order"}) {
    CAPTURE(setting);
    shell(repository.git + "config " + setting);
    CHECK(danling::read_code_identity(repository.dir / "sub").id == code.id);
  }
  shell(repository.git + "checkout a.txt sub/b.txt && " + repository.git + "apply " + patch);
  CHECK(danling_test::read_file(repository.dir / "a.txt") == "changed\n");
}

TEST_CASE("read_code_identity: staged changes count, untracked files do not", "[workspace]") {
  const Repository repository;
  danling_test::write_file(repository.dir / "new.txt", "new\n");
  CHECK_FALSE(danling::read_code_identity(repository.dir.path()).dirty);
  shell(repository.git + "add new.txt");
  CHECK(danling::read_code_identity(repository.dir.path()).dirty);
}

TEST_CASE("read_code_identity: says why there is no identity", "[workspace]") {
  const TempDir dir;
  SECTION("no repository") {
    const Variable ceiling("GIT_CEILING_DIRECTORIES", dir.path().parent_path().string());
    const auto code = danling::read_code_identity(dir.path());
    CHECK_FALSE(code.known());
    CHECK_THAT(code.problem, ContainsSubstring("git failed: 'fatal: not a git repository"));
  }
  SECTION("a repository without a commit") {
    shell("git init '" + dir.path().string() + "'");
    const auto code = danling::read_code_identity(dir.path());
    CHECK_FALSE(code.known());
    CHECK(code.problem == "git failed: 'fatal: Needed a single revision'");
  }
  SECTION("no git") {
    const Variable path("PATH", dir.path().string());
    const auto code = danling::read_code_identity(dir.path());
    CHECK_FALSE(code.known());
    CHECK(code.problem == "git is not installed");
  }
  SECTION("a git that hangs") {
    danling_test::write_file(dir / "git", "#!/bin/sh\nexec /bin/sleep 1000\n");  // the tests do not wait that long
    fs::permissions(dir / "git", fs::perms::owner_all);
    const Variable path("PATH", dir.path().string());
    const auto code = danling::read_code_identity(dir.path(), std::chrono::milliseconds(200));
    CHECK_FALSE(code.known());
    CHECK(code.problem == "git did not end within 200 ms");
  }
}

TEST_CASE("read_code_identity: a limit of file size does not change it", "[workspace]") {
  const Repository repository;
  danling_test::write_file(repository.dir / "a.txt", std::string(30'000, 'x') + "\n");
  const auto id = danling::read_code_identity(repository.dir.path()).id;
  CHECK(id.find("-dunknown") == std::string::npos);
  danling_test::Child child([&](auto) {
    const rlimit limit{4096, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    return danling::read_code_identity(repository.dir.path()).id == id ? 0 : 1;
  });
  CHECK(child.wait() == 0);
}

TEST_CASE("run_command: gives a long input whole, and does not mind a program that reads none", "[workspace]") {
  const std::string input(3'000'000, 'x');
  const auto read = danling::detail::run_command({"wc", "-c"}, input, std::chrono::seconds(30), 1 << 20);
  CHECK(read.ok);
  CHECK(std::stol(read.out) == 3'000'000);
  CHECK(danling::detail::run_command({"cat"}, input, std::chrono::seconds(30), 4'000'000).out == input);
  CHECK(danling::detail::run_command({"true"}, input, std::chrono::seconds(30), 1 << 20).ok);
}

TEST_CASE("read_code_identity: another repository in GIT_DIR does not mislead", "[workspace]") {
  const Repository repository;
  const Repository other;
  danling_test::write_file(other.dir / "a.txt", "more\n");
  shell(other.git + "commit -am second");
  const Variable variable("GIT_DIR", (other.dir / ".git").string());
  CHECK(danling::read_code_identity(repository.dir.path()).commit ==
        shell_output("env -u GIT_DIR " + repository.git + "rev-parse HEAD"));
}

TEST_CASE("run_command: ends a program that prints too much", "[workspace]") {
  const auto out =
      danling::detail::run_command({"sh", "-c", "while :; do echo more; done"}, "", std::chrono::seconds(30), 100000);
  CHECK(out.too_long);
  CHECK_FALSE(out.ok);
  CHECK(out.out.size() > 100000);
}

TEST_CASE("run_command: passes the input on and reports a failing program", "[workspace]") {
  const std::string text(300000, 'x');
  const auto copied = danling::detail::run_command({"cat"}, text, std::chrono::seconds(10), 1 << 20);
  CHECK(copied.ok);
  CHECK(copied.out == text);
  const auto failed =
      danling::detail::run_command({"sh", "-c", "echo no >&2; exit 3"}, "", std::chrono::seconds(10), 1 << 20);
  CHECK_FALSE(failed.ok);
  CHECK(failed.error == "no\n");
}

TEST_CASE("make_run_id: the code's identity before the config's", "[workspace]") {
  CHECK(danling::make_run_id("1234abcd", "0123456789ab") == "1234abcd-0123456789ab");
  CHECK(danling::make_run_id("", "0123456789ab") == "0123456789ab");
}

}  // namespace
