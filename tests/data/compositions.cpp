// Datasets put together as programs do: each test is one that a user of torch.utils.data or tf.data would write.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <numeric>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <danling/data/concat.hpp>
#include <danling/data/datasets/mnist.hpp>
#include <danling/data/filter.hpp>
#include <danling/data/loader.hpp>
#include <danling/data/map.hpp>
#include <danling/data/map_batches.hpp>
#include <danling/data/shuffle_stream.hpp>
#include <danling/data/split_map.hpp>
#include <danling/data/tensor_dataset.hpp>
#include <danling/data/weighted_sampler.hpp>

#include <support/error.hpp>
#include <support/text_batch.hpp>

// A user's own types: a struct as the sample, another as the batch, with no merge_batches.
namespace danling_compositions_user {

struct Word {
  std::string text;
  bool operator==(const Word&) const = default;
};
struct Words : danling_test::TextBatch<Words> {};
inline Words collate(std::vector<Word> words) { return Words::of(std::move(words)); }
struct Dictionary {
  std::string prefix;
  std::int64_t count = 6;
  std::int64_t size() const { return count; }
  Word get(std::int64_t index) const { return {prefix + std::to_string(index)}; }
};

/// The same as whole batches, which can be taken apart.
struct Lines {
  std::vector<std::string> lines;
  std::int64_t size() const { return static_cast<std::int64_t>(lines.size()); }
  Lines to(c10::Device) const { return *this; }
};
inline Word uncollate(Lines batch) { return {batch.lines.at(0)}; }
struct File {
  std::int64_t size() const { return 4; }
  Lines get_batch(std::span<const std::int64_t> indices) const {
    Lines out;
    for (const std::int64_t index : indices) {
      out.lines.push_back("line " + std::to_string(index));
    }
    return out;
  }
};

/// A stream of the numbers first, first + 1, ..., as of one file among several.
struct NumberFile {
  std::int64_t first = 0;
  std::int64_t count = 5;
  std::int64_t at = 0;
  std::optional<std::int64_t> next() { return at < count ? std::optional(first + at++) : std::nullopt; }
  void reset(std::int64_t) { at = 0; }
  danling::State state_dict() const { return at; }
  void load_state_dict(const danling::State& state) { at = state.integer(); }
};

/// Samples whose stream collates them: no collate beside the type.
struct Token {
  std::int64_t id;
};
struct Tokens : NumberFile {
  Token make(std::int64_t number) const { return {number}; }
  at::Tensor collate(std::vector<Token> tokens) const {
    at::Tensor out = at::zeros({static_cast<std::int64_t>(tokens.size())}, at::kLong);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      out.mutable_data_ptr<std::int64_t>()[i] = tokens[i].id;
    }
    return out;
  }
};

}  // namespace danling_compositions_user

namespace {

namespace compositions_test {

namespace data = danling::data;
using namespace danling_compositions_user;
using danling::Batch;
using danling_test::error_of;
using data::Sample;
using Values = std::vector<std::int64_t>;

Values values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kLong).contiguous();
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}
std::int64_t number(const at::Tensor& tensor) { return tensor.item().toLong(); }
Sample negated(Sample sample) {
  sample.input = -sample.input;
  return sample;
}

/// The inputs of one epoch, by loaders without and with workers; a loader that is resumed after every batch gives them
/// too.
template <class T>
Values epoch(const T& dataset, data::LoaderOptions options = {}) {
  options.batch_size = 4;
  Values out;
  for (const std::int64_t num_workers : {0, 2}) {
    options.num_workers = num_workers;
    data::Loader<Batch> loader(dataset, options);
    Values seen;
    for (const Batch& batch : loader) {
      const Values inputs = values(batch.input);
      seen.insert(seen.end(), inputs.begin(), inputs.end());
    }
    CHECK((num_workers == 0 || seen == out));
    out = seen;
  }
  Values resumed;
  danling::State state;
  for (bool more = true; more;) {
    data::Loader<Batch> loader(dataset, options);
    if (!state.is_null()) {
      loader.load_state_dict(state);
    }
    loader.start_epoch(0);
    more = loader.next();
    if (more) {
      const Values inputs = values(loader.batch().input);
      resumed.insert(resumed.end(), inputs.begin(), inputs.end());
      state = loader.state_dict();
    }
  }
  CHECK(resumed == out);
  return out;
}

