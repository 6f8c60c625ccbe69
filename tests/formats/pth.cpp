#include <danling/formats/pth.hpp>

#include <danling/core/error.hpp>

#include <formats/archives.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

using danling::CheckpointError;
using danling::formats::AtomicFile;
using danling::formats::DType;
using danling::formats::PthReader;
using danling::formats::RecordTree;
using danling::formats::TensorRecord;
using danling::formats::ZipReader;
using danling_test::error_of;
using danling_test::write_zip;

const std::string kFloats("\0\0\x80\x3f\0\0\0\x40", 8);  // 1.0 and 2.0

void write_small_pth(const std::filesystem::path& path) {
  RecordTree tree;
  tree["weight"] = TensorRecord{DType::float32, 0, 0, {2}, {1}, false, false, false};
  tree["empty"] = TensorRecord{DType::int64, 1, 0, {0}, {1}, false, false, false};
  tree["epoch"] = 3;
  const std::vector<std::string> storages = {kFloats, ""};
  const std::vector<std::uint64_t> sizes = {8, 0};
  AtomicFile file(path);
  danling::formats::write_pth(file, tree, sizes, [&](std::size_t i) { return std::as_bytes(std::span(storages[i])); });
  file.commit();
}

// Everything that can be read, as text; two archives with the same content give the same.
std::string content_of(const std::filesystem::path& path) {
  const PthReader reader(path);
  reader.verify();
  std::string out;
  for (const auto& entry : reader.tree().map()) {
    out += entry.key.text() + ":" + entry.value.kind();
    if (entry.value.is_tensor()) {
      const auto& record = entry.value.tensor();
      out += danling::detail::concat(danling::formats::dtype_name(record.dtype), record.storage, " ", record.offset,
                                     "[", danling::detail::join(record.sizes), "]", record.requires_grad);
    } else {
      out += danling::to_text(entry.value.integer());
    }
  }
  for (std::size_t i = 0; i < reader.num_storages(); ++i) {
    std::string bytes(reader.storage_size(i), '\0');
    reader.read_storage(i, std::as_writable_bytes(std::span(bytes)));
    out += bytes;
  }
  return out;
}

// An archive of plain records, as another program could have written it.
std::string archive_error(const std::vector<std::pair<std::string, std::string>>& records) {
  const danling_test::TempDir directory;
  write_zip(directory / "x.pth", records);
  std::string text = error_of<CheckpointError>([&] { PthReader(directory / "x.pth").verify(); });
  const std::string path = (directory / "x.pth").string();
  text.replace(text.find(path), path.size(), "x.pth");
  return text;
}

const std::string kNothing = "\x80\x02N.";

TEST_CASE("write_pth: has the records of torch.save in its order, and a manifest of them", "[formats]") {
  const danling_test::TempDir directory;
  write_small_pth(directory / "a.pth");
  const ZipReader zip(directory / "a.pth");
  std::vector<std::string> names;
  for (const auto& entry : zip.entries()) {
    names.push_back(entry.name);
  }
  CHECK(names == std::vector<std::string>{"archive/data.pkl", "archive/.format_version", "archive/.storage_alignment",
                                          "archive/byteorder", "archive/data/0", "archive/data/1", "archive/version",
                                          "archive/danling/manifest"});
  CHECK(zip.read(*zip.find("archive/version")) == "3\n");
  CHECK(zip.read(*zip.find("archive/byteorder")) == "little");
  const std::string manifest = zip.read(*zip.find("archive/danling/manifest"));
  CHECK_THAT(manifest, ContainsSubstring("danling-checkpoint 2\n"));
  CHECK_THAT(manifest, ContainsSubstring("\ncrc32:00000000 xxh3:99aa06d3014798d86001c324468d497f 0 data/1\n"));
  const PthReader reader(directory / "a.pth");
  CHECK(reader.has_manifest());
  CHECK(reader.tree().at("epoch").integer() == 3);
}

TEST_CASE("PthReader: every length of a file but the whole is an error", "[formats]") {
  const danling_test::TempDir directory;
  write_small_pth(directory / "a.pth");
  const std::string whole = danling_test::read_file(directory / "a.pth");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    danling_test::write_file(directory / "b.pth", whole.substr(0, size));
    error_of<CheckpointError>([&] { PthReader reader(directory / "b.pth"); });
  }
}

TEST_CASE("PthReader: every byte flipped gives an error or the same state", "[formats]") {
  const danling_test::TempDir directory;
  write_small_pth(directory / "a.pth");
  const std::string whole = danling_test::read_file(directory / "a.pth");
  const std::string content = content_of(directory / "a.pth");
  std::size_t harmless = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x15);
    danling_test::write_file(directory / "b.pth", bytes);
    std::string damaged;
    try {
      damaged = content_of(directory / "b.pth");
    } catch (const CheckpointError&) {
      continue;
    }
    CHECK(damaged == content);
    ++harmless;
  }
  CHECK(harmless > 0);                     // padding, versions and times
  CHECK(harmless < whole.size() * 2 / 3);  // never content
}

