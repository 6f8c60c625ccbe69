// Headers of .npy files: an array that lies in the file, or an error.
#include <danling/formats/npy.hpp>

#include <span>

#include "target.hpp"

namespace danling_fuzz {

const Allowance allowance{std::size_t{1} << 16, 64};

void run(std::string_view input) {
  const auto array = danling::formats::parse_npy(std::as_bytes(std::span(input)), "fuzz.npy");
  require(array.offset <= input.size() && array.bytes == input.size() - array.offset, "an array that fills the file");
  std::uint64_t bytes = danling::formats::dtype_size(array.dtype);
  for (const auto size : array.sizes) {
    require(size >= 0, "sizes that are not negative");
    bytes *= static_cast<std::uint64_t>(size);
  }
  require(bytes == array.bytes, "as many bytes as the shape says");
}

}  // namespace danling_fuzz