std::shared_ptr<data::TensorDataset> rows(std::int64_t count) {
  const at::Tensor input = at::arange(count, at::kLong);
  return std::make_shared<data::TensorDataset>(
      input, input.remainder(3), data::TensorDatasetOptions{.extra = {{"boxes.left", input * 3}}, .split = "train"});
}

TEST_CASE("Compositions: split, then augment the training part alone", "[data]") {
  const auto parts = data::random_split(rows(10), {0.7, 0.3}, 0);
  data::SplitMap<data::Source<Batch>> datasets;
  datasets["train"] = data::map(parts[0], [](Sample sample, const data::SampleInfo& info) {
    sample.input = sample.input + 100 * (1 + info.random().randint(5));
    return sample;
  });
  datasets["val"] = parts[1];
  Values train;
  for (const std::int64_t value : epoch(datasets["train"], {.seed = 3})) {
    CHECK(value >= 100);
    train.push_back(value % 100);
  }
  CHECK(train == parts[0].indices());
  CHECK(epoch(datasets["val"]) == parts[1].indices());
  // `map` cuts a batch into samples and collates them again: their other tensors stay.
  const auto same = data::make_dataset(data::map(parts[0], [](Sample sample) { return sample; }));
  const Batch mapped = same->get_batch(Values{2, 0, 5});
  const Batch direct = parts[0].get_batch(Values{2, 0, 5});
  CHECK(at::equal(mapped.input, direct.input));
  CHECK(at::equal(mapped.target, direct.target));
  CHECK(at::equal(mapped.at("boxes.left"), direct.at("boxes.left")));
}

TEST_CASE("Compositions: mapping a dataset in memory leaves its tensors as they are", "[data]") {
  const auto memory = rows(5);
  const auto doubled = data::map(memory, [](Sample sample) {
    sample.input.mul_(2);
    return sample;
  });
  CHECK(epoch(doubled) == Values{0, 2, 4, 6, 8});
  CHECK(values(memory->input()) == Values{0, 1, 2, 3, 4});
}

TEST_CASE("Compositions: map and filter over the bundled digits", "[data]") {
  const auto digits =
      data::mnist(std::filesystem::path(DANLING_SOURCE_DIR) / "examples" / "mnist" / "data", data::DatasetSplit::train);
  const auto threes = data::filter(digits, [](const Sample& sample) { return number(sample.target) == 3; });
  CHECK(threes.size() == 147);  // tests/golden/data_digits.py
  CHECK(threes.train());
  CHECK(threes.source_info(0).at("record").integer() == threes.indices()[0]);
  const auto flat = data::map(threes, [](Sample sample) {
    sample.input = sample.input.flatten();
    return sample;
  });
  const Batch batch = data::make_dataset(flat)->get_batch(Values{0, 1});
  CHECK(batch.input.sizes() == at::IntArrayRef({2, 784}));
  CHECK(at::equal(batch.input, threes.get_batch(Values{0, 1}).input.flatten(1)));
}

TEST_CASE("Compositions: a filtered and a mapped dataset one after the other, parts of that, and batches of it",
          "[data]") {
  const auto even = data::filter(rows(6), [](const Sample& sample) { return number(sample.input) % 2 == 0; });
  const auto whole = data::concat(even, data::map(rows(3), negated), rows(2));
  CHECK(epoch(whole) == Values{0, 2, 4, 0, -1, -2, 0, 1});
  const auto part = data::subset(whole, {7, 1, 5, 1});
  CHECK(epoch(part) == Values{1, 2, -2, 2});
  CHECK(number(part.get(2).input) == -2);
  const auto tenfold = data::map_batches(part, [](Batch batch) {
    batch.input = batch.input * 10;
    return batch;
  });
  CHECK(epoch(tenfold) == Values{10, 20, -20, 20});
  CHECK(epoch(data::map(tenfold, negated)) == Values{-10, -20, 20, -20});
}

