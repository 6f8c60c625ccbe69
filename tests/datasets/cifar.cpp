#include <danling/data/datasets/cifar.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <danling/core/error.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

namespace cifar_test {

using danling::DataError;
using danling::data::Batch;
using danling::data::cifar10;
using danling::data::cifar100;
using danling::data::DatasetSplit;
using danling::data::fashion_mnist;
using danling::data::idx_dataset;
using danling::data::mnist;
using danling_test::error_of;
using danling_test::write_file;

/// 3 x 32 x 32 bytes: channel c is 10 * c + `first`, but for the last one of the image, which is 255.
std::string pixels(int first) {
  std::string out;
  for (int c = 0; c < 3; ++c) {
    out += std::string(1024, static_cast<char>(10 * c + first));
  }
  out.back() = static_cast<char>(255);
  return out;
}
std::string record10(int label, int first) { return std::string(1, static_cast<char>(label)) + pixels(first); }

void write_train10(const std::filesystem::path& folder) {
  for (int file = 0; file < 5; ++file) {
    write_file(folder / ("data_batch_" + std::to_string(file + 1) + ".bin"),
               record10(file, 20 * file) + record10(9 - file, 100));
  }
}

std::string idx(int type, std::initializer_list<int> dims, const std::string& body) {
  std::string out = {0, 0, static_cast<char>(type), static_cast<char>(dims.size())};
  for (const int dim : dims) {
    out += {0, 0, static_cast<char>(dim >> 8), static_cast<char>(dim)};
  }
  return out + body;
}

TEST_CASE("cifar10: the five files one after another, normalised by channel", "[data]") {
  const danling_test::TempDir directory;
  write_train10(directory.path());
  const auto dataset = cifar10(directory.path(), DatasetSplit::train);
  CHECK(dataset->size() == 10);
  CHECK(dataset->split() == "train");
  CHECK(dataset->input().sizes() == at::IntArrayRef({10, 3, 32, 32}));
  CHECK(dataset->input().scalar_type() == at::kByte);
  CHECK(at::equal(dataset->target(), at::tensor({0, 9, 1, 8, 2, 7, 3, 6, 4, 5}, at::kLong)));
  CHECK(dataset->input()[6][2][31][31].item<int>() == 255);
  CHECK(dataset->input()[6][2][31][30].item<int>() == 80);
  const Batch batch = dataset->get_batch(std::vector<std::int64_t>{6, 0});
  CHECK(batch.input.scalar_type() == at::kFloat);
  const double means[] = {0.4914, 0.4822, 0.4465};
  const double stds[] = {0.2470, 0.2435, 0.2616};
  for (int c = 0; c < 3; ++c) {
    const double expected = ((60 + 10 * c) / 255.0 - means[c]) / stds[c];
    CHECK(at::allclose(batch.input[0][c].slice(0, 0, 31), at::full({31, 32}, expected), 1e-5, 1e-6));
    CHECK(at::allclose(batch.input[1][c].slice(0, 0, 31), at::full({31, 32}, (10 * c / 255.0 - means[c]) / stds[c]),
                       1e-5, 1e-6));
  }
  CHECK(at::equal(batch.target, at::tensor({3, 0}, at::kLong)));
  CHECK(dataset->source_info(7).map().at("file").string() == (directory / "data_batch_4.bin").string());
  CHECK(dataset->source_info(7).map().at("record").integer() == 1);
}

TEST_CASE("cifar10: without normalisation, in torchvision's folder, and the test part", "[data]") {
  const danling_test::TempDir directory;
  write_train10(directory / "cifar-10-batches-bin");
  write_file(directory / "cifar-10-batches-bin" / "test_batch.bin", record10(7, 51));
  const auto train = cifar10(directory.path(), DatasetSplit::train, {.normalize = false});
  CHECK(at::allclose(train->get_batch(std::vector<std::int64_t>{1}).input[0][1][0], at::full({32}, 110 / 255.0)));
  const auto test = cifar10(directory.path(), DatasetSplit::test, {.normalize = false});
  CHECK(test->split() == "test");
  CHECK_FALSE(test->train());
  CHECK(test->get_batch(std::vector<std::int64_t>{0}).input[0][0][0][0].item<float>() == Approx(0.2));
  CHECK(test->target()[0].item<int>() == 7);
}

TEST_CASE("cifar100: fine and coarse labels", "[data]") {
  const danling_test::TempDir directory;
  const std::string content = std::string("\x13\x63", 2) + pixels(1) + std::string("\x00\x05", 2) + pixels(2);
  write_file(directory / "cifar-100-binary" / "train.bin", content);
  write_file(directory / "cifar-100-binary" / "test.bin", content);
  CHECK(at::equal(cifar100(directory.path(), DatasetSplit::train)->target(), at::tensor({99, 5}, at::kLong)));
  CHECK(at::equal(cifar100(directory.path(), DatasetSplit::test, {.coarse = true})->target(),
                  at::tensor({19, 0}, at::kLong)));
  CHECK(cifar100(directory.path(), DatasetSplit::test)->input()[1][0][0][0].item<int>() == 2);
}

TEST_CASE("cifar: missing, cut off and damaged files name file and record", "[data]") {
  const danling_test::TempDir directory;
  const auto path = directory / "test_batch.bin";
  CHECK(error_of<DataError>([&] { cifar10(directory.path(), DatasetSplit::test); }) ==
        "[data.cifar10] expected a readable file, got '" + path.string() + "': No such file or directory");
  CHECK(error_of<DataError>([&] { cifar10(directory / "none", DatasetSplit::test); }) ==
        "[data.cifar10] expected a directory with the data, got '" + (directory / "none").string() +
            "', which does not exist");
  const std::string whole = record10(1, 2) + record10(2, 3);
  for (const std::size_t size : {std::size_t{1}, std::size_t{3072}, whole.size() - 1}) {
    write_file(path, whole.substr(0, size));
    CHECK(error_of<DataError>([&] { cifar10(directory.path(), DatasetSplit::test); }) ==
          "[data.cifar10] expected whole records of 3073 bytes, got " + std::to_string(size) + " bytes: record " +
              std::to_string(size / 3073) + " is cut off (file '" + path.string() + "')");
  }
  write_file(path, record10(1, 2) + record10(10, 3));
  CHECK(error_of<DataError>([&] { cifar10(directory.path(), DatasetSplit::test); }) ==
        "[data.cifar10] expected a label below 10, got 10 (file '" + path.string() + "', record 1)");
  write_file(directory / "test.bin", std::string("\x14\x05", 2) + pixels(0));
  CHECK(error_of<DataError>([&] { cifar100(directory.path(), DatasetSplit::test); }) ==
        "[data.cifar100] expected a label below 20, got 20 (file '" + (directory / "test.bin").string() +
            "', record 0)");
  write_file(path, "");
  CHECK(cifar10(directory.path(), DatasetSplit::test)->size() == 0);
  CHECK_THROWS_AS(cifar10(directory.path(), DatasetSplit::test, {.std = {1.0, 0.0, 1.0}}), danling::ConfigError);
}

TEST_CASE("fashion_mnist: its own mean and std, in torchvision's folders", "[data]") {
  const danling_test::TempDir directory;
  const std::string images = idx(8, {2, 28, 28}, std::string(2 * 784, 'Q'));
  const std::string labels = idx(8, {2}, std::string("\x03\x04", 2));
  for (const char* folder : {"FashionMNIST", "MNIST"}) {
    write_file(directory / folder / "raw" / "t10k-images-idx3-ubyte", images);
    write_file(directory / folder / "raw" / "t10k-labels-idx1-ubyte", labels);
  }
  const auto fashion = fashion_mnist(directory.path(), DatasetSplit::test);
  const Batch batch = fashion->get_batch(std::vector<std::int64_t>{1});
  CHECK(batch.input.sizes() == at::IntArrayRef({1, 1, 28, 28}));
  CHECK(batch.input[0][0][5][5].item<double>() == Approx(('Q' / 255.0 - 0.2860) / 0.3530).epsilon(1e-5));
  CHECK(batch.target.item<int>() == 4);
  CHECK(fashion->source_info(1).map().at("record").integer() == 1);
  CHECK(fashion_mnist(directory.path(), DatasetSplit::test, {.flatten = true})->input().sizes() ==
        at::IntArrayRef({2, 784}));
  CHECK(mnist(directory.path(), DatasetSplit::test)
            ->get_batch(std::vector<std::int64_t>{0})
            .input[0][0][0][0]
            .item<double>() == Approx(('Q' / 255.0 - 0.1307) / 0.3081).epsilon(1e-5));
  CHECK(error_of<DataError>([&] {
          fashion_mnist(directory.path(), DatasetSplit::train);
        }).starts_with("[data.fashion_mnist] expected one of the files train-images-idx3-ubyte"));
}

TEST_CASE("idx_dataset: any types and shapes", "[data]") {
  const danling_test::TempDir directory;
  const auto path = [&](const char* name) { return directory / name; };
  write_file(path("f32"), idx(0x0d, {2, 1}, std::string("\x3f\x80\0\0\xc0\0\0\0", 8)));
  write_file(path("i16"), idx(0x0b, {2}, std::string("\xff\xff\x01\x00", 4)));
  write_file(path("u8"), idx(0x08, {2, 2}, std::string("\0\xff\x33\x66", 4)));
  const auto floats = idx_dataset(path("f32"), path("i16"), {.split = "train"});
  const Batch batch = floats->get_batch(std::vector<std::int64_t>{1, 0});
  CHECK(at::equal(batch.input, at::tensor({-2.0F, 1.0F}).view({2, 1})));
  CHECK(at::equal(batch.target, at::tensor({256, -1}, at::kLong)));
  CHECK(floats->train());
  const auto bytes = idx_dataset(path("u8"), {}, {.input_transform = danling::data::Affine{1.0 / 255.0}});
  CHECK_FALSE(bytes->get_batch(std::vector<std::int64_t>{0}).target.defined());
  CHECK(at::allclose(bytes->get_batch(std::vector<std::int64_t>{1}).input, at::tensor({0.2F, 0.4F}).view({1, 2})));
  write_file(path("three"), idx(0x08, {3}, "abc"));
  CHECK(error_of<DataError>([&] { idx_dataset(path("u8"), path("three")); }) ==
        "[data.idx] expected as many labels as images (2 in '" + path("u8").string() + "'), got 3 in '" +
            path("three").string() + "'");
}

}  // namespace cifar_test

}  // namespace
