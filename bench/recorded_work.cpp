// Models, data, loops and the counted process of bench/recorded.cpp.
#include "recorded_work.hpp"

#include <dlfcn.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <stdexcept>

#include <torch/torch.h>

#include <danling/danling.hpp>

#include "tables.hpp"

namespace dl = danling;

namespace bench::recorded {
namespace {

constexpr std::int64_t num_classes = 10;
constexpr std::int64_t vocabulary = 512, length = 16, width = 128;

/// Number of the runner's steps that were replayed.
std::int64_t replayed_steps(const dl::TorchRunner& runner) { return runner.compile_report().replayed; }

// ---- models ---------------------------------------------------------------------------------------------------------

/// The network of examples/mnist.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    conv1 = register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 16, 3).padding(1)));
    conv2 = register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 32, 3).padding(1)));
    dropout = register_module("dropout", torch::nn::Dropout(0.25));
    fc = register_module("fc", torch::nn::Linear(32 * 7 * 7, num_classes));
  }
  at::Tensor forward(at::Tensor x) {                           // [N, 1, 28, 28]
    x = torch::max_pool2d(torch::relu(conv1->forward(x)), 2);  // [N, 16, 14, 14]
    x = torch::max_pool2d(torch::relu(conv2->forward(x)), 2);  // [N, 32, 7, 7]
    return fc->forward(dropout->forward(x.flatten(1)));        // [N, 10]
  }
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::Dropout dropout{nullptr};
  torch::nn::Linear fc{nullptr};
};
TORCH_MODULE(Net);

struct EncoderImpl : torch::nn::Module {
  EncoderImpl() {
    const auto layer = torch::nn::TransformerEncoderLayerOptions(width, 4).dim_feedforward(512).dropout(0.1);
    tokens = register_module("tokens", torch::nn::Embedding(vocabulary, width));
    encoder = register_module("encoder", torch::nn::TransformerEncoder(torch::nn::TransformerEncoderLayer(layer), 4));
    head = register_module("head", torch::nn::Linear(width, num_classes));
  }
  at::Tensor forward(const at::Tensor& input) {  // [N, T]
    return head->forward(encoder->forward(tokens->forward(input.t())).mean(0));
  }
  torch::nn::Embedding tokens{nullptr};
  torch::nn::TransformerEncoder encoder{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Encoder);

struct Model {
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(const at::Tensor&)> forward;
  dl::ModelHandle handle;
};

template <class Holder>
Model as_model(Holder net) {
  return {net.ptr(), [net](const at::Tensor& input) mutable { return net->forward(input); }, net};
}

Model make_model(const Work& work) {
  torch::manual_seed(1);
  if (work.model == "encoder") {
    return as_model(Encoder());
  }
  if (work.model == "net") {
    return as_model(Net());
  }
  return as_model(torch::nn::Sequential(torch::nn::Linear(784, work.hidden), torch::nn::ReLU(),
                                        torch::nn::Linear(work.hidden, num_classes)));
}

// ---- loops ----------------------------------------------------------------------------------------------------------

/// A bare loop, with either library's optimizer.
template <class Optimizer>
class BareLoop final : public Loop {
 public:
  BareLoop(const Data& data, Model model, std::shared_ptr<Optimizer> optimizer)
      : Loop(data), model_(std::move(model)), optimizer_(std::move(optimizer)) {
    model_.module->train();
  }

 private:
  float step(const Data::Batch& batch) override {
    optimizer_->zero_grad();
    const at::Tensor loss = torch::nn::functional::cross_entropy(model_.forward(batch.input), batch.target);
    loss.backward();
    optimizer_->step();
    return *loss.const_data_ptr<float>();
  }

