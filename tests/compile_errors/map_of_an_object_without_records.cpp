// expect: single samples come from a dataset, an object with `std::int64_t size() const` and `get`
#include <danling/data/map.hpp>

namespace map_of_an_object_without_records {

struct Words {
#ifndef WRONG
  std::int64_t size() const { return 4; }
#endif
  std::string get(std::int64_t index);
};

auto use() {
  return danling::data::map(Words(), [](std::string word) { return word; });
}

}  // namespace map_of_an_object_without_records
