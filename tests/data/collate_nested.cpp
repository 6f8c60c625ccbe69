// Batches of sequences without padding, by the loader's option.
#include <danling/data/collate_nested.hpp>

#include <ATen/Functions.h>

#include <danling/data/length_buckets.hpp>
#include <danling/data/loader.hpp>
#include <danling/data/merge.hpp>
#include <danling/data/tensor_dataset.hpp>
#include <danling/tensors/nested_tensor.hpp>

#include <support/error.hpp>

namespace nested_collation {
namespace {

using danling::NestedTensor;
using danling::State;
using danling::data::Batch;
using danling::data::CollateError;
using danling::data::Collation;
using danling::data::Loader;
using danling::data::Sample;

/// Record i is a sequence of (7 i) % 5 tokens of value i, with one label for each.
struct Sequences {
  bool tagged = true;
  bool weighted = true;
  std::int64_t size() const { return 20; }
  static std::int64_t length(std::int64_t index) { return 7 * index % 5; }
  Sample get(std::int64_t index) const {
    State extra;
    extra["name"] = "record " + std::to_string(index);
    if (weighted) extra["weights"] = at::full({length(index)}, 0.5);
    return {.input = at::full({length(index), 2}, index, at::kFloat),
            .target = tagged ? at::arange(length(index)) : at::scalar_tensor(index, at::kLong),
            .extra = extra};
  }
};

TEST_CASE("collate_nested: inputs and targets of one length are nested, and counted without padding",
          "[data][nested]") {
  Loader<Batch> loader(Sequences(), {.batch_size = 6, .collation = Collation::nested, .num_workers = 2});
  std::int64_t record = 0;
  for (Batch& batch : loader) {
    const NestedTensor input(batch.input), target(batch.target), weights(batch.at("weights"));
    CHECK(batch.size() == input.batch_size());
    std::int64_t tokens = 0;
    for (std::int64_t i = 0; i < batch.size(); ++i, ++record) {
      const Sample expected = Sequences().get(record);
      const auto at = static_cast<std::size_t>(i);
      CHECK(input.elements()[at].equal(expected.input));
      CHECK(target.elements()[at].equal(expected.target));
      CHECK(weights.elements()[at].equal(expected.extra.at("weights").tensor()));
      CHECK(batch.extra.at("name").list().at(at).string() == "record " + std::to_string(record));
      tokens += Sequences::length(record);
    }
    CHECK(batch.num_tokens == tokens);
    CHECK_FALSE(batch.loss_normalizer.has_value());  // by the criterion
  }
  CHECK(record == 20);
}

TEST_CASE("collate_nested: whether a tensor for each token is nested does not depend on the lengths of a batch",
          "[data][nested]") {
  for (const std::vector<std::int64_t>& chosen : {std::vector<std::int64_t>{3}, {1, 6}, {0, 5, 10}, {1, 2}}) {
    std::vector<Sample> samples;
    for (const std::int64_t index : chosen) {
      samples.push_back(Sequences().get(index));
    }
    const Batch batch = danling::data::collate_nested(samples);
    CHECK(NestedTensor::is_nested(batch.target));
    CHECK(NestedTensor::is_nested(batch.at("weights")));
  }
}

TEST_CASE("merge_batches: nested parts may have longest sequences of different lengths", "[data][nested]") {
  const auto part = [](std::int64_t first, std::int64_t second) {
    return danling::data::collate_nested({Sequences().get(first), Sequences().get(second)});
  };
  const std::vector<std::int64_t> order = {3, 0, 1, 2};
  const Batch batch = danling::data::merge_batches(std::vector<Batch>{part(1, 2), part(3, 4)}, order);
  const auto elements = NestedTensor(batch.input).elements();
  const std::vector<std::int64_t> records = {4, 1, 2, 3};
  for (std::size_t i = 0; i < records.size(); ++i) {
    CHECK(elements[i].equal(Sequences().get(records[i]).input));
  }
  CHECK(batch.num_tokens == 3 + 2 + 4 + 1);
}

TEST_CASE("collate_nested: other targets are stacked", "[data][nested]") {
  Loader<Batch> loader(Sequences{.tagged = false}, {.batch_size = 4, .collation = Collation::nested});
  loader.start_epoch(0);
  REQUIRE(loader.next());

  CHECK(loader.batch().target.equal(at::arange(4)));
  CHECK_FALSE(loader.batch().loss_normalizer.has_value());
  CHECK(loader.batch().num_tokens == 0 + 2 + 4 + 1);
}

TEST_CASE("LengthBuckets: their batches are nested by the loader's option", "[data][nested]") {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < 20; ++i) {
    lengths.push_back(Sequences::length(i));
  }
  Loader<Batch> loader(Sequences(), {.batch_size = 4,
                                     .batch_sampler = std::make_shared<danling::data::LengthBuckets>(
                                         lengths, danling::data::LengthBucketsOptions{.num_buckets = 5}),
                                     .collation = Collation::nested});
  std::int64_t records = 0;
  for (Batch& batch : loader) {
    const auto shapes = NestedTensor(batch.input).shapes();
    records += std::ssize(shapes);
    for (const auto& shape : shapes) {
      CHECK(shape == shapes.front());  // five lengths, four records of each
    }
  }
  CHECK(records == 20);
}

TEST_CASE("collation: padded is collate_padded, and a batch moves and copies as ever", "[data][nested]") {
  Loader<Batch> padded(Sequences{.weighted = false}, {.batch_size = 5, .collation = Collation::padded});
  Loader<Batch> nested(Sequences{.weighted = false}, {.batch_size = 5, .collation = Collation::nested});
  padded.start_epoch(0);
  nested.start_epoch(0);
  REQUIRE((padded.next() && nested.next()));
  const NestedTensor input(nested.batch().to(at::kCPU).input);
  CHECK(input.tensor().equal(padded.batch().input));
  CHECK(input.mask().equal(padded.batch().at("mask")));
  CHECK(danling::batch_size(nested.batch()) == 5);
}

TEST_CASE("collation: whole batches and samples of other types refuse it", "[data][nested]") {
  const auto message = [](auto dataset) {
    Loader<Batch> loader(std::move(dataset), {.batch_size = 2, .collation = Collation::nested});
    loader.start_epoch(0);
    return danling_test::error_of<danling::Error>([&] { loader.next(); });
  };
  CHECK_THAT(
      message(danling::data::TensorDataset(at::rand({4, 3}))),
      ContainsSubstring("[data.collate] expected samples of the type dl::data::Sample for collation nested, got a "
                        "dataset that makes whole batches; unset the loader's option collation "
                        "(dataloader.collation), and collate in the dataset"));
}

TEST_CASE("collate_nested: samples that do not fit are refused with their number", "[data][nested]") {
  const auto message = [](std::vector<Sample> samples) {
    return danling_test::error_of<CollateError>([&] { danling::data::collate_nested(std::move(samples)); });
  };
  CHECK(message({{.input = at::zeros({2, 3})}, {.input = at::zeros({2})}}) ==
        "[data.collate] expected input of Float [2, 3], but for the sizes, as in sample 0, got Float [2] in sample 1");
  CHECK(
      message({{.input = at::zeros({2, 3})}, {.input = at::zeros({2, 3}, at::kLong)}}) ==
      "[data.collate] expected input of Float [2, 3], but for the sizes, as in sample 0, got Long [2, 3] in sample 1");
  CHECK(message({{.input = at::zeros({})}}) ==
        "[data.collate] expected input a tensor of shape [L, ...] as in sample 0, got Float [] in sample 0");
  CHECK(
      message(
          {{.input = at::zeros({2}), .target = at::zeros({3})}, {.input = at::zeros({2}), .target = at::zeros({4})}}) ==
      "[data.collate] expected target of the length of its input Float [2], or of one shape in all samples, got Float "
      "[3] in sample 0");
}

}  // namespace
}  // namespace nested_collation