  Model model_;
  std::shared_ptr<Optimizer> optimizer_;
};

template <class Optimizer>
std::unique_ptr<Loop> make_bare(const Data& data, const Model& model, std::shared_ptr<Optimizer> optimizer) {
  return std::make_unique<BareLoop<Optimizer>>(data, model, std::move(optimizer));
}

std::unique_ptr<Loop> make_torch_loop(const Work& work, const Data& data) {
  const Model model = make_model(work);
  const auto params = model.module->parameters();
  if (work.optim == "sgd") {
    return make_bare(data, model, std::make_shared<torch::optim::SGD>(params, torch::optim::SGDOptions(work.lr)));
  }
  return make_bare(data, model, std::make_shared<torch::optim::AdamW>(params, torch::optim::AdamWOptions(work.lr)));
}

std::unique_ptr<Loop> make_bare_loop(const Work& work, const Data& data) {
  const Model model = make_model(work);
  const auto params = model.module->parameters();
  if (work.optim == "sgd") {
    return make_bare(data, model, dl::optim::sgd(params, {.lr = work.lr}));
  }
  return make_bare(data, model, dl::optim::adamw(params, {.lr = work.lr}));
}

struct BenchConfig : dl::RunnerConfig {
  BenchConfig() {
    seed = 1;
    device = "cpu";
    console = log = record = false;
    log_interval = 1'000'000'000;
    checkpoint.load_only = true;
  }
  void fields(dl::Fields&) override {}
};

BenchConfig make_config(const Work& work, const std::string& folder, bool recorded) {
  BenchConfig config;
  config.workspace_root = folder;
  config.optim.type = work.optim;
  config.optim.lr = work.lr;
  config.compile.enable = recorded;
  return config;
}

class BenchRunner final : public dl::TorchRunner {
 public:
  BenchRunner(const BenchConfig& config, const Work& work) : TorchRunner(config) {
    model = make_model(work).handle;
    criterion = torch::nn::CrossEntropyLoss();
  }
  ~BenchRunner() override { close(); }
};

class RunnerLoop final : public Loop {
 public:
  RunnerLoop(const Work& work, const Data& data, const std::string& folder, bool recorded)
      : Loop(data), runner_(make_config(work, folder, recorded), work), recorded_(recorded) {
    runner_.initialize();
  }

  std::int64_t replayed() const override { return recorded_ ? replayed_steps(runner_) : 0; }

 private:
  float step(const Data::Batch& given) override {
    dl::Batch batch;
    batch.input = given.input;
    batch.target = given.target;
    return *runner_.train_on_batch(std::move(batch)).loss.const_data_ptr<float>();
  }

  BenchRunner runner_;
  bool recorded_;
};

// ---- the counted process --------------------------------------------------------------------------------------------

/// A value of /proc/self/status, in bytes.
double status_bytes(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string word; in >> word;) {
    if (word == key + ":") {
      double kilobytes = 0;
      in >> kilobytes;
      return 1024 * kilobytes;
    }
  }
  give_up("expected " + key + " in /proc/self/status, found none");
}

void write(const at::Tensor& values, const std::string& path) {
  const at::Tensor whole = values.detach().contiguous();
  std::ofstream out(path, std::ios::binary | std::ios::app);
  out.write(static_cast<const char*>(whole.const_data_ptr()), static_cast<std::streamsize>(whole.nbytes()));
  if (!out.flush()) {
    give_up("expected to write " + path);
  }
}

Work mlp(std::int64_t hidden, std::int64_t batch_size) {
  Work work;
  work.name = "mlp" + std::to_string(hidden) + (batch_size == 64 ? "" : "-" + std::to_string(batch_size));
  work.title = "784-" + std::to_string(hidden) + "-10, batch " + std::to_string(batch_size) + ", SGD";
  work.model = "mlp";
  work.hidden = hidden;
  work.batch_size = batch_size;
  return work;
}

}  // namespace

const std::vector<Work>& works() {
  static const std::vector<Work> all = {
      mlp(16, 64),
      mlp(32, 64),
      mlp(128, 64),
      mlp(512, 64),
      mlp(16, 8),
      mlp(32, 8),
      {"net", "net of examples/mnist, batch 64, dropout, AdamW", "net", 0, 64, "adamw", 3e-3, 8, 14, true},
      {"encoder", "encoder of 4 layers, width 128, 32 x 16 tokens, dropout, AdamW", "encoder", 0, 32, "adamw", 1e-3, 8,
       14, true},
  };
  return all;
}

const Work& work(const std::string& name) {
  std::string names;
  for (const Work& one : works()) {
    if (one.name == name) {
      return one;
    }
    names += (names.empty() ? "" : ", ") + one.name;
  }
  give_up("expected one of " + names + ", got " + name);
}

