// Datarax's words as concepts: what they hold for, and that the functions that they name do what they say.
#include <danling/data/vocabulary.hpp>

#include <ATen/ops/full.h>

#include <danling/data/map.hpp>
#include <danling/data/map_batches.hpp>
#include <danling/data/transforms.hpp>

#include <support/catch.hpp>

namespace {

namespace vocabulary_test {

namespace data = danling::data;
using danling::State;

struct Silent {};

static_assert(data::Element<data::Sample> && data::Element<State> && data::Element<at::Tensor>);
static_assert(!data::Element<Silent>);

constexpr auto doubled = [](data::Sample sample) {
  sample.input = sample.input.mul(2);
  return sample;
};
constexpr auto noisy = [](data::Sample sample, const data::SampleInfo&) { return sample; };
constexpr auto input_only = [](const data::Sample& sample) { return sample.input; };
static_assert(data::ElementTransform<decltype(doubled)> && data::ElementTransform<decltype(noisy)>);
static_assert(!data::ElementTransform<decltype(input_only)>);
static_assert(data::BatchTransform<data::transforms::Transform> && !data::BatchTransform<decltype(doubled)>);

constexpr auto halved = [](data::DataDict dict) {
  dict["input"] = dict.at("input").tensor().div(2);
  return dict;
};
static_assert(data::DataProcessor<decltype(halved)> && data::StateProcessor<decltype(halved)>);
static_assert(data::ElementTransform<decltype(halved), data::DataDict>);
static_assert(data::BatchTransform<decltype(halved), data::DataDict>);
static_assert(data::ArrayTransform<decltype([](const at::Tensor& array) { return array.add(1); })>);
static_assert(!data::ArrayTransform<decltype(doubled)>);
static_assert(data::MetadataProcessor<decltype([](const data::Metadata& metadata) { return metadata.next_rng(); })>);
static_assert(std::same_as<data::PRNGKey, data::RandomKey>);

struct Dicts {
  std::int64_t size() const { return 3; }
  data::DataDict get(std::int64_t i) const { return State::Map{{"input", at::full({2}, static_cast<double>(i))}}; }
};

TEST_CASE("DataProcessor: one function changes elements that are trees, and batches of them", "[data]") {
  const std::vector<std::int64_t> indices = {1, 2};
  const State of_elements = data::make_dataset(data::map(Dicts(), halved))->get_batch(indices);
  const State of_batches =
      data::make_dataset(data::map_batches(data::make_dataset(Dicts()), halved))->get_batch(indices);
  CHECK(of_elements.at("input").tensor().equal(of_batches.at("input").tensor()));
  CHECK(of_elements.at("input").tensor()[1][0].item<double>() == 1.0);
}

}  // namespace vocabulary_test
}  // namespace
