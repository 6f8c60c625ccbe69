// expect: map needs a function that takes a sample of the dataset, or a sample and a const SampleInfo&
#include <danling/data/map.hpp>

namespace map_of_another_sample {

struct Words {
  std::int64_t size() const { return 4; }
  std::string get(std::int64_t index);
};

#ifdef WRONG
using Word = at::Tensor;
#else
using Word = std::string;
#endif

auto use() {
  return danling::data::map(Words(), [](const Word& word) { return word; });
}

}  // namespace map_of_another_sample
