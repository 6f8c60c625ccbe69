// Models, data and the measured process of bench/ddp.cpp.
#include "ddp_work.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include <torch/torch.h>

#include <danling/danling.hpp>

namespace dl = danling;

namespace bench {
namespace {

constexpr std::int64_t num_samples = 3840;  // whole batches of 1, 2, 3 and 4 processes
constexpr std::int64_t num_classes = 10;
constexpr std::int64_t vocabulary = 512, length = 32;

torch::nn::Sequential make_mlp(std::vector<std::int64_t> widths) {
  torch::nn::Sequential net;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    if (i > 0) {
      net->push_back(torch::nn::ReLU());
    }
    net->push_back(torch::nn::Linear(widths[i], widths[i + 1]));
  }
  return net;
}

/// A pre-norm encoder layer, with the operations of ddp_peers.py.
struct LayerImpl : torch::nn::Module {
  LayerImpl(std::int64_t width, std::int64_t heads, std::int64_t hidden) : heads_(heads) {
    norm1 = register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    qkv = register_module("qkv", torch::nn::Linear(width, 3 * width));
    out = register_module("out", torch::nn::Linear(width, width));
    norm2 = register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    up = register_module("up", torch::nn::Linear(width, hidden));
    down = register_module("down", torch::nn::Linear(hidden, width));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto parts =
        qkv(norm1(x)).view({x.size(0), x.size(1), 3, heads_, x.size(2) / heads_}).permute({2, 0, 3, 1, 4}).unbind(0);
    const at::Tensor mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
    const at::Tensor y = x + out(mixed.transpose(1, 2).reshape(x.sizes()));
    return y + down(at::gelu(up(norm2(y))));
  }
  torch::nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  torch::nn::Linear qkv{nullptr}, out{nullptr}, up{nullptr}, down{nullptr};
  std::int64_t heads_;
};
TORCH_MODULE(Layer);

struct EncoderImpl : torch::nn::Module {
  EncoderImpl() {
    constexpr std::int64_t width = 128;
    positions = register_parameter("positions", torch::randn({length, width}) * 0.02);
    tokens = register_module("tokens", torch::nn::Embedding(vocabulary, width));
    first = register_module("first", Layer(width, 4, 512));
    second = register_module("second", Layer(width, 4, 512));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    head = register_module("head", torch::nn::Linear(width, num_classes));
  }
  at::Tensor forward(const at::Tensor& input) { return head(norm(second(first(tokens(input) + positions))).mean(1)); }
  at::Tensor positions;
  torch::nn::Embedding tokens{nullptr};
  Layer first{nullptr}, second{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Encoder);

dl::ModelHandle make_model(const std::string& name) {
  torch::manual_seed(1);
  if (name == "encoder") {
    return Encoder();
  }
  return name == "small" ? make_mlp({784, 32, num_classes}) : make_mlp({784, 1024, 1024, num_classes});
}

void write(const at::Tensor& values, std::ofstream& out) {
  const at::Tensor whole = values.detach().contiguous();
  out.write(static_cast<const char*>(whole.const_data_ptr()), static_cast<std::streamsize>(whole.nbytes()));
}

at::Tensor read(const std::string& path, std::int64_t count, at::ScalarType dtype) {
  return at::from_file(path, false, count, at::TensorOptions().dtype(dtype));
}

void read_weights(dl::ModelHandle& model, const std::string& path) {
  const at::NoGradGuard no_grad;
  std::int64_t count = 0;
  for (const auto& [name, param] : model.named_parameters()) {
    count += param.numel();
  }
  const at::Tensor all = read(path, count, at::kFloat);
  std::int64_t at = 0;
  for (const auto& [name, param] : model.named_parameters()) {
    at::Tensor(param).copy_(all.narrow(0, at, param.numel()).view(param.sizes()));
    at += param.numel();
  }
}

/// The samples, repeated, as views: the loader gives each rank a block of each global batch.
struct Samples {
  at::Tensor input, target;
  std::int64_t size() const { return std::int64_t{1} << 40; }
  dl::Batch get_batch(std::span<const std::int64_t> indices) const {
    const auto count = static_cast<std::int64_t>(indices.size());
    dl::Batch batch;
    batch.input = input.narrow(0, indices.front() % num_samples, count);
    batch.target = target.narrow(0, indices.front() % num_samples, count);
    return batch;
  }
};

Samples read_samples(const std::string& workload, const std::string& folder) {
  const bool is_text = workload == "encoder";
  const std::int64_t width = is_text ? length : 784;
  return {read(folder + "/input", num_samples * width, is_text ? at::kLong : at::kFloat).view({num_samples, width}),
          read(folder + "/target", num_samples, at::kLong)};
}

double written_bytes() {
  std::ifstream in("/proc/self/io");
  std::string key;
  double value = 0;
  while (in >> key >> value) {
    if (key == "wchar:") {
      return value;
    }
  }
  return 0;
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

/// Between two steps, waits for the next command; measures the steps of one command.
class CommandLoop {
 public:
  explicit CommandLoop(std::FILE* answers) : answers_(answers) {}

  /// Called before the first shard of each step. @return true if a block begins
  void before_step(const std::vector<at::Tensor>& losses) {
    if (left_ == 0) {
      if (is_open_) {
        answer(losses);
      } else {
        std::fprintf(answers_, "ok\n");
        std::fflush(answers_);
      }
      char line[64];
      if (std::fgets(line, sizeof line, stdin) == nullptr) {
        _exit(0);  // end of the benchmark: all ranks are here
      }
      left_ = std::atoi(line);
      is_open_ = true;
      start();
    }
    --left_;
  }

 private:
  void start() {
    written_ = written_bytes();
    getrusage(RUSAGE_SELF, &used_);
    begin_ = std::chrono::steady_clock::now();
  }
  void answer(const std::vector<at::Tensor>& losses) {
    const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    rusage now;
    getrusage(RUSAGE_SELF, &now);
    double loss = 0;
    for (const at::Tensor& one : losses) {
      loss += one.item().toDouble() / static_cast<double>(losses.size());
    }
    std::fprintf(answers_, "ok %.9g %.9g %.0f %ld %.17g\n", wall,
                 seconds(now.ru_utime) + seconds(now.ru_stime) - seconds(used_.ru_utime) - seconds(used_.ru_stime),
                 written_bytes() - written_, now.ru_nvcsw - used_.ru_nvcsw, loss);
    std::fflush(answers_);
  }

  std::FILE* answers_;
  int left_ = 0;
  bool is_open_ = false;
  double written_ = 0;
  rusage used_ = {};
  std::chrono::steady_clock::time_point begin_;
};

struct DdpBenchConfig : dl::RunnerConfig {
  DdpBenchConfig() {
    seed = 1, steps = 1'000'000'000, num_threads = 1;
    console = log = record = false;
    dataloader.splits["train"].shuffle = false;
  }
  std::string workload, folder;
  void fields(dl::Fields& f) override {
    f("workload", workload, "model and data");
    f("folder", folder, "where their files are");
  }
};

class DdpBenchRunner : public dl::TorchRunner {
 public:
  explicit DdpBenchRunner(const DdpBenchConfig& config) : TorchRunner(config), commands_(answers()) {
    model = make_model(config.workload);
    read_weights(model, config.folder + "/weights");
    criterion = torch::nn::CrossEntropyLoss();
    datasets["train"] = read_samples(config.workload, config.folder);
  }
  static std::FILE*& answers() {
    static std::FILE* out = nullptr;
    return out;
  }

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    const std::int64_t step = state().train.global_step;  // with virtual ranks a step has several batches
    if (step != step_) {
      commands_.before_step(losses_);
      step_ = step;
      losses_.clear();
    }
    auto output = TorchRunner::train_step(batch);
    losses_.push_back(output.loss.detach());
    return output;
  }

 private:
  CommandLoop commands_;
  std::int64_t step_ = -1;
  std::vector<at::Tensor> losses_;
};

}  // namespace

const std::vector<Workload>& workloads() {
  static const std::vector<Workload> all = {
      {"mlp", "784-1024-1024-10, batch 64 a process", 64, 40, 4},
      {"encoder", "encoder of 2 layers, width 128, 32 tokens, batch 16 a process", 16, 40, 4},
      {"small", "784-32-10, batch 64 a process", 64, 1000, 20},
  };
  return all;
}

const Workload& workload(const std::string& name) {
  for (const Workload& one : workloads()) {
    if (one.name == name) {
      return one;
    }
  }
  throw std::runtime_error("expected mlp, encoder or small, got " + name);
}

std::int64_t write_inputs(const std::string& workload, const std::string& folder) {
  std::int64_t bytes = 0;
  auto model = make_model(workload);
  std::ofstream weights(folder + "/weights", std::ios::binary), input(folder + "/input", std::ios::binary),
      target(folder + "/target", std::ios::binary);
  for (const auto& [name, param] : model.named_parameters()) {
    write(param, weights);
    bytes += static_cast<std::int64_t>(param.nbytes());
  }
  torch::manual_seed(2);
  // Classes that a model can learn in part, so that losses fall as in a real run.
  const auto labels = torch::randint(num_classes, {num_samples}, torch::kLong);
  if (workload == "encoder") {
    const auto tokens = torch::randint(vocabulary, {num_samples, length}, torch::kLong);
    tokens.narrow(1, 0, 1).copy_(labels.unsqueeze(1));
    write(tokens, input);
  } else {
    const auto prototypes = torch::randn({num_classes, 784});
    write(prototypes.index_select(0, labels).add_(torch::randn({num_samples, 784}), 4), input);
  }
  write(labels, target);
  if (!weights.flush() || !input.flush() || !target.flush()) {
    throw std::runtime_error("expected to write the inputs to " + folder);
  }
  return bytes;
}

int train_on_command(const std::vector<std::string>& arguments) {
  // Keeps the table of results, which dl::run prints, out of the answers.
  DdpBenchRunner::answers() = fdopen(dup(STDOUT_FILENO), "w");
  const int nowhere = open("/dev/null", O_WRONLY);
  if (DdpBenchRunner::answers() == nullptr || nowhere < 0 || dup2(nowhere, STDOUT_FILENO) < 0) {
    std::perror("bench_ddp");
    return 1;
  }
  std::vector<std::string> words = {"bench_ddp"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (auto& word : words) {
    argv.push_back(word.data());
  }
  return dl::run<DdpBenchRunner, DdpBenchConfig>(static_cast<int>(argv.size()), argv.data());
}

}  // namespace bench
