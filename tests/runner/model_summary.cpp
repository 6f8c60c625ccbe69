// --summary, and the size of the model in the run's metadata.
#include <danling/nn/summary.hpp>

#include "fixture.hpp"
#include "models.hpp"
#include "printed.hpp"

namespace runner_test {
namespace {

std::string metadata_of(const fs::path& run) { return read_file(run / "metadata/model.yaml"); }

template <class Runner>
std::pair<std::string, int> run_with_summary(const Folder& folder) {
  std::vector<std::string> texts = {"program",  "--summary", "true", "--workspace_root", folder.path().string(),
                                    "--epochs", "1"};
  std::vector<char*> arguments;
  for (auto& text : texts) arguments.push_back(text.data());
  int code = -1;
  const std::string text =
      printed_by([&] { code = dl::run<Runner, TinyConfig>(static_cast<int>(arguments.size()), arguments.data()); });
  return {text, code};
}

TEST_CASE("--summary: prints layers, shapes of a batch, parameters, memory and FLOPs, and writes nothing", "[runner]") {
  const Folder folder;
  const auto [text, code] = run_with_summary<TinyRunner>(folder);
  CHECK(code == dl::exit_success);
  CHECK(fs::is_empty(folder.path()));
  CHECK_THAT(text, StartsWith("layer  type     output  parameters  trainable  FLOPs\n"
                              "0      Linear   [8, 8]          40         40    512\n"
                              "1      ReLU     -                -          -      -\n"
                              "2      Dropout  -                -          -      -\n"
                              "3      Linear   [8, 3]          27         27    384\n"
                              "parameters: 67, trainable: 67\n"
                              "memory: parameters 268 B, gradients 268 B, buffers 0 B, outputs of a forward pass "));
  CHECK_THAT(text, EndsWith("\nFLOPs of a forward pass of 8 samples: 896\n"));
}

TEST_CASE("summarize: the model, its mode and the data are as before, and training follows as without", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  TinyRunner plain(config);
  plain.train();
  const Folder other;
  TinyConfig same(other);
  same.epochs = 1;
  TinyRunner summarized(same);
  CHECK(summarized.summarize().flops == 896);
  CHECK(summarized.summarize("val").flops == 896);
  summarized.train();
  CHECK(dl::bitwise_equal(summarized.model.state_dict(), plain.model.state_dict()));
}

TEST_CASE("summarize: leaves a teacher out, which is consulted again afterwards", "[runner]") {
  struct TaughtSummary : TinyRunner {
    explicit TaughtSummary(const TinyConfig& config) : TinyRunner(config) {
      teacher = torch::nn::Sequential(torch::nn::Linear(4, 100), torch::nn::Tanh(), torch::nn::Linear(100, 3));
    }
  };
  const Folder folder;
  TinyConfig config(folder);
  config.distill.weight = 1.0;
  TaughtSummary runner(config);
  const double before = *runner.evaluate({"val"}).number("val.losses.distill.1");
  CHECK(before > 0);
  const auto summary = runner.summarize();
  CHECK(summary.problem == "");
  CHECK(summary.flops == 896);
  CHECK(*runner.evaluate({"val"}).number("val.losses.distill.1") == before);
  TinyRunner alone(TinyConfig{folder});
  // The losses keep a few numbers for each of eight samples, the teacher would a hundred.
  CHECK(summary.output_bytes < alone.summarize().output_bytes + 8 * 50 * 4);
}

TEST_CASE("summarize: of several models, all, each under its name; without a default step, no forward pass",
          "[runner]") {
  const Folder folder;
  GanRunner runner(gan_config(folder));
  const auto summary = runner.summarize();
  std::vector<std::string> names;
  for (const auto& layer : summary.layers) names.push_back(layer.name);
  CHECK(names == std::vector<std::string>{"discriminator.0", "discriminator.1", "discriminator.2", "generator.0",
                                          "generator.1", "generator.2"});
  CHECK(summary.parameters == (40 + 9) + (40 + 36));
  CHECK(summary.batch_size == 0);
  CHECK_THAT(summary.problem,
             ContainsSubstring("expected a model, got none; assign `model`, or check the name in `models[name]`"));
}

TEST_CASE("metadata/model.yaml: parameters and bytes of the model, and of each of several", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.optim.freeze = std::vector<std::string>{"^0\\."};
  CHECK(metadata_of(trained(config)) == "parameters: 67\ntrainable: 27\nparameter_bytes: 268\nbuffer_bytes: 0\n");
  const Folder other;
  GanRunner gan(gan_config(other));
  gan.train();
  CHECK(metadata_of(gan.workspace().dir()) ==
        "parameters: 125\ntrainable: 125\nparameter_bytes: 500\nbuffer_bytes: 0\nmodels:\n"
        "  discriminator:\n    parameters: 49\n    trainable: 49\n    parameter_bytes: 196\n    buffer_bytes: 0\n"
        "  generator:\n    parameters: 76\n    trainable: 76\n    parameter_bytes: 304\n    buffer_bytes: 0\n");
}

}  // namespace
}  // namespace runner_test
