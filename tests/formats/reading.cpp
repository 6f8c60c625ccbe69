// Reading whole archives: verified, by pieces, on several threads.
#include <danling/core/error.hpp>
#include <danling/formats/pth.hpp>

#include <formats/archives.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

using danling::CheckpointError;
using danling::formats::AtomicFile;
using danling::formats::PthReader;
using danling::formats::RecordTree;
using danling_test::error_of;

// More than two pieces of a large record, sizes around the pieces' edges, small ones and empty ones.
const std::vector<std::uint64_t> kReadSizes = {(3U << 23) + 12345, 100, 0, (1U << 24) - 1, 1U << 24, 5000000, 1};

std::vector<std::string> contents_to_read() {
  std::vector<std::string> out;
  std::uint64_t state = 1;
  for (const auto size : kReadSizes) {
    std::string text(size, '\0');
    for (auto& c : text) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      c = static_cast<char>(state >> 56);
    }
    out.push_back(std::move(text));
  }
  return out;
}

void write_to_read(const std::filesystem::path& path, const std::vector<std::string>& contents) {
  RecordTree tree;
  for (std::size_t i = 0; i < contents.size(); ++i) {
    tree[danling::to_text(std::uint64_t{i})] =
        danling::formats::TensorRecord{danling::formats::DType::uint8,
                                       i,
                                       0,
                                       {static_cast<std::int64_t>(contents[i].size())},
                                       {1},
                                       false,
                                       false,
                                       false};
  }
  AtomicFile file(path);
  danling::formats::write_pth(file, tree, kReadSizes,
                              [&](std::size_t i) { return std::as_bytes(std::span(contents[i])); });
  file.commit();
}

// As another program would write it: the same records without our manifest.
void drop_manifest(const std::filesystem::path& from, const std::filesystem::path& to) {
  const danling::formats::ZipReader zip(from);
  AtomicFile file(to);
  danling::formats::ZipWriter writer(file);
  for (const auto& entry : zip.entries()) {
    if (!entry.name.ends_with("manifest")) {
      writer.add(entry.name, zip.read(entry));
    }
  }
  writer.finish();
  file.commit();
}

std::vector<std::string> read_all(const PthReader& reader) {
  std::vector<std::string> out;
  std::vector<std::span<std::byte>> destinations;
  for (std::size_t i = 0; i < reader.num_storages(); ++i) {
    out.emplace_back(reader.storage_size(i), '?');
  }
  for (auto& text : out) {
    destinations.push_back(std::as_writable_bytes(std::span(text)));
  }
  reader.read_storages(destinations);
  return out;
}

TEST_CASE("PthReader: reads all storages at once, with and without a manifest", "[formats]") {
  const danling_test::TempDir directory;
  const auto contents = contents_to_read();
  write_to_read(directory / "ours", contents);
  drop_manifest(directory / "ours", directory / "theirs");
  for (const char* name : {"ours", "theirs"}) {
    const PthReader reader(directory / name);
    CHECK(reader.has_manifest() == (name == std::string("ours")));
    CHECK(read_all(reader) == contents);
    reader.verify();
  }
}

TEST_CASE("PthReader: names the first damaged record and what it expected", "[formats]") {
  const danling_test::TempDir directory;
  const auto contents = contents_to_read();
  write_to_read(directory / "ours", contents);
  drop_manifest(directory / "ours", directory / "theirs");
  for (const std::string name : {"ours", "theirs"}) {
    const std::string path = (directory / name).string();
    std::string bytes = danling_test::read_file(path);
    for (const std::size_t storage : {4, 0, 5}) {  // and then the first of several
      auto& byte = bytes[PthReader(path).storage_record(storage).data_offset + kReadSizes[storage] / 2];
      byte = static_cast<char>(byte ^ 0x40);
      danling_test::write_file(directory / name, bytes);
      const PthReader reader(path);
      const std::size_t first = storage == 5 ? 0 : storage;
      auto damaged = contents[first];
      damaged[kReadSizes[first] / 2] = static_cast<char>(damaged[kReadSizes[first] / 2] ^ 0x40);
      const auto good = std::as_bytes(std::span(contents[first]));
      const auto bad = std::as_bytes(std::span(damaged));
      const auto& record = reader.storage_record(first);
      const std::string expected =
          name == "ours"
              ? danling::detail::concat("XXH3-128 ", danling::formats::to_hex(danling::formats::hash128(good)),
                                        ", got ", danling::formats::to_hex(danling::formats::hash128(bad)))
              : danling::detail::concat("checksum ", record.crc, ", got ", danling::formats::extend_crc32(0, bad));
      const std::string text = "[checkpoint.read] expected " + expected + ": the data was damaged (file '" + path +
                               "', record '" + record.name + "')";
      CHECK(error_of<CheckpointError>([&] { read_all(reader); }) == text);
      CHECK(error_of<CheckpointError>([&] { reader.verify(); }) == text);
      CHECK(error_of<CheckpointError>([&] { reader.verify_record(record); }) == text);
      std::string out(kReadSizes[first], '?');
      CHECK(error_of<CheckpointError>([&] { reader.read_storage(first, std::as_writable_bytes(std::span(out))); }) ==
            text);
      reader.verify_record(reader.storage_record(3));
    }
  }
}

TEST_CASE("PthReader: a file cut off while it is open is an error", "[formats]") {
  const danling_test::TempDir directory;
  const auto contents = contents_to_read();
  write_to_read(directory / "x", contents);
  const PthReader reader(directory / "x");
  const auto offset = reader.storage_record(0).data_offset + (1U << 20);
  std::filesystem::resize_file(directory / "x", offset);
  CHECK_THAT(error_of<CheckpointError>([&] { read_all(reader); }),
             ContainsSubstring("got the end of a file that became shorter (file '" + (directory / "x").string() + "'"));
}

TEST_CASE("PthReader: destinations must be as many and as large as the storages", "[formats]") {
  const danling_test::TempDir directory;
  write_to_read(directory / "x", contents_to_read());
  const PthReader reader(directory / "x");
  const std::string path = (directory / "x").string();
  CHECK(error_of<CheckpointError>([&] { reader.read_storages({}); }) ==
        "[checkpoint.read] expected 7 destinations, got 0 (file '" + path + "')");
  std::vector<std::span<std::byte>> none(7);
  CHECK(error_of<CheckpointError>([&] { reader.read_storages(none); }) ==
        "[checkpoint.read] expected room for 25178169 bytes, got 0 (file '" + path + "', record 'archive/data/0')");
}

}  // namespace
