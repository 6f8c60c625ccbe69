#include <danling/formats/file.hpp>

#include <sys/stat.h>

#include <span>
#include <stdexcept>

#include <danling/core/error.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

using danling::CheckpointError;
using danling::formats::AtomicFile;
using danling::formats::InputFile;
using danling_test::error_of;

std::size_t count_entries(const std::filesystem::path& directory) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(directory), {}));
}

TEST_CASE("AtomicFile: the name holds the old content until commit and the new one after", "[formats]") {
  const danling_test::TempDir directory;
  danling_test::write_file(directory / "a", "old");
  {
    AtomicFile file(directory / "a");
    file.write("new");
    file.finish();
    CHECK(danling_test::read_file(directory / "a") == "old");
    file.commit();
    CHECK(danling_test::read_file(directory / "a") == "new");
  }
  {
    AtomicFile file(directory / "a");
    file.write("never committed");
  }
  CHECK(danling_test::read_file(directory / "a") == "new");
  CHECK(count_entries(directory.path()) == 1);
}

TEST_CASE("AtomicFile: small and large writes arrive in order", "[formats]") {
  const danling_test::TempDir directory;
  std::string expected;
  {
    AtomicFile file(directory / "a");
    for (std::size_t size : {1, 100, 65535, 65536, 65537, 3, 1 << 20, 7}) {
      const std::string piece(size, static_cast<char>('a' + expected.size() % 26));
      file.write(piece);
      expected += piece;
    }
    CHECK(file.size() == expected.size());
    file.commit();
  }
  CHECK(danling_test::read_file(directory / "a") == expected);
}

TEST_CASE("AtomicFile: after an error of the source or of the work beside a write, nothing can be committed",
          "[formats]") {
  const danling_test::TempDir directory;
  const std::string refusal =
      "[checkpoint.write] expected no call after an error, got one (file '" + (directory / "a").string() + "')";
  const std::string bytes(100, 'x');
  {
    AtomicFile file(directory / "a");
    CHECK_THROWS_AS(file.write(std::as_bytes(std::span(bytes)), [] { throw std::runtime_error("no hash"); }),
                    std::runtime_error);
    CHECK(error_of<CheckpointError>([&] { file.commit(); }) == refusal);
  }
  {
    danling_test::write_file(directory / "source", std::string(3'000'000, 'y'));
    const InputFile source(directory / "source");
    std::filesystem::resize_file(directory / "source", 1'500'000);
    AtomicFile file(directory / "a");
    file.write(bytes);
    CHECK_THROWS_AS(file.write(source), CheckpointError);
    CHECK(error_of<CheckpointError>([&] { file.commit(); }) == refusal);
  }
  CHECK_FALSE(std::filesystem::exists(directory / "a"));
}

TEST_CASE("AtomicFile: appends a part of another file", "[formats]") {
  const danling_test::TempDir directory;
  danling_test::write_file(directory / "source", "0123456789");
  for (const auto& [offset, length] : {std::pair(0, 10), std::pair(0, 4), std::pair(6, 4)}) {
    AtomicFile file(directory / "a");
    file.write(InputFile(directory / "source", static_cast<std::uint64_t>(offset), static_cast<std::uint64_t>(length)));
    file.write("end");
    file.commit();
    CHECK(danling_test::read_file(directory / "a") ==
          std::string("0123456789").substr(static_cast<std::size_t>(offset), static_cast<std::size_t>(length)) + "end");
  }
}

TEST_CASE("AtomicFile: rewrites what was written, in its buffer or on disk, and nothing beyond", "[formats]") {
  const danling_test::TempDir directory;
  AtomicFile file(directory / "a");
  file.write("0123");
  file.rewrite(1, "ab");
  const std::string large(3'000'000, 'x');
  file.write(large);
  file.rewrite(3, "yyy");
  file.write("end");
  CHECK(error_of<CheckpointError>([&] { file.rewrite(3'000'005, "abc"); }) ==
        "[checkpoint.write] expected to replace bytes that were written, got 3 bytes at offset 3000005 of 3000007 "
        "(file '" +
            (directory / "a").string() + "')");
  file.rewrite(3'000'004, "END");
  file.commit();
  CHECK(danling_test::read_file(directory / "a") == "0abyyy" + large.substr(2) + "END");
}

