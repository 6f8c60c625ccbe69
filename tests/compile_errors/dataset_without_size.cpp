// expect: a dataset needs `std::int64_t size() const`, the number of its records
#include <danling/data/loader.hpp>

namespace dataset_without_size {

struct Squares {
#ifndef WRONG
  std::int64_t size() const { return 4; }
#endif
  at::Tensor get_batch(std::span<const std::int64_t> indices);
};

void use(danling::data::Source<at::Tensor>& split) { split = Squares(); }

}  // namespace dataset_without_size
