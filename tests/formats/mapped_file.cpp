#include <danling/formats/detail/mapped_file.hpp>

#include <sys/stat.h>

#include <filesystem>
#include <thread>
#include <vector>

#include <danling/core/error.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

namespace mapped_test {

using danling::DataError;
using danling::formats::Access;
using danling::formats::MappedFile;
using danling_test::error_of;

TEST_CASE("MappedFile: shows the bytes of the file, whatever the advice, to several threads", "[formats]") {
  const danling_test::TempDir directory;
  std::string content;
  for (int i = 0; i < 100000; ++i) {
    content += static_cast<char>(i * 7);
  }
  danling_test::write_file(directory / "a", content);
  for (const Access access : {Access::normal, Access::sequential, Access::random}) {
    const MappedFile file(directory / "a", access);
    CHECK(file.path() == directory / "a");
    CHECK(file.size() == content.size());
    CHECK(file.text() == content);
    const auto part = file.bytes(99990, 10);
    CHECK(static_cast<char>(part[9]) == content.back());
    CHECK(file.bytes(100000, 0).empty());
    for (const std::uint64_t offset :
         {std::uint64_t{0}, std::uint64_t{99999}, std::uint64_t{100000}, ~std::uint64_t{0}}) {
      file.prefetch(offset, 0);
      file.prefetch(offset, ~std::uint64_t{0});  // what is not there is not read
    }
    CHECK(file.text() == content);
    std::vector<std::thread> threads;
    std::vector<int> equal(4);
    for (std::size_t t = 0; t < equal.size(); ++t) {
      threads.emplace_back([&, t] { equal[t] = file.text() == content; });
    }
    for (auto& thread : threads) {
      thread.join();
    }
    CHECK(equal == std::vector<int>{1, 1, 1, 1});
  }
}

TEST_CASE("MappedFile: an empty file has no bytes", "[formats]") {
  const danling_test::TempDir directory;
  danling_test::write_file(directory / "a", "");
  const MappedFile file(directory / "a", Access::random);
  CHECK(file.size() == 0);
  CHECK(file.bytes().empty());
  CHECK(file.text().empty());
  file.check_size();
  CHECK_THROWS_AS(file.bytes(0, 1), DataError);
}

TEST_CASE("MappedFile: a range outside of the file is refused, however large its numbers", "[formats]") {
  const danling_test::TempDir directory;
  const auto path = directory / "a";
  danling_test::write_file(path, "12345");
  const MappedFile file(path, Access::normal, "data.test");
  CHECK(error_of<DataError>([&] { file.bytes(3, 3); }) ==
        "[data.test] expected 3 bytes at offset 3, got a file of 5 bytes (file '" + path.string() + "')");
  CHECK_THROWS_AS(file.bytes(~std::uint64_t{0}, 2), DataError);
  CHECK_THROWS_AS(file.bytes(2, ~std::uint64_t{0}), DataError);
  CHECK_THROWS_AS(file.bytes(6, 0), DataError);
}

TEST_CASE("MappedFile: what is no readable file is refused with the system's reason", "[formats]") {
  const danling_test::TempDir directory;
  const auto missing = directory / "missing";
  CHECK(error_of<DataError>([&] { MappedFile file(missing, Access::normal, "data.test"); }) ==
        "[data.test] expected a readable file, got '" + missing.string() + "': No such file or directory");
  CHECK(error_of<DataError>([&] { MappedFile file(directory.path()); }) ==
        "[data.file] expected a readable file, got '" + directory.path().string() + "': it is a directory");
  const auto pipe = directory / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(error_of<DataError>([&] { MappedFile file(pipe); }) ==
        "[data.file] expected a readable file, got '" + pipe.string() + "': it is not a regular file");
}

TEST_CASE("MappedFile: a file that became shorter is an error when its size is checked", "[formats]") {
  const danling_test::TempDir directory;
  const auto path = directory / "a";
  danling_test::write_file(path, std::string(10000, 'x'));
  const MappedFile file(path);
  std::filesystem::resize_file(path, 20000);
  file.check_size();  // more is no harm
  CHECK(file.size() == 10000);
  std::filesystem::resize_file(path, 9999);
  CHECK(error_of<DataError>([&] { file.check_size(); }) ==
        "[data.file] expected a file of 10000 bytes as when it was opened, got 9999; replace data files by renaming, "
        "never in place (file '" +
            path.string() + "')");
}

TEST_CASE("MappedFile: keeps what it mapped when another file takes the name", "[formats]") {
  const danling_test::TempDir directory;
  danling_test::write_file(directory / "a", "old");
  danling_test::write_file(directory / "b", "n");
  const MappedFile file(directory / "a");
  std::filesystem::rename(directory / "b", directory / "a");
  file.check_size();
  CHECK(file.text() == "old");
}

}  // namespace mapped_test

}  // namespace
