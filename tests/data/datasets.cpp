#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <danling/data/loader.hpp>
#include <danling/data/source.hpp>
#include <danling/data/split_map.hpp>
#include <danling/data/tensor_dataset.hpp>

#include <support/error.hpp>

// A user's own types, in the user's own namespace.
namespace danling_data_user {

struct Pair {
  int left;
  int right;
};

/// A batch without tensors or members: everything is told by functions beside it.
struct PairBatch {
  std::vector<Pair> pairs;
  std::string device = "cpu";
};

inline std::int64_t batch_size(const PairBatch& batch) { return static_cast<std::int64_t>(batch.pairs.size()); }
inline PairBatch to_device(PairBatch batch, c10::Device device) {
  batch.device = device.str();
  return batch;
}
inline std::int64_t loss_normalizer(const PairBatch& batch) { return 2 * batch_size(batch); }
inline PairBatch collate(std::vector<Pair> pairs) { return {std::move(pairs)}; }

/// get(index) with the collate beside the sample.
struct Squares {
  int count = 0;
  std::int64_t size() const { return count; }
  Pair get(std::int64_t index) const { return {static_cast<int>(index), static_cast<int>(index * index)}; }
  std::string split() const { return "train"; }
};

/// get(index) with a collate of its own, and a batch with members; it can be moved only.
struct TokenBatch {
  at::Tensor tokens;
  std::unique_ptr<int> owner = nullptr;
  std::int64_t size() const { return tokens.size(0); }
  TokenBatch to(c10::Device device) const { return {tokens.to(device)}; }
  std::optional<std::int64_t> loss_normalizer() const { return tokens.numel(); }
};
struct Tokens {
  std::int64_t size() const { return 5; }
  std::vector<std::int64_t> get(std::int64_t index) { return {index, 10 * index}; }
  TokenBatch collate(std::vector<std::vector<std::int64_t>> samples) {
    std::vector<std::int64_t> flat;
    for (const auto& sample : samples) {
      flat.insert(flat.end(), sample.begin(), sample.end());
    }
    return {at::tensor(flat).view({static_cast<std::int64_t>(samples.size()), 2})};
  }
  bool train() const { return true; }
};

struct NoMove {
  std::int64_t size() const { return 1; }
};

}  // namespace danling_data_user

