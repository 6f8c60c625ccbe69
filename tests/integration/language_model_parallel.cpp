// The GPT on grids of processes by config alone: equal losses, and one clear line for each mistake.
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <support/catch.hpp>
#include <support/cuda.hpp>
#include <support/temp_dir.hpp>

#if defined(DANLING_COMMAND_BINARY) && defined(DANLING_LANGUAGE_MODEL_BINARY)

#include <apps/command.hpp>

namespace integration {

using danling_test::CommandResult;
using danling_test::TempDir;
using Words = std::vector<std::string>;

/// Some updates of a model of 4 small blocks on `processes`; also `config`, a file beside the example.
CommandResult train_gpt(const TempDir& directory, int processes, const std::string& config, const Words& options = {}) {
  Words words = {"launch",
                 "-n",
                 std::to_string(processes),
                 "--",
                 DANLING_LANGUAGE_MODEL_BINARY,
                 "--workspace_root",
                 directory.path().string(),
                 "--num_threads",
                 "1",
                 "--width",
                 "32",
                 "--steps",
                 "6"};
  if (!config.empty()) {
    words.insert(words.end(), {"--config", std::string(DANLING_SOURCE_DIR) + "/examples/language_model_parallel/" +
                                               config + ".yaml"});
  }
  words.insert(words.end(), options.begin(), options.end());
  return danling_test::run_danling(words, {}, 280);
}

/// Of the training pass and of the validation.
std::vector<double> losses_of(int processes, const std::string& config, const Words& options = {}) {
  const TempDir directory;
  const CommandResult result = train_gpt(directory, processes, config, options);
  INFO(config << "\n" << result.out << result.err);
  REQUIRE(result.code == 0);
  std::vector<double> out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory.path())) {
    if (entry.path().filename() == "latest.json") {
      const auto last = nlohmann::json::parse(std::ifstream(entry.path()));
      out = {last.at("train").at("loss").get<double>(), last.at("val").at("loss").get<double>()};
    }
  }
  REQUIRE(out.size() == 2);
  return out;
}

void check_equal(const std::vector<double>& losses, const std::vector<double>& expected) {
  // float32: sums of other orders, over 6 updates.
  CHECK(losses[0] == Approx(expected[0]).epsilon(1e-5));
  CHECK(losses[1] == Approx(expected[1]).epsilon(1e-5));
}

TEST_CASE("language_model_parallel: losses on every grid are those of one process", "[gpt]") {
  const auto expected = losses_of(1, "one");
  CHECK(expected[1] < 4.1);  // of about 60 letters, each alike: ln(60)
  for (const auto& [config, processes] : std::vector<std::pair<std::string, int>>{{"shard", 2},
                                                                                  {"tensor", 2},
                                                                                  {"context", 2},
                                                                                  {"pipeline", 2},
                                                                                  {"interleaved", 2},
                                                                                  {"hybrid", 4},
                                                                                  {"3d", 8}}) {
    INFO(config);
    check_equal(losses_of(processes, config), expected);
  }
}

TEST_CASE("language_model_parallel: grids on a GPU, through the host, have the losses of one process there",
          "[gpt][cuda]") {
  if (!danling_test::has_cuda_device()) {
    return;
  }
  const Words device = {"--device", "cuda:0"};  // of all processes
  const auto expected = losses_of(1, "one", device);
  for (const auto& [config, processes] : std::vector<std::pair<std::string, int>>{
           {"shard", 2}, {"tensor", 2}, {"context", 2}, {"pipeline", 2}, {"hybrid", 4}}) {
    INFO(config);
    const auto losses = losses_of(processes, config, device);
    CHECK(losses[0] == Approx(expected[0]).epsilon(1e-4));
    CHECK(losses[1] == Approx(expected[1]).epsilon(1e-4));
  }
}

TEST_CASE("language_model_parallel: experts on two processes are those of one", "[gpt]") {
  check_equal(losses_of(2, "experts"), losses_of(1, "one_experts"));
}

TEST_CASE("language_model_parallel: a pipeline draws a measured step once", "[gpt]") {
  const TempDir directory;
  const auto result = train_gpt(directory, 2, "pipeline", {"--parallel.draw_pipeline", "true"});
  REQUIRE(result.code == 0);
  const std::string& out = result.out;
  const auto at = out.find("pipeline, training step 3: 1F1B: 2 stages on 2 ranks, 8 micro-batches");
  REQUIRE(at != std::string::npos);
  CHECK(out.find("pipeline, training step", at + 1) == std::string::npos);
  CHECK(out.find("bubble 11.1 % predicted, ", at) != std::string::npos);
  CHECK(out.find(" % measured; live activations 2 1", at) != std::string::npos);
}

