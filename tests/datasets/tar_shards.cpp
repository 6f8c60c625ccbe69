// Batches of tar shards from a loader.
#include <danling/data/datasets/tar_shards.hpp>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <ATen/ops/equal.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <danling/core/error.hpp>
#include <danling/data/loader.hpp>
#include <danling/data/map.hpp>

#include <support/error.hpp>
#include <support/tar.hpp>
#include <support/temp_dir.hpp>

#include "numbered_shards.hpp"

namespace tar_shards_test {
namespace {

using danling::Batch;
using danling::State;
using danling_test::error_of;
using nlohmann::json;

#ifdef DANLING_WITH_IMAGES

std::string image_file(const std::string& name) {
  static const json cases = json::parse(danling_test::read_file(folder / "images.json"));
  std::string out;
  for (const auto& item : cases) {
    const std::string digits = item["name"] == name ? item["file"].get<std::string>() : "";
    for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
      out.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
    }
  }
  REQUIRE_FALSE(out.empty());
  return out;
}

TEST_CASE("tar_shards: a batch of images, targets, and everything else by name", "[data]") {
  const TempDir dir;
  std::vector<std::pair<std::string, std::string>> members;
  for (int i = 0; i < 3; ++i) {
    const std::string key = concat("train/", i);
    members.emplace_back(key + (i == 1 ? ".png" : ".jpg"), image_file(i == 1 ? "rgb8.png" : "rgb_444.jpg"));
    members.emplace_back(key + ".cls", concat(10 + i));
    members.emplace_back(key + ".seg.png", image_file("gray8.png"));
    members.emplace_back(key + ".json", concat(R"({"id": )", i, "}"));
    members.emplace_back(key + ".txt", concat("caption ", i));
  }
  write_file(dir / "0.tar", tar_archive(members));
  for (const std::int64_t workers : {0, 2}) {
    data::Loader<Batch> loader(data::tar_shards((dir / "0.tar").string()), {.batch_size = 3, .num_workers = workers});
    loader.start_epoch(0);
    REQUIRE(loader.next());
    const Batch& batch = loader.batch();
    CHECK(batch.input.sizes() == at::IntArrayRef({3, 3, 11, 18}));
    CHECK(at::equal(batch.input[1], data::image_tensor(image_file("rgb8.png"))));
    CHECK(at::equal(batch.target, at::tensor({10, 11, 12}, at::kLong)));
    CHECK(batch.at("seg.png").sizes() == at::IntArrayRef({3, 1, 11, 18}));
    CHECK(at::equal(batch.at("json.id"), at::tensor({0, 1, 2}, at::kLong)));
    CHECK(batch.extra.at("txt").list().at(2).string() == "caption 2");
    CHECK(batch.info.entry_keys.at(2) == "train/2");
    CHECK_FALSE(loader.next());
  }

  data::TarShardsOptions options;
  options.extra = std::vector<std::string>{"txt"};
  options.image.resize_to = data::ImageSize{4, 5};
  data::Loader<Batch> loader(data::tar_shards((dir / "0.tar").string(), options), {.batch_size = 3});
  loader.start_epoch(0);
  REQUIRE(loader.next());
  CHECK(loader.batch().input.sizes() == at::IntArrayRef({3, 3, 4, 5}));
  CHECK(loader.batch().extra.map().size() == 1);
}

TEST_CASE("tar_shards: damaged members and missing ones are named with key, shard and record", "[data]") {
  const TempDir dir;
  const fs::path path = dir / "0.tar";
  write_file(
      path,
      tar_archive(
          {{"a.jpg", "<html>"}, {"a.cls", "1"}, {"b.jpg", image_file("gray.jpg")}, {"b.cls", "x"}, {"c.cls", "1"}}));
  const auto text = [&](std::int64_t skipped) {
    auto stream = data::make_stream(data::tar_shards(path.string()));
    stream->reset(0);
    stream->skip(skipped);
    return error_of<danling::DataError>([&] { stream->next(1); });
  };
  const std::string file = concat("file ", danling::detail::quote(path.string()));
  CHECK(text(0) == concat("[formats.image] expected a JPEG or PNG image, got HTML or XML (member 'jpg', key 'a', ",
                          file, ", offset 0); while reading record 0"));
  CHECK(text(1) == concat("[data.tar_shards] expected an integer, got 'x' (member 'cls', key 'b', ", file,
                          ", offset 2048); while reading record 0"));
  CHECK(text(2).starts_with("[data.tar_shards] expected a member 'jpg;jpeg;png', got [cls] (key 'c', "));
}

#endif

data::TarShardsOptions numbers_only(const data::TarRecordsOptions& records) {
  data::TarShardsOptions options;
  options.shuffle_shards = records.shuffle_shards;
  options.shuffle_buffer = records.shuffle_buffer;
  options.seed = records.seed;
  options.input = "cls";
  options.target = "";
  options.extra = std::vector<std::string>();
  return options;
}

/// Returns the numbers that `ranks` processes deliver, in the order of the stream: `batches` batches from `state` on.
std::vector<std::int64_t> delivered(const Numbers& numbers, const data::TarRecordsOptions& records, std::int64_t ranks,
                                    std::int64_t batch_size, std::int64_t workers, const std::optional<State>& state,
                                    std::int64_t batches, State* end = nullptr) {
  std::vector<std::vector<std::vector<std::int64_t>>> by_rank;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    data::Loader<Batch> loader(
        data::tar_shards(numbers.pattern(), numbers_only(records)),
        {.batch_size = batch_size, .num_workers = workers, .shard = {.rank = rank, .world_size = ranks}});
    if (state) {
      loader.load_state_dict(*state);
    }
    loader.start_epoch(1);
    by_rank.emplace_back();
    for (std::int64_t i = 0; i < batches && loader.next(); ++i) {
      const at::Tensor input = loader.batch().input;
      const std::int64_t size = input.defined() ? input.numel() : 0;
      const auto* values = size > 0 ? input.const_data_ptr<std::int64_t>() : nullptr;
      by_rank.back().emplace_back(values, values + size);
    }
    if (end != nullptr && rank == 0) {
      *end = loader.state_dict();
    }
  }
  std::vector<std::int64_t> out;
  for (std::size_t step = 0; step < by_rank.front().size(); ++step) {
    for (const auto& of_rank : by_rank) {
      if (step < of_rank.size()) {
        out.insert(out.end(), of_rank[step].begin(), of_rank[step].end());
      }
    }
  }
  return out;
}

