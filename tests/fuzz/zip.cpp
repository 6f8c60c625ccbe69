// Zip archives: every entry reads as what it claims, or the archive is refused.
#include <danling/formats/detail/zip_reader.hpp>

#include "memory_file.hpp"

namespace danling_fuzz {

// Deflate expands a byte up to 1032 times; what is read is held once, and once more while its string grows.
const Allowance allowance{std::size_t{1} << 22, 3200};

void run(std::string_view input) {
  const MemoryFile file(input);
  const danling::formats::ZipReader zip(file.path());
  std::uint64_t stored = 0;
  for (const auto& entry : zip.entries()) {
    stored += entry.stored_size;
    require(zip.find(entry.name) == &entry, "that each entry is found by its name");
  }
  require(stored <= input.size(), "entries that do not overlap");
  for (const auto& entry : zip.entries()) {
    require(zip.read(entry).size() == entry.size, "as many bytes as the entry claims");
  }
}

}  // namespace danling_fuzz
