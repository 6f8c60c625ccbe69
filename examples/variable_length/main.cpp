// Which book is this passage from? A transformer reads 2,400 passages of 8 to 512 bytes, without padding.
//
//   variable_length                                 about 90 % of the held-out passages after 8 epochs
//   variable_length --dataloader.collation padded   the same model on padded batches
//   variable_length --compare true                  both, and a table of their losses and times
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>

#include <torch/torch.h>

#include <danling/danling.hpp>

namespace dl = danling;

constexpr std::int64_t longest = 512, num_books = 4;

struct PassageConfig : dl::RunnerConfig {
  std::string file = PASSAGES;
  std::int64_t width = 64, num_layers = 2, num_heads = 4;
  bool compare = false;

  PassageConfig() {
    seed = 1031;
    epochs = 8;
    score_name = "acc";
    dataloader.batch_size = 32;
    dataloader.collation = dl::data::Collation::nested;  // the one word
    optim.type = "adamw";
    optim.lr = 1e-3;
  }

  void fields(dl::Fields& f) override {
    RunnerConfig::fields(f);
    f("file", file, "lines of label, title and passage").non_semantic();
    f("width", width, "features of a byte");
    f("num_layers", num_layers, "layers of the encoder");
    f("num_heads", num_heads, "attention heads");
    f("compare", compare, "train on nested and on padded batches, and print a table").non_semantic();
  }
};

/// Bytes of a passage, and the number of its book.
class Passages {
 public:
  explicit Passages(const std::string& file) {
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
      const std::string text = line.substr(line.rfind('\t') + 1);
      texts_.push_back(torch::tensor(std::vector<std::int64_t>(text.begin(), text.end())));
      labels_.push_back(std::stoll(line));
    }
    dl::check<dl::DataError>(!texts_.empty(), "passages", "expected lines of text in ", file, ", got none");
  }
  std::int64_t size() const { return static_cast<std::int64_t>(texts_.size()); }
  dl::data::Sample get(std::int64_t index) const {
    const auto at = static_cast<std::size_t>(index);
    return {.input = texts_[at], .target = torch::tensor(labels_[at])};
  }

 private:
  std::vector<torch::Tensor> texts_;
  std::vector<std::int64_t> labels_;
};

struct ReaderImpl : torch::nn::Module {
  explicit ReaderImpl(const PassageConfig& config)
      : bytes(register_module("bytes", torch::nn::Embedding(128, config.width))),
        places(register_parameter("places", torch::randn({longest, config.width}) * 0.1)),
        encoder(register_module("encoder", torch::nn::TransformerEncoder(torch::nn::TransformerEncoderOptions(
                                               torch::nn::TransformerEncoderLayerOptions(config.width, config.num_heads)
                                                   .dim_feedforward(4 * config.width)
                                                   .dropout(0),
                                               config.num_layers)))),
        books(register_module("books", torch::nn::Linear(config.width, num_books))) {}

  torch::Tensor forward(torch::Tensor text) {                                   // [N, L]
    torch::Tensor x = bytes->forward(text) + places.slice(0, 0, text.size(1));  // [N, L, C]
    if (dl::NestedTensor::is_nested(text)) {
      x = encoder->forward(x.transpose(0, 1)).mean(0);  // [L, N, C], then [N, C]
    } else {
      const torch::Tensor padding = text == 0, valid = (text != 0).unsqueeze(2);  // [N, L], [N, L, 1]
      x = encoder->forward(x.transpose(0, 1), {}, padding).transpose(0, 1);       // [N, L, C]
      x = (x * valid).sum(1) / valid.sum(1);
    }
    return books->forward(x);  // [N, 4]
  }

  torch::nn::Embedding bytes;
  torch::Tensor places;
  torch::nn::TransformerEncoder encoder;
  torch::nn::Linear books;
};
TORCH_MODULE(Reader);

class PassageRunner : public dl::TorchRunner {
 public:
  explicit PassageRunner(const PassageConfig& config) : TorchRunner(config) {
    model = Reader(config);
    criterion = torch::nn::CrossEntropyLoss();
    const auto parts = dl::data::random_split(Passages(config.file), {0.9, 0.1}, /*seed=*/0);
    datasets["train"] = parts[0];
    datasets["val"] = parts[1];
    using namespace dl::metrics;
    metrics = multiclass_metrics(num_books, {.mode = Mode::stream},
                                 {multiclass_accuracy(num_books, {.average = Average::micro})});
  }
};

/// Trains on nested and on padded batches, and prints their losses and times beside each other.
void compare(const PassageConfig& config) {
  std::vector<std::vector<double>> losses, accuracies;
  std::vector<double> seconds;
  for (const auto collation : {dl::data::Collation::nested, dl::data::Collation::padded}) {
    PassageConfig own = config;
    own.dataloader.collation = collation;
    own.console = own.record = false;
    PassageRunner runner(own);
    const auto begin = std::chrono::steady_clock::now();
    runner.train();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    losses.emplace_back();
    accuracies.emplace_back();
    for (const auto& row : runner.results().rows()) {
      losses.back().push_back(*row.result.number("train.loss"));
      accuracies.back().push_back(*row.result.number("val.acc"));
    }
    runner.close();
  }
  std::printf("epoch   loss nested   loss padded   difference   accuracy nested   padded\n");
  for (std::size_t epoch = 0; epoch < losses[0].size(); ++epoch) {
    std::printf("%5zu   %11.7f   %11.7f   %10.1e   %15.4f   %6.4f\n", epoch + 1, losses[0][epoch], losses[1][epoch],
                std::abs(losses[0][epoch] - losses[1][epoch]), accuracies[0][epoch], accuracies[1][epoch]);
  }
  std::printf("seconds: %.1f nested, %.1f padded: %.2f times as fast\n", seconds[0], seconds[1],
              seconds[1] / seconds[0]);
}

int main(int argc, char** argv) {
  return dl::run<PassageRunner, PassageConfig>(argc, argv, [](PassageRunner& runner) {
    if (const auto& config = runner.config<PassageConfig>(); config.compare) {
      compare(config);
    } else {
      runner.train();
    }
  });
}
