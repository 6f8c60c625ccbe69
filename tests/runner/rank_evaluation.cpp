// Evaluation by several ranks that share a split.
#include <charconv>

#include <nlohmann/json.hpp>

#include "fixture.hpp"
#include "rank_runner.hpp"

namespace runner_test {
namespace {

TEST_CASE("ranks: an evaluation with unequal shares of the records has the average over all records", "[runner]") {
  TinyConfig config;
  config.epochs = 1;
  config.dropout = 0;
  const auto run = [&](const dl::Group& group) {
    const Folder folder;
    TinyConfig own = config;
    own.workspace_root = folder.path().string();
    SharingRunner runner(own, group);
    const auto result = runner.evaluate({"val"});
    return std::pair(*result.number("val.loss"), *result.number("val.acc"));
  };
  // 20 records in global batches of 9: the ranks' shares of the last two are one, one and none.
  const auto whole = run(dl::Group());
  const auto texts = danling_test::run_ranks(3, [&](const dl::Group& group) {
    const auto [loss, acc] = run(group);
    return dl::detail::concat("[", loss, ",", acc, "]");
  });
  for (const auto& text : texts) {
    CHECK(text == texts.front());
    const auto numbers = nlohmann::json::parse(text);
    CHECK(numbers[0].get<double>() == Approx(whole.first).epsilon(1e-5));  // other batches round otherwise
    CHECK(numbers[1].get<double>() == Approx(whole.second).epsilon(1e-12));
  }
}

TEST_CASE("evaluate_steps: ranks without samples in the last step return the result of the others", "[runner]") {
  // 20 records in global batches of 9: in the third the first rank has two, the others none.
  const auto texts = danling_test::run_ranks(3, [&](const dl::Group& group) {
    const Folder folder;
    TinyConfig config(folder);
    config.dropout = 0;
    SharingRunner runner(config, group);
    const auto three = runner.evaluate_steps("val", 3).text(6);
    return three + error_of<dl::DataError>([&] { runner.evaluate_steps("val", 4); });
  });
  for (const auto& text : texts) {
    CHECK(text == texts.front());
    CHECK(text.ends_with("[runner.evaluate_steps] expected 4 batches in split 'val', got 3"));
  }
}

TEST_CASE("evaluate: a loader that repeats samples is an error", "[runner]") {
  const Folder folder;
  TinyRunner runner{TinyConfig(folder)};
  runner.dataloaders["val"] = std::make_shared<dl::data::Loader<dl::Batch>>(
      runner.datasets.at("val"),
      dl::data::LoaderOptions{.batch_size = 3, .shard = {.rank = 1, .world_size = 3, .padding = true}});
  CHECK(error_of<dl::ConfigError>([&] { runner.evaluate({"val"}); }) ==
        "[runner.evaluate] expected a loader that repeats no samples for the evaluation of split 'val', got one that "
        "pads 20 samples to a multiple of 3; set shard.padding to false");
}

/// Each rank has a dataset for itself.
struct Apart : dl::Parallelism {
  using Parallelism::Parallelism;
  dl::AxisPlace data_share() const override { return {}; }
};

TEST_CASE("ranks: with unequal numbers of batches the results are those of all ranks", "[runner]") {
  // With a rate of 1e-12 the weights stay, so that one process with all samples is the reference.
  TinyConfig config;
  config.epochs = 2;
  config.log_interval = 2;
  config.dropout = 0;
  config.optim.type = "sgd";
  config.optim.lr = 1e-12;
  const std::vector<std::int64_t> records = {50, 90, 24};
  const auto run = [&](const dl::Group& group, const dl::Batch& train, const dl::Batch& val) {
    const Folder folder;
    TinyConfig own = config;
    own.workspace_root = folder.path().string();
    RankRunner<TinyRunner, Apart> runner(own, group);
    runner.criterion =
        dl::Losses({{"ce", torch::nn::CrossEntropyLoss()},
                    {"size", [](const at::Tensor& p, const at::Tensor&) { return p.square().mean(1); }, 0.01}});
    runner.datasets["train"] = Points{train, true};
    runner.datasets["val"] = Points{val, false};
    return runner.train().latest()->result.text(9);
  };
  const auto part = [&](int rank) {
    std::int64_t from = 0;
    for (int before = 0; before < rank; ++before) {
      from += records[static_cast<std::size_t>(before)];
    }
    return make_points(records[static_cast<std::size_t>(rank)], from);
  };
  const auto whole = run(dl::Group(), make_points(164, 0), make_points(66, 1000));
  const auto texts = danling_test::run_ranks(3, [&](const dl::Group& group) {
    torch::manual_seed(7);
    return run(group, part(group.rank()), make_points(22, 1000 + 22 * group.rank()));
  });
  for (const auto& text : texts) {
    CHECK(text == texts.front());
  }
  // Single precision sums batches of other sizes.
  const auto number = [](const std::string& text, const std::string& name) {
    const auto at = text.rfind(name);
    REQUIRE(at != std::string::npos);
    double out = 0;
    std::from_chars(text.data() + text.find_first_of("0123456789", at + name.size()), text.data() + text.size(), out);
    return out;
  };
  INFO(whole << "\n" << texts.front());
  CHECK(number(texts.front(), "acc:") == Approx(number(whole, "acc:")).epsilon(1e-9));
  CHECK(number(texts.front(), "loss:") == Approx(number(whole, "loss:")).epsilon(1e-5));
}

}  // namespace
}  // namespace runner_test
