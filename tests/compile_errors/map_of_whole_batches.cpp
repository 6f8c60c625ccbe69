// expect: this data has only whole batches: add `get`, or a free function `Sample uncollate(Batch)` for the
#include <danling/data/map.hpp>

namespace map_of_whole_batches {

struct Words {
  std::vector<std::string> texts;
  std::int64_t size() const { return static_cast<std::int64_t>(texts.size()); }
  Words to(c10::Device) const { return *this; }
};
#ifndef WRONG
inline std::string uncollate(Words words) { return words.texts.front(); }
#endif
struct File {
  std::int64_t size() const { return 4; }
  Words get_batch(std::span<const std::int64_t> indices);
};

auto use() {
  return danling::data::map(File(), [](std::string word) { return word; });
}

}  // namespace map_of_whole_batches
