// IDX files, gzip'd or not: an array that fits its header, or an error.
#include <danling/formats/idx.hpp>

#include "memory_file.hpp"

namespace danling_fuzz {

// Deflate expands a byte up to 1032 times.
const Allowance allowance{std::size_t{1} << 22, 1100};

void run(std::string_view input) {
  const MemoryFile file(input);
  const auto array = danling::formats::read_idx(file.path());
  std::uint64_t size = static_cast<std::uint64_t>(danling::formats::width(array.type));
  for (const auto dim : array.dims) {
    size *= static_cast<std::uint64_t>(dim);
  }
  require(array.bytes.size() == size, "as many bytes as the header says");
}

}  // namespace danling_fuzz
