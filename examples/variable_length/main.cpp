// Predicts the book of a passage: a transformer reads 2,400 passages of 2 to 110 words, without padding.
//
//   variable_length                                 about 80 % of the held-out passages in 12 seconds
//   variable_length --dataloader.collation padded   the same model on padded batches
//   variable_length --compare true                  both, and a table of their losses and times
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>

#include <torch/torch.h>

#include <danling/danling.hpp>

namespace dl = danling;

constexpr std::int64_t longest = 256, num_words = 4096, num_books = 4;

struct PassageConfig : dl::RunnerConfig {
  std::string file = PASSAGES;
  std::int64_t width = 64, num_layers = 2, num_heads = 4;
  bool compare = false;

  PassageConfig() {
    seed = 1031;
    epochs = 6;
    score_name = "acc";
    dataloader.batch_size = 32;
    dataloader.collation = dl::data::Collation::nested;  // the only line that nested batches need
    optim.type = "adamw";
    optim.lr = 1e-3;
  }

  void fields(dl::Fields& f) override {
    f("file", file, "lines of label, title and passage").non_semantic();
    f("width", width, "features of a word");
    f("num_layers", num_layers, "layers of the encoder");
    f("num_heads", num_heads, "attention heads");
    f("compare", compare, "train on nested and on padded batches, and print a table").non_semantic();
  }
};

/// Maps a word to a number from 1, by the FNV-1a hash of its letters; 0 is padding.
torch::Tensor words_of(const std::string& text) {
  std::vector<std::int64_t> out;
  std::uint32_t hash = 0;
  for (const char letter : text + ' ') {
    if (std::isalpha(static_cast<unsigned char>(letter)) != 0) {
      hash = ((hash == 0 ? 2166136261U : hash) ^ static_cast<unsigned char>(std::tolower(letter))) * 16777619U;
    } else if (hash != 0) {
      out.push_back(1 + hash % (num_words - 1));
      hash = 0;
    }
  }
  return torch::tensor(out);
}

/// Words of a passage, and the number of its book.
class Passages {
 public:
  explicit Passages(const std::string& file) {
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
      texts_.push_back(words_of(line.substr(line.rfind('\t') + 1)));
      labels_.push_back(std::stoll(line));
    }
    if (texts_.empty()) {
      throw dl::DataError("[passages] expected lines of text in " + file + ", got none");
    }
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
      : words(register_module("words", torch::nn::Embedding(num_words, config.width))),
        places(register_parameter("places", torch::randn({longest, config.width}) * 0.1)),
        encoder(register_module("encoder", torch::nn::TransformerEncoder(torch::nn::TransformerEncoderOptions(
                                               torch::nn::TransformerEncoderLayerOptions(config.width, config.num_heads)
                                                   .dim_feedforward(4 * config.width)
                                                   .dropout(0),
                                               config.num_layers)))),
        books(register_module("books", torch::nn::Linear(config.width, num_books))) {}

  torch::Tensor forward(torch::Tensor text) {                                   // [N, L]
    torch::Tensor x = words->forward(text) + places.slice(0, 0, text.size(1));  // [N, L, C]
    if (dl::NestedTensor::is_nested(text)) {
      x = encoder->forward(x.transpose(0, 1)).mean(0);  // [L, N, C], then [N, C]
    } else {
      const torch::Tensor padding = text == 0, valid = (text != 0).unsqueeze(2);  // [N, L], [N, L, 1]
      x = encoder->forward(x.transpose(0, 1), {}, padding).transpose(0, 1);       // [N, L, C]
      x = (x * valid).sum(1) / valid.sum(1);
    }
    return books->forward(x);  // [N, 4]
  }

  torch::nn::Embedding words;
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
    metrics = dl::accuracy_metrics(num_books);
  }
};

/// Trains on nested and on padded batches, and prints their losses and times side by side.
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
      losses.back().push_back(row.result.at("train.loss"));
      accuracies.back().push_back(row.result.at("val.acc"));
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
