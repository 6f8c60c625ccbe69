#include <cstring>
#include <optional>

#include <zlib.h>

#include <danling/core/error.hpp>
#include <danling/formats/detail/zip_reader.hpp>
#include <danling/formats/detail/zip_writer.hpp>
#include <danling/formats/pth.hpp>

#include <formats/archives.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

using danling::CheckpointError;
using danling::formats::AtomicFile;
using danling::formats::ZipReader;
using danling::formats::ZipWriter;
using danling_test::error_of;
using danling_test::write_zip;

template <class T>
std::string little(T value) {
  std::string out;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i)));
  }
  return out;
}

// An archive by hand, as other programs write it, to be damaged field by field.
struct HandEntry {
  std::string name;
  std::string data;        // as stored
  std::uint32_t crc = 0;   // of the content
  std::uint64_t size = 0;  // of the content
  std::uint16_t method = 0;
  std::uint16_t flags = 0;
  std::optional<std::uint32_t> claimed_offset = std::nullopt;
};

HandEntry stored(const std::string& name, const std::string& data) {
  const auto crc = crc32(0, reinterpret_cast<const Bytef*>(data.data()), static_cast<uInt>(data.size()));
  return {name, data, static_cast<std::uint32_t>(crc), data.size()};
}

HandEntry deflated(const std::string& name, const std::string& data) {
  HandEntry out = stored(name, data);
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY) == Z_OK);
  out.data.resize(deflateBound(&stream, data.size()));
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data.data());
  stream.avail_out = static_cast<uInt>(out.data.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.data.resize(stream.total_out);
  deflateEnd(&stream);
  out.method = 8;
  return out;
}

std::string hand_zip(const std::vector<HandEntry>& entries, const std::string& comment = "") {
  std::string out;
  std::string directory;
  for (const auto& entry : entries) {
    const auto offset = static_cast<std::uint32_t>(out.size());
    const std::string fields = little(entry.flags) + little(entry.method) + little(std::uint32_t{0}) +
                               little(entry.crc) + little(static_cast<std::uint32_t>(entry.data.size())) +
                               little(static_cast<std::uint32_t>(entry.size)) +
                               little(static_cast<std::uint16_t>(entry.name.size())) + little(std::uint16_t{0});
    out += "PK\3\4" + little(std::uint16_t{20}) + fields + entry.name + entry.data;
    directory += "PK\1\2" + little(std::uint16_t{20}) + little(std::uint16_t{20}) + fields + std::string(10, '\0') +
                 little(entry.claimed_offset.value_or(offset)) + entry.name;
  }
  const auto count = static_cast<std::uint16_t>(entries.size());
  const auto start = static_cast<std::uint32_t>(out.size());
  return out + directory + "PK\5\6" + little(std::uint32_t{0}) + little(count) + little(count) +
         little(static_cast<std::uint32_t>(directory.size())) + little(start) +
         little(static_cast<std::uint16_t>(comment.size())) + comment;
}

// The error of reading everything in an archive with these bytes, with the path replaced by `x.zip`.
std::string zip_error(const std::string& bytes, std::uint64_t max_inflated = 1 << 20) {
  const danling_test::TempDir directory;
  danling_test::write_file(directory / "x.zip", bytes);
  std::string text = error_of<CheckpointError>([&] {
    const ZipReader zip(directory / "x.zip", max_inflated);
    for (const auto& entry : zip.entries()) {
      zip.read(entry);
    }
  });
  const std::string path = (directory / "x.zip").string();
  for (auto at = text.find(path); at != std::string::npos; at = text.find(path)) {
    text.replace(at, path.size(), "x.zip");
  }
  return text;
}

TEST_CASE("ZipWriter: records are aligned, read back, and the same input gives the same bytes", "[formats]") {
  const danling_test::TempDir directory;
  const std::string large(300000, 'x');
  const std::vector<std::pair<std::string, std::string>> records = {
      {"a/one", "1"}, {"a/empty", ""}, {"a/large", large}, {"a/last", "end"}};
  write_zip(directory / "a.zip", records);
  write_zip(directory / "b.zip", records);
  CHECK(danling_test::read_file(directory / "a.zip") == danling_test::read_file(directory / "b.zip"));
  const ZipReader zip(directory / "a.zip");
  REQUIRE(zip.entries().size() == 4);
  for (const auto& [name, content] : records) {
    const auto* entry = zip.find(name);
    REQUIRE(entry != nullptr);
    CHECK(zip.read(*entry) == content);
    CHECK(entry->data_offset % 64 == 0);
    CHECK(entry->crc == crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size())));
  }
  CHECK(zip.find("a/two") == nullptr);
  AtomicFile file(directory / "c.zip");
  ZipWriter twice(file);
  twice.add("name", "");
  CHECK(error_of<CheckpointError>([&] { twice.add("name", "other"); }) ==
        "[checkpoint.write] expected a new record name, got name");
}

