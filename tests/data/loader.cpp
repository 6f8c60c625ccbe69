#include <danling/data/loader.hpp>

#include <algorithm>
#include <set>

#include <ATen/ops/arange.h>

#include <danling/data/subset.hpp>
#include <danling/data/tensor_dataset.hpp>

#include <support/error.hpp>

namespace {

namespace loader_test_basics {

using danling::State;
using danling::data::Batch;
using danling::data::Loader;
using danling::data::LoaderOptions;
using danling_test::error_of;

/// Record i holds the number i.
std::shared_ptr<danling::data::TensorDataset> numbers(std::int64_t size) {
  return std::make_shared<danling::data::TensorDataset>(at::arange(size, at::kLong));
}

std::vector<std::int64_t> values(const Batch& batch) {
  const auto* data = batch.input.const_data_ptr<std::int64_t>();
  return {data, data + batch.input.numel()};
}

/// The records of the rest of the epoch.
std::vector<std::int64_t> drain(Loader<Batch>& loader) {
  std::vector<std::int64_t> out;
  while (loader.next()) {
    const auto batch = values(loader.batch());
    out.insert(out.end(), batch.begin(), batch.end());
  }
  return out;
}

std::vector<std::int64_t> epoch_of(Loader<Batch>& loader, std::int64_t epoch) {
  loader.start_epoch(epoch);
  return drain(loader);
}

std::vector<std::int64_t> counting(std::int64_t size) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(size));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

std::vector<std::int64_t> sorted(std::vector<std::int64_t> in) {
  std::sort(in.begin(), in.end());
  return in;
}

TEST_CASE("Loader: sequential batches, the last one smaller, and its end announced", "[data]") {
  Loader<Batch> loader(numbers(10), {.batch_size = 4});
  CHECK(loader.length() == 3);
  CHECK(loader.num_samples() == 10);
  CHECK(loader.epoch() == -1);
  loader.start_epoch(0);
  std::vector<std::vector<std::int64_t>> seen;
  std::vector<bool> last;
  while (loader.next()) {
    seen.push_back(values(loader.batch()));
    last.push_back(loader.is_last());
    CHECK(loader.position() == static_cast<std::int64_t>(seen.size()));
    CHECK(loader.batch_size() == static_cast<std::int64_t>(seen.back().size()));
  }
  CHECK(seen == std::vector<std::vector<std::int64_t>>{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}});
  CHECK(last == std::vector<bool>{false, false, true});
  CHECK_FALSE(loader.next());
  CHECK_FALSE(loader.is_last());
  CHECK(loader.position() == 3);
  CHECK(loader.samples() == 10);
}

TEST_CASE("Loader: drop_last leaves out the smaller batch and moves the announcement", "[data]") {
  Loader<Batch> loader(numbers(10), {.batch_size = 4, .drop_last = true});
  CHECK(loader.length() == 2);
  loader.start_epoch(0);
  REQUIRE(loader.next());
  CHECK_FALSE(loader.is_last());
  REQUIRE(loader.next());
  CHECK(loader.is_last());
  CHECK_FALSE(loader.next());
  Loader<Batch> too_small(numbers(3), {.batch_size = 4, .drop_last = true});
  CHECK(too_small.length() == 0);
  too_small.start_epoch(0);
  CHECK_FALSE(too_small.next());
}

TEST_CASE("Loader: shuffling visits every record once, in an order of (seed, epoch, split) only", "[data]") {
  const auto order = [](std::uint64_t seed, std::int64_t epoch, const char* split, std::int64_t batch_size) {
    Loader<Batch> loader(numbers(1437), {.batch_size = batch_size, .shuffle = true, .seed = seed, .split = split});
    return epoch_of(loader, epoch);
  };
  const auto first = order(1, 0, "train", 64);
  CHECK(sorted(first) == counting(1437));
  CHECK(first != counting(1437));
  CHECK(order(1, 0, "train", 7) == first);
  CHECK(order(2, 0, "train", 64) != first);
  CHECK(order(1, 1, "train", 64) != first);
  CHECK(order(1, 0, "val", 64) != first);
  CHECK(sorted(order(1, 1, "train", 64)) == counting(1437));
}

