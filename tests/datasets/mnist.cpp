#include <danling/data/datasets/mnist.hpp>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/tensor.h>

#include <danling/core/error.hpp>

#include <support/error.hpp>

namespace {

namespace mnist_test {

namespace fs = std::filesystem;
using danling::data::DatasetSplit;
using danling::data::mnist;
using danling::data::MnistOptions;
using danling_test::error_of;

const fs::path digits = fs::path(DANLING_SOURCE_DIR) / "examples" / "mnist" / "data";

struct TempDir {
  fs::path path;
  TempDir() {
    std::string name = (fs::temp_directory_path() / "danling-mnist-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~TempDir() { fs::remove_all(path); }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path / name, std::ios::binary) << bytes;
  }
};

std::string idx(std::initializer_list<int> dims, const std::string& body) {
  std::string out = {0, 0, 8, static_cast<char>(dims.size())};
  for (const int dim : dims) {
    out += {0, 0, static_cast<char>(dim >> 8), static_cast<char>(dim)};
  }
  return out + body;
}

/// The sum of pixel * (position mod 251), which notices bytes in the wrong place.
std::int64_t weighted_sum(const at::Tensor& images) {
  const at::Tensor flat = images.flatten().to(at::kLong);
  return (flat * at::arange(flat.numel(), at::kLong).remainder(251)).sum().item<std::int64_t>();
}

std::vector<std::int64_t> list(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<std::int64_t>(), tensor.const_data_ptr<std::int64_t>() + tensor.numel()};
}

// Expected values: tests/golden/data_digits.py
TEST_CASE("mnist: the bundled digits equal what Python reads from the same files", "[data]") {
  const auto train = mnist(digits, DatasetSplit::train);
  CHECK(train->size() == 1437);
  CHECK(train->split() == "train");
  CHECK(train->train());
  CHECK(train->input().sizes() == at::IntArrayRef({1437, 1, 28, 28}));
  CHECK(train->input().scalar_type() == at::kByte);
  CHECK(train->input().sum().item<std::int64_t>() == 45731399);
  CHECK(train->input()[7].sum().item<std::int64_t>() == 26644);
  CHECK(weighted_sum(train->input()) == 5709410760);
  CHECK(train->target().scalar_type() == at::kLong);
  CHECK(list(train->target().bincount()) ==
        std::vector<std::int64_t>{142, 146, 141, 147, 145, 146, 145, 143, 138, 144});
  CHECK(list(train->target().slice(0, 0, 12)) == std::vector<std::int64_t>{9, 9, 9, 9, 9, 9, 9, 9, 1, 1, 1, 1});

  const auto test = mnist(digits, DatasetSplit::test);
  CHECK(test->size() == 360);
  CHECK(test->split() == "test");
  CHECK_FALSE(test->train());
  CHECK(test->input().sum().item<std::int64_t>() == 11466549);
  CHECK(weighted_sum(test->input()) == 1435186541);
  CHECK(list(test->target().slice(0, 0, 12)) == std::vector<std::int64_t>{9, 6, 7, 7, 5, 9, 3, 5, 9, 8, 0, 4});
}

TEST_CASE("mnist: batches are float32, normalised as (p / 255 - mean) / std", "[data]") {
  const std::vector<std::int64_t> indices = {5, 0, 1436, 5};
  const auto raw = mnist(digits, DatasetSplit::train)->input();
  const auto expect = [&](const MnistOptions& options, double mean, double std) {
    const auto dataset = mnist(digits, DatasetSplit::train, options);
    const danling::Batch batch = dataset->get_batch(indices);
    REQUIRE(batch.input.scalar_type() == at::kFloat);
    REQUIRE(batch.input.sizes() == (options.flatten ? at::IntArrayRef({4, 784}) : at::IntArrayRef({4, 1, 28, 28})));
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const at::Tensor exact = (raw[indices[i]].to(at::kDouble) / 255.0 - mean) / std;
      const at::Tensor got = batch.input[static_cast<std::int64_t>(i)].to(at::kDouble).view_as(exact);
      CHECK((got - exact).abs().max().item<double>() < 1e-6);
    }
    CHECK(list(batch.target) == list(dataset->target().index_select(0, at::tensor(indices))));
  };
  expect({}, 0.1307, 0.3081);
  expect({.mean = 0.5, .std = 0.25, .flatten = true}, 0.5, 0.25);
  expect({.normalize = false}, 0.0, 1.0);
}

TEST_CASE("mnist: files are found plain or gzip'd, with a dash or a dot", "[data]") {
  const TempDir dir;
  dir.write("train-images.idx3-ubyte", idx({2, 1, 3}, "abcdef"));
  dir.write("train-labels-idx1-ubyte", idx({2}, std::string("\x07\x01", 2)));
  const auto plain = mnist(dir.path, DatasetSplit::train);
  CHECK(plain->input().sizes() == at::IntArrayRef({2, 1, 1, 3}));
  CHECK(list(plain->target()) == std::vector<std::int64_t>{7, 1});
  fs::copy_file(digits / "t10k-images-idx3-ubyte.gz", dir.path / "t10k-images.idx3-ubyte.gz");
  fs::copy_file(digits / "t10k-labels-idx1-ubyte.gz", dir.path / "t10k-labels.idx1-ubyte.gz");
  CHECK(mnist(dir.path, DatasetSplit::test)->size() == 360);
}

TEST_CASE("mnist: what is missing or does not fit is named", "[data]") {
  const TempDir dir;
  const std::string root = dir.path.string();
  const auto refusal = [&](const fs::path& at, const MnistOptions& options = {}) {
    return error_of<danling::DataError>([&] { mnist(at, DatasetSplit::train, options); });
  };
  CHECK(refusal(dir.path / "none") ==
        "[data.mnist] expected a directory with the data, got '" + root + "/none', which does not exist");
  CHECK(refusal(dir.path) ==
        "[data.mnist] expected one of the files train-images-idx3-ubyte, train-images-idx3-ubyte.gz, "
        "train-images.idx3-ubyte, train-images.idx3-ubyte.gz in '" +
            root + "', got none of them");
  dir.write("train-images-idx3-ubyte", idx({2, 1, 3}, "abcdef"));
  CHECK(refusal(dir.path / "train-images-idx3-ubyte") ==
        "[data.mnist] expected a directory with the data, got '" + root + "/train-images-idx3-ubyte', which is a file");
  CHECK(refusal(dir.path) ==
        "[data.mnist] expected one of the files train-labels-idx1-ubyte, train-labels-idx1-ubyte.gz, "
        "train-labels.idx1-ubyte, train-labels.idx1-ubyte.gz in '" +
            root + "', got none of them");
  dir.write("train-labels-idx1-ubyte", idx({3}, "abc"));
  CHECK(refusal(dir.path) == "[data.mnist] expected as many labels as images (2 in '" + root +
                                 "/train-images-idx3-ubyte'), got 3 in '" + root + "/train-labels-idx1-ubyte'");
  dir.write("train-labels-idx1-ubyte", idx({2, 1}, "ab"));
  CHECK(refusal(dir.path) == "[data.mnist] expected labels as a uint8 array of rank 1, got uint8 of rank 2 (file '" +
                                 root + "/train-labels-idx1-ubyte')");
  dir.write("train-labels-idx1-ubyte", idx({2}, "a"));
  CHECK(refusal(dir.path) ==
        "[data.idx] expected 2 bytes, got 1 bytes (file '" + root + "/train-labels-idx1-ubyte', truncated)");
  CHECK(refusal(dir.path, {.std = 0.0}) == "[data.mnist] expected a std above 0, got 0.0");
}

}  // namespace mnist_test

}  // namespace
