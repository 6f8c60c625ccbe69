// Datasets of files put together: parts that give samples again.
#include <filesystem>
#include <fstream>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>

#include <danling/core/error.hpp>
#include <danling/data/concat.hpp>
#include <danling/data/datasets/array_datasets.hpp>
#include <danling/data/datasets/image_folder.hpp>
#include <danling/data/datasets/json_lines.hpp>
#include <danling/data/datasets/mnist.hpp>
#include <danling/data/datasets/table_dataset.hpp>
#include <danling/data/datasets/tokens.hpp>
#include <danling/data/filter.hpp>
#include <danling/data/loader.hpp>
#include <danling/data/map.hpp>
#include <danling/data/weighted_sampler.hpp>
#include <danling/formats/table.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>
#include <support/text_batch.hpp>

// A user's own sample type, made of lines of JSON; no collate, until a map makes what has one.
namespace danling_file_compositions_user {

struct Review {
  std::string text;
  std::int64_t stars = 0;
};
struct Reviews : danling_test::TextBatch<Reviews> {};
inline Reviews collate(std::vector<Review> reviews) { return Reviews::of(std::move(reviews)); }

}  // namespace danling_file_compositions_user

namespace {

namespace file_compositions_test {

namespace data = danling::data;
using danling::Batch;
using danling::DataError;
using danling_file_compositions_user::Review;
using danling_file_compositions_user::Reviews;
using danling_test::error_of;
using danling_test::TempDir;
using danling_test::write_file;
using data::Sample;
using Indices = std::vector<std::int64_t>;

Sample negated(Sample sample) {
  sample.input = -sample.input;
  return sample;
}

std::string idx(std::initializer_list<int> dims, const std::string& body) {
  std::string out = {0, 0, 8, static_cast<char>(dims.size())};
  for (const int dim : dims) {
    out += {0, 0, static_cast<char>(dim >> 8), static_cast<char>(dim)};
  }
  return out + body;
}

TEST_CASE("File compositions: rows of tables and arrays are mapped and filtered one by one", "[data]") {
  const TempDir directory;
  write_file(directory / "points.csv", "x,y,kind\n1,2,a\n3,4,b\n5,6,a\n");
  const auto table = data::table_dataset(danling::formats::read_csv(directory / "points.csv"), {.target = "kind"});
  const auto kind_a = data::filter(table, [](const Sample& row) { return row.target.item<std::int64_t>() == 0; });
  CHECK(kind_a.indices() == Indices{0, 2});
  CHECK(kind_a.source_info(1).at("line").integer() == 4);
  const auto joined = data::concat(kind_a, data::map(table, negated));
  const Batch batch = data::make_dataset(joined)->get_batch(Indices{1, 2, 4});
  CHECK(at::equal(batch.input, at::tensor({5.0F, 6.0F, -1.0F, -2.0F, -5.0F, -6.0F}).view({3, 2})));
  CHECK(at::equal(batch.target, at::tensor(Indices{0, 0, 0})));

  const std::string header = "{'descr': '<i4', 'fortran_order': False, 'shape': (3, 1), }";
  std::string npy = std::string("\x93NUMPY\x01\x00", 8) + std::string(1, static_cast<char>(118)) + '\0';
  npy += header + std::string(118 - 1 - header.size(), ' ') + "\n";
  for (const char* value : {"\7", "\10", "\11"}) {
    npy += std::string(value) + std::string(3, '\0');
  }
  write_file(directory / "x.npy", npy);
  const auto [rest, held] = data::hold_out(data::npy_dataset({.input = directory / "x.npy"}), 1, 0);
  const std::int64_t first = rest.indices()[0];
  CHECK(data::map(rest, negated).get(0).input.item<int>() == -7 - static_cast<int>(first));

  write_file(directory / "tokens.bin", std::string("\1\0\2\0\3\0\4\0\5\0", 10));
  const auto tokens = data::token_dataset(directory / "tokens.bin", {.sequence_length = 2});
  const Sample second = data::map(tokens, [](Sample sample) { return sample; }).get(1);
  CHECK(at::equal(second.input, at::tensor(Indices{3, 4})));
  CHECK(at::equal(second.target, at::tensor(Indices{4, 5})));
}

TEST_CASE("File compositions: lines of JSON as own structs, split and mapped", "[data]") {
  const TempDir directory;
  std::string lines;
  for (int i = 0; i < 5; ++i) {
    lines += R"({"text": "t)" + std::to_string(i) + R"(", "stars": )" + std::to_string(i) + "}\n";
  }
  write_file(directory / "reviews.jsonl", lines);
  const auto reviews = data::json_lines_dataset(
      directory / "reviews.jsonl",
      [](const danling::State& record) { return Review{record.at("text").string(), record.at("stars").integer()}; },
      "train");
  const auto parts = data::random_split(reviews, {3, 2}, 0);
  const auto good = data::filter(reviews, [](const Review& review) { return review.stars > 2; });
  CHECK(good.indices() == Indices{3, 4});
  const auto shouted = data::map(parts[0], [](Review review) {
    review.text += "!";
    return review;
  });
  const std::string first = "t" + std::to_string(parts[0].indices()[0]);
  CHECK(data::make_dataset(shouted)->get_batch(Indices{0}).texts == std::vector<std::string>{first + "!"});
  CHECK(reviews->get_batch(Indices{4}).texts == std::vector<std::string>{"t4"});
  CHECK(good.source_info(0).at("line").integer() == 4);
  // Trees as they are in the file.
  const auto trees = data::subset(data::JsonLines(directory / "reviews.jsonl"), {4, 0});
  CHECK(trees.get(0).at("stars").integer() == 4);
}

TEST_CASE("Labels that are no class: MNIST and IDX files name file and record", "[data]") {
  const TempDir directory;
  write_file(directory / "train-images-idx3-ubyte", idx({3, 1, 1}, "abc"));
  const auto labels = directory / "train-labels-idx1-ubyte";
  const std::string where = " (file '" + labels.string() + "', record 1)";
  write_file(labels, idx({3}, std::string("\x09\xd1\x00", 3)));
  CHECK(error_of<DataError>([&] { data::mnist(directory.path(), data::DatasetSplit::train); }) ==
        "[data.mnist] expected a label below 10, got 209" + where);
  CHECK(error_of<DataError>([&] { data::fashion_mnist(directory.path(), data::DatasetSplit::train); }) ==
        "[data.fashion_mnist] expected a label below 10, got 209" + where);
  const auto images = directory / "train-images-idx3-ubyte";
  CHECK(data::idx_dataset(images, labels)->target()[1].item<std::int64_t>() == 209);
  CHECK(data::idx_dataset(images, labels, {.num_classes = 210})->size() == 3);
  CHECK(error_of<DataError>([&] { data::idx_dataset(images, labels, {.num_classes = 209}); }) ==
        "[data.idx] expected a label below 209, got 209" + where);
  write_file(labels, std::string("\0\0\x09\1\0\0\0\3\1\xff\2", 11));  // int8
  CHECK(error_of<DataError>([&] { data::idx_dataset(images, labels, {.num_classes = 10}); }) ==
        "[data.idx] expected a label below 10, got -1" + where);
  CHECK(error_of<danling::ConfigError>([&] { data::idx_dataset(images, {}, {.num_classes = 10}); }) ==
        "[data.idx] expected a file of labels, which num_classes is for, got none");
}

TEST_CASE("Labels that are no class: a table with the classes it may have names line and column", "[data]") {
  const TempDir directory;
  write_file(directory / "digits.csv", "x,label\n1,3\n2,209\n");
  std::vector<std::string> digits;
  for (int digit = 0; digit < 10; ++digit) {
    digits.push_back(std::to_string(digit));
  }
  const auto table = danling::formats::read_csv(directory / "digits.csv");
  const std::string error =
      error_of<DataError>([&] { data::table_dataset(table, {.target = "label", .categories = {{"label", digits}}}); });
  CHECK(error.starts_with("[data.table] expected one of 10 categories, got '209'"));
  CHECK(error.ends_with(" (file '" + (directory / "digits.csv").string() + "', line 3, column 'label')"));
}

#ifdef DANLING_WITH_IMAGES

/// A PNG of one red pixel.
std::string red_pixel() {
  const std::string hex =
      "89504e470d0a1a0a0000000d49484452000000010000000108020000009077"
      "53de0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082";
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    out.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return out;
}

std::shared_ptr<data::ImageFolder> folder(const TempDir& directory, const std::string& name, int cats, int dogs) {
  const auto fill = [&](const std::string& kind, int count) {
    const auto path = directory / name / kind;
    std::filesystem::create_directories(path);
    for (int i = 0; i < count; ++i) {
      write_file(path / (std::to_string(i) + ".png"), red_pixel());
    }
  };
  fill("cat", cats);
  fill("dog", dogs);
  return data::image_folder(directory / name, {.split = "train"});
}

TEST_CASE("File compositions: an image folder, split, its training part augmented alone", "[data]") {
  const TempDir directory;
  const auto images = folder(directory, "one", 6, 4);
  const auto parts = data::random_split(images, {0.8, 0.2}, 0);
  const auto train = data::map(parts[0], [](Sample sample, const data::SampleInfo& info) {
    sample.input = sample.input.to(at::kFloat) / 255 + info.random().randint(3);
    return sample;
  });
  data::Source<Batch> split = train;
  data::Loader<Batch> loader(split, {.batch_size = 3, .shuffle = true, .num_workers = 2});
  std::int64_t count = 0;
  for (const Batch& batch : loader) {
    CHECK(batch.input.scalar_type() == at::kFloat);
    count += batch.size();
  }
  CHECK(count == 8);
  CHECK(parts[1].get(0).input.scalar_type() == at::kByte);
  CHECK(parts[1].entry_key(1) == images->entry_key(parts[1].indices()[1]));
  CHECK(train.source_info(0).at("class").string() == images->source_info(parts[0].indices()[0]).at("class").string());

  std::vector<std::int64_t> labels;
  for (const std::int64_t record : parts[0].indices()) {
    labels.push_back(images->target(record));
  }
  const auto sampler = std::make_shared<data::WeightedSampler>(data::balanced_weights(labels));
  data::Loader<Batch> balanced(train, {.batch_size = 8, .sampler = sampler});
  balanced.start_epoch(0);
  REQUIRE(balanced.next());
  CHECK(balanced.batch().size() == 8);
}

TEST_CASE("File compositions: parts of two image folders joined, and what goes wrong in one", "[data]") {
  const TempDir directory;
  const auto both = data::concat(folder(directory, "one", 2, 1), folder(directory, "two", 1, 2));
  CHECK(both.train());
  const auto part = data::subset(both, {5, 0, 3});
  CHECK(at::equal(data::make_dataset(part)->get_batch(Indices{0, 1, 2}).target, at::tensor(Indices{1, 0, 0})));
  CHECK(part.entry_key(0) == "dog/1.png");
  const auto path = directory / "two" / "cat" / "0.png";
  write_file(path, "no image");
  data::Loader<Batch> loader(data::map(part, negated), {.batch_size = 3});
  CHECK(
      error_of<DataError>([&] { loader.begin(); }).ends_with("(file '" + path.string() + "'); while reading record 2"));
}

#endif

}  // namespace file_compositions_test

}  // namespace