TEST_CASE("PthReader: says what is missing or of another kind", "[formats]") {
  CHECK(archive_error({{"a/readme", "hello"}}) ==
        "[checkpoint.read] expected a record 'data.pkl', got none among 1 (file 'x.pth')");
  CHECK(archive_error({{"a/data.pkl", kNothing}, {"a/constants.pkl", kNothing}}) ==
        "[checkpoint.read] expected an archive of torch.save, got one of TorchScript (file 'x.pth', record "
        "'a/data.pkl')");
  CHECK(archive_error({{"a/data.pkl", kNothing}, {"a/byteorder", "big"}}) ==
        "[checkpoint.read] expected byte order 'little', got 'big' (file 'x.pth', record 'a/byteorder')");
  const RecordTree tree = TensorRecord{DType::float32, 0, 0, {2}, {1}, false, false, false};
  const std::vector<std::uint64_t> sizes = {8};
  const std::string pickle = danling::formats::write_pickle(tree, sizes);
  CHECK(archive_error({{"a/data.pkl", pickle}}) ==
        "[checkpoint.read] expected a record 'data/0', got none among 1 (file 'x.pth')");
  CHECK(archive_error({{"a/data.pkl", pickle}, {"a/data/0", "short"}}) ==
        "[checkpoint.read] expected a storage of 8 bytes, got 5 (file 'x.pth', record 'a/data/0')");
  CHECK(archive_error({{"a/data.pkl",
                        "\x80\x02"
                        "cposix\nsystem\n."}}) ==
        "[checkpoint.read] expected plain values and tensors, got the global 'posix.system', which is not supported "
        "(file "
        "'x.pth', record 'a/data.pkl', byte 2)");
}

TEST_CASE("PthReader: reads the manifest of version 1, which has no hashes", "[formats]") {
  const danling_test::TempDir directory;
  write_zip(directory / "x.pth",
            {{"a/data.pkl", kNothing}, {"a/danling/manifest", "danling-checkpoint 1\ncrc32:7db5d20d 4 data.pkl\n"}});
  const PthReader reader(directory / "x.pth");
  reader.verify();
  CHECK(reader.has_manifest());
  CHECK(reader.record_hash(reader.records().front()) == nullptr);
}

TEST_CASE("PthReader: verifies by the manifest's hash", "[formats]") {
  // The archive's own checksum is right, the hash is of something else.
  const std::string text =
      archive_error({{"a/data.pkl", kNothing},
                     {"a/danling/manifest",
                      "danling-checkpoint 2\ncrc32:7db5d20d xxh3:99aa06d3014798d86001c324468d497f 4 data.pkl\n"}});
  CHECK(text == "[checkpoint.read] expected XXH3-128 99aa06d3014798d86001c324468d497f, got " +
                    danling::formats::to_hex(danling::formats::hash128(std::as_bytes(std::span(kNothing)))) +
                    ": the data was damaged (file 'x.pth', record 'a/data.pkl')");
}

TEST_CASE("PthReader: the manifest's version, records, sizes and checksums must hold", "[formats]") {
  const auto with_manifest = [](const std::string& manifest) {
    return archive_error({{"a/data.pkl", kNothing}, {"a/danling/manifest", manifest}});
  };
  CHECK(with_manifest("danling-checkpoint 3\nanything") ==
        "[checkpoint.read] expected manifest version 1 to 2, got 3; a newer danling wrote this file (file 'x.pth', "
        "record 'a/danling/manifest')");
  const std::string malformed =
      "[checkpoint.read] expected a manifest of title, version and one line per record, got something else (file "
      "'x.pth', record 'a/danling/manifest')";
  CHECK(with_manifest("") == malformed);
  CHECK(with_manifest("danling-checkpoint one\n") == malformed);
  CHECK(with_manifest("danling-checkpoint 1\nsha:00 4 data.pkl\n") == malformed);
  CHECK(with_manifest("danling-checkpoint 2\ncrc32:5d8b6dab 4 data.pkl\n") == malformed);
  CHECK(with_manifest("danling-checkpoint 2\ncrc32:5d8b6dab xxh3:00 4 data.pkl\n") == malformed);
  CHECK(with_manifest("danling-checkpoint 1\ncrc32:00000000 99 data.pkl\n") ==
        "[checkpoint.read] expected a record as the manifest lists it, got another size or checksum (file 'x.pth', "
        "record 'a/data.pkl')");
  CHECK(with_manifest("danling-checkpoint 1\n") ==
        "[checkpoint.read] expected a record as the manifest lists it, got another size or checksum (file 'x.pth', "
        "record 'a/data.pkl')");
}

}  // namespace