TEST_CASE("ZipReader: reads stored and deflated entries of other programs, and comments", "[formats]") {
  const danling_test::TempDir directory;
  const std::string zeros(500000, '\0');
  danling_test::write_file(directory / "a.zip",
                           hand_zip({stored("s", "stored"), deflated("d", zeros), deflated("e", "")}, "a comment PK"));
  const ZipReader zip(directory / "a.zip");
  CHECK(zip.read(*zip.find("s")) == "stored");
  CHECK(zip.read(*zip.find("d")) == zeros);
  CHECK(zip.read(*zip.find("e")) == "");
  std::vector<std::byte> room(zeros.size());
  zip.read(*zip.find("d"), room);
  CHECK(std::memcmp(room.data(), zeros.data(), zeros.size()) == 0);
}

TEST_CASE("ZipReader: what is no archive, and every archive cut off, is an error", "[formats]") {
  CHECK(zip_error("") ==
        "[checkpoint.read] expected a PyTorch zip archive, got 0 bytes that do not start with 'PK' (file 'x.zip')");
  CHECK(zip_error("hello, world!") ==
        "[checkpoint.read] expected a PyTorch zip archive, got 13 bytes that do not start with 'PK' (file 'x.zip')");
  const std::string whole = hand_zip({stored("a", "content"), deflated("b", "more content")});
  for (std::size_t size = 2; size < whole.size(); ++size) {
    CHECK(zip_error(whole.substr(0, size)) ==
          danling::detail::concat("[checkpoint.read] expected a complete zip archive, got ", size,
                                  " bytes without an end: the file was cut off (file 'x.zip')"));
  }
}

TEST_CASE("ZipReader: damaged content is found by its checksum", "[formats]") {
  std::string bytes = hand_zip({stored("a", "content")});
  bytes[bytes.find("content")] = 'C';
  CHECK_THAT(zip_error(bytes), ContainsSubstring(": the data was damaged (file 'x.zip', record 'a')"));
}

TEST_CASE("ZipReader: bombs are refused by what they claim and by what they hold", "[formats]") {
  const std::string zeros(1 << 20, '\0');
  CHECK(zip_error(hand_zip({deflated("a", zeros), deflated("b", "x")})) ==
        "[checkpoint.read] expected deflated entries of at most 1048576 bytes together, got more; save the archive "
        "without compression (file 'x.zip', record 'b')");
  HandEntry modest = deflated("a", zeros);
  modest.size = 10;  // and then a megabyte comes out
  CHECK(zip_error(hand_zip({modest})) == "[checkpoint.read] expected 10 bytes, got more (file 'x.zip', record 'a')");
  HandEntry boastful = deflated("a", "tiny");
  boastful.size = 0xfffffff0;
  CHECK(zip_error(hand_zip({boastful})) ==
        danling::detail::concat("[checkpoint.read] expected ", boastful.data.size(),
                                " deflated bytes to inflate to at most 1032 times as many, "
                                "got a claim of 4294967280 (file 'x.zip', record 'a')"));
  HandEntry fake = stored("a", "tiny");
  fake.size = 0xfffffff0;
  CHECK(zip_error(hand_zip({fake})) ==
        "[checkpoint.read] expected a stored entry of 4 bytes, got a claim of 4294967280 (file 'x.zip', record 'a')");
  HandEntry broken = deflated("a", zeros);
  broken.data.assign(broken.data.size(), '\xff');
  CHECK(zip_error(hand_zip({broken})) ==
        "[checkpoint.read] expected deflated data, got damaged data (file 'x.zip', record 'a')");
}

TEST_CASE("PthReader: a small record cannot inflate to a pickle or manifest of any size", "[formats]") {
  const danling_test::TempDir directory;
  const auto path = (directory / "x.pth").string();
  const auto refused = [&](const std::vector<HandEntry>& entries) {
    danling_test::write_file(path, hand_zip(entries));
    return error_of<CheckpointError>([&] { danling::formats::PthReader reader(path); });
  };
  // A million times None in a list.
  const HandEntry pickle = deflated("a/data.pkl", "\x80\x02](" + std::string(1 << 20, 'N') + "e.");
  REQUIRE(pickle.data.size() < 2000);
  CHECK(refused({pickle}) ==
        danling::detail::concat(
            "[checkpoint.read] expected a record of at most 64 times its compressed size, got 1048582 bytes "
            "in ",
            pickle.data.size(), "; save the archive without compression (file '", path, "', record 'a/data.pkl')"));
  const HandEntry manifest = deflated("a/danling/manifest", "danling-checkpoint 1\n" + std::string(1 << 20, '\n'));
  CHECK_THAT(refused({stored("a/data.pkl", "\x80\x02N."), manifest}),
             ContainsSubstring("expected a record of at most 64 times its compressed size, got 1048597 bytes"));
  // An honest pickle may be compressed.
  danling_test::write_file(path, hand_zip({deflated("a/data.pkl", "\x80\x02]Na.")}));
  CHECK(danling::formats::PthReader(path).tree().list().size() == 1);
}