TEST_CASE("language_model_parallel: a mistake is one clear line of each process", "[gpt]") {
  const Words halves = {"--parallel.axes.pipeline", "2", "--parallel.module_fqns_per_model_part"};
  const auto stages = [&](const std::string& names, Words more = {}) {
    Words out = halves;
    out.push_back(names);
    out.insert(out.end(), more.begin(), more.end());
    return out;
  };
  const std::string good = R"(["embedding, blocks.0, blocks.1", "blocks.2, blocks.3, head"])";
  struct Mistake {
    Words options;
    std::string error;
  };
  for (const Mistake& mistake : std::vector<Mistake>{
           {{"--parallel.axes.tensor", "3"},
            "[parallel.topology] expected axes of the grid (parallel.axes) that multiply to the 2 processes, got "},
           {{"--parallel.axes.pipeline", "2"},
            "[runner.build_pipeline_model_part] expected 'parallel.module_fqns_per_model_part', a model that is a "},
           {stages(R"(["embedding, blocks.0, blocks.1", "blocks.2, blocks.5, head"])"),
            "[pipeline.split] expected names of modules in the model, got \"blocks.5\"; the model's children: "},
           {stages(R"(["embedding, blocks.0, blocks.1", "blocks.2, head"])"),
            "expected each parameter in a stage of 'parallel.module_fqns_per_model_part', got none for "
            "blocks.3.norm1.weight and 11 more"},
           {stages(R"(["embedding, blocks.0, blocks.1, blocks.2", "blocks.2, blocks.3, head"])"),
            "[pipeline.split] expected each parameter in one stage, got blocks.2.norm1.weight in the stages 0 and 1"},
           {stages(good, {"--dataloader.batch_size", "15"}),
            "expected 'dataloader.batch_size' (15) to be a multiple of 'parallel.pipeline_microbatch_size' (2), got a "
            "remainder of 1"},
           {stages(good, {"--checkpoint.backend", "file"}),
            "expected 'checkpoint.backend: dcp', or auto, where ranks have slices or stages of the model, got file"},
           {stages(good, {"--experts", "4"}), "[gpt] expected 'experts: 0' with 'parallel.axes.pipeline'"},
           {{"--stack", "ddp", "--parallel.axes.tensor", "2"},
            "[config.validate] expected 'stack: fsdp' or 'parallel' with 'parallel.axes', got ddp"},
           {{"--parallel.axes.tensor", "2", "--width", "66"},
            "[parallel.column_linear] expected out_features in whole units, got 198 in units of 48"},
           {{"--parallel.axes.tensor", "2", "--parallel.tensor_plan", "qkv$=colwise:unit=3x"},
            "[runner.parallelize_model] expected gather_output, whole_input, sequence_parallel or unit=<number> behind "
            "a style in 'parallel.tensor_plan', got 'unit=3x'"},
           {{"--parallel.axes.tensor", "2", "--parallel.draw_pipeline", "true"},
            "[config.validate] expected 'parallel.axes.pipeline' above 1 with 'parallel.draw_pipeline', got 1"},
       }) {
    INFO(mistake.error);
    const TempDir directory;
    const auto result = train_gpt(directory, 2, "", mistake.options);
    INFO(result.out << result.err);
    CHECK(result.code == 2);
    std::istringstream lines(result.err);
    int errors = 0;
    for (std::string line; std::getline(lines, line);) {
      const bool is_error = line.find("] error: ") == 2;  // "[0] error: "
      errors += is_error ? 1 : 0;
      CHECK((!is_error || line.find(mistake.error) != std::string::npos));
    }
    CHECK((errors == 1 || errors == 2));  // the launcher may end the other process before it writes
  }
}

#ifdef DANLING_MNIST_BINARY
TEST_CASE("mnist: a model that is no Parallelizable cannot be cut along tensor", "[gpt]") {
  const TempDir directory;
  const auto result =
      danling_test::run_danling({"launch", "-n", "2", "--", DANLING_MNIST_BINARY, "--workspace_root",
                                 directory.path().string(), "--stack", "parallel", "--parallel.axes.tensor", "2"});
  CHECK(result.code == 2);
  CHECK(result.err.find("[runner.parallelize_model] expected a model that is cut along the axes tensor, got NetImpl, "
                        "which is not a danling::parallel::Parallelizable; implement parallelize(context) there, "
                        "override parallelize_model(), or set parallel.tensor_plan") != std::string::npos);
}
#endif

TEST_CASE("language_model_parallel: processes that would all compute the same are named", "[gpt]") {
  const TempDir directory;
  const auto result = train_gpt(directory, 2, "", {"--parallel.axes.expert", "2"});
  CHECK(result.code == 0);
  CHECK((result.out + result.err)
            .find("expected a model that is cut along the axis expert, got none of its parameters: the 2 processes of "
                  "'parallel.axes.expert' compute the same") != std::string::npos);
}

}  // namespace integration

#endif
