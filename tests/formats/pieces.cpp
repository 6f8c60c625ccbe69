// Archives written and read piece by piece.
#include <danling/core/error.hpp>
#include <danling/formats/detail/zip_writer.hpp>
#include <danling/formats/pth.hpp>

#include <formats/archives.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

using danling::CheckpointError;
using danling::formats::AtomicFile;
using danling::formats::PieceSink;
using danling::formats::PthReader;
using danling::formats::RecordTree;
using danling_test::error_of;

const std::vector<std::string> kPieceStorages = {"01234567", "", "89abcdef"};
const std::vector<std::uint64_t> kPieceSizes = {8, 0, 8};

RecordTree tree_of_pieces() {
  RecordTree tree;
  for (std::size_t i = 0; i < kPieceStorages.size(); ++i) {
    tree[danling::to_text(std::uint64_t{i})] = danling::formats::TensorRecord{
        danling::formats::DType::uint8, i, 0, {static_cast<std::int64_t>(kPieceSizes[i])}, {1}, false, false, false};
  }
  return tree;
}

// Each storage in two pieces.
void write_in_pieces(const std::filesystem::path& path, const std::vector<std::string>& storages) {
  AtomicFile file(path);
  danling::formats::write_pth(file, tree_of_pieces(), kPieceSizes, [&](std::size_t i, const PieceSink& sink) {
    const auto bytes = std::as_bytes(std::span(storages[i]));
    sink(bytes.first(bytes.size() / 3));
    sink(bytes.subspan(bytes.size() / 3));
  });
  file.commit();
}

TEST_CASE("write_pth: pieces make the same archive as whole storages", "[formats]") {
  const danling_test::TempDir directory;
  write_in_pieces(directory / "pieces", kPieceStorages);
  AtomicFile file(directory / "whole");
  danling::formats::write_pth(file, tree_of_pieces(), kPieceSizes,
                              [&](std::size_t i) { return std::as_bytes(std::span(kPieceStorages[i])); });
  file.commit();
  CHECK(danling_test::read_file(directory / "pieces") == danling_test::read_file(directory / "whole"));
  PthReader(directory / "pieces").verify();
}

TEST_CASE("write_pth: refuses pieces that are not the storage's size together", "[formats]") {
  const danling_test::TempDir directory;
  CHECK(error_of<CheckpointError>([&] { write_in_pieces(directory / "x", {"01234567", "", "89abcde"}); }) ==
        "[checkpoint.write] expected 8 bytes of record 'archive/data/2', got 7");
  CHECK(error_of<CheckpointError>([&] { write_in_pieces(directory / "x", {"012345678", "", "89abcdef"}); }) ==
        "[checkpoint.write] expected 8 bytes of record 'archive/data/0', got 9");
  CHECK(std::filesystem::is_empty(directory.path()));
}

TEST_CASE("PthReader: reads ranges of a storage, and verifies one record at a time", "[formats]") {
  const danling_test::TempDir directory;
  write_in_pieces(directory / "x", kPieceStorages);
  const PthReader reader(directory / "x");
  std::string out(3, '?');
  const auto bytes = std::as_writable_bytes(std::span(out));
  reader.read_storage(2, 4, bytes);
  CHECK(out == "cde");
  const std::string where = " (file '" + (directory / "x").string() + "', record 'archive/data/2')";
  CHECK(error_of<CheckpointError>([&] { reader.read_storage(2, 6, bytes); }) ==
        "[checkpoint.read] expected a range inside 8 stored bytes, got 3 at offset 6" + where);
  CHECK(error_of<CheckpointError>([&] { reader.read_storage(2, UINT64_MAX, bytes); }) ==
        "[checkpoint.read] expected a range inside 8 stored bytes, got 3 at offset 18446744073709551615" + where);

  std::string content = danling_test::read_file(directory / "x");
  content[content.find("89abcdef")] = 'X';
  danling_test::write_file(directory / "x", content);
  const PthReader damaged(directory / "x");
  std::vector<std::string> bad;
  for (const auto& record : damaged.records()) {
    try {
      damaged.verify_record(record);
    } catch (const CheckpointError&) {
      bad.push_back(record.name);
    }
  }
  CHECK(bad == std::vector<std::string>{"archive/data/2"});
  CHECK(damaged.storage_record(2).name == "archive/data/2");
}

}  // namespace
