#include <danling/data/batch_part.hpp>

#include <danling/data/tensors.hpp>

namespace danling::inline v0::data {

Batch batch_part(const Batch& batch, std::int64_t begin, std::int64_t count) {
  const std::int64_t size = batch.size();
  const auto part = [&](const at::Tensor& tensor) {
    return tensor.defined() && tensor.dim() > 0 && tensor.size(0) == size ? tensor.narrow(0, begin, count) : tensor;
  };
  Batch out;
  out.input = part(batch.input);
  out.target = part(batch.target);
  out.extra = map_tensors(batch.extra, part);
  out.info = batch.info;
  return out;
}

}  // namespace danling::inline v0::data
