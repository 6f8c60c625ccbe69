// Archives past 4 GiB, where the zip64 fields are used.
#include <fstream>

#include <danling/formats/pth.hpp>

#include <support/python.hpp>
#include <support/temp_dir.hpp>

namespace {

using danling::formats::AtomicFile;
using danling::formats::PieceSink;
using danling::formats::PthReader;
using danling::formats::RecordTree;

// One storage above 4 GiB, which ends with a 7, and one behind it: size and offset need the wide fields. Python checks
// the same in tests/golden/checkpoint_interop.py.
constexpr std::uint64_t kLargeStorage = (std::uint64_t{1} << 32) + 100;

void write_large(const std::filesystem::path& path) {
  RecordTree tree;
  const auto bytes = [](std::size_t storage, std::uint64_t size) {
    return danling::formats::TensorRecord{
        danling::formats::DType::uint8, storage, 0, {static_cast<std::int64_t>(size)}, {1}, false, false, false};
  };
  tree["large"] = bytes(0, kLargeStorage);
  tree["behind"] = bytes(1, 3);
  const std::vector<std::uint64_t> sizes = {kLargeStorage, 3};
  const std::vector<std::byte> zeros(std::size_t{1} << 23);
  AtomicFile file(path);
  danling::formats::write_pth(file, tree, sizes, [&](std::size_t storage, const PieceSink& sink) {
    if (storage == 1) {
      sink(std::as_bytes(std::span("\1\2\3", 3)));
      return;
    }
    for (std::uint64_t left = kLargeStorage - 1; left > 0;) {
      const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(zeros.size(), left));
      sink(std::span(zeros).first(count));
      left -= count;
    }
    sink(std::as_bytes(std::span("\7", 1)));
  });
  file.commit();
}

// Memory where there is plenty: a disk would take half a minute.
std::filesystem::path place_for_large() {
  std::ifstream info("/proc/meminfo");
  std::uint64_t kilobytes = 0;
  for (std::string word; kilobytes == 0 && info >> word;) {
    if (word == "MemAvailable:") {
      info >> kilobytes;
    }
  }
  std::error_code error;
  const auto shared = std::filesystem::space("/dev/shm", error);
  return !error && shared.available > 6'000'000'000 && kilobytes > 10'000'000 ? "/dev/shm"
                                                                              : std::filesystem::temp_directory_path();
}

TEST_CASE("write_pth: a file above 4 GiB is read back by us and by Python", "[formats][python]") {
  const danling_test::TempDir directory(place_for_large());
  if (std::filesystem::space(directory.path()).available < 6'000'000'000) {
    WARN("skipped: less than 6 GB free in " << directory.path());
    return;
  }
  const auto path = directory / "large.pth";
  write_large(path);
  const PthReader reader(path);
  reader.verify();
  CHECK(reader.storage_size(0) == kLargeStorage);
  CHECK(reader.storage_record(1).header_offset > kLargeStorage);
  std::string out(3, '?');
  const auto bytes = std::as_writable_bytes(std::span(out));
  reader.read_storage(0, kLargeStorage - 3, bytes);
  CHECK(out == std::string("\0\0\7", 3));
  reader.read_storage(1, bytes);
  CHECK(out == "\1\2\3");
  if (danling_test::python_with_torch().empty()) {
    WARN("Python's part skipped: no Python with torch; set DANLING_PYTHON");
    return;
  }
  CHECK(danling_test::run_python("tests/golden/checkpoint_interop.py", {"large", path.string()}));
}

}  // namespace
