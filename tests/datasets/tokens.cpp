#include <danling/data/datasets/tokens.hpp>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>

#include <danling/core/error.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

namespace tokens_test {

namespace fs = std::filesystem;
using danling::ConfigError;
using danling::DataError;
using danling::data::Batch;
using danling::data::token_dataset;
using danling::data::TokenOptions;
using danling::data::TokenType;
using danling_test::error_of;

/// Little-endian tokens of `width` bytes.
std::string little(const std::vector<std::uint64_t>& tokens, int width) {
  std::string out;
  for (const std::uint64_t token : tokens) {
    for (int i = 0; i < width; ++i) {
      out += static_cast<char>(token >> (8 * i));
    }
  }
  return out;
}
/// begin, begin + 1, ...
std::string run_of(std::uint64_t begin, std::uint64_t count, int width = 2) {
  std::vector<std::uint64_t> tokens;
  for (std::uint64_t i = 0; i < count; ++i) {
    tokens.push_back(begin + i);
  }
  return little(tokens, width);
}

at::Tensor windows(const std::vector<std::int64_t>& starts, std::int64_t length) {
  return at::tensor(starts).view({-1, 1}) + at::arange(length);
}

TEST_CASE("token_dataset: record i is the window at i * stride, and its target one token further", "[data]") {
  const danling_test::TempDir directory;
  danling_test::write_file(directory / "a.bin", run_of(100, 11));
  const auto dataset = token_dataset(directory / "a.bin", {.sequence_length = 3, .split = "train"});
  CHECK(dataset->size() == 3);  // [0, 3], [3, 6], [6, 9]; a fourth would need token 12
  CHECK(dataset->num_tokens() == 11);
  CHECK(dataset->train());
  const Batch batch = dataset->get_batch(std::vector<std::int64_t>{2, 0, 2, 1});
  CHECK(batch.input.scalar_type() == at::kLong);
  CHECK(at::equal(batch.input, windows({106, 100, 106, 103}, 3)));
  CHECK(at::equal(batch.target, windows({107, 101, 107, 104}, 3)));
  CHECK(dataset->source_info(2).map().at("token").integer() == 6);
  CHECK(dataset->source_info(2).map().at("file").string() == (directory / "a.bin").string());
}

TEST_CASE("token_dataset: counts all windows that fit, for any length and stride", "[data]") {
  const danling_test::TempDir directory;
  danling_test::write_file(directory / "a.bin", run_of(0, 30));
  for (std::int64_t length = 1; length < 30; ++length) {
    for (std::int64_t stride = 1; stride < 32; ++stride) {
      std::int64_t expected = 0;
      while (expected * stride + length + 1 <= 30) {
        ++expected;
      }
      const auto dataset = token_dataset(directory / "a.bin", {.sequence_length = length, .stride = stride});
      REQUIRE(dataset->size() == expected);
      const Batch batch = dataset->get_batch(std::vector<std::int64_t>{expected - 1});
      REQUIRE(at::equal(batch.input, windows({(expected - 1) * stride}, length)));
      REQUIRE(at::equal(batch.target, windows({(expected - 1) * stride + 1}, length)));
    }
  }
}

TEST_CASE("token_dataset: records do not cross files, and files too short for one have none", "[data]") {
  const danling_test::TempDir directory;
  danling_test::write_file(directory / "a.bin", run_of(0, 8));
  danling_test::write_file(directory / "b.bin", run_of(1000, 3));
  danling_test::write_file(directory / "c.bin", "");
  danling_test::write_file(directory / "d.bin", run_of(2000, 9));
  const std::vector<fs::path> paths = {directory / "a.bin", directory / "b.bin", directory / "c.bin",
                                       directory / "d.bin"};
  const auto dataset = token_dataset(paths, {.sequence_length = 3});
  CHECK(dataset->size() == 4);
  CHECK(dataset->num_tokens() == 20);
  CHECK(at::equal(dataset->get_batch(std::vector<std::int64_t>{0, 1, 2, 3}).target, windows({1, 4, 2001, 2004}, 3)));
  CHECK(dataset->source_info(3).map().at("file").string() == paths[3].string());
  CHECK(dataset->source_info(3).map().at("token").integer() == 3);
}

TEST_CASE("token_dataset: reads wide tokens, and skips a header that leaves them at odd addresses", "[data]") {
  const danling_test::TempDir directory;
  const std::vector<std::uint64_t> tokens = {0xffffffff, 0x80000000, 7};
  danling_test::write_file(directory / "u.bin", "xyz" + little(tokens, 4));
  const auto wide =
      token_dataset(directory / "u.bin", {.dtype = TokenType::uint32, .sequence_length = 2, .header_bytes = 3});
  CHECK(at::equal(wide->get_batch(std::vector<std::int64_t>{0}).input,
                  at::tensor(std::vector<std::int64_t>{0xffffffff, 0x80000000}).view({1, 2})));
  danling_test::write_file(directory / "i.bin", little({5, 0x7fffffff, 6}, 4));
  const auto narrow = token_dataset(directory / "i.bin", {.dtype = TokenType::int32, .sequence_length = 2});
  CHECK(at::equal(narrow->get_batch(std::vector<std::int64_t>{0}).target,
                  at::tensor(std::vector<std::int64_t>{0x7fffffff, 6}).view({1, 2})));
  danling_test::write_file(directory / "s.bin", "h" + little({65535, 1, 2}, 2));
  const auto small = token_dataset(directory / "s.bin", {.sequence_length = 2, .header_bytes = 1});
  CHECK(small->get_batch(std::vector<std::int64_t>{0}).input[0][0].item<std::int64_t>() == 65535);
}

TEST_CASE("token_dataset: tokens that are none name file, token and record", "[data]") {
  const danling_test::TempDir directory;
  const auto path = directory / "a.bin";
  danling_test::write_file(path, little({0, 1, 2, 3, 50, 5, 6}, 2));
  const auto dataset = token_dataset(path, {.sequence_length = 2, .vocab_size = 50});
  CHECK(dataset->get_batch(std::vector<std::int64_t>{0}).size() == 1);
  const std::string expected =
      "[data.tokens] expected a token in [0, 50), got 50 (file '" + path.string() + "', token 4, record ";
  CHECK(error_of<DataError>([&] { dataset->get_batch(std::vector<std::int64_t>{0, 1}); }) == expected + "1)");
  CHECK(error_of<DataError>([&] { dataset->get_batch(std::vector<std::int64_t>{2}); }) == expected + "2)");
  danling_test::write_file(path, little({1, 0xffffffff, 2}, 4));
  const auto negative = token_dataset(path, {.dtype = TokenType::int32, .sequence_length = 1});
  CHECK(error_of<DataError>([&] { negative->get_batch(std::vector<std::int64_t>{0}); }) ==
        "[data.tokens] expected a token in [0, 4294967296), got -1 (file '" + path.string() + "', token 1, record 0)");
}

TEST_CASE("token_dataset: what cannot be read is refused", "[data]") {
  const danling_test::TempDir directory;
  const auto path = directory / "a.bin";
  const auto refused = [&](const TokenOptions& options) {
    return error_of<danling::Error>([&] { token_dataset(path, options); });
  };
  const std::string file = " (file '" + path.string() + "')";
  danling_test::write_file(path, "12345");
  CHECK(refused({.sequence_length = 1}) ==
        "[data.tokens] expected whole tokens of 2 bytes, got 5 bytes: the file was "
        "cut off, or has another dtype" +
            file);
  CHECK(refused({.sequence_length = 1, .header_bytes = 6}) ==
        "[data.tokens] expected a header of 6 bytes, got a file of 5" + file);
  danling_test::write_file(path, "1234");
  CHECK(refused({.sequence_length = 2}) ==
        "[data.tokens] expected a file of at least 3 tokens, which a record and its target take, got 2 tokens" + file);
  CHECK(refused({.sequence_length = 0}) == "[data.tokens] expected a sequence_length above 0, got 0");
  CHECK(refused({.sequence_length = std::int64_t{1} << 62}).starts_with("[data.tokens] expected a sequence_length"));
  CHECK(refused({.sequence_length = 1, .stride = 0}) == "[data.tokens] expected a stride above 0, got 0");
  CHECK(refused({.sequence_length = 1, .header_bytes = -1}) ==
        "[data.tokens] expected header_bytes of at least 0, got -1");
  CHECK(refused({.vocab_size = 0}) == "[data.tokens] expected a vocab_size above 0, got 0");
  CHECK_THROWS_AS(token_dataset(std::vector<fs::path>{}), ConfigError);
  CHECK(error_of<DataError>([&] { token_dataset(directory.path()); }) ==
        "[data.tokens] expected a readable file, got '" + directory.path().string() + "': it is a directory");
  const auto dataset = token_dataset(path, {.sequence_length = 1});
  CHECK(error_of<DataError>([&] { dataset->get_batch(std::vector<std::int64_t>{1}); }) ==
        "[data.tokens] expected an index in [0, 1), got 1");
  CHECK_THROWS_AS(dataset->source_info(-1), DataError);
  fs::resize_file(path, 2);
  CHECK(error_of<DataError>([&] {
          dataset->get_batch(std::vector<std::int64_t>{0});
        }).starts_with("[data.tokens] expected a file of 4 bytes as when it was opened, got 2"));
}

TEST_CASE("token_dataset: files of more than 4 GB are read where the record lies", "[data]") {
  const danling_test::TempDir directory;
  const auto path = directory / "large.bin";
  constexpr std::uint64_t tokens = 3'000'000'000;  // zeros that take no place on disk
  danling_test::write_file(path, "");
  fs::resize_file(path, tokens * 2);
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>((tokens - 4) * 2));
    file << run_of(7, 4);
  }
  const auto dataset = token_dataset(path, {.sequence_length = 3, .stride = 1});
  CHECK(dataset->size() == static_cast<std::int64_t>(tokens) - 3);
  const Batch batch = dataset->get_batch(std::vector<std::int64_t>{dataset->size() - 1, 2'147'483'648});
  CHECK(at::equal(batch.input, at::tensor({7, 8, 9, 0, 0, 0}, at::kLong).view({2, 3})));
  CHECK(at::equal(batch.target, at::tensor({8, 9, 10, 0, 0, 0}, at::kLong).view({2, 3})));
}

TEST_CASE("token_dataset: several threads read the same", "[data]") {
  const danling_test::TempDir directory;
  danling_test::write_file(directory / "a.bin", run_of(0, 5000));
  const auto dataset = token_dataset(directory / "a.bin", {.sequence_length = 16, .stride = 1});
  std::vector<std::thread> threads;
  std::vector<int> equal(4, 1);
  for (std::size_t t = 0; t < equal.size(); ++t) {
    threads.emplace_back([&, t] {
      for (std::int64_t n = 0; n < 300; ++n) {
        const Batch batch = dataset->get_batch(std::vector<std::int64_t>{n, 4000 - n});
        equal[t] &= at::equal(batch.input, windows({n, 4000 - n}, 16)) ? 1 : 0;
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  CHECK(equal == std::vector<int>{1, 1, 1, 1});
}

}  // namespace tokens_test

}  // namespace