TEST_CASE("Loader: a state resumes in the middle of an epoch, also with another batch size", "[data]") {
  for (const std::int64_t size : {1, 2, 10, 97}) {
    for (const std::int64_t batch_size : {1, 3, 16}) {
      for (const std::int64_t other : {1, 4, 16}) {
        const LoaderOptions options{.batch_size = batch_size, .shuffle = true, .seed = 5, .split = "train"};
        Loader<Batch> whole(numbers(size), options);
        const auto expected = epoch_of(whole, 2);
        for (std::int64_t stop = 0; stop <= *whole.length(); ++stop) {
          Loader<Batch> before(numbers(size), options);
          before.start_epoch(2);
          std::vector<std::int64_t> seen;
          for (std::int64_t i = 0; i < stop; ++i) {
            REQUIRE(before.next());
            const auto batch = values(before.batch());
            seen.insert(seen.end(), batch.begin(), batch.end());
          }
          LoaderOptions changed = options;
          changed.batch_size = other;
          Loader<Batch> after(numbers(size), changed);
          after.load_state_dict(before.state_dict());
          CHECK(danling::bitwise_equal(after.state_dict().at("sampler"), before.state_dict().at("sampler")));
          CHECK(after.samples() == static_cast<std::int64_t>(seen.size()));
          after.start_epoch(2);
          CHECK(after.position() == (after.samples() + other - 1) / other);
          const auto rest = drain(after);
          seen.insert(seen.end(), rest.begin(), rest.end());
          REQUIRE(seen == expected);
          CHECK(epoch_of(after, 3) == epoch_of(whole, 3));
        }
      }
    }
  }
}

TEST_CASE("Loader: a loaded state is for its epoch only, once", "[data]") {
  Loader<Batch> loader(numbers(10), {.batch_size = 4});
  loader.start_epoch(3);
  REQUIRE(loader.next());
  const State state = loader.state_dict();
  loader.load_state_dict(state);
  CHECK(error_of<danling::StateError>([&] { loader.next(); }) == "[data.loader] expected start_epoch() before next()");
  CHECK(epoch_of(loader, 3) == std::vector<std::int64_t>{4, 5, 6, 7, 8, 9});
  CHECK(epoch_of(loader, 3) == counting(10));
  loader.load_state_dict(state);
  CHECK(epoch_of(loader, 4) == counting(10));
  CHECK(epoch_of(loader, 3) == counting(10));
}

TEST_CASE("Loader: resuming takes over the saved seed", "[data]") {
  Loader<Batch> saved(numbers(50), {.batch_size = 8, .shuffle = true, .seed = ~std::uint64_t{0}, .split = "train"});
  const auto expected = epoch_of(saved, 1);
  saved.start_epoch(0);
  Loader<Batch> resumed(numbers(50), {.batch_size = 8, .shuffle = true, .seed = 2, .split = "train"});
  resumed.load_state_dict(saved.state_dict());
  CHECK(epoch_of(resumed, 1) == expected);
}

TEST_CASE("Loader: a state that does not fit is refused by name and changes nothing", "[data]") {
  const LoaderOptions options{.batch_size = 4, .shuffle = true, .seed = 1, .split = "train"};
  Loader<Batch> loader(numbers(10), options);
  loader.start_epoch(0);
  REQUIRE(loader.next());
  const State before = loader.state_dict();

  Loader<Batch> longer(numbers(11), options);
  CHECK(error_of<danling::StateError>([&] { loader.load_state_dict(longer.state_dict()); }) ==
        "[data.sampler] expected a state of 10 records, got one of 11; load it with the data that it was saved with; a "
        "run may leave it out (checkpoint.exclude_from_loading: dataloaders) (split 'train')");
  Loader<Batch> sequential(numbers(10), {.batch_size = 4});
  CHECK(error_of<danling::StateError>([&] { loader.load_state_dict(sequential.state_dict()); }) ==
        "[data.sampler] expected the state of a random sampler, got that of a sequential sampler; the order of "
        "records (shuffle) must be the one that the state was saved with (split 'train')");
  State beyond = before;
  beyond["samples"] = 11;
  CHECK(
      error_of<danling::StateError>([&] { loader.load_state_dict(beyond); }) ==
      "[data.loader] expected a position of at most 10 samples, got 11 (split 'train'); the data had more samples when "
      "the state was saved (a run begins them anew with checkpoint.exclude_from_loading: [dataloaders])");
  State negative = before;
  negative["samples"] = -1;
  CHECK(error_of<danling::StateError>([&] { loader.load_state_dict(negative); }) ==
        "[data.loader] expected an epoch of at least -1 and a position of at least 0, got epoch 0, samples -1, "
        "batches 1 (split 'train')");
  CHECK(error_of<danling::StateError>([&] { loader.load_state_dict(State(State::Map())); }) ==
        "[state.at] expected key 'epoch', got keys []");

  CHECK(danling::first_difference(loader.state_dict(), before).empty());
  CHECK(drain(loader).size() == 6);
}

