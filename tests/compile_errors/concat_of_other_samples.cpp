// expect: the datasets of concat must have samples of one type (map can convert them), or batches of one type
#include <danling/data/concat.hpp>

namespace concat_of_other_samples {

struct Words {
  std::int64_t size() const { return 4; }
  std::string get(std::int64_t index);
};
struct Numbers {
  std::int64_t size() const { return 4; }
  std::int64_t get(std::int64_t index);
};

#ifdef WRONG
using Second = Numbers;
#else
using Second = Words;
#endif

auto use() { return danling::data::concat(Words(), Second()); }

}  // namespace concat_of_other_samples
