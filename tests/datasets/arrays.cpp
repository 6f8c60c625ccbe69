#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/tensor.h>

#include <danling/core/error.hpp>
#include <danling/data/datasets/array_datasets.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

namespace arrays_test {

namespace fs = std::filesystem;
using danling::ConfigError;
using danling::DataError;
using danling::data::Batch;
using danling::data::npy_dataset;
using danling::data::npz_dataset;
using danling::data::safetensors_dataset;
using danling_test::error_of;

// Written by tests/golden/data_arrays.py.
const fs::path golden = fs::path(DANLING_SOURCE_DIR) / "tests" / "golden" / "data" / "arrays";

/// Element (i, j, k) is 100 i + 10 j + k, at these i.
at::Tensor expected(const std::vector<std::int64_t>& records) {
  const at::Tensor i = at::tensor(records).view({-1, 1, 1});
  return i * 100 + at::arange(2).view({1, 2, 1}) * 10 + at::arange(3).view({1, 1, 3});
}

const std::vector<std::int64_t> some = {4, 0, 2, 2};

TEST_CASE("npy_dataset: every type, byte order and order of dimensions reads as NumPy wrote it", "[data]") {
  const std::pair<const char*, at::ScalarType> types[] = {
      {"f2", at::kHalf},           {"f4", at::kFloat},  {"f8", at::kDouble}, {"i1", at::kChar},
      {"i2", at::kShort},          {"i4", at::kInt},    {"i8", at::kLong},   {"u1", at::kByte},
      {"u2", at::kUInt16},         {"u4", at::kUInt32}, {"u8", at::kUInt64}, {"c8", at::kComplexFloat},
      {"c16", at::kComplexDouble},
  };
  for (const auto& [code, type] : types) {
    for (const char* order : {"little", "big", "fortran"}) {
      INFO(code << " " << order);
      const auto dataset = npy_dataset({.input = golden / (std::string(order) + "_" + code + ".npy")});
      CHECK(dataset->size() == 5);
      const Batch batch = dataset->get_batch(some);
      CHECK(batch.input.scalar_type() == type);
      CHECK_FALSE(batch.target.defined());
      at::Tensor values = expected(some);
      if (std::string(code) == "i1" || std::string(code) == "u1") {
        values = values.remainder(100);
      }
      if (code[0] == 'c') {
        const at::Tensor real = values.to(at::kDouble);
        CHECK(at::equal(batch.input.to(at::kComplexDouble), at::complex(real, -real)));
      } else {
        CHECK(at::equal(batch.input.to(at::kLong), values));
      }
    }
  }
}

TEST_CASE("npy_dataset: bools, labels, versions 2 and 3, and big-endian Fortran order", "[data]") {
  CHECK(at::equal(npy_dataset({.input = golden / "bool.npy"})->get_batch(some).input,
                  expected(some).remainder(2).to(at::kBool)));
  for (const char* name : {"version2.npy", "version3.npy", "big_fortran.npy"}) {
    const auto dataset = npy_dataset({.input = golden / name, .target = golden / "labels.npy", .split = "train"});
    const Batch batch = dataset->get_batch(some);
    CHECK(at::equal(batch.input, expected(some).to(at::kFloat)));
    CHECK(at::equal(batch.target, at::tensor(some) * 100));
    CHECK(dataset->split() == "train");
    CHECK(dataset->train());
    CHECK(dataset->source_info(3).map().at("file").string() == (golden / name).string());
    CHECK(dataset->source_info(3).map().at("record").integer() == 3);
  }
}

TEST_CASE("npy_dataset: further arrays stand under their names", "[data]") {
  const auto dataset =
      npy_dataset({.input = golden / "labels.npy",
                   .extra = {{"a.weight", golden / "little_f4.npy"}, {"a.mask", golden / "bool.npy"}}});
  const Batch batch = dataset->get_batch(some);
  CHECK(at::equal(batch.at("a.weight"), expected(some).to(at::kFloat)));
  CHECK(batch.at("a.mask").scalar_type() == at::kBool);
  CHECK(dataset->get_batch({}).input.sizes() == at::IntArrayRef({0}));
}

TEST_CASE("npy_dataset: what does not fit together is refused", "[data]") {
  const danling_test::TempDir directory;
  const auto path = [](const char* name) { return (golden / name).string(); };
  CHECK(error_of<DataError>([&] { npy_dataset({.input = golden / "scalar.npy"}); }) ==
        "[data.npy] expected an array whose first dimension counts records, got a scalar (file '" + path("scalar.npy") +
            "')");
  CHECK(
      error_of<DataError>([&] { npy_dataset({.input = golden / "objects.npy"}); })
          .starts_with("[data.npy] expected an array of bools, integers, floats or complex numbers that tensors have, "
                       "got Python objects"));
  CHECK(error_of<DataError>([&] {
          npy_dataset({.input = golden / "structures.npy"});
        }).starts_with("[data.npy] expected an array of numbers, got one of structures"));
  CHECK(error_of<DataError>([&] { npy_dataset({.input = golden}); }) ==
        "[data.npy] expected a readable file, got '" + golden.string() + "': it is a directory");
  CHECK(error_of<DataError>([&] { npy_dataset({.input = golden / "none.npy"}); }) ==
        "[data.npy] expected a readable file, got '" + path("none.npy") + "': No such file or directory");
  const auto dataset = npy_dataset({.input = golden / "labels.npy"});
  CHECK(error_of<DataError>([&] { dataset->get_batch(std::vector<std::int64_t>{5}); }) ==
        "[data.npy] expected an index in [0, 5), got 5");
  CHECK_THROWS_AS(dataset->get_batch(std::vector<std::int64_t>{-1}), DataError);
  CHECK_THROWS_AS(npy_dataset({.input = golden / "labels.npy", .extra = {{"input", golden / "labels.npy"}}}),
                  ConfigError);
  CHECK_THROWS_AS(npy_dataset({.input = golden / "labels.npy",
                               .extra = {{"a", golden / "labels.npy"}, {"a.b", golden / "labels.npy"}}}),
                  DataError);
}

TEST_CASE("npy_dataset: a file that became shorter is an error, not the end of the process", "[data]") {
  const danling_test::TempDir directory;
  fs::copy_file(golden / "little_f8.npy", directory / "a.npy");
  const auto dataset = npy_dataset({.input = directory / "a.npy"});
  CHECK(dataset->get_batch(some).size() == 4);
  fs::resize_file(directory / "a.npy", 200);
  CHECK(error_of<DataError>([&] {
          dataset->get_batch(some);
        }).starts_with("[data.npy] expected a file of 368 bytes as when it was opened, got 200"));
}

TEST_CASE("npy_dataset: a file larger than memory is not read", "[data]") {
  const danling_test::TempDir directory;
  // 6 GB of zeros that take no place on disk, with one record of ones at the end.
  std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (6000000, 1000), }";
  header.resize(117, ' ');
  header += '\n';
  std::string start = "\x93NUMPY";
  start += {1, 0, static_cast<char>(header.size()), 0};
  start += header;
  const auto path = directory / "large.npy";
  danling_test::write_file(path, start);
  fs::resize_file(path, start.size() + 6000000ULL * 1000 - 1000);
  std::ofstream(path, std::ios::binary | std::ios::app) << std::string(1000, '\1');
  const auto dataset = npy_dataset({.input = path});
  CHECK(dataset->size() == 6000000);
  const Batch batch = dataset->get_batch(std::vector<std::int64_t>{5999999, 0, 5999998});
  CHECK(at::equal(batch.input.sum(1), at::tensor({1000, 0, 0})));
}