TEST_CASE("Loader: range-for runs one epoch after another, and finishes a resumed one first", "[data]") {
  Loader<Batch> loader(numbers(6), {.batch_size = 4, .shuffle = true, .seed = 3});
  const auto run = [](Loader<Batch>& over) {
    std::vector<std::int64_t> out;
    for (Batch& batch : over) {
      const auto part = values(batch);
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  };
  Loader<Batch> reference(numbers(6), {.batch_size = 4, .shuffle = true, .seed = 3});
  CHECK(run(loader) == epoch_of(reference, 0));
  CHECK(run(loader) == epoch_of(reference, 1));
  CHECK(loader.epoch() == 1);
  loader.start_epoch(7);
  CHECK(run(loader) == epoch_of(reference, 7));

  Loader<Batch> saved(numbers(6), {.batch_size = 4, .shuffle = true, .seed = 3});
  saved.start_epoch(2);
  REQUIRE(saved.next());
  loader.load_state_dict(saved.state_dict());
  CHECK(run(loader).size() == 2);
  CHECK(loader.epoch() == 2);
  CHECK(run(loader) == epoch_of(reference, 3));
}

TEST_CASE("Loader: wrong options and misuse are named", "[data]") {
  CHECK(error_of<danling::ConfigError>([] { Loader<Batch>(numbers(4), {.batch_size = 0, .split = "val"}); }) ==
        "[data.loader] expected batch_size of at least 1, got 0 (split 'val')");
  CHECK(error_of<danling::StateError>([] { Loader<Batch>(danling::data::Source<Batch>()); }) ==
        "[data.loader] expected a dataset or a stream, got an empty source");
  CHECK(error_of<danling::DataError>([] { Loader<Batch>(numbers(0), {.split = "val"}); }) ==
        "[data.loader] expected a dataset with at least one record, got 0 (split 'val')");
  CHECK(error_of<danling::ConfigError>([] {
          Loader<Batch>(numbers(4),
                        {.shuffle = true, .sampler = std::make_shared<danling::data::SequentialSampler>(4)});
        }) == "[data.loader] expected either shuffle or a sampler, got both");
  Loader<Batch> loader(numbers(4));
  CHECK(error_of<danling::StateError>([&] { loader.next(); }) == "[data.loader] expected start_epoch() before next()");
  CHECK(error_of<danling::StateError>([&] { loader.batch(); }) ==
        "[data.loader] expected a current batch, got none: call next() first");
  CHECK(error_of<danling::StateError>([&] { loader.start_epoch(-1); }) ==
        "[data.loader] expected an epoch of at least 0, got -1");
}

/// Fails at one record until it is mended.
struct Fragile {
  std::int64_t bad = 5;
  std::int64_t size() const { return 9; }
  Batch get_batch(std::span<const std::int64_t> indices) {
    Batch batch;
    batch.input = at::arange(indices.front(), indices.back() + 1, at::kLong);
    if (bad >= indices.front() && bad <= indices.back()) {
      danling::detail::fail<danling::DataError>("test.read", "expected a sound record, got record ", bad);
    }
    return batch;
  }
};

TEST_CASE("Loader: when reading fails the error passes through and the position stays", "[data]") {
  auto dataset = std::make_shared<danling::data::DatasetAdapter<Fragile>>(Fragile());
  Loader<Batch> loader(dataset, {.batch_size = 3});
  loader.start_epoch(0);
  REQUIRE(loader.next());
  CHECK(error_of<danling::DataError>([&] { loader.next(); }) == "[test.read] expected a sound record, got record 5");
  CHECK(loader.position() == 1);
  CHECK(loader.batch_size() == 0);
  dataset->object().bad = -1;
  CHECK(drain(loader) == std::vector<std::int64_t>{3, 4, 5, 6, 7, 8});
}

}  // namespace loader_test_basics

}  // namespace