TEST_CASE("Compositions: concat keeps every record of parts that are the same, or overlap", "[data]") {
  const auto memory = rows(3);
  CHECK(epoch(data::concat(memory, memory)) == Values{0, 1, 2, 0, 1, 2});
  const auto twice = data::concat(std::vector{data::subset(memory, {0, 1}), data::subset(memory, {1, 2})});
  CHECK(epoch(twice) == Values{0, 1, 1, 2});
  // Joined again, and shuffled: as often as before.
  Values shuffled = epoch(data::concat(twice, twice), {.shuffle = true, .seed = 1});
  std::sort(shuffled.begin(), shuffled.end());
  CHECK(shuffled == Values{0, 0, 1, 1, 1, 1, 2, 2});
}

TEST_CASE("Compositions: a weighted sampler over a part, by the labels of its records", "[data]") {
  const auto [rest, held] = data::hold_out(rows(90), 30, 1);
  Values labels;
  for (const std::int64_t record : rest.indices()) {
    labels.push_back(record % 3 == 0 ? 0 : 1);
  }
  const auto balanced = std::make_shared<data::WeightedSampler>(
      data::balanced_weights(labels), data::WeightedSamplerOptions{.num_samples = 6000, .seed = 2});
  data::Loader<Batch> loader(rest, {.batch_size = 100, .sampler = balanced});
  std::int64_t zeros = 0;
  for (const Batch& batch : loader) {
    zeros += number((batch.target == 0).sum());
  }
  // Half of 6,000, whatever their share: five standard deviations are 194.
  CHECK(std::abs(zeros - 3000) < 194);
}

TEST_CASE("Compositions: as many records of every class", "[data]") {
  const auto memory = rows(20);  // 7, 7 and 6 of the classes
  std::map<std::int64_t, std::int64_t> taken;
  const auto even = data::filter(memory, [&](const Sample& sample) { return ++taken[number(sample.target)] <= 6; });
  const auto by_label = data::filter_indices(memory, [](std::int64_t index) { return index % 3 != 2; });
  CHECK(even.size() == 18);
  CHECK(by_label.size() == 14);
  CHECK(by_label.train());
}

TEST_CASE("Compositions: folds, each validated once", "[data]") {
  const auto folds = data::random_split(rows(11), std::vector<double>(5, 0.2), 4);
  Values validated;
  for (std::size_t fold = 0; fold < folds.size(); ++fold) {
    auto others = folds;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(fold));
    Values all = epoch(data::concat(others));
    const Values val = epoch(folds[fold]);
    validated.insert(validated.end(), val.begin(), val.end());
    all.insert(all.end(), val.begin(), val.end());
    std::sort(all.begin(), all.end());
    Values expected(11);
    std::iota(expected.begin(), expected.end(), std::int64_t{0});
    CHECK(all == expected);
  }
  CHECK(validated.size() == 11);
}

TEST_CASE("Compositions: own structs stay what they are through splits, filters and joins", "[data]") {
  const auto parts = data::random_split(Dictionary{"a"}, {4, 2}, 0);
  const auto shouted = data::map(parts[0], [](Word word) { return Word{word.text + "!"}; });
  const auto whole =
      data::concat(shouted, data::filter(Dictionary{"b"}, [](const Word& word) { return word.text > "b3"; }), parts[1]);
  const auto name = [&](std::size_t part, std::size_t i) { return "a" + std::to_string(parts[part].indices()[i]); };
  CHECK(data::make_dataset(whole)->get_batch(Values{0, 3, 4, 5, 7}).texts ==
        std::vector<std::string>{name(0, 0) + "!", name(0, 3) + "!", "b4", "b5", name(1, 1)});
  CHECK(whole.get(6) == Word{name(1, 0)});
  data::Loader loader(whole, {.batch_size = 3});
  static_assert(std::same_as<decltype(loader), data::Loader<Words>>);
  // Whole batches of a type of the user's, taken apart by a function of the user's.
  const auto lines = data::map(data::subset(File(), {3, 0}), [](Word word) { return Word{"> " + word.text}; });
  CHECK(data::make_dataset(lines)->get_batch(Values{0, 1}).texts == std::vector<std::string>{"> line 3", "> line 0"});
}

