// expect: filter needs a predicate that takes a const sample of the dataset and returns a bool
#include <danling/data/filter.hpp>

namespace filter_of_another_sample {

struct Words {
  std::int64_t size() const { return 4; }
  std::string get(std::int64_t index);
};

#ifdef WRONG
using Word = std::string;
#else
using Word = const std::string;
#endif

auto use() {
  return danling::data::filter(Words(), [](Word& word) { return word.empty(); });
}

}  // namespace filter_of_another_sample