namespace {

namespace datasets_test {

namespace data = danling::data;
using danling::Batch;
using danling_data_user::PairBatch;
using danling_data_user::Squares;
using danling_data_user::TokenBatch;
using danling_data_user::Tokens;
using danling_test::error_of;
using Indices = std::vector<std::int64_t>;

static_assert(data::BatchType<Batch> && data::BatchType<PairBatch> && data::BatchType<TokenBatch> &&
              data::BatchType<at::Tensor>);
static_assert(!data::BatchType<int> && !data::BatchType<danling_data_user::NoMove>);
static_assert(data::DatasetLike<Squares> && data::DatasetLike<Tokens> && data::DatasetLike<data::TensorDataset>);
static_assert(!data::DatasetLike<std::vector<int>> && !data::DatasetLike<Batch>);
static_assert(std::same_as<data::batch_of<Squares>, PairBatch> && std::same_as<data::batch_of<Tokens>, TokenBatch>);
static_assert(std::convertible_to<Squares, data::Source<PairBatch>> &&
              !std::convertible_to<Squares, data::Source<Batch>> && !std::convertible_to<int, data::Source<Batch>>);
static_assert(std::convertible_to<std::shared_ptr<data::TensorDataset>, data::Source<Batch>>);
static_assert(danling::Checkpointable<data::LoaderBase> && danling::Checkpointable<data::Sampler>);

Indices list(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}

TEST_CASE("Batch: counts its samples and refuses an input that has none", "[data]") {
  Batch batch{.input = at::zeros({3, 2})};
  CHECK(batch.size() == 3);
  CHECK(data::batch_size(batch) == 3);
  CHECK(data::loss_normalizer(batch) == std::nullopt);
  batch.loss_normalizer = 17;
  CHECK(data::loss_normalizer(batch) == 17);
  CHECK(error_of<danling::DataError>([] { Batch().size(); }) ==
        "[data.batch] expected an input, or another tensor with a first dimension that counts samples, got none");
  CHECK(error_of<danling::DataError>([] { Batch{.input = at::zeros({})}.size(); }) ==
        "[data.batch] expected an input with a first dimension that counts samples, got a scalar");
}

TEST_CASE("Batch: tensors by name, in order", "[data]") {
  Batch batch{.input = at::zeros({3, 2}), .target = at::ones({3})};
  batch.set("mask", at::zeros({3, 2}, at::kBool));
  batch.set("length", at::arange(3));
  batch.set("mask", at::ones({3, 2}, at::kBool));
  batch.set("target", at::zeros({3}));
  batch.set("boxes.left", at::full({3}, 7));
  REQUIRE(batch.extra.map().size() == 3);
  CHECK(batch.extra.map().begin()->key.string() == "mask");
  CHECK(batch.at("boxes.left").eq(7).all().item<bool>());
  CHECK(batch.at("mask").all().item<bool>());
  CHECK(batch.at("target").sum().item<float>() == 0.0F);
  CHECK(batch.at("input").is_same(batch.input));
  CHECK(error_of<danling::DataError>([&] { batch.at("masks"); }) ==
        "[data.batch] expected one of input, target, mask, length, boxes.left, got 'masks'");
  CHECK(error_of<danling::DataError>([&] { batch.set("mask.left", at::zeros({3})); }) ==
        "[data.batch] expected maps on the path of a name, got 'mask.left', where a tensor is on the path");
}

TEST_CASE("Batch: moving shares what is there already and moves the rest", "[data]") {
  Batch batch{.input = at::zeros({3, 2}), .target = at::ones({3}), .loss_normalizer = 5};
  batch.set("mask", at::zeros({3}));
  const Batch same = batch.to(at::kCPU);
  CHECK(same.input.is_same(batch.input));
  CHECK(same.at("mask").is_same(batch.at("mask")));
  CHECK(batch.is_on(at::kCPU));
  // The meta device stands for a second device: it has shapes and no memory.
  const Batch moved = data::to_device(batch, at::Device(at::kMeta));
  CHECK(moved.is_on(at::kMeta));
  CHECK_FALSE(batch.is_on(at::kMeta));
  CHECK(moved.input.sizes() == batch.input.sizes());
  CHECK(moved.at("mask").is_meta());
  CHECK(moved.loss_normalizer == 5);
  const Batch no_target = Batch{.input = at::zeros({3})}.to(at::kMeta);
  CHECK_FALSE(no_target.target.defined());
  Batch mixed{.input = at::zeros({2}, at::kMeta), .target = at::ones({2})};
  CHECK_FALSE(mixed.is_on(at::kCPU));
  CHECK_FALSE(mixed.is_on(at::kMeta));
  CHECK(std::move(mixed).to(at::kMeta).target.is_meta());
}

TEST_CASE("Batch: pinning memory needs an accelerator and says so", "[data]") {
  const Batch batch{.input = at::zeros({2}), .loss_normalizer = 3};
  if (at::hasCUDA()) {
    const Batch pinned = batch.pin_memory();
    CHECK(pinned.input.is_pinned());
    CHECK_FALSE(pinned.target.defined());
    CHECK(pinned.loss_normalizer == 3);
  } else {
    CHECK_THROWS_AS(batch.pin_memory(), c10::Error);
  }
}

TEST_CASE("batch traits: members and functions beside a user's type are used", "[data]") {
  PairBatch pairs{{{1, 2}, {3, 4}}};
  CHECK(data::batch_size(pairs) == 2);
  CHECK(data::loss_normalizer(pairs) == 4);
  CHECK(data::to_device(pairs, at::Device(at::kMeta)).device == "meta");
  TokenBatch tokens{at::zeros({3, 4})};
  CHECK(data::batch_size(tokens) == 3);
  CHECK(data::loss_normalizer(tokens) == 12);
  CHECK(data::to_device(std::move(tokens), at::Device(at::kMeta)).tokens.is_meta());
  const at::Tensor plain = at::zeros({5, 2});
  CHECK(data::batch_size(plain) == 5);
  CHECK(data::to_device(plain, at::Device(at::kCPU)).is_same(plain));
  CHECK(data::to_device(plain, at::Device(at::kMeta)).is_meta());
  CHECK(data::loss_normalizer(plain) == std::nullopt);
}

TEST_CASE("collate: stacks samples and names the first that differs", "[data]") {
  using data::Sample;
  const Batch batch = data::collate({Sample{at::full({2}, 1), at::scalar_tensor(3, at::kLong)},
                                     Sample{at::full({2}, 2), at::scalar_tensor(4, at::kLong)}});
  CHECK(batch.input.sizes() == at::IntArrayRef({2, 2}));
  CHECK(list(batch.target) == Indices{3, 4});
  CHECK_FALSE(data::collate({Sample{at::zeros({2}), {}}}).target.defined());
  CHECK(error_of<danling::DataError>([] { data::collate({}); }) ==
        "[data.collate] expected at least one sample, got none");
  CHECK(error_of<danling::DataError>([] {
          data::collate({Sample{at::zeros({2}), {}}, Sample{at::zeros({2}), {}}, Sample{at::zeros({3}), {}}});
        }) == "[data.collate] expected input Float [2] as in sample 0, got Float [3] in sample 2");
  CHECK(error_of<danling::DataError>([] {
          data::collate({Sample{at::zeros({2}), {}}, Sample{at::zeros({2}), at::zeros({})}});
        }) == "[data.collate] expected target none as in sample 0, got Float [] in sample 1");
}

TEST_CASE("TensorDataset: gathers records in the order asked for, with repeats", "[data]") {
  data::TensorDatasetOptions options;
  options.extra.push_back({"weight", at::arange(4, at::kLong) * 100});
  options.split = "train";
  data::TensorDataset dataset(at::arange(8, at::kLong).view({4, 2}), at::arange(4, at::kLong) * 10, options);
  const Batch batch = dataset.get_batch(Indices{3, 0, 3});
  CHECK(list(batch.input) == Indices{6, 7, 0, 1, 6, 7});
  CHECK(list(batch.target) == Indices{30, 0, 30});
  CHECK(list(batch.at("weight")) == Indices{300, 0, 300});
  CHECK(dataset.train());
  CHECK_FALSE(data::TensorDataset(at::zeros({2, 2})).get_batch(Indices{1}).target.defined());
  // A batch is the caller's: changing it does not reach the dataset.
  dataset.get_batch(Indices{0, 1, 2, 3}).input.zero_();
  CHECK(list(dataset.input()) == Indices{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("TensorDataset: the transform is input * scale + shift in float32", "[data]") {
  const at::Tensor bytes = at::tensor({0, 51, 255}, at::kByte).view({3, 1});
  data::TensorDataset dataset(bytes, {}, {.input_transform = data::Affine{1.0 / 255.0, -0.5}});
  const at::Tensor input = dataset.get_batch(Indices{2, 1, 0}).input;
  REQUIRE(input.scalar_type() == at::kFloat);
  CHECK(input[0][0].item<float>() == Approx(0.5));
  CHECK(input[1][0].item<float>() == Approx(-0.3));
  CHECK(input[2][0].item<float>() == Approx(-0.5));
  data::TensorDataset floats(at::ones({2, 2}), {}, {.input_transform = data::Affine{3.0, 1.0}});
  CHECK(floats.get_batch(Indices{0, 1}).input.sum().item<float>() == 16.0F);
  CHECK(floats.input().sum().item<float>() == 4.0F);
}

TEST_CASE("TensorDataset: what does not fit is named", "[data]") {
  CHECK(error_of<danling::DataError>([] { data::TensorDataset(at::zeros({1437, 1}), at::zeros({360})); }) ==
        "[data.tensors] expected a target of 1437 records as in the input, got shape [360]");
  CHECK(error_of<danling::DataError>([] { data::TensorDataset(at::Tensor()); }) ==
        "[data.tensors] expected an input with a first dimension that counts records, got none");
  CHECK(error_of<danling::DataError>([] {
          data::TensorDataset(at::zeros({2}), {}, {.extra = {{"mask", at::zeros({2}, at::kMeta)}}});
        }) == "[data.tensors] expected 'mask' on cpu as the input, got meta");
  data::TensorDataset dataset(at::zeros({3}));
  CHECK(error_of<danling::DataError>([&] { dataset.get_batch(Indices{0, 3}); }) ==
        "[data.tensors] expected an index in [0, 3), got 3");
  CHECK(error_of<danling::DataError>([&] { dataset.get_batch(Indices{-1}); }) ==
        "[data.tensors] expected an index in [0, 3), got -1");
}

TEST_CASE("make_dataset: objects with get and collate become datasets of their own batch type", "[data]") {
  const std::shared_ptr<data::Dataset<PairBatch>> squares = data::make_dataset(Squares{4});
  CHECK(squares->size() == 4);
  CHECK(squares->split() == "train");
  CHECK(squares->train());
  const PairBatch batch = squares->get_batch(Indices{3, 1});
  REQUIRE(batch.pairs.size() == 2);
  CHECK(batch.pairs[0].right == 9);
  CHECK(batch.pairs[1].right == 1);

  const auto tokens = data::make_dataset(Tokens());
  CHECK(tokens->split().empty());
  CHECK(tokens->train());
  CHECK(list(tokens->get_batch(Indices{4, 2}).tokens) == Indices{4, 40, 2, 20});
  const auto same = data::make_dataset(data::TensorDataset(at::zeros({2})));
  CHECK(dynamic_cast<data::TensorDataset*>(same.get()) != nullptr);
}

TEST_CASE("Loader: a user's batch type is handed out as it is, even one that only moves", "[data]") {
  data::Loader<TokenBatch> loader(Tokens(), {.batch_size = 2});
  std::int64_t tokens = 0;
  for (TokenBatch& batch : loader) {
    tokens += data::loss_normalizer(batch).value();
    const TokenBatch taken = std::move(batch);
    CHECK(taken.size() == loader.batch_size());
  }
  CHECK(tokens == 10);
  data::Loader<PairBatch> pairs(Squares{3}, {.batch_size = 2});
  pairs.start_epoch(0);
  REQUIRE(pairs.next());
  REQUIRE(pairs.next());
  CHECK(pairs.batch().pairs.at(0).right == 4);
  CHECK(pairs.is_last());
}

TEST_CASE("SplitMap: takes datasets and streams by assignment, in order, and suggests names", "[data]") {
  data::SplitMap<data::Source<Batch>> datasets;
  CHECK(datasets.empty());
  datasets["train"] = std::make_shared<data::TensorDataset>(at::zeros({4}));
  datasets["val"] = data::make_dataset(data::TensorDataset(at::zeros({3})));
  datasets["test"] = data::TensorDataset(at::zeros({2}));
  CHECK(datasets.names() == std::vector<std::string>{"train", "val", "test"});
  CHECK(datasets.at("train").size() == 4);
  CHECK(datasets.at("test").size() == 2);
  datasets["train"] = data::TensorDataset(at::zeros({9}));
  CHECK(datasets.size() == 3);
  CHECK(datasets.at("train").size() == 9);
  CHECK(datasets.contains("val"));
  CHECK_FALSE(datasets.contains("valid"));
  CHECK(error_of<danling::ConfigError>([&] { datasets.at("tset"); }) ==
        "[data.split] expected one of the splits [train, val, test], got 'tset'; did you mean 'test'?");

  data::SplitMap<data::Source<PairBatch>> pairs;
  pairs["train"] = Squares{4};
  CHECK(pairs.at("train").train());
  CHECK_FALSE(data::Source<Batch>());

  std::string order;
  for (auto& [name, source] : datasets) {
    order += name + (source.is_stream() ? " stream " : " dataset ");
  }
  CHECK(order == "train dataset val dataset test dataset ");
}

}  // namespace datasets_test

}  // namespace
