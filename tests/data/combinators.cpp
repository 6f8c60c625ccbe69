#include <atomic>
#include <map>
#include <thread>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <danling/data/concat.hpp>
#include <danling/data/filter.hpp>
#include <danling/data/loader.hpp>
#include <danling/data/map.hpp>
#include <danling/data/map_batches.hpp>
#include <danling/data/tensor_dataset.hpp>

#include <support/error.hpp>
#include <support/text_batch.hpp>

// A user's own types.
namespace danling_combinators_user {

struct Word {
  static constexpr std::int64_t train_batch_size = 48;
  std::string text;
};

/// A batch without tensors.
struct Words : danling_test::TextBatch<Words> {};
inline Words collate(std::vector<Word> words) { return Words::of(std::move(words)); }
inline Words merge_batches(std::vector<Words> parts, std::span<const std::int64_t> order) {
  std::vector<std::string> all;
  for (const Words& part : parts) {
    all.insert(all.end(), part.texts.begin(), part.texts.end());
  }
  Words out;
  for (const std::int64_t i : order) {
    out.texts.push_back(all[static_cast<std::size_t>(i)]);
  }
  return out;
}

/// "a0", "a1", ...: no collate of its own.
struct Dictionary {
  std::string prefix = "a";
  std::int64_t count = 5;
  std::string part = "train";
  std::int64_t size() const { return count; }
  Word get(std::int64_t index) const {
    danling::detail::check<danling::DataError>(index >= 0 && index < count, "test.words", "expected an index below ",
                                               count, ", got ", index);
    return {prefix + std::to_string(index)};
  }
  danling::State source_info(std::int64_t index) const {
    danling::State info;
    info["word"] = prefix + std::to_string(index);
    return info;
  }
  std::optional<std::string> entry_key(std::int64_t index) const { return prefix + "/" + std::to_string(index); }
  std::string split() const { return part; }
};

/// Records that are no samples: no collate anywhere.
struct Raw {
  std::int64_t value = 0;
};
struct Raws {
  std::int64_t size() const { return 6; }
  Raw get(std::int64_t index) const { return {10 * index}; }
};

/// Words with a random end.
struct Noisy {
  std::int64_t size() const { return 4; }
  Word get(std::int64_t index, const danling::data::SampleInfo& info) const {
    return {std::to_string(index) + ":" + std::to_string(info.random().randint(1'000'000))};
  }
};

}  // namespace danling_combinators_user

