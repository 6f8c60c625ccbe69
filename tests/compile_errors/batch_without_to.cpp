// expect: a batch type needs `B to(c10::Device) const`, or `B to_device(B, c10::Device)` in its namespace
#include <danling/data/loader.hpp>

namespace batch_without_to {

struct Pair {
  at::Tensor left;
  at::Tensor right;
  std::int64_t size() const { return left.size(0); }
#ifndef WRONG
  Pair to(c10::Device device) const { return {left.to(device), right.to(device)}; }
#endif
};

bool use(danling::data::Loader<Pair>& loader) { return loader.next(); }

}  // namespace batch_without_to
