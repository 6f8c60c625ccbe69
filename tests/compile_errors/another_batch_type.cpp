// expect: the data has batches of another type than this map or loader accepts
#include <danling/data/loader.hpp>

namespace another_batch_type {

struct Rows {
  std::int64_t size() const { return 4; }
  std::pair<at::Tensor, at::Tensor> get_batch(std::span<const std::int64_t> indices);
};

#ifdef WRONG
using Batch = danling::data::Batch;
#else
using Batch = std::pair<at::Tensor, at::Tensor>;
#endif

std::int64_t use() {
  danling::data::Loader<Batch> loader(Rows(), {.batch_size = 2});
  return *loader.source().size();
}

}  // namespace another_batch_type