namespace {

namespace combinators_test {

namespace data = danling::data;
using danling::Batch;
using danling::State;
using danling_combinators_user::Dictionary;
using danling_combinators_user::Noisy;
using danling_combinators_user::Raw;
using danling_combinators_user::Raws;
using danling_combinators_user::Word;
using danling_combinators_user::Words;
using danling_test::error_of;
using Indices = std::vector<std::int64_t>;
using Texts = std::vector<std::string>;

static_assert(data::Mergeable<Batch> && data::Mergeable<at::Tensor> && data::Mergeable<Words> &&
              !data::Mergeable<State>);
static_assert(data::RecordSource<Raws> && !data::DatasetLike<Raws>);
static_assert(data::RecordSource<std::shared_ptr<Dictionary>> && data::RecordSource<data::TensorDataset> &&
              data::RecordSource<std::shared_ptr<data::Dataset<at::Tensor>>> &&
              !data::RecordSource<std::shared_ptr<data::Dataset<Words>>>);

data::BatchInfo info_of(const Indices& indices) {
  data::BatchInfo info;
  info.indices = indices;
  info.epoch_key = data::RandomKey::of(3);
  info.batch_key = data::RandomKey::of(4);
  info.split = "train";
  return info;
}

Indices values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}

std::shared_ptr<data::Dataset<Batch>> numbers(std::int64_t begin, std::int64_t end, std::string split = {}) {
  const at::Tensor input = at::arange(begin, end, at::kLong);
  return std::make_shared<data::TensorDataset>(
      input, input * 2, data::TensorDatasetOptions{.extra = {{"boxes.left", input * 3}}, .split = std::move(split)});
}

TEST_CASE("map: the function sees every sample, and collate, keys and defaults stay", "[data]") {
  auto mapped = data::map(Dictionary(), [](Word word) {
    word.text += "!";
    return word;
  });
  const auto dataset = data::make_dataset(mapped);
  CHECK(dataset->size() == 5);
  CHECK(dataset->get_batch(Indices{3, 0, 3}).texts == Texts{"a3!", "a0!", "a3!"});
  CHECK(dataset->split() == "train");
  CHECK(dataset->train());
  CHECK(dataset->source_info(2).at("word").string() == "a2");
  CHECK(dataset->entry_key(2) == "a/2");
  CHECK(dataset->loader_defaults().train_batch_size == 48);
  // A function may turn raw records into samples; a shared pointer is not copied.
  const auto words = std::make_shared<Raws>();
  const auto from_raw = data::make_dataset(data::map(words, [](Raw raw) { return Word{std::to_string(raw.value)}; }));
  CHECK(from_raw->get_batch(Indices{1, 5}).texts == Texts{"10", "50"});
}

TEST_CASE("map: random numbers are those of the loader's record, below subsets and above", "[data]") {
  const auto draw = [](Word word, const data::SampleInfo& info) {
    return Word{word.text + ":" + std::to_string(info.random().randint(1'000'000))};
  };
  const auto mapped = data::make_dataset(data::map(Dictionary(), draw));
  const auto expected = [](std::int64_t record) {
    return ":" + std::to_string(data::Random(data::RandomKey::of(3).fold_in(std::uint64_t(record))).randint(1'000'000));
  };
  CHECK(mapped->read(Indices{4, 1}, info_of({4, 1})).texts == Texts{"a4" + expected(4), "a1" + expected(1)});
  const auto part = data::subset(mapped, {4, 2});
  CHECK(part.get_batch(Indices{1}, info_of({1})).texts == Texts{"a2" + expected(1)});
  const auto twice = data::make_dataset(data::map(data::map(Dictionary(), draw), draw));
  // The upper function draws from a key that its layer is folded into.
  const auto above = data::RandomKey::of(3).fold_in((std::uint64_t{3} << 62) | 1).fold_in(2);
  CHECK(twice->read(Indices{2}, info_of({2})).texts ==
        Texts{"a2" + expected(2) + ":" + std::to_string(data::Random(above).randint(1'000'000))});
}

TEST_CASE("map_batches: whole batches of datasets change, with what they are", "[data]") {
  const auto dataset = data::map_batches(numbers(10, 20, "train"), [](Batch batch, const data::BatchInfo& info) {
    CHECK(info.batch_key == data::RandomKey::of(4));
    batch.input = batch.input + at::tensor(info.indices, at::kLong) * 100;
    return batch;
  });
  const Batch batch = dataset.get_batch(Indices{3, 1}, info_of({3, 1}));
  CHECK(values(batch.input) == Indices{313, 111});
  CHECK(values(batch.target) == Indices{26, 22});
  CHECK(dataset.train());
  // Another type of batch, from an object.
  const auto inputs = data::map_batches(data::TensorDataset(at::arange(4)), [](Batch whole) { return whole.input; });
  static_assert(std::same_as<data::batch_of<decltype(inputs)>, at::Tensor>);
  CHECK(values(inputs.get_batch(Indices{2})) == Indices{2});
  CHECK(inputs.size() == 4);
}

TEST_CASE("concat: batches across parts come in the order that was asked for", "[data]") {
  const auto whole = data::concat(numbers(0, 4, "train"), numbers(4, 4, "train"), numbers(4, 11, "train"));
  CHECK(whole.size() == 11);
  CHECK(whole.split() == "train");
  const Indices asked = {10, 0, 4, 3, 3, 9, 1};
  const Batch batch = whole.get_batch(asked);
  CHECK(values(batch.input) == asked);
  CHECK(values(batch.target) == Indices{20, 0, 8, 6, 6, 18, 2});
  CHECK(values(batch.at("boxes.left")) == Indices{30, 0, 12, 9, 9, 27, 3});
  CHECK(values(whole.get_batch(Indices{2, 1}).input) == Indices{2, 1});
  CHECK(error_of<danling::DataError>([&] { whole.get_batch(Indices{11}); }) ==
        "[data.concat] expected an index in [0, 11), got 11");
  CHECK(data::concat(numbers(0, 2, "train"), numbers(0, 2, "val")).split().empty());
  CHECK_FALSE(data::concat(numbers(0, 2, "train"), numbers(0, 2, "val")).train());
  CHECK(error_of<danling::DataError>([] { data::concat(std::vector<std::shared_ptr<data::Dataset<Batch>>>()); }) ==
        "[data.concat] expected at least one dataset, got none");
}

TEST_CASE("concat: random batches equal those of the parts in one tensor", "[data]") {
  data::Random random(data::RandomKey::of(11));
  for (int round = 0; round < 50; ++round) {
    std::vector<std::shared_ptr<data::Dataset<Batch>>> parts;
    std::int64_t size = 0;
    for (std::int64_t i = random.randint(5); i >= 0; --i) {
      const std::int64_t end = size + random.randint(20);
      parts.push_back(numbers(size, end));
      size = end;
    }
    const auto whole = data::concat(parts);
    REQUIRE(whole.size() == size);
    Indices asked;
    for (std::int64_t i = size > 0 ? random.randint(40) : 0; i > 0; --i) {
      asked.push_back(random.randint(size));
    }
    if (!asked.empty()) {
      const Batch batch = whole.get_batch(asked, info_of(asked));
      REQUIRE(values(batch.input) == asked);
      REQUIRE(batch.target.equal(batch.input * 2));
    }
  }
}

TEST_CASE("concat: the parts are told which samples theirs are", "[data]") {
  const auto noisy = data::make_dataset(Noisy());
  // Batches of Words are merged by the user's function.
  const auto whole = data::concat(noisy, data::make_dataset(Dictionary()), noisy);
  const auto drawn = [](std::int64_t record) {
    return std::to_string(data::Random(data::RandomKey::of(3).fold_in(std::uint64_t(record))).randint(1'000'000));
  };
  const Indices asked = {12, 5, 1, 9};
  CHECK(whole.get_batch(asked, info_of(asked)).texts ==
        Texts{"3:" + drawn(12), "a1", "1:" + drawn(1), "0:" + drawn(9)});
  CHECK(whole.entry_key(5) == "a/1");
  CHECK(whole.source_info(8).at("word").string() == "a4");
}

TEST_CASE("concat: objects with get stay objects with get", "[data]") {
  auto whole = data::concat(Dictionary{"a", 2}, std::make_shared<Dictionary>(Dictionary{"b", 3, "train"}),
                            data::map(Dictionary{"c", 2}, [](Word word) { return word; }));
  static_assert(data::SampleSource<decltype(whole)>);
  CHECK(whole.size() == 7);
  CHECK(whole.split() == "train");
  CHECK(whole.entry_key(6) == "c/1");
  const auto shouted = data::make_dataset(data::map(whole, [](Word word) { return Word{word.text + "!"}; }));
  CHECK(shouted->get_batch(Indices{6, 0, 2}).texts == Texts{"c1!", "a0!", "b0!"});
  CHECK(shouted->loader_defaults().train_batch_size == 48);
}

TEST_CASE("merge_batches: texts, numbers and names go with their samples, and what does not fit is named", "[data]") {
  const auto part = [](Indices inputs, Texts texts) {
    Batch batch{.input = at::tensor(inputs, at::kLong)};
    State::List list;
    for (const auto& text : texts) {
      list.push_back(text);
    }
    batch.extra["caption"] = list;
    batch.loss_normalizer = static_cast<std::int64_t>(inputs.size()) * 10;
    return batch;
  };
  Batch named = part({1, 2}, {"one", "two"});
  named.info.entry_keys = {"k1", "k2"};
  const Indices order = {2, 0, 1};
  const Batch merged = data::merge_batches(std::vector<Batch>{named, part({3}, {"three"})}, order);
  CHECK(values(merged.input) == Indices{3, 1, 2});
  CHECK(merged.extra.at("caption").items()[0].string() == "three");
  CHECK(merged.extra.at("caption").items()[2].string() == "two");
  CHECK(merged.loss_normalizer == 30);
  CHECK((merged.info.entry_keys == std::vector<std::optional<std::string>>{std::nullopt, "k1", "k2"}));

  const auto error = [](Batch first, Batch second) {
    const Indices straight = {0, 1};
    return error_of<danling::DataError>([&] { data::merge_batches(std::vector<Batch>{first, second}, straight); });
  };
  CHECK(error({.input = at::zeros({1, 2})}, {.input = at::zeros({1, 3})}) ==
        "[data.merge] expected input of parts that fit together, got Float [1, 2] and Float [1, 3]");
  CHECK(error({.input = at::zeros({1}), .target = at::zeros({1})}, {.input = at::zeros({1})}) ==
        "[data.merge] expected target of parts that fit together, got Float [1] and none");
  Batch extra{.input = at::zeros({1})};
  extra.set("mask", at::zeros({1}));
  Batch other{.input = at::zeros({1})};
  other.set("masks", at::zeros({1}));
  CHECK(error(extra, other) ==
        "[data.merge] expected extra of parts that fit together, got a map with 'mask' and one with other names");
}

TEST_CASE("filter: the records that satisfy the predicate, found once", "[data]") {
  std::atomic<int> asked = 0;
  auto even = data::filter(Dictionary{"w", 1000}, [&](const Word& word) {
    ++asked;
    return (word.text.back() - '0') % 2 == 0;
  });
  CHECK(asked == 1000);
  CHECK(even.size() == 500);
  CHECK(even.indices().at(7) == 14);
  const auto dataset = data::make_dataset(even);
  CHECK(dataset->get_batch(Indices{7, 0}).texts == Texts{"w14", "w0"});
  CHECK(dataset->entry_key(7) == "w/14");
  CHECK(dataset->source_info(3).at("word").string() == "w6");
  CHECK(dataset->split() == "train");
  CHECK(asked == 1000);
  CHECK(error_of<danling::DataError>([&] {
          dataset->get_batch(Indices{500});
        }).starts_with("[data.subset] expected an index in [0, 500), got 500"));
  const auto in_threads =
      data::filter(Dictionary{"w", 1000}, [](const Word& word) { return word.text.size() == 3; }, {.num_threads = 4});
  CHECK(in_threads.indices().front() == 10);
  CHECK(in_threads.indices().back() == 99);
  CHECK(in_threads.size() == 90);
  CHECK(error_of<danling::ConfigError>([] {
          data::filter(Dictionary(), [](const Word&) { return true; }, {.num_threads = 0});
        }) == "[data.filter] expected num_threads of at least 1, got 0");
  CHECK(error_of<danling::DataError>([] {
          data::filter(Dictionary(), [](const Word& word) {
            return danling::detail::check<danling::DataError>(word.text != "a3", "test.filter",
                                                              "expected another word"),
                   true;
          });
        }) == "[test.filter] expected another word (word 'a3'); while reading record 3");
}

TEST_CASE("filter_indices: a subset of any dataset, without reading", "[data]") {
  const auto odd = data::filter_indices(numbers(0, 9, "train"), [](std::int64_t i) { return i % 2 == 1; });
  CHECK(odd.size() == 4);
  CHECK(odd.train());
  CHECK(values(odd.get_batch(Indices{3, 0}).input) == Indices{7, 1});
}

TEST_CASE("Combinators: a loader with workers gives what the calling thread gives", "[data]") {
  const auto draw = [](Word word, const data::SampleInfo& info) {
    return Word{word.text + std::to_string(info.random().randint(1000))};
  };
  const auto load = [&](std::int64_t num_workers) {
    auto kept = data::filter(Dictionary{"w", 300}, [](const Word& word) { return word.text.back() != '7'; });
    const auto whole = data::concat(data::make_dataset(data::map(kept, draw)), data::make_dataset(Noisy()));
    data::Loader<Words> loader(whole, {.batch_size = 7, .shuffle = true, .seed = 2, .num_workers = num_workers});
    Texts out;
    for (Words& batch : loader) {
      out.insert(out.end(), batch.texts.begin(), batch.texts.end());
    }
    return out;
  };
  const Texts expected = load(0);
  CHECK(expected.size() == 274);
  CHECK(load(3) == expected);
}

}  // namespace combinators_test

}  // namespace
