// Pickles: what is read is written, and reads as the same.
#include <danling/formats/detail/pickle.hpp>

#include "records.hpp"
#include "target.hpp"

namespace danling_fuzz {

const Allowance allowance{std::size_t{1} << 23, 1024};

void run(std::string_view input) {
  const auto first = danling::formats::read_pickle(input);
  std::vector<std::uint64_t> sizes;
  for (const auto& storage : first.storages) {
    sizes.push_back(storage.size);
  }
  std::string written;
  try {
    written = danling::formats::write_pickle(first.tree, sizes);
  } catch (const danling::Error& error) {
    require(false, danling::detail::concat("that what was read can be written, got ", error.what()));
  }
  const auto second = danling::formats::read_pickle(written);
  // The writer's keys are the numbers that the storages had.
  const auto same_tensor = [&](const auto& a, const auto& b) {
    return same_view(a, b) && second.storages[b.storage].key == danling::to_text(std::uint64_t{a.storage});
  };
  require(same(first.tree, second.tree, same_tensor), "the same tree after writing and reading");
}

}  // namespace danling_fuzz
