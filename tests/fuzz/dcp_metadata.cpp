// Metadata of torch.distributed.checkpoint: what is read is written, and reads as the same.
#include <danling/formats/detail/dcp_metadata.hpp>

#include "target.hpp"

namespace danling_fuzz {

const Allowance allowance{std::size_t{1} << 23, 2048};

void run(std::string_view input) {
  const auto first = danling::formats::read_dcp_metadata(input, "input");
  const auto second = danling::formats::read_dcp_metadata(danling::formats::write_dcp_metadata(first), "written");
  require(first == second, "the same entries after writing and reading");
}

}  // namespace danling_fuzz
