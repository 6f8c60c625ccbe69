// The counts of a batch: loss normalizers and tokens.
#include "fixture.hpp"

namespace runner_test {
namespace {

/// Returns the counts of a batch of any type.
template <class B>
struct Counter : dl::BasicTorchRunner<B> {
  Counter()
      : dl::BasicTorchRunner<B>([] {
          TinyConfig config;
          config.workspace_root = fs::temp_directory_path().string();
          return config;
        }()) {}
  dl::BatchCounts counts_of(B batch) { return this->count_batch(dl::data::BatchRef(batch)); }
  std::optional<std::int64_t> normalizer_of(B batch) { return counts_of(std::move(batch)).loss_normalizer; }
};

TEST_CASE("BasicTorchRunner: the loss normalizer of a mapping has DanLing's names, in their order", "[runner]") {
  using Map = dl::State::Map;
  Counter<dl::State> runner;
  runner.criterion = torch::nn::CrossEntropyLoss();
  const at::Tensor target = torch::tensor({1, -100, 2, 0});
  Map batch{{"input", torch::ones({4, 2})}, {"target", target}};
  CHECK(runner.normalizer_of(batch) == 3);  // of the criterion

  const char* const names[] = {"token_count", "num_tokens", "valid_tokens", "num_valid_tokens", "loss_normalizer"};
  std::int64_t number = 10;
  for (const char* name : names) {  // the later ones take precedence
    batch.set(name, ++number);
    CHECK(runner.normalizer_of(batch) == number);
  }
  SECTION("a number of any kind, or a tensor of one element") {
    batch.set("loss_normalizer", 7.9);
    CHECK(runner.normalizer_of(batch) == 7);
    batch.set("loss_normalizer", torch::tensor(8));
    CHECK(runner.normalizer_of(batch) == 8);
    batch.set("loss_normalizer", torch::tensor({{9.5}}));
    CHECK(runner.normalizer_of(batch) == 9);
    batch.set("loss_normalizer", true);
    CHECK(runner.normalizer_of(batch) == 1);
  }
  SECTION("other values are skipped") {
    batch.set("loss_normalizer", torch::tensor({1, 2}));
    CHECK(runner.normalizer_of(batch) == 14);
    batch.set("num_valid_tokens", "many");
    CHECK(runner.normalizer_of(batch) == 13);
  }
  SECTION("a mapping as target has it too, after the batch") {
    CHECK(runner.normalizer_of(Map{{"target", Map{{"num_tokens", 5}, {"labels", target}}}}) == 5);
    CHECK(runner.normalizer_of(Map{{"num_tokens", 6}, {"target", Map{{"loss_normalizer", 5}}}}) == 6);
    CHECK(runner.normalizer_of(dl::State::Tuple{{target, Map{{"token_count", 4}}}}) == 4);
    // DanLing reads no names of a sequence itself.
    CHECK_FALSE(runner.normalizer_of(dl::State::List{Map{{"token_count", 4}}}));
  }
  SECTION("containers and the default batch") {
    Counter<std::map<std::string, at::Tensor>> of_map;
    CHECK(of_map.normalizer_of({{"valid_tokens", torch::tensor(6)}, {"target", target}}) == 6);
    CHECK(dl::data::loss_normalizer(std::map<std::string, std::int64_t>{{"num_tokens", 3}}) == 3);
    Counter<dl::Batch> of_batch;
    of_batch.criterion = torch::nn::CrossEntropyLoss();
    dl::Batch plain{.input = torch::ones({4, 2}), .target = target};
    CHECK(of_batch.normalizer_of(plain) == 3);
    plain.extra["num_tokens"] = 9;
    CHECK(of_batch.normalizer_of(plain) == 9);
    plain.loss_normalizer = 2;
    CHECK(of_batch.normalizer_of(plain) == 2);
  }
}

TEST_CASE("BasicTorchRunner: without a loss normalizer the attention mask of the inputs counts", "[runner]") {
  using Map = dl::State::Map;
  Counter<dl::State> runner;
  const at::Tensor mask = torch::tensor({{1, 1, 0}, {1, 0, 0}});
  const Map inputs{{"input_ids", torch::ones({2, 3})}, {"attention_mask", mask}};
  CHECK(runner.normalizer_of(Map{{"input", inputs}}) == 3);
  CHECK(runner.normalizer_of(Map{{"input", inputs}, {"target", torch::ones({2})}}) == 3);
  CHECK(runner.normalizer_of(Map{{"input", inputs}, {"num_tokens", 2}}) == 2);
  CHECK_FALSE(runner.normalizer_of(Map{{"attention_mask", mask}, {"input", torch::ones({2, 3})}}));
  CHECK_FALSE(runner.normalizer_of(dl::State::Tuple{{inputs, torch::ones({2})}}));
  runner.criterion = torch::nn::MSELoss();
  CHECK(runner.normalizer_of(Map{{"input", inputs}, {"target", torch::ones({2, 5})}}) == 10);

  Counter<dl::Batch> of_batch;
  dl::Batch batch{.extra = inputs};
  CHECK(of_batch.normalizer_of(batch) == 3);
  batch.extra["attention_mask"] = mask.to(torch::kFloat);
  CHECK(of_batch.normalizer_of(batch) == 3);
  for (const double hidden : {-1e9, -std::numeric_limits<double>::infinity()}) {  // added to the scores of attention
    batch.extra["attention_mask"] = torch::zeros({2, 3}).masked_fill(mask == 0, hidden);
    CHECK_FALSE(of_batch.normalizer_of(batch));
  }
  batch.extra["attention_mask"] = torch::zeros({2, 3});
  CHECK_FALSE(of_batch.normalizer_of(batch));
}

TEST_CASE("BasicTorchRunner: a negative loss normalizer is an error", "[runner]") {
  struct Unknown {
    std::int64_t size() const { return 16; }
    dl::Batch get_batch(std::span<const std::int64_t> indices) {
      dl::Batch batch = make_points(static_cast<std::int64_t>(indices.size()), indices.front());
      batch.loss_normalizer = -1;
      return batch;
    }
    bool train() const { return true; }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  TinyRunner runner(config);
  runner.datasets["train"] = Unknown();
  CHECK_THAT(error_of<dl::DataError>([&] { runner.train(); }),
             Catch::Matchers::Contains("[runner.accumulate] expected a loss_normalizer of at least 0, got -1"));
}

TEST_CASE("BasicTorchRunner: loss normalizers are the weights of the micro-batches of a window", "[runner]") {
  // One parameter w = 0, loss mean((w - target)^2), so the gradient of a micro-batch is -2 * target; weights 3 and 1.
  struct Net : torch::nn::Module {
    at::Tensor w = register_parameter("w", torch::zeros({}));
    at::Tensor forward(const at::Tensor& input) { return w.expand_as(input); }
  };
  struct Data {
    std::int64_t size() const { return 2; }
    dl::State get_batch(std::span<const std::int64_t> indices) {
      const bool first = indices[0] == 0;
      return dl::State::Map{{"input", torch::ones({1})},
                            {"target", torch::full({1}, first ? 1.0F : 5.0F)},
                            {"num_valid_tokens", first ? 3 : 1}};
    }
    bool train() const { return true; }
  };
  struct Runner : dl::BasicTorchRunner<dl::State> {
    explicit Runner(const TinyConfig& config) : BasicTorchRunner(config) {
      model = std::make_shared<Net>();
      criterion = [](const at::Tensor& prediction, const at::Tensor& target) {
        return (prediction - target).square().mean();
      };
      datasets["train"] = Data();
    }
    ~Runner() override { close(); }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.accum_steps = 2;
  config.dataloader.batch_size = 1;
  config.optim.type = "sgd";
  config.optim.lr = 0.25;
  config.optim.weight_decay = 0;
  Runner runner(config);
  runner.train();
  CHECK(runner.state().train.global_step == 1);
  // 0.25 * 2 * (3 * 1 + 1 * 5) / 4
  CHECK(runner.model.named_parameters().at(0).second.item<double>() == 1.0);
  // The average is weighted too: (3 * 1 + 1 * 25) / 4.
  CHECK(*runner.results().latest()->result.number("train.loss") == 7.0);
}

TEST_CASE("TorchRunner: metrics.jsonl has the tokens per second", "[runner]") {
  struct Padded {
    std::int64_t size() const { return 12; }
    dl::Batch get_batch(std::span<const std::int64_t> indices) {
      std::vector<dl::data::Sample> samples;
      for (const std::int64_t i : indices) {
        samples.push_back({.input = torch::full({1 + i % 4, 4}, 0.5F), .target = torch::tensor(i % 3)});
      }
      return dl::data::collate_padded(std::move(samples));
    }
    bool train() const { return true; }
  };
  struct Runner : dl::TorchRunner {
    explicit Runner(const TinyConfig& config) : TorchRunner(config) {
      net = torch::nn::Linear(4, 3);
      model = net;
      datasets["train"] = Padded();
    }
    ~Runner() override { close(); }
    dl::StepOutput train_step(dl::Batch& batch) override {
      const at::Tensor loss = torch::nn::functional::cross_entropy(net->forward(batch.input).mean(1), batch.target);
      backward(loss);
      step();
      return {.loss = loss};
    }
    torch::nn::Linear net = nullptr;
  };
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.dataloader.batch_size = 4;
  Runner runner(config);
  runner.train();
  runner.close();
  const std::string lines = read_file(runner.workspace().dir() / "metrics.jsonl");
  const auto number = [&](const std::string& name) {
    const auto at = lines.rfind("\"" + name + "\":");
    REQUIRE(at != std::string::npos);
    return std::stod(lines.substr(at + name.size() + 3));
  };
  // 12 samples of 1, 2, 3, 4, 1, ... positions: 30.
  CHECK(number("tokens_per_s") / number("samples_per_s") == Approx(30.0 / 12.0));
}

TEST_CASE("BasicTorchRunner: tokens are those that a batch states, its nested elements, or the mask of its inputs",
          "[runner]") {
  using Map = dl::State::Map;
  Counter<dl::Batch> runner;
  CHECK(runner.counts_of({.input = torch::ones({2, 3})}).tokens == 0);
  CHECK(runner.counts_of({.input = torch::ones({2, 3}), .num_tokens = 5}).tokens == 5);
  CHECK(runner.counts_of({.input = torch::ones({2, 3}), .extra = Map{{"token_count", 4}}}).tokens == 4);
  const at::Tensor nested = at::_nested_tensor_from_tensor_list({torch::ones({2}), torch::ones({5})});
  CHECK(runner.counts_of({.input = nested}).tokens == 7);
  Counter<dl::State> of_tree;
  const at::Tensor mask = torch::tensor({{1, 1, 0}, {1, 0, 0}});
  CHECK(of_tree.counts_of(Map{{"input", Map{{"attention_mask", mask}}}, {"loss_normalizer", 9}}).tokens == 3);
  CHECK(of_tree.counts_of(Map{{"input", nested}}).tokens == 7);
  CHECK(of_tree.counts_of(dl::State::List{nested, mask}).tokens == 7);
  Counter<at::Tensor> of_tensor;
  CHECK(of_tensor.counts_of(nested).tokens == 7);
  CHECK(of_tensor.counts_of(mask).tokens == 0);

  struct Rows {
    at::Tensor rows;
    std::int64_t size() const { return rows.size(0); }
    std::int64_t num_tokens() const { return rows.numel(); }
    Rows to(c10::Device device) const { return {rows.to(device)}; }
  };
  Counter<Rows> of_rows;
  CHECK(of_rows.counts_of({torch::ones({2, 8})}).tokens == 16);
}

}  // namespace
}  // namespace runner_test