TEST_CASE("PthReader: what the values of a compressed pickle take follows its compressed size", "[formats]") {
  // Bytes that cannot be compressed pay for the ratio, a million empty lists would take 180 times what they inflate to.
  std::string noise;
  for (std::uint32_t state = 1; noise.size() < 20'000;) {
    state = state * 1664525 + 1013904223;
    noise.push_back(static_cast<char>(state >> 24));
  }
  const HandEntry pickle = deflated("a/data.pkl", "\x80\x02(B" + little(static_cast<std::uint32_t>(noise.size())) +
                                                      noise + std::string(1'000'000, ']') + "t.");
  REQUIRE(pickle.data.size() > pickle.size / 64);
  const danling_test::TempDir directory;
  const auto path = (directory / "x.pth").string();
  danling_test::write_file(path, hand_zip({pickle}));
  const std::string text = error_of<CheckpointError>([&] { danling::formats::PthReader reader(path); });
  const std::string expected =
      danling::detail::concat("[checkpoint.read] expected values in proportion to ", pickle.data.size(),
                              " compressed bytes of pickle, got far more; save the archive without "
                              "compression (file '",
                              path, "', record 'a/data.pkl', byte ");
  CHECK(text.substr(0, expected.size()) == expected);
}

TEST_CASE("ZipReader: entries that overlap, share a name or lie elsewhere are refused", "[formats]") {
  HandEntry second = stored("a", "content");
  second.claimed_offset = 0;
  CHECK(zip_error(hand_zip({stored("a", "content"), second})) ==
        "[checkpoint.read] expected one entry of each name, got two (file 'x.zip', record 'a')");
  // A whole entry inside the data of another.
  const std::string inner = hand_zip({stored("b", "inner")}).substr(0, 31 + 5);
  HandEntry overlapping = stored("b", "inner");
  overlapping.claimed_offset = 31;
  CHECK(zip_error(hand_zip({stored("a", inner), overlapping})) ==
        "[checkpoint.read] expected entries that do not overlap, got one that overlaps 'a' (file 'x.zip', record 'b')");
  HandEntry away = stored("a", "content");
  away.claimed_offset = 0x7fffffff;
  CHECK(zip_error(hand_zip({away})) ==
        "[checkpoint.read] expected the entry's header before offset 38, got offset 2147483647 (file 'x.zip', record "
        "'a')");
  HandEntry encrypted = stored("a", "content");
  encrypted.flags = 1;
  CHECK(zip_error(hand_zip({encrypted})) ==
        "[checkpoint.read] expected an entry that is not encrypted, got an encrypted one (file 'x.zip', record 'a')");
  HandEntry packed = stored("a", "content");
  packed.method = 93;
  CHECK(zip_error(hand_zip({packed})) ==
        "[checkpoint.read] expected a stored or deflated entry, got compression method 93 (file 'x.zip', record 'a')");
}

TEST_CASE("ZipReader: sizes and offsets of 2^63 and more are refused without memory for them", "[formats]") {
  const danling_test::TempDir directory;
  write_zip(directory / "a.zip", {{"a", "content"}});
  const std::string whole = danling_test::read_file(directory / "a.zip");
  const auto end64 = whole.rfind("PK\6\6");
  REQUIRE(end64 != std::string::npos);
  for (const std::uint64_t huge : {std::uint64_t{1} << 63, ~std::uint64_t{0}, std::uint64_t{1} << 40}) {
    for (const std::size_t field : {24, 32, 40, 48}) {  // counts, size and offset of the directory
      std::string bytes = whole;
      bytes.replace(end64 + field, 8, little(huge));
      CHECK_THAT(zip_error(bytes), ContainsSubstring("[checkpoint.read] expected "));
    }
    // The directory's own zip64 fields: size, stored size, offset.
    const auto entry = whole.rfind("PK\1\2");
    std::string bytes = whole.substr(0, entry) + whole.substr(entry, 46);
    bytes.replace(entry + 20, 8, std::string(8, '\xff'));
    bytes.replace(entry + 30, 2, little(std::uint16_t{20}));
    bytes += "a" + little(std::uint16_t{1}) + little(std::uint16_t{16}) + little(huge) + little(huge);
    const auto size = static_cast<std::uint32_t>(bytes.size() - entry);
    bytes += "PK\5\6" + little(std::uint32_t{0}) + little(std::uint16_t{1}) + little(std::uint16_t{1}) + little(size) +
             little(static_cast<std::uint32_t>(entry)) + little(std::uint16_t{0});
    CHECK(zip_error(bytes) == danling::detail::concat("[checkpoint.read] expected the entry's data before offset ",
                                                      entry, ", got ", huge,
                                                      " bytes at offset 64 (file 'x.zip', record 'a')"));
  }
}

TEST_CASE("ZipReader: every byte flipped gives an error or the same content", "[formats]") {
  const danling_test::TempDir directory;
  write_zip(directory / "a.zip", {{"a/b", "content"}, {"a/c", "more"}});
  const std::string whole = danling_test::read_file(directory / "a.zip");
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x41);
    danling_test::write_file(directory / "b.zip", bytes);
    try {
      const ZipReader zip(directory / "b.zip");
      for (const auto& entry : zip.entries()) {
        const std::string content = zip.read(entry);
        CHECK((content == "content" || content == "more"));
      }
    } catch (const CheckpointError&) {
    }
  }
}

}  // namespace