TEST_CASE("npz_dataset: stored and compressed arrays read alike", "[data]") {
  for (const char* name : {"stored.npz", "deflated.npz"}) {
    INFO(name);
    const auto dataset =
        npz_dataset(golden / name, {.input = "x", .target = "y", .extra = {"nested.w"}, .split = "val"});
    CHECK(dataset->size() == 5);
    CHECK(dataset->split() == "val");
    const Batch batch = dataset->get_batch(some);
    CHECK(at::equal(batch.input, expected(some).to(at::kFloat)));
    CHECK(at::equal(batch.target, at::tensor(some) * 100));
    CHECK(at::equal(batch.at("nested.w"), expected(some).to(at::kShort)));
    CHECK(dataset->source_info(1).map().at("array").string() == "x");
  }
}

TEST_CASE("npz_dataset: names that are not there and damage are refused", "[data]") {
  const danling_test::TempDir directory;
  const std::string stored = (golden / "stored.npz").string();
  CHECK(error_of<DataError>([&] { npz_dataset(stored, {.input = "z"}); }) ==
        "[data.npz] expected one of the arrays 'x', 'y', 'nested.w', 'empty', 'objects', got 'z' (file '" + stored +
            "')");
  CHECK(error_of<DataError>([&] {
          npz_dataset(stored, {.input = "objects"});
        }).ends_with("(file '" + stored + "', array 'objects')"));
  CHECK(error_of<DataError>([&] { npz_dataset(stored, {.input = "x", .target = "empty"}); }) ==
        "[data.npz] expected 5 records as in 'x', got 0 (file '" + stored + "', array 'empty')");
  // Every byte of the file turned around: an error that names the file, or the same numbers.
  const std::string content = danling_test::read_file(golden / "deflated.npz");
  for (std::size_t i = 0; i < content.size(); ++i) {
    std::string damaged = content;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x20);
    danling_test::write_file(directory / "a.npz", damaged);
    try {
      const auto dataset = npz_dataset(directory / "a.npz", {.input = "x", .target = "y"});
      CHECK(at::equal(dataset->get_batch(some).input, expected(some).to(at::kFloat)));
    } catch (const DataError& problem) {
      INFO(problem.what());
      CHECK(std::string(problem.what()).find("a.npz'") != std::string::npos);
    }
  }
}

