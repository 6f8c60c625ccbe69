// A small GPT learns Shakespeare's sonnets, letter by letter, on any grid of processes.
//
//   language_model_parallel                                                      one process
//   danling launch -n 2 -- language_model_parallel --parallel.axes.tensor 2      two, each with half of each layer
//   danling launch -n 8 -- language_model_parallel --config 3d.yaml              shard x tensor x pipeline
//
// README.md lists expected results and compares the grids.
#include <array>
#include <fstream>
#include <iterator>

#include "gpt.hpp"

struct GptConfig : dl::RunnerConfig {
  std::string file = SONNETS;
  std::int64_t width = 64, heads = 4, layers = 4, length = 64;
  double dropout = 0.0;
  std::int64_t experts = 0;

  GptConfig() {
    stack = "parallel";
    seed = 1031;
    epochs = 4;
    dataloader.batch_size = 16;
    optim.type = "adamw";
    optim.lr = 2e-3;
    max_grad_norm = 1.0;
    parallel.pipeline_microbatch_size = 2;
  }

  void fields(dl::Fields& f) override {
    f("file", file, "text to learn").non_semantic();
    f("width", width, "features of a token");
    f("heads", heads, "attention heads");
    f("layers", layers, "blocks");
    f("length", length, "letters of a sample");
    f("dropout", dropout, "of the blocks' results");
    f("experts", experts, "number per block, two of which process each letter; 0: an MLP");
  }
};

/// Pieces of a text, and the next letter for each of their letters.
struct Letters {
  torch::Tensor text;  // int64
  std::int64_t length, first, count;

  std::int64_t size() const { return count; }
  dl::data::Sample get(std::int64_t index) const {
    const auto piece = text.narrow(0, (first + index) * length, length + 1);
    return {.input = piece.slice(0, 0, -1), .target = piece.slice(0, 1)};
  }
  bool train() const { return first == 0; }
};

class GptRunner : public dl::ParallelRunner {
 public:
  explicit GptRunner(const GptConfig& config) : ParallelRunner(config) {
    std::ifstream in(config.file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    std::array<std::int64_t, 256> number{};
    for (const unsigned char letter : text) {
      number[letter] = 1;
    }
    std::int64_t letters = 0;
    for (auto& one : number) {
      one = one == 0 ? 0 : letters++;
    }
    auto tokens = torch::empty({std::ssize(text)}, torch::kLong);
    std::transform(text.begin(), text.end(), tokens.data_ptr<std::int64_t>(),
                   [&](unsigned char letter) { return number[letter]; });
    const std::int64_t pieces = (tokens.size(0) - 1) / config.length, held_out = pieces / 10;
    datasets["train"] = Letters{tokens, config.length, 0, pieces - held_out};
    datasets["val"] = Letters{tokens, config.length, pieces - held_out, held_out};
    const gpt::Gpt network(gpt::GptOptions{letters, config.width, config.heads, config.layers, config.length,
                                           config.dropout, config.experts});
    model = network;
    criterion = torch::nn::CrossEntropyLoss();
    if (config.experts > 0) {
      if (config.parallel.axes.pipeline != 1) {
        throw dl::ConfigError(
            "[gpt] expected 'experts: 0' with 'parallel.axes.pipeline', since the stage that computes the loss lacks "
            "some experts; got " +
            std::to_string(config.experts));
      }
      criterion = [network](const at::Tensor& logits, const at::Tensor& targets) {
        const auto loss = torch::nn::functional::cross_entropy(logits, targets);
        return network->is_training() ? loss + network->auxiliary_loss() : loss;
      };
    }
  }
};

int main(int argc, char** argv) {
  // Stages by name, for parallel.module_fqns_per_model_part.
  dl::parallel::register_stage_type<gpt::EmbeddingImpl>();
  dl::parallel::register_stage_type<gpt::BlockImpl>();
  dl::parallel::register_stage_type<gpt::HeadImpl>();
  return dl::run<GptRunner, GptConfig>(argc, argv);
}