TEST_CASE("Compositions: samples without a target, texts beside them, and tensors alone", "[data]") {
  struct Captions {
    std::int64_t size() const { return 4; }
    Batch get_batch(std::span<const std::int64_t> indices) const {
      Batch out{.input = at::tensor(Values(indices.begin(), indices.end()))};
      danling::State::List texts;
      for (const std::int64_t index : indices) {
        texts.push_back("caption " + std::to_string(index));
      }
      out.extra["caption"] = texts;
      return out;
    }
  };
  const auto [rest, held] = data::hold_out(Captions(), 1, 0);
  const auto mapped = data::make_dataset(data::map(data::concat(rest, held), [](Sample sample) {
    sample.extra["caption"] = sample.extra.at("caption").string() + "!";
    return sample;
  }));
  const Batch batch = mapped->get_batch(Values{3, 0});
  CHECK_FALSE(batch.target.defined());
  CHECK(batch.extra.at("caption").items()[0].string() == "caption " + std::to_string(held.indices()[0]) + "!");
  const auto inputs = data::map_batches(rows(4), [](Batch whole) { return whole.input; });
  const auto squares = data::map(inputs, [](const at::Tensor& row) { return row * row; });
  CHECK(values(data::make_dataset(squares)->get_batch(Values{3, 2})) == Values{9, 4});
}

TEST_CASE("Compositions: a filter that keeps nothing gives no record, alone and among others", "[data]") {
  const auto none = data::filter(rows(5), [](const Sample&) { return false; });
  CHECK(none.size() == 0);
  CHECK(epoch(data::concat(none, rows(2), none)) == Values{0, 1});
  CHECK(data::map(none, negated).size() == 0);
  CHECK(error_of<danling::DataError>([&] { none.get(0); }) == "[data.subset] expected an index in [0, 0), got 0");
}

TEST_CASE("Compositions: batches that samples cannot hold are refused, with the record", "[data]") {
  const auto summed = data::map_batches(rows(3), [](Batch batch) {
    batch.loss_normalizer = 7;
    return batch;
  });
  data::Loader<Batch> loader(data::map(summed, negated), {.batch_size = 2});
  CHECK(error_of<danling::DataError>([&] { loader.begin(); }) ==
        "[data.uncollate] expected a batch without a loss_normalizer, which a sample cannot hold, got 7; map_batches "
        "keeps it; while reading record 0");
  const auto whole = data::map_batches(rows(3), [](Batch batch) {
    batch.set("mean", batch.input.to(at::kFloat).mean());
    return batch;
  });
  CHECK(error_of<danling::DataError>([&] { data::map(whole, negated).get(1); }) ==
        "[data.uncollate] expected extra.mean of one sample, got Float []");
}

TEST_CASE("Compositions: an error below names its record once", "[data]") {
  struct Holes {
    std::int64_t size() const { return 9; }
    Sample get(std::int64_t index) const {
      danling::detail::check<danling::DataError>(index != 4, "test.holes", "expected a measurement");
      return {.input = at::tensor(index)};
    }
  };
  const auto erased = data::make_dataset(Holes());
  const auto part = data::subset(erased, {8, 4, 0});
  const std::string expected = "[test.holes] expected a measurement; while reading record 1 (4 in the dataset below)";
  data::Loader<Batch> plain(part, {.batch_size = 3});
  CHECK(error_of<danling::DataError>([&] { plain.begin(); }) == expected);
  data::Loader<Batch> mapped(data::map(part, negated), {.batch_size = 3});
  CHECK(error_of<danling::DataError>([&] { mapped.begin(); }) == expected);
}

