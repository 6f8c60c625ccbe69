#include <danling/formats/event_file.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include <danling/core/error.hpp>

#include <formats/crc32c.hpp>

#include <support/catch.hpp>
#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

using danling::formats::append_tfrecord;
using danling::formats::EventFileReader;
using danling_test::error_of;
using danling_test::read_file;
using danling_test::TempDir;
using danling_test::write_file;

std::string golden_events(const std::string& name) {
  return std::string(DANLING_SOURCE_DIR) + "/tests/golden/data/events/" + name;
}

std::string framed(const std::vector<std::string>& messages) {
  std::string out;
  for (const auto& message : messages) {
    append_tfrecord(out, message);
  }
  return out;
}

// The contents of tests/golden/event_files.py.
std::vector<std::string> record_contents() {
  std::string bytes(256, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(i);
  }
  return {"", "a", bytes, std::string(1000, '\xff')};
}

TEST_CASE("crc32c: the check values of RFC 3720", "[formats][event_file]") {
  CHECK(danling::formats::crc32c("") == 0);
  CHECK(danling::formats::crc32c("123456789") == 0xe3069283U);
  CHECK(danling::formats::crc32c(std::string(32, '\0')) == 0x8a9136aaU);
  CHECK(danling::formats::crc32c(std::string(32, '\xff')) == 0x62a8ab43U);
}

TEST_CASE("append_tfrecord: the bytes of TensorBoard's record writer, which the reader reads",
          "[formats][event_file]") {
  CHECK(framed(record_contents()) == read_file(golden_events("records")));
  EventFileReader reader(golden_events("records"));
  for (const auto& content : record_contents()) {
    CHECK(reader.next() == std::optional<std::string_view>(content));
  }
  CHECK(reader.next() == std::nullopt);
  CHECK(reader.offset() == reader.size());
}

TEST_CASE("EventFileReader: the heads of events that TensorBoard's messages made", "[formats][event_file]") {
  EventFileReader reader(golden_events("run"));
  const auto first = reader.next_event();
  REQUIRE(first);
  CHECK(first->writer == "danling");
  CHECK(first->step == 0);
  CHECK(!first->line);
  CHECK(!first->lines_before);
  CHECK(reader.next_event());
  CHECK(reader.next_event());
  const auto scalars = reader.next_event();
  REQUIRE(scalars);
  CHECK(scalars->step == 10);
  CHECK(scalars->line == 1);
  const auto histogram = reader.next_event();
  REQUIRE(histogram);
  CHECK(!histogram->line);
  CHECK(histogram->lines_before == 1);
}

TEST_CASE("EventFileReader: a record that is cut anywhere is not read, those before are", "[formats][event_file]") {
  const TempDir dir;
  const std::string whole = framed({"first", "second"});
  const std::size_t first = framed({"first"}).size();
  for (std::size_t size = first; size < whole.size(); ++size) {
    write_file(dir / "cut", whole.substr(0, size));
    EventFileReader reader(dir / "cut");
    CHECK(reader.next() == std::optional<std::string_view>("first"));
    CHECK(reader.next() == std::nullopt);
    CHECK(reader.offset() == first);
  }
}

TEST_CASE("EventFileReader: damage is an error that names the place", "[formats][event_file]") {
  const TempDir dir;
  const std::string path = (dir / "events").string();
  std::string text = framed({"first", "second"});
  const auto message = [&](std::size_t at) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write_file(path, damaged);
    EventFileReader reader(path);
    reader.next();
    const std::string error = error_of<danling::DataError>([&] { reader.next(); });
    CHECK(error_of<danling::DataError>([&] { reader.next(); }) == error);
    return error;
  };
  const std::size_t second = framed({"first"}).size();
  CHECK(message(second + 12) == "[event_file.read] expected the record at byte " + std::to_string(second) + " of " +
                                    path + " to have its checksum, got another; the file is damaged");
  CHECK(message(second) == "[event_file.read] expected the length of a record at byte " + std::to_string(second) +
                               " of " + path + ", got other bytes; the file is damaged");
  // As a power failure leaves the end of a file.
  write_file(path, text + std::string(40, '\0'));
  EventFileReader zeros(path);
  zeros.next();
  zeros.next();
  CHECK_THROWS_AS(zeros.next(), danling::DataError);

  const auto event_error = [&](const std::string& event) {
    write_file(path, framed({event}));
    EventFileReader reader(path);
    const std::string error = error_of<danling::DataError>([&] { reader.next_event(); });
    CHECK(reader.offset() == 0);
    const std::string begin = "[event_file.read] expected an Event in the record at byte 0 of " + path + ": ";
    CHECK(error.substr(0, begin.size()) == begin);
    return error.substr(begin.size());
  };
  CHECK(event_error("\x10") == "[event_file.read] expected 1 bytes of a field, got 0");
  CHECK(event_error("\x2a\x05"
                    "abc") == "[event_file.read] expected 5 bytes of a field, got 3");
  CHECK(event_error("\x0b") == "[event_file.read] expected a field of type 0, 1, 2 or 5, got type 3");
  CHECK(event_error(std::string("\x00\x00", 2)) == "[event_file.read] expected the number of a field, got 0");
  CHECK(event_error("\x10" + std::string(10, '\xff')) ==
        "[event_file.read] expected an integer of at most 10 bytes, got more");
  CHECK(error_of<danling::DataError>([&] { EventFileReader missing(dir / "missing"); }) ==
        "[event_file.read] expected a readable file, got '" + (dir / "missing").string() +
            "': No such file or directory");
}

}  // namespace