TEST_CASE("safetensors_dataset: mapped and loaded tensors read alike", "[data]") {
  for (const bool load : {false, true}) {
    const auto dataset = safetensors_dataset(golden / "arrays.safetensors",
                                             {.input = "x", .target = "y", .extra = {"nested.w"}}, {.load = load});
    const Batch batch = dataset->get_batch(some);
    CHECK(at::equal(batch.input, expected(some).to(at::kFloat)));
    CHECK(at::equal(batch.target, at::tensor(some) * 100));
    CHECK(at::equal(batch.at("nested.w"), expected(some).to(at::kShort)));
  }
  const std::string path = (golden / "arrays.safetensors").string();
  CHECK(error_of<DataError>([&] { safetensors_dataset(path, {.input = "x", .target = "short"}); }) ==
        "[data.safetensors] expected 5 records as in 'x', got 4 (file '" + path + "', array 'short')");
  CHECK(error_of<DataError>([&] {
          safetensors_dataset(path, {.input = "scalar"});
        }).starts_with("[data.safetensors] expected an array whose first dimension counts records, got a scalar"));
  CHECK(error_of<DataError>([&] {
          safetensors_dataset(golden / "labels.npy", {.input = "x"});
        }).starts_with("[data.safetensors] expected a safetensors file, got"));
}

TEST_CASE("array datasets: a file that ends anywhere is an error", "[data]") {
  const danling_test::TempDir directory;
  for (const char* name : {"fortran_i2.npy", "deflated.npz", "arrays.safetensors"}) {
    const std::string content = danling_test::read_file(golden / name);
    for (std::size_t size = 0; size < content.size(); ++size) {
      INFO(name << " " << size);
      const auto path = directory / name;
      danling_test::write_file(path, content.substr(0, size));
      const std::string message = error_of<DataError>([&] {
        if (path.extension() == ".npy") {
          npy_dataset({.input = path});
        } else if (path.extension() == ".npz") {
          npz_dataset(path, {.input = "x"});
        } else {
          safetensors_dataset(path, {.input = "x"});
        }
      });
      CHECK(message.find(path.string()) != std::string::npos);
    }
  }
}

TEST_CASE("array datasets: several threads read the same", "[data]") {
  const auto dataset = npy_dataset({.input = golden / "fortran_f8.npy", .target = golden / "labels.npy"});
  std::vector<std::thread> threads;
  std::vector<int> equal(4);
  for (std::size_t t = 0; t < equal.size(); ++t) {
    threads.emplace_back([&, t] {
      equal[t] = 1;
      for (int n = 0; n < 200; ++n) {
        equal[t] &= at::equal(dataset->get_batch(some).input, expected(some).to(at::kDouble)) ? 1 : 0;
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  CHECK(equal == std::vector<int>{1, 1, 1, 1});
}

}  // namespace arrays_test

}  // namespace
