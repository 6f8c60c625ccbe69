// The library that injects faults, preloaded into a program that prints what its file calls give.
#include <filesystem>
#include <string>

#include <support/catch.hpp>
#include <support/temp_dir.hpp>

#include "program.hpp"

namespace {

using danling_test::read_file;
using danling_test::TempDir;
using reliability::Ended;

Ended calls(const TempDir& dir, const std::string& rules, const std::string& words, const std::string& more = "") {
  // In a shell of its own, so that a kill is told as its exit code.
  return reliability::run("cd '" + dir.path().string() + "' && sh -c \"" + more + " DANLING_FAULTS_UNDER='" +
                          std::filesystem::canonical(dir.path()).string() + "' DANLING_FAULTS='" + rules + "' " +
                          reliability::preload() + " '" DANLING_CALLS "' " + words + "\"");
}

TEST_CASE("faults: without a rule every call is left alone", "[reliability]") {
  const TempDir dir;
  const auto ended =
      calls(dir, "", "open write:10 pwrite:3 writev:5 fsync fdatasync truncate link rename mkdir close unlink");
  CHECK(ended.output ==
        "open 0\nwrite 10\npwrite 3\nwritev 10\nfsync 0\nfdatasync 0\ntruncate 0\nlink 0\nrename 0\nmkdir 0\n"
        "close 0\nunlink ENOENT\n");
  CHECK(ended.code == 0);
}

TEST_CASE("faults: a call fails with the errno of its rule and does nothing", "[reliability]") {
  const TempDir dir;
  SECTION("write") {
    CHECK(calls(dir, "write:2:ENOSPC", "open write:10 write:10 write:10").output ==
          "open 0\nwrite 10\nwrite ENOSPC\nwrite 10\n");
    CHECK(read_file(dir / "a").size() == 20);
  }
  SECTION("all kinds of writes count as one") {
    CHECK(calls(dir, "write:2+:EDQUOT", "open write:10 pwrite:10 writev:10").output ==
          "open 0\nwrite 10\npwrite EDQUOT\nwritev EDQUOT\n");
  }
  SECTION("open") {
    CHECK(calls(dir, "open:1:EROFS", "open").output == "open EROFS\n");
    CHECK_FALSE(std::filesystem::exists(dir / "a"));
  }
  SECTION("fsync") {
    CHECK(calls(dir, "fsync:*:EIO", "open fsync fdatasync").output == "open 0\nfsync EIO\nfdatasync EIO\n");
  }
  SECTION("rename") {
    CHECK(calls(dir, "rename:1:EIO", "open rename").output == "open 0\nrename EIO\n");
    CHECK(std::filesystem::exists(dir / "a"));
  }
  SECTION("link, unlink, mkdir, truncate") {
    CHECK(calls(dir, "link:1:EMLINK;unlink:1:EPERM;mkdir:1:ENOSPC;truncate:1:EIO",
                "open write:5 link unlink mkdir truncate")
              .output == "open 0\nwrite 5\nlink EMLINK\nunlink EPERM\nmkdir ENOSPC\ntruncate EIO\n");
    CHECK(read_file(dir / "a").size() == 5);
  }
  SECTION("remove, which libc does by itself") {
    CHECK(calls(dir, "unlink:1:EROFS", "open remove remove mkdir").output ==
          "open 0\nremove EROFS\nremove 0\nmkdir 0\n");
    CHECK_FALSE(std::filesystem::exists(dir / "a"));
  }
  SECTION("close closes all the same") {
    CHECK(calls(dir, "close:1:EIO", "open close close").output == "open 0\nclose EIO\nclose EBADF\n");
  }
  SECTION("any") {
    CHECK(calls(dir, "any:3+:EROFS", "open write:1 write:1 fsync rename").output ==
          "open 0\nwrite 1\nwrite EROFS\nfsync EROFS\nrename EROFS\n");
  }
}

TEST_CASE("faults: a short write writes half, a torn one is the last thing that the process does", "[reliability]") {
  const TempDir dir;
  SECTION("short") {
    CHECK(calls(dir, "write:*:short", "open write:10 write:1 writev:8").output ==
          "open 0\nwrite 5\nwrite 1\nwritev 4\n");
  }
  SECTION("torn") {
    const auto ended = calls(dir, "write:2:torn", "open write:10 write:10 fsync");
    CHECK_THAT(ended.output, Catch::Matchers::StartsWith("open 0\nwrite 10\n"));
    CHECK(ended.output.find("fsync") == std::string::npos);
    CHECK(ended.code == 128 + 9);
    CHECK(read_file(dir / "a").size() == 15);
  }
}

TEST_CASE("faults: a kill comes before the call", "[reliability]") {
  const TempDir dir;
  CHECK(calls(dir, "rename:1:kill", "open write:4 rename").code == 128 + 9);
  CHECK(std::filesystem::exists(dir / "a"));
  CHECK_FALSE(std::filesystem::exists(dir / "b"));
}

TEST_CASE("faults: a rule counts the files that it names, below the folder alone", "[reliability]") {
  const TempDir dir;
  CHECK(calls(dir, "rename@b:1:EIO", "open rename").output == "open 0\nrename EIO\n");
  CHECK(calls(dir, "rename@*x*:1:EIO", "open rename").output == "open 0\nrename 0\n");
  const TempDir elsewhere;
  const auto command = "cd '" + elsewhere.path().string() + "' && DANLING_FAULTS_UNDER='" + dir.path().string() +
                       "' DANLING_FAULTS='any:*:EIO' " + reliability::preload() + " '" DANLING_CALLS "' open";
  CHECK(reliability::run(command).output == "open 0\n");
}

TEST_CASE("faults: the first rule that applies decides, and all count", "[reliability]") {
  const TempDir dir;
  CHECK(calls(dir, "write:1:short;write:2+:ENOSPC", "open write:10 write:5 write:5").output ==
        "open 0\nwrite 5\nwrite ENOSPC\nwrite ENOSPC\n");
}

TEST_CASE("faults: the trace tells each call and what became of it", "[reliability]") {
  const TempDir dir;
  const TempDir other;
  const auto trace = other / "trace";
  calls(dir, "write:2:EIO;rename:1:kill", "open write:1 write:1 mkdir mkdir rename",
        "DANLING_FAULTS_TRACE='" + trace.string() + "'");
  CHECK(read_file(trace) == "open ok a\nwrite ok a\nwrite EIO a\nmkdir ok d\nmkdir failed d\nrename kill b\n");
}

TEST_CASE("faults: threads count together", "[reliability]") {
  const TempDir dir;
  CHECK(calls(dir, "write:1000:EIO", "open threads").output == "open 0\nthreads 1\n");
  CHECK(calls(dir, "write:1001+:EIO", "open threads").output == "open 0\nthreads 1000\n");
}

TEST_CASE("faults: a rule that cannot be read ends the program", "[reliability]") {
  const TempDir dir;
  for (const std::string rule :
       {"write:1", "wirte:1:EIO", "write:0:EIO", "write:1:EWHAT", "write:x:EIO", "write::EIO"}) {
    const auto ended = calls(dir, rule, "open");
    CHECK(ended.code == 125);
    CHECK(ended.output == "libdanling_faults: expected CALL[@GLOB]:WHEN:WHAT, got '" + rule + "'\n");
  }
}

}  // namespace
