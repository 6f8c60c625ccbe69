// A small GPT learns Shakespeare's sonnets letter by letter, and writes some lines at the end.
//
//   language_model                                        a loss of 1.85 on held-out sonnets in ten seconds
//   language_model --epochs 20 --temperature 0.5
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <danling/danling.hpp>

#include "gpt.hpp"

namespace dl = danling;

constexpr std::int64_t num_letters = 128;  // ASCII

struct GptConfig : dl::RunnerConfig {
  std::string file = SONNETS;
  std::int64_t width = 64, heads = 4, layers = 2, length = 64, sample = 300;
  double temperature = 0.7;

  GptConfig() {
    seed = 1031;
    num_threads = 1;
    epochs = 6;
    dataloader.batch_size = 8;
    optim.type = "adamw";
    optim.lr = 1e-2;
    sched.type = "cosine";
    sched.scaling = "numerical";
    max_grad_norm = 1.0;
  }

  void fields(dl::Fields& f) override {
    f("file", file, "text to learn").non_semantic();
    f("width", width, "features of a letter");
    f("heads", heads, "attention heads");
    f("layers", layers, "blocks");
    f("length", length, "letters that the model sees");
    f("sample", sample, "letters to write at the end").non_semantic();
    f("temperature", temperature, "divides the logits of the letters to write").non_semantic();
  }
};

torch::Tensor letters_of(const std::string& text) {
  return torch::tensor(std::vector<std::int64_t>(text.begin(), text.end()));
}

class GptRunner : public dl::TorchRunner {
 public:
  explicit GptRunner(const GptConfig& config) : TorchRunner(config) {
    std::ifstream in(config.file, std::ios::binary);
    const auto text = letters_of({std::istreambuf_iterator<char>(in), {}});
    if (text.numel() <= 10 * config.length || text.min().item<int>() < 0) {
      throw dl::DataError("[language_model] expected ASCII text in " + config.file + ", got none");
    }
    // Each piece ends with the first letter of the next one.
    const auto pieces = text.unfold(0, config.length + 1, config.length);
    const std::int64_t held_out = pieces.size(0) / 10;
    const auto dataset = [](const torch::Tensor& part) {
      return dl::data::TensorDataset(part.slice(1, 0, -1), part.slice(1, 1));
    };
    datasets["train"] = dataset(pieces.slice(0, 0, -held_out));
    datasets["val"] = dataset(pieces.slice(0, -held_out));
    model = Gpt(GptOptions{num_letters, config.width, config.heads, config.layers, config.length});
    criterion = torch::nn::CrossEntropyLoss();
  }

  /// `text` and letters that the model draws one by one.
  std::string write(std::string text) {
    const auto& config = this->config<GptConfig>();
    for (std::int64_t i = 0; i < config.sample; ++i) {
      const std::string seen = text.substr(text.size() - std::min<std::size_t>(text.size(), config.length));
      const auto logits = infer_on_batch({.input = letters_of(seen).unsqueeze(0)})[0].select(1, -1);
      text += static_cast<char>((logits / config.temperature).softmax(0).multinomial(1).item<int>());
    }
    return text;
  }
};

int main(int argc, char** argv) {
  return dl::run<GptRunner, GptConfig>(argc, argv, [](GptRunner& runner) {
    runner.train();
    if (runner.is_main_process()) {
      std::puts(runner.write("Shall I compare thee").c_str());
    }
  });
}