TEST_CASE("Compositions: streams of files, joined, split by file, filtered, taken from and mapped", "[data]") {
  const auto sample = [](std::int64_t number) { return Sample{.input = at::tensor(number)}; };
  std::vector<NumberFile> files;
  for (std::int64_t file = 0; file < 4; ++file) {
    files.push_back({.first = 100 * file, .count = file});  // the first is empty
  }
  const std::vector<NumberFile> val(files.end() - 1, files.end());
  files.pop_back();
  CHECK(epoch(data::map(data::concat(files), sample)) == Values{100, 200, 201});
  CHECK(epoch(data::map(data::concat(val), sample)) == Values{300, 301, 302});
  const auto odd = data::filter(data::concat(NumberFile{0, 9}, NumberFile{50, 3}),
                                [](std::int64_t number) { return number % 2 == 1; });
  CHECK(epoch(data::map(odd, sample)) == Values{1, 3, 5, 7, 51});
  CHECK(epoch(data::map(data::take(odd, 3), sample)) == Values{1, 3, 5});
  CHECK(epoch(data::map(data::take(odd, 99), sample)) == Values{1, 3, 5, 7, 51});
  CHECK(epoch(data::map(data::interleave(std::vector<NumberFile>{{0, 3}, {10, 1}, {20, 2}}), sample)) ==
        Values{0, 10, 20, 1, 21, 2});
  Values shuffled = epoch(data::map(data::shuffle(data::shuffle(odd, {.buffer_size = 2}), {.buffer_size = 3}), sample));
  std::sort(shuffled.begin(), shuffled.end());
  CHECK(shuffled == Values{1, 3, 5, 7, 51});
  const auto nothing = data::filter(NumberFile(), [](std::int64_t) { return false; });
  CHECK(epoch(data::map(data::concat(nothing, NumberFile{7, 2}), sample)) == Values{7, 8});
  CHECK(error_of<danling::DataError>([] { data::concat(std::vector<NumberFile>()); }) ==
        "[data.concat] expected at least one stream, got none");
}

TEST_CASE("Compositions: joined streams collate as they do alone, and copies go on by themselves", "[data]") {
  auto tokens = data::concat(Tokens{{0, 3}}, Tokens{{10, 2}});
  CHECK(tokens.next());
  auto copy = tokens;
  const auto whole = data::make_stream(tokens);
  CHECK(values(*whole->next(9)) == Values{1, 2, 10, 11});
  CHECK(values(*data::make_stream(copy)->next(9)) == Values{1, 2, 10, 11});
}

TEST_CASE("Compositions: passing over records of joined streams leaves those that reading would", "[data]") {
  for (const bool interleaved : {false, true}) {
    for (std::int64_t first = 0; first <= 8; ++first) {
      for (std::int64_t skipped = 0; skipped <= 9; ++skipped) {
        const std::vector<NumberFile> files = {{0, 3}, {10, 0}, {20, 4}, {30, 1}};
        auto reads = interleaved ? data::interleave(files) : data::concat(files);
        auto skips = reads;
        for (std::int64_t i = 0; i < first; ++i) {
          CHECK(reads.next().has_value() == skips.next().has_value());
        }
        std::int64_t passed = 0;
        while (passed < skipped && reads.next()) {
          ++passed;
        }
        REQUIRE(skips.skip(skipped) == passed);
        while (auto record = reads.next()) {
          auto other = skips.next();
          REQUIRE(other);
          REQUIRE(reads.make(*record) == skips.make(*other));
        }
        REQUIRE_FALSE(skips.next());
      }
    }
  }
}

}  // namespace compositions_test

}  // namespace