TEST_CASE("AtomicFile and InputFile: the system's reason and the path are in the message", "[formats]") {
  const danling_test::TempDir directory;
  const std::string missing = (directory / "missing" / "a").string();
  CHECK(error_of<CheckpointError>([&] { AtomicFile file(missing); }) ==
        "[checkpoint.write] expected to create '" + missing + "', got errno 2 (No such file or directory)");
  CHECK(error_of<CheckpointError>([&] { InputFile file(missing); }) ==
        "[checkpoint.read] expected a readable file, got '" + missing + "': No such file or directory");
  CHECK(error_of<CheckpointError>([&] { InputFile file(directory.path()); }) ==
        "[checkpoint.read] expected a readable file, got '" + directory.path().string() + "': it is a directory");
}

TEST_CASE("replace_directory: takes the place of a directory or of none, and a failure keeps what was there",
          "[formats]") {
  const danling_test::TempDir directory;
  const auto made = directory / "made", place = directory / "place";
  for (const std::string content : {"first", "second"}) {
    std::filesystem::create_directory(made);
    danling_test::write_file(made / "a", content);
    danling::formats::replace_directory(made, place);
    CHECK(danling_test::read_file(place / "a") == content);
  }
  CHECK(error_of<CheckpointError>([&] { danling::formats::replace_directory(made, place); }) ==
        "[checkpoint.write] expected to rename the new directory to '" + place.string() +
            "', got errno 2 (No such file or directory)");
  CHECK(danling_test::read_file(place / "a") == "second");
  CHECK(count_entries(directory.path()) == 1);
}

TEST_CASE("PendingAlias: keeps the file as it was, under a name that appears with commit", "[formats]") {
  const danling_test::TempDir directory;
  danling_test::write_file(directory / "a", "one");
  {
    danling::formats::PendingAlias alias(directory / "a", directory / "b");
    AtomicFile file(directory / "a");
    file.write("two");
    file.commit();
    CHECK_FALSE(std::filesystem::exists(directory / "b"));
    alias.commit();
  }
  CHECK(danling_test::read_file(directory / "a") == "two");
  CHECK(danling_test::read_file(directory / "b") == "one");
  // To a name of the same file, and without commit: nothing is left over.
  danling::formats::PendingAlias(directory / "a", directory / "c").commit();
  danling::formats::PendingAlias(directory / "a", directory / "c").commit();
  {
    const danling::formats::PendingAlias dropped(directory / "a", directory / "d");
  }
  CHECK(count_entries(directory.path()) == 3);
}

TEST_CASE("PendingAlias: copies where no link is possible", "[formats]") {
  // Links do not reach from one file system to another.
  const danling_test::TempDir directory;
  struct stat here{};
  struct stat there{};
  if (stat("/dev/shm", &there) != 0 || stat(directory.path().c_str(), &here) != 0 || here.st_dev == there.st_dev) {
    WARN("skipped: no second file system in /dev/shm");
    return;
  }
  const danling_test::TempDir elsewhere("/dev/shm");
  const std::string content(3000001, 'x');
  danling_test::write_file(directory / "a", content + "end");
  {
    danling::formats::PendingAlias alias(directory / "a", elsewhere / "b");
    std::filesystem::remove(directory / "a");
    CHECK_FALSE(std::filesystem::exists(elsewhere / "b"));
    alias.commit();
  }
  CHECK(danling_test::read_file(elsewhere / "b") == content + "end");
  {
    const danling::formats::PendingAlias dropped(elsewhere / "b", directory / "c");
  }
  CHECK(count_entries(directory.path()) == 0);
  CHECK(count_entries(elsewhere.path()) == 1);
  const std::string missing = (directory / "missing").string();
  CHECK(error_of<CheckpointError>([&] { danling::formats::PendingAlias(missing, directory / "d"); }) ==
        "[checkpoint.read] expected a readable file, got '" + missing + "': No such file or directory");
  CHECK(count_entries(directory.path()) == 0);
}

}  // namespace
