// A small learning problem and a runner for it, shared by the tests of the runner.
#pragma once

#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include <danling/checkpoint/file.hpp>
#include <danling/danling.hpp>

#include <support/catch.hpp>
#include <support/error.hpp>

namespace runner_test {

namespace dl = danling;
namespace fs = std::filesystem;

/// A folder of its own that goes with the test.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "danling-runner-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

struct TinyConfig : dl::RunnerConfig {
  std::int64_t hidden = 8;
  double dropout = 0.5;
  std::int64_t records = 50;
  TinyConfig() {
    seed = 7;
    console = false;
    device = "cpu";
    dataloader.batch_size = 8;
    dataloader.drop_last = false;
    optim.type = "adamw";
    optim.lr = 0.05;
  }
  explicit TinyConfig(const Folder& folder) : TinyConfig() { workspace_root = folder.path().string(); }
  void fields(dl::Fields& f) override {
    f("hidden", hidden, "hidden units");
    f("dropout", dropout, "share of hidden units dropped");
    f("records", records, "training records").non_semantic();
  }
};

/// Classification of points on two arcs: `records` for training, 20 for validation.
inline dl::Batch make_points(std::int64_t records, std::int64_t from) {
  auto angle = torch::arange(from, from + records, torch::kDouble) * 2.399963;
  auto label = torch::arange(from, from + records, torch::kLong) % 3;
  auto radius = 1.0 + label.to(torch::kDouble);
  dl::Batch batch;
  batch.input = torch::stack({radius * angle.cos(), radius * angle.sin(), radius, angle.sin()}, 1).to(torch::kFloat);
  batch.target = label;
  return batch;
}

struct Points {
  dl::Batch all;
  bool training;
  std::int64_t size() const { return all.input.size(0); }
  dl::Batch get_batch(std::span<const std::int64_t> indices) {
    const auto index = torch::tensor(at::ArrayRef<std::int64_t>(indices.data(), indices.size()), torch::kLong);
    dl::Batch batch;
    batch.input = all.input.index_select(0, index);
    batch.target = all.target.index_select(0, index);
    return batch;
  }
  bool train() const { return training; }
};

inline torch::nn::Sequential make_tiny_net(const TinyConfig& config) {
  return torch::nn::Sequential(torch::nn::Linear(4, config.hidden), torch::nn::ReLU(),
                               torch::nn::Dropout(config.dropout), torch::nn::Linear(config.hidden, 3));
}

class TinyRunner : public dl::TorchRunner {
 public:
  explicit TinyRunner(const TinyConfig& config) : TorchRunner(config) {
    model = make_tiny_net(config);
    criterion = torch::nn::CrossEntropyLoss();
    datasets["train"] = Points{make_points(config.records, 0), true};
    datasets["val"] = Points{make_points(20, 1000), false};
    using namespace dl::metrics;
    metrics = multiclass_metrics(3, {.mode = Mode::stream}, {multiclass_accuracy(3, {.average = Average::micro})});
  }
  ~TinyRunner() override { close(); }

  /// Called before each training micro-batch with the number of those before it.
  std::function<void(TinyRunner&, std::int64_t)> before_step;
  std::int64_t micro_batches = 0;

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    if (before_step) {
      before_step(*this, micro_batches);
    }
    ++micro_batches;
    return TorchRunner::train_step(batch);
  }
};

/// The training points as a stream.
struct PointStream {
  dl::Batch all = make_points(50, 0);
  std::int64_t at = 0;
  std::optional<dl::data::Sample> next() {
    if (at == all.size()) {
      return std::nullopt;
    }
    const std::int64_t i = at++;
    return dl::data::Sample{.input = all.input[i], .target = all.target[i]};
  }
  void reset(std::int64_t) { at = 0; }
  dl::State state_dict() const { return at; }
  void load_state_dict(const dl::State& state) { at = state.integer(); }
  bool train() const { return true; }
};

inline std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

/// Appends the warnings that the runner logs from now on.
inline void collect_warnings(dl::BaseRunner& runner, std::vector<std::string>& into) {
  runner.logger().set_sink([&into](dl::LogLevel level, std::string_view text) {
    if (level == dl::LogLevel::warning) {
      into.emplace_back(text);
    }
  });
}

/// What the run logged.
inline std::string logs_of(const fs::path& dir) {
  std::string out;
  for (const auto& entry : fs::directory_iterator(dir / "logs")) {
    out += read_file(entry.path());
  }
  return out;
}

inline std::size_t count(const std::string& text, const std::string& part) {
  std::size_t out = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) {
    ++out;
  }
  return out;
}

/// Epochs that a checkpoint's run had trained.
inline std::int64_t epoch_of(const fs::path& checkpoint) {
  return dl::load_file(checkpoint).at("state").at("train").at("epoch").integer();
}

/// metrics.jsonl without its times and rates, which differ from run to run.
inline std::string metrics_of(const fs::path& dir) {
  std::istringstream in(read_file(dir / "metrics.jsonl"));
  std::string line;
  std::string out;
  while (std::getline(in, line)) {
    out += line.substr(0, std::min(line.find(",\"telemetry\":"), line.rfind('}'))) + "\n";
  }
  return out;
}

/// The files of a run that do not depend on when or where it ran.
struct Outcome {
  dl::State checkpoint;  // what latest.pth holds, without what belongs to an attempt
  std::string metrics;
  std::string results;
};

inline Outcome outcome_of(const fs::path& dir) {
  Outcome out;
  out.checkpoint = dl::load_file(dir / "checkpoints" / "latest.pth");
  for (const auto* key : {"runner"}) {  // holds the folder of the workspace
    out.checkpoint.map().erase(key);
  }
  out.metrics = metrics_of(dir);
  const auto text = read_file(dir / "results.json");
  out.results = text.substr(text.find("\"results\""));
  return out;
}

inline void check_same(const Outcome& a, const Outcome& b) {
  CHECK(dl::first_difference(a.checkpoint, b.checkpoint) == "");
  CHECK(a.metrics == b.metrics);
  CHECK(a.results == b.results);
}

/// Trains to the end; returns the directory of the run.
inline fs::path trained(const TinyConfig& config) {
  TinyRunner runner(config);
  runner.train();
  CHECK(runner.close());
  return runner.workspace().dir();
}

inline Outcome run_through(TinyConfig config) {
  const Folder folder;
  config.workspace_root = folder.path().string();
  return outcome_of(trained(config));
}

}  // namespace runner_test
