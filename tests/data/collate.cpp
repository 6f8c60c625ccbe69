// How samples become batches without a collate of their own, against torch's default_collate (rules as in its manual).
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <danling/data/dataset_adapter.hpp>
#include <danling/data/loader.hpp>

#include <support/error.hpp>

namespace {

namespace collate_test {

namespace data = danling::data;
using danling::State;
using danling_test::error_of;

State extra_of(std::int64_t i) {
  State extra;
  extra["boxes"]["left"] = at::full({2}, static_cast<double>(i));
  extra["label"] = i;
  extra["weight"] = 0.5 * static_cast<double>(i);
  extra["easy"] = i % 2 == 0;
  extra["text"] = "t" + std::to_string(i);
  extra["raw"] = State(danling::Bytes{std::string(1, static_cast<char>('a' + i))});
  extra["pair"] = State(State::Tuple{{State(i), State(at::full({}, 1.0))}});
  extra["nothing"] = State();
  return extra;
}

TEST_CASE("collate: a sample's extra is collated part by part, as torch's default_collate does", "[data]") {
  std::vector<data::Sample> samples;
  for (std::int64_t i = 0; i < 3; ++i) {
    samples.push_back({at::full({4}, static_cast<double>(i)), {}, extra_of(i)});
  }
  const data::Batch batch = collate(samples);
  CHECK(batch.input.sizes() == at::IntArrayRef({3, 4}));
  CHECK_FALSE(batch.target.defined());

  const State& extra = batch.extra;
  const at::Tensor& left = batch.at("boxes.left");
  CHECK(left.sizes() == at::IntArrayRef({3, 2}));
  CHECK(left[2][1].item<float>() == 2.0F);
  CHECK(extra.at("label").tensor().equal(at::tensor({0, 1, 2}, at::kLong)));
  CHECK(extra.at("weight").tensor().equal(at::tensor({0.0, 0.5, 1.0}, at::kDouble)));
  CHECK(extra.at("easy").tensor().equal(at::tensor({1, 0, 1}).to(at::kBool)));
  REQUIRE(extra.at("text").list().size() == 3);
  CHECK(extra.at("text").list()[1].string() == "t1");
  CHECK(extra.at("raw").list()[2].bytes().data == "c");
  REQUIRE(extra.at("pair").is_tuple());
  CHECK(extra.at("pair").tuple()[0].tensor().equal(at::tensor({0, 1, 2}, at::kLong)));
  CHECK(extra.at("pair").tuple()[1].tensor().sizes() == at::IntArrayRef({3}));
  CHECK(extra.at("nothing").is_null());
}

std::string refusal(const State& first, const State& second) {
  return error_of<data::CollateError>([&] {
    collate(std::vector<data::Sample>{
        {at::zeros({1}), {}, first}, {at::zeros({1}), {}, first}, {at::zeros({1}), {}, second}});
  });
}

State nested(const char* name, State value) {
  State out;
  out["boxes"][name] = std::move(value);
  return out;
}

TEST_CASE("collate: an error names the place, the sample and both sides", "[data]") {
  CHECK(refusal(nested("left", at::zeros({2})), nested("left", at::zeros({3}))) ==
        "[data.collate] expected extra.boxes.left Float [2] as in sample 0, got Float [3] in sample 2");
  CHECK(refusal(nested("left", at::zeros({2})), nested("left", at::zeros({2}, at::kLong))) ==
        "[data.collate] expected extra.boxes.left Float [2] as in sample 0, got Long [2] in sample 2");
  CHECK(refusal(nested("left", 1), nested("left", 1.5)) ==
        "[data.collate] expected extra.boxes.left an integer as in sample 0, got a number in sample 2");
  CHECK(refusal(nested("left", 1), nested("right", 1)) ==
        "[data.collate] expected extra.boxes a map of [left] as in sample 0, got one of [right] in sample 2");
  CHECK(refusal(State(State::Map()), nested("left", 1)) ==
        "[data.collate] expected extra an empty map as in sample 0, got one of [boxes] in sample 2");
  CHECK(refusal(nested("left", State::List{1, 2}), nested("left", State::List{1})) ==
        "[data.collate] expected extra.boxes.left 2 parts as in sample 0, got 1 in sample 2");
  CHECK(refusal(nested("left", State::List{1, 2}), nested("left", State::List{1, "a"})) ==
        "[data.collate] expected extra.boxes.left.1 an integer as in sample 0, got a string in sample 2");
  CHECK(refusal(State(), nested("left", 1)) ==
        "[data.collate] expected extra null as in sample 0, got a map in sample 2");
}

TEST_CASE("collate: standard containers are samples and batches", "[data]") {
  using S = std::tuple<at::Tensor, std::int32_t, float, bool, std::string, std::array<double, 2>,
                       std::map<std::string, std::vector<at::Tensor>>, std::optional<std::pair<int, State>>>;
  std::vector<S> samples;
  for (int i = 0; i < 2; ++i) {
    samples.push_back({at::full({3}, i),
                       i,
                       0.5F,
                       i == 0,
                       "s",
                       {1.0, 2.0},
                       {{"a", {at::zeros({2}), at::zeros({1})}}},
                       std::pair(i, State(i))});
  }
  const auto [tensor, integer, single, flag, text, array, map, optional] = data::default_collate(samples);
  CHECK(tensor.sizes() == at::IntArrayRef({2, 3}));
  CHECK(integer.equal(at::tensor({0, 1}, at::kLong)));
  CHECK(single.equal(at::tensor({0.5, 0.5}, at::kFloat)));
  CHECK(flag.equal(at::tensor({1, 0}).to(at::kBool)));
  CHECK(text == std::vector<std::string>{"s", "s"});
  CHECK(array[1].equal(at::tensor({2.0, 2.0}, at::kDouble)));
  CHECK(map.at("a")[0].sizes() == at::IntArrayRef({2, 2}));
  CHECK(map.at("a")[1].sizes() == at::IntArrayRef({2, 1}));
  REQUIRE(optional);
  CHECK(optional->first.equal(at::tensor({0, 1}, at::kLong)));
  CHECK(optional->second.tensor().equal(at::tensor({0, 1}, at::kLong)));

  std::get<6>(samples[1])["a"].pop_back();
  CHECK(error_of<data::CollateError>([&] { data::default_collate(samples); }) ==
        "[data.collate] expected 6.a 2 parts as in sample 0, got 1 in sample 1");
  std::get<6>(samples[1]) = {{"b", {}}};
  CHECK(error_of<data::CollateError>([&] { data::default_collate(samples); }) ==
        "[data.collate] expected 6.a a value as in sample 0, got none in sample 1");
  std::get<6>(samples[1]) = std::get<6>(samples[0]);
  std::get<7>(samples[1]).reset();
  CHECK(error_of<data::CollateError>([&] { data::default_collate(samples); }) ==
        "[data.collate] expected 7 a value as in sample 0, got none in sample 1");
  CHECK(error_of<danling::DataError>([] { data::default_collate(std::vector<at::Tensor>{}); }) ==
        "[data.collate] expected at least one sample, got none");
}

struct Pairs {
  std::int64_t size() const { return 6; }
  std::pair<at::Tensor, std::int64_t> get(std::int64_t i) const { return {at::full({2}, i), 10 * i}; }
};

TEST_CASE("Loader: a dataset of pairs gives batches of pairs", "[data]") {
  using B = std::pair<at::Tensor, at::Tensor>;
  static_assert(std::same_as<data::batch_of<Pairs>, B>);
  data::Loader<B> loader(Pairs{}, {.batch_size = 4});
  std::vector<std::int64_t> sizes;
  for (B& batch : loader) {
    sizes.push_back(loader.batch_size());
    CHECK(batch.first.select(1, 0).to(at::kLong).mul(10).equal(batch.second));
  }
  CHECK(sizes == std::vector<std::int64_t>{4, 2});
}

/// Records 2 and up have another shape.
struct Uneven {
  struct Record {
    std::string uuid;
    at::Tensor x;
    static at::Tensor collate(const std::vector<Record>& records) {
      std::vector<at::Tensor> xs;
      for (const auto& record : records) {
        xs.push_back(record.x);
      }
      return data::default_collate(xs, "x");
    }
  };
  std::int64_t size() const { return 4; }
  Record get(std::int64_t i) const { return {"r" + std::to_string(i), at::zeros({i < 2 ? 1 : 2})}; }
};

TEST_CASE("DatasetAdapter: what collating throws names the record and its uuid", "[data]") {
  auto dataset = data::make_dataset(Uneven{});
  data::BatchInfo info;
  info.indices = {10, 11, 12};
  info.split = "train";
  const std::vector<std::int64_t> below = {0, 1, 2};
  CHECK(error_of<data::CollateError>([&] { dataset->read(below, info); }) ==
        "[data.collate] expected x Float [1] as in sample 0, got Float [2] in sample 2, which is record 12 (2 in the "
        "dataset below) of split 'train' with uuid 'r2'");
  CHECK(error_of<data::CollateError>([&] { dataset->get_batch(below); }) ==
        "[data.collate] expected x Float [1] as in sample 0, got Float [2] in sample 2, which is record 2 with uuid "
        "'r2'");
}

}  // namespace collate_test

}  // namespace
