#include <danling/data/sample.hpp>

#include <string>

#include <ATen/ops/stack.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::data {

namespace {

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return "none";
  }
  return concat(c10::toString(tensor.scalar_type()), " [", join(tensor.sizes()), "]");
}

at::Tensor stack_all(const std::vector<Sample>& samples, at::Tensor Sample::*member, const char* name) {
  const at::Tensor& first = samples.front().*member;
  std::vector<at::Tensor> tensors;
  tensors.reserve(samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const at::Tensor& tensor = samples[i].*member;
    const bool alike =
        tensor.defined() == first.defined() &&
        (!first.defined() || (tensor.scalar_type() == first.scalar_type() && tensor.sizes() == first.sizes()));
    if (!alike)
      fail<DataError>("data.collate", "expected ", name, " ", describe(first), " as in sample 0, got ",
                      describe(tensor), " in sample ", i);
    tensors.push_back(tensor);
  }
  return first.defined() ? at::stack(tensors) : at::Tensor();
}

}  // namespace

Batch collate(std::vector<Sample> samples) {
  check<DataError>(!samples.empty(), "data.collate", "expected at least one sample, got none");
  Batch batch;
  batch.input = stack_all(samples, &Sample::input, "input");
  batch.target = stack_all(samples, &Sample::target, "target");
  return batch;
}

}  // namespace danling::inline v0::data