Data make_data(const Work& work) {
  torch::manual_seed(2);
  const std::int64_t num_samples = work.batch_size * (work.batch_size < 64 ? 512 : 256);
  // Classes that a model can learn in part, so that losses fall as in a real run.
  Data data;
  data.target = torch::randint(num_classes, {num_samples}, torch::kLong);
  if (work.model == "encoder") {
    data.input = torch::randint(vocabulary, {num_samples, length}, torch::kLong);
    data.input.narrow(1, 0, 1).copy_(data.target.unsqueeze(1));
  } else {
    const at::Tensor prototypes = torch::randn({num_classes, 784});
    data.input = prototypes.index_select(0, data.target).add_(torch::randn({num_samples, 784}), 2);
  }
  if (work.model == "net") {
    data.input = data.input.view({num_samples, 1, 28, 28});
  }
  for (std::int64_t first = 0; first < num_samples; first += work.batch_size) {
    data.batches.push_back(
        {data.input.narrow(0, first, work.batch_size), data.target.narrow(0, first, work.batch_size)});
  }
  return data;
}

void write_inputs(const Work& work, const Data& data, const std::string& folder) {
  write(data.input, folder + "/input");
  write(data.target, folder + "/target");
  auto params = make_model(work).module->named_parameters().pairs();
  std::sort(params.begin(), params.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [name, param] : params) {
    write(param, folder + "/weights");
  }
}

Loop::Loop(const Data& data) : data_(data) {
  torch::manual_seed(3);
  generator_state_ = at::globalContext().defaultGenerator(at::kCPU).get_state();
}

Loop::~Loop() = default;

double Loop::train(int steps) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_state(generator_state_);
  const double seconds = seconds_of([&] {
    for (int i = 0; i < steps; ++i, ++step_) {
      losses.push_back(step(data_.batches[step_ % data_.batches.size()]));
    }
  });
  generator_state_ = generator.get_state();
  return seconds / steps;
}

std::unique_ptr<Loop> make_loop(Kind kind, const Work& work, const Data& data, const std::string& folder,
                                std::int64_t num_steps) {
  auto loop = kind == Kind::torch_optim ? make_torch_loop(work, data)
              : kind == Kind::bare      ? make_bare_loop(work, data)
                                        : std::make_unique<RunnerLoop>(work, data, folder, kind == Kind::recorded);
  loop->losses.reserve(static_cast<std::size_t>(num_steps));
  return loop;
}

void set_up_process() {
  mallopt(M_MMAP_THRESHOLD, 32 * 1024 * 1024);
  mallopt(M_TRIM_THRESHOLD, 2'145'386'496);
  torch::set_num_threads(1);
}

int count(Kind kind, const Work& work, const std::string& folder, bool quick) {
  set_up_process();
  const Data data = make_data(work);
  {
    // Loads the code from disk first: its memory is not that of a step.
    Work less = work;
    less.batch_size = 2;
    const Data few = make_data(less);
    make_loop(Kind::eager, less, few, folder, 2)->train(2);
  }
  const int later = (quick ? 1 : 4) * work.block_steps;
  const int steps = first_steps(quick);
  // The first loop measures the time, the second the memory: then the code of recorded steps is already loaded.
  const double first = make_loop(kind, work, data, folder, steps)->train(steps) * steps;
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << 5;  // resets the peak to the resident memory
  const double before = status_bytes("VmRSS");
  const auto loop = make_loop(kind, work, data, folder, steps + later);
  loop->train(steps);
  using Count = std::int64_t (*)();
  const auto allocations = reinterpret_cast<Count>(dlsym(RTLD_DEFAULT, "bench_allocations"));
  const std::int64_t allocated = allocations != nullptr ? allocations() : 0;
  const std::int64_t replayed = loop->replayed();
  const double step = loop->train(later);
  std::printf("%.9g %.9g %.9g %.9g %.9g\n", first, step,
              allocations != nullptr ? static_cast<double>(allocations() - allocated) / later : -1,
              status_bytes("VmHWM") - before, static_cast<double>(loop->replayed() - replayed) / later);
  return 0;
}

Counts read_counts(std::FILE* in) {
  Counts counts;
  if (in == nullptr || std::fscanf(in, "%lf %lf %lf %lf %lf", &counts.first_seconds, &counts.step_seconds,
                                   &counts.allocations, &counts.growth, &counts.replayed_share) != 5) {
    give_up("expected five counts of a process, got none");
  }
  return counts;
}

}  // namespace bench::recorded
