// expect: samples need `Batch collate(std::vector<Sample>)` in the dataset
#include <danling/data/dataset_adapter.hpp>

namespace sample_without_collate {

struct Scan {
  at::Tensor points;
};
struct Scans {
  std::int64_t size() const { return 4; }
  Scan get(std::int64_t index);
};
#ifndef WRONG
at::Tensor collate(std::vector<Scan> scans);
#endif

auto use() { return danling::data::make_dataset(Scans()); }

}  // namespace sample_without_collate
