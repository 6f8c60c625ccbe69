// expect: the function of map must return the changed sample
#include <danling/data/map.hpp>

namespace map_without_result {

struct Words {
  std::int64_t size() const { return 4; }
  std::string get(std::int64_t index);
};

auto use() {
  return danling::data::map(Words(), [](std::string word) {
    word += "!";
#ifndef WRONG
    return word;
#endif
  });
}

}  // namespace map_without_result
