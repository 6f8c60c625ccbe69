#include <cmath>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <danling/data/random.hpp>
#include <danling/data/tensor_dataset.hpp>

#include <support/catch.hpp>

namespace {

namespace tensor_rows_test {

using danling::data::Affine;
using danling::data::TensorDataset;
using Indices = std::vector<std::int64_t>;

at::Tensor selected(const at::Tensor& tensor, Indices indices) {
  return at::index_select(tensor, 0,
                          at::from_blob(indices.data(), {static_cast<std::int64_t>(indices.size())}, at::kLong));
}

const std::vector<Indices> orders = {{}, {4}, {0, 1, 2, 3, 4, 5, 6}, {6, 5, 4, 3, 2, 1, 0}, {3, 3, 4, 5, 0, 6, 6}};

TEST_CASE("TensorDataset: rows of any size, type and strides equal index_select", "[data]") {
  for (const at::ScalarType dtype : {at::kByte, at::kBool, at::kHalf, at::kFloat, at::kLong, at::kComplexDouble}) {
    // One item, one number, odd sizes, and rows longer than what the loops take at a time.
    for (const Indices& shape : {Indices{7}, {7, 1}, {7, 3}, {7, 28, 28}, {7, 3, 1001}, {7, 0}}) {
      const at::Tensor input = at::randint(0, 2, shape, at::kLong).to(dtype);
      const at::Tensor strided = at::randint(0, 2, {5, 7, 2}, at::kLong).to(dtype).select(2, 1).t();
      TensorDataset dataset(input, strided, {.extra = {{"mask", input}}});
      for (const Indices& indices : orders) {
        const danling::Batch batch = dataset.get_batch(indices);
        CHECK(batch.input.scalar_type() == dtype);
        CHECK(at::equal(batch.input, selected(input, indices)));
        CHECK(at::equal(batch.target, selected(strided, indices)));
        CHECK(at::equal(batch.at("mask"), selected(input, indices)));
      }
    }
  }
}

TEST_CASE("TensorDataset: the transform rounds product and sum one by one, whatever the machine", "[data]") {
  const auto exact = [](double x, double scale, double shift) {
    // A product of two floats is exact in double, so that these are the roundings of float32.
    const auto product = static_cast<float>(x * static_cast<double>(static_cast<float>(scale)));
    return static_cast<float>(static_cast<double>(product) + static_cast<double>(static_cast<float>(shift)));
  };
  const Affine affine = {1.0 / (255.0 * 0.3081), -0.1307 / 0.3081};
  const at::Tensor bytes = at::arange(7 * 1301, at::kLong).remainder(256).to(at::kByte).view({7, 1301});
  const at::Tensor floats = at::randn({7, 1301});
  for (const at::Tensor& input :
       {bytes, floats, bytes.to(at::kLong), bytes.t().contiguous().t(), floats.to(at::kDouble)}) {
    TensorDataset dataset(input, {}, {.input_transform = affine});
    for (const Indices& indices : orders) {
      const at::Tensor got = dataset.get_batch(indices).input;
      REQUIRE(got.scalar_type() == at::kFloat);
      const at::Tensor rows = selected(input, indices).to(at::kFloat).contiguous();
      REQUIRE(got.sizes() == rows.sizes());
      bool equal = true;
      for (std::int64_t i = 0; i < got.numel(); ++i) {
        equal = equal && got.const_data_ptr<float>()[i] ==
                             exact(static_cast<double>(rows.const_data_ptr<float>()[i]), affine.scale, affine.shift);
      }
      CHECK(equal);
    }
  }
}

}  // namespace tensor_rows_test

}  // namespace
