#include <danling/data/filter.hpp>

#include <algorithm>

#include <danling/core/error.hpp>

#include <formats/parallel.hpp>

namespace danling::inline v0::data::detail {

std::vector<std::int64_t> indices_where(std::int64_t size, std::int64_t num_threads,
                                        const std::function<bool(std::int64_t)>& keep) {
  check<ConfigError>(num_threads > 0, "data.filter", "expected num_threads of at least 1, got ", num_threads);
  constexpr std::int64_t block = 256;
  const std::int64_t num_blocks = (size + block - 1) / block;
  std::vector<std::vector<std::int64_t>> kept(static_cast<std::size_t>(num_blocks));
  formats::parallel_for(kept.size(), static_cast<std::size_t>(num_threads), [&](std::size_t i) {
    const std::int64_t begin = static_cast<std::int64_t>(i) * block;
    for (std::int64_t index = begin; index < std::min(begin + block, size); ++index) {
      if (keep(index)) {
        kept[i].push_back(index);
      }
    }
  });
  std::vector<std::int64_t> out;
  for (const auto& part : kept) {
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

}  // namespace danling::inline v0::data::detail