TEST_CASE("tar_shards: any number of ranks and workers shares the order and resumes it", "[data]") {
  const Numbers numbers;
  const data::TarRecordsOptions options{.shuffle_shards = true, .shuffle_buffer = 4, .seed = 7};
  data::TarRecords whole({numbers.pattern()}, options);
  whole.reset(1);
  const auto expected = drain(whole);
  for (const auto& [ranks, batch_size, workers] :
       std::vector<std::array<std::int64_t, 3>>{{1, 1, 0}, {1, 4, 2}, {2, 2, 0}, {2, 3, 1}, {3, 1, 2}}) {
    INFO(ranks << " ranks, batches of " << batch_size << ", " << workers << " workers");
    CHECK(delivered(numbers, options, ranks, batch_size, workers, std::nullopt, 100) == expected);
    State state;
    auto found = delivered(numbers, options, ranks, batch_size, workers, std::nullopt, 2, &state);
    CHECK(static_cast<std::int64_t>(found.size()) == 2 * ranks * batch_size);
    for (const std::int64_t other_ranks : {1, 2}) {
      auto all = found;
      const auto rest = delivered(numbers, options, other_ranks, 3, 1, state, 100);
      all.insert(all.end(), rest.begin(), rest.end());
      CHECK(all == expected);
    }
  }
}

TEST_CASE("tar_records: a function of one's own makes the samples", "[data]") {
  const Numbers numbers;
  auto stream =
      data::map(data::tar_records(numbers.pattern()), [](const data::TarRecord& record, const data::SampleInfo& info) {
        return data::Sample{.input = at::scalar_tensor(record.value(record.at("cls")).integer() * 2, at::kLong),
                            .target = at::scalar_tensor(info.index(), at::kLong)};
      });
  data::Loader<Batch> loader(std::move(stream), {.batch_size = 5, .num_workers = 2});
  loader.start_epoch(0);
  REQUIRE(loader.next());
  CHECK(at::equal(loader.batch().input, at::tensor({0, 2, 4, 6, 8}, at::kLong)));
  CHECK(at::equal(loader.batch().target, at::tensor({0, 1, 2, 3, 4}, at::kLong)));
}

}  // namespace
}  // namespace tar_shards_test
