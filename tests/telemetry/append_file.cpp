// AppendFile: whole pieces or none, and files that were removed.
#include <telemetry/append_file.hpp>

#include <danling/core/error.hpp>

#include <support/catch.hpp>
#include <support/error.hpp>
#include <support/file_size_limit.hpp>
#include <support/temp_dir.hpp>

namespace {

using danling::detail::AppendFile;
using danling_test::error_of;
using danling_test::FileSizeLimit;
using danling_test::read_file;
using danling_test::TempDir;

TEST_CASE("AppendFile: a full disk leaves none of a piece, and the same call succeeds later", "[telemetry]") {
  const TempDir dir;
  const auto path = dir / "file";
  AppendFile file(path, AppendFile::Content::created);
  file.append("first");
  {
    const FileSizeLimit full(9);
    const std::string refused = "[sink.write] expected to write " + path.string() + ", got 'File too large'";
    CHECK(error_of<danling::Error>([&] { file.append(", second"); }) == refused);
    CHECK(error_of<danling::Error>([&] { file.append(", second"); }) == refused);
    CHECK(read_file(path) == "first");
  }
  file.append(", second");
  CHECK(read_file(path) == "first, second");
  CHECK(error_of<danling::Error>([&] { AppendFile other(path, AppendFile::Content::created); }) ==
        "[sink.write] expected to write " + path.string() + ", got 'File exists'");
}

TEST_CASE("AppendFile: restore creates a removed directory again, with the whole file", "[telemetry]") {
  const TempDir dir;
  const auto path = dir / "run/folder/file";
  std::filesystem::create_directories(path.parent_path());
  AppendFile file(path, AppendFile::Content::created);
  file.append("first");
  std::filesystem::remove_all(dir / "run");
  std::filesystem::create_symlink(dir / "not/there", dir / "run");
  const std::string refused = "[sink.write] expected to write " + path.string() + ", got 'No such file or directory'";
  CHECK(error_of<danling::Error>([&] { file.restore(); }) == refused);
  std::filesystem::remove(dir / "run");
  file.restore();
  file.append(", second");
  CHECK(read_file(path) == "first, second");
}

}  // namespace
