#include <algorithm>
#include <numeric>
#include <set>

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include <danling/data/concat.hpp>
#include <danling/data/loader.hpp>
#include <danling/data/subset.hpp>
#include <danling/data/tensor_dataset.hpp>

#include <support/error.hpp>

namespace {

namespace splits_test {

namespace data = danling::data;
using danling::Batch;
using danling::DataError;
using danling_test::error_of;
using Indices = std::vector<std::int64_t>;

std::shared_ptr<data::TensorDataset> numbers(std::int64_t count, std::string split = {}) {
  return std::make_shared<data::TensorDataset>(at::arange(count, at::kLong), at::Tensor(),
                                               data::TensorDatasetOptions{.split = std::move(split)});
}

/// Returns all records, read one by one; checks that a batch of all is equal.
template <class T>
Indices records(const T& part) {
  Indices all(static_cast<std::size_t>(part.size()));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  Indices out;
  for (const std::int64_t i : all) {
    out.push_back(part.get(i).input.template item<std::int64_t>());
  }
  if (!all.empty()) {
    const at::Tensor batch = part.get_batch(all).input;
    CHECK(Indices(batch.const_data_ptr<std::int64_t>(), batch.const_data_ptr<std::int64_t>() + batch.numel()) == out);
  }
  return out;
}

TEST_CASE("random_split, hold_out, subset: disjoint, complete, and the same for the same seed", "[data]") {
  const auto whole = numbers(100, "train");
  const auto parts = data::random_split(whole, {60, 30, 10}, 7);
  REQUIRE(parts.size() == 3);
  CHECK(parts[0].size() == 60);
  std::set<std::int64_t> seen;
  for (const auto& part : parts) {
    // A part says nothing of what it is for: a runner would train on any that says "train".
    CHECK(part.split().empty());
    CHECK_FALSE(part.train());
    CHECK(part.indices() == records(part));
    for (const std::int64_t record : records(part)) {
      CHECK(seen.insert(record).second);
    }
  }
  CHECK(seen.size() == 100);
  CHECK(records(parts[0]) == records(data::random_split(*whole, {60, 40}, 7)[0]));
  CHECK(records(parts[0]) != records(data::random_split(whole, {60, 40}, 8)[0]));

  const auto [rest, held] = data::hold_out(whole, 25, 3);
  CHECK(rest.size() == 75);
  CHECK(rest.train());
  CHECK_FALSE(held.train());
  Indices both = records(rest);
  const Indices other = records(held);
  CHECK(other.size() == 25);
  both.insert(both.end(), other.begin(), other.end());
  std::sort(both.begin(), both.end());
  CHECK(both == records(data::subset(data::TensorDataset(at::arange(100)), both)));

  const auto some = data::subset(whole, {5, 99, 5}, "val");
  CHECK(some.split() == "val");
  CHECK(records(some) == Indices{5, 99, 5});
  // A subset of a subset counts in the subset.
  CHECK(records(data::subset(some, {1})) == Indices{99});
  CHECK(data::subset(some, {1, 2}).indices() == Indices{1, 2});
}

// Expected values: tests/golden/data_splits.py
TEST_CASE("random_split: sizes are those of torch's random_split", "[data]") {
  const auto sizes = [&](std::int64_t size, const data::SplitSizes& parts) {
    Indices out;
    for (const auto& part : data::random_split(numbers(size), parts, 1)) {
      out.push_back(part.size());
    }
    return out;
  };
  CHECK(sizes(1437, {0.7, 0.2, 0.1}) == Indices{1006, 288, 143});
  CHECK(sizes(10, std::vector<double>(3, 1.0 / 3)) == Indices{4, 3, 3});
  CHECK(sizes(3, {0.9, 0.1}) == Indices{3, 0});
  CHECK(sizes(1, {0.5, 0.5}) == Indices{1, 0});
  CHECK(sizes(0, {0.5, 0.5}) == Indices{0, 0});
  CHECK(sizes(7, std::vector<double>(10, 0.1)) == Indices{1, 1, 1, 1, 1, 1, 1, 0, 0, 0});
  CHECK(sizes(29, {0.29, 0.71}) == Indices{9, 20});
  // Single precision, and integers of several types.
  CHECK(sizes(10, std::vector<float>{0.7F, 0.2F, 0.1F}) == Indices{7, 2, 1});
  CHECK(sizes(10, {std::int64_t{3}, 5, std::size_t{2}}) == Indices{3, 5, 2});
  CHECK(sizes(4, {4}) == Indices{4});
  // As many as there are, also of fractions whose sum is above 1 by less than is refused.
  CHECK(data::SplitSizes{0.5 + 5e-10, 0.5}.counts(1'000'000'000'000) == Indices{500'000'000'500, 499'999'999'500});
}

TEST_CASE("random_split: the records of a seed are those of its definition, on every machine", "[data]") {
  const auto first = [](std::int64_t size, std::uint64_t seed) {
    struct Huge {
      std::int64_t count;
      std::int64_t size() const { return count; }
      at::Tensor get(std::int64_t index) const;
    };
    const auto part = data::random_split(Huge{size}, {10, size - 10}, seed)[0];
    return part.indices();
  };
  CHECK(first(10, 0) == Indices{8, 2, 7, 9, 6, 4, 3, 1, 0, 5});
  CHECK(first(10, 1) == Indices{8, 3, 1, 7, 9, 5, 6, 2, 0, 4});
  CHECK(first(1437, 7) == Indices{914, 1183, 837, 340, 1426, 885, 639, 204, 338, 576});
  CHECK(first(1'000'000'000'000, ~std::uint64_t{0}) == Indices{539608697618, 525054508346, 835323390945, 877465723229,
                                                               592008661282, 393933252961, 495108784257, 944905625206,
                                                               920913810719, 539304175982});
}

TEST_CASE("random_split: what does not add up, and records that there are not, are named", "[data]") {
  const auto whole = numbers(1437);
  const auto refusal = [&](const data::SplitSizes& parts) {
    return error_of<DataError>([&] { data::random_split(whole, parts, 1); });
  };
  CHECK(refusal({0.7, 0.4}) == "[data.split] expected fractions that add up to 1, got 0.7, 0.4, which make 1.1");
  CHECK(refusal({0.5, 0.25}) == "[data.split] expected fractions that add up to 1, got 0.5, 0.25, which make 0.75");
  CHECK(refusal({1.5, -0.5}) == "[data.split] expected fractions between 0 and 1, got 1.5");
  CHECK(refusal({std::nan(""), 1.0}) == "[data.split] expected fractions between 0 and 1, got nan");
  CHECK(refusal({}) == "[data.split] expected at least one part, got none");
  CHECK(refusal({0.5, 1}) == "[data.split] expected numbers of records or fractions, got both: 1 and 0.5");
  CHECK(refusal({1400, 38}) == "[data.split] expected counts of at least 0 that add up to 1437 records, got 1400, 38");
  CHECK(refusal({1400, 36}) == "[data.split] expected counts of at least 0 that add up to 1437 records, got 1400, 36");
  CHECK(refusal({1438, -1}) == "[data.split] expected counts of at least 0 that add up to 1437 records, got 1438, -1");
  CHECK(error_of<DataError>([&] { data::hold_out(whole, 1438, 1); }) ==
        "[data.split] expected a number of records in [0, 1437], got 1438");
  CHECK(error_of<DataError>([&] { data::hold_out(whole, -1, 1); }) ==
        "[data.split] expected a number of records in [0, 1437], got -1");
  CHECK(error_of<DataError>([&] { data::subset(whole, {0, 1437}); }) ==
        "[data.subset] expected indices in [0, 1437), got 1437 at position 1");
  const auto one = data::subset(whole, {0});
  for (const std::int64_t wrong : {-1, 1}) {
    const std::string expected = "[data.subset] expected an index in [0, 1), got " + std::to_string(wrong);
    CHECK(error_of<DataError>([&] { one.get(wrong); }) == expected);
    CHECK(error_of<DataError>([&] { one.get_batch(Indices{wrong}); }) == expected);
    CHECK(error_of<DataError>([&] { one.entry_key(wrong); }) == expected);
    CHECK(error_of<DataError>([&] { one.source_info(wrong); }) == expected);
  }
  CHECK(error_of<danling::StateError>([] { data::random_split(std::shared_ptr<data::TensorDataset>(), {1}, 0); }) ==
        "[data.dataset] expected a dataset, got an empty pointer");
}

TEST_CASE("random_split: empty and single parts are read, joined and resumed as others", "[data]") {
  const auto parts = data::random_split(numbers(1), {0, 1, 0}, 5);
  CHECK(parts[0].indices().empty());
  CHECK(records(parts[1]) == Indices{0});
  const auto joined = data::concat(parts);
  CHECK(joined.size() == 1);
  CHECK(joined.get(0).input.item<std::int64_t>() == 0);
  CHECK(data::concat(parts[0], parts[2]).size() == 0);
  for (const std::int64_t num_workers : {0, 2}) {
    CHECK(error_of<DataError>([&] { data::Loader<Batch>(parts[0], {.batch_size = 4, .num_workers = num_workers}); }) ==
          "[data.loader] expected a dataset with at least one record, got 0");
    data::Loader<Batch> single(joined, {.batch_size = 4, .shuffle = true, .num_workers = num_workers});
    std::int64_t count = 0;
    for (const Batch& batch : single) {
      count += batch.size();
    }
    CHECK(count == 1);
  }
}

}  // namespace splits_test

}  // namespace
