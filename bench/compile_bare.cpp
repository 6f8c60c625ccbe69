// The program of examples/mnist on LibTorch alone: what `./dev bench compile` compares the compile time with.
//
//   bench_compile_bare [folder] [epochs]     reads the four IDX files of MNIST, gzip'd or not; writes digits.pt
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numbers>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <zlib.h>

#include <torch/torch.h>

struct Options {
  std::string root = MNIST_DATA_ROOT;
  double val = 0.1;
  std::int64_t seed = 1031;
  std::int64_t epochs = 20;
  std::int64_t batch_size = 64;
  std::int64_t channels = 16;
  double dropout = 0.25;
  double lr = 3e-3;
};

struct NetImpl : torch::nn::Module {
  explicit NetImpl(const Options& options)
      : conv1(register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, options.channels, 3).padding(1)))),
        conv2(register_module(
            "conv2",
            torch::nn::Conv2d(torch::nn::Conv2dOptions(options.channels, 2 * options.channels, 3).padding(1)))),
        dropout(register_module("dropout", torch::nn::Dropout(options.dropout))),
        fc(register_module("fc", torch::nn::Linear(2 * options.channels * 7 * 7, 10))) {}

  torch::Tensor forward(torch::Tensor x) {                     // [N, 1, 28, 28]
    x = torch::max_pool2d(torch::relu(conv1->forward(x)), 2);  // [N, C, 14, 14]
    x = torch::max_pool2d(torch::relu(conv2->forward(x)), 2);  // [N, 2C, 7, 7]
    return fc->forward(dropout->forward(x.flatten(1)));        // [N, 10]
  }

  torch::nn::Conv2d conv1, conv2;
  torch::nn::Dropout dropout;
  torch::nn::Linear fc;
};
TORCH_MODULE(Net);

// The array of an IDX file of bytes.
torch::Tensor read_idx(const std::string& name) {
  const std::unique_ptr<gzFile_s, decltype(&gzclose)> file(gzopen(name.c_str(), "rb"), gzclose);
  const auto read = [&](void* bytes, std::size_t count) {
    if (file == nullptr || gzread(file.get(), bytes, static_cast<unsigned>(count)) != static_cast<int>(count)) {
      throw std::runtime_error("cannot read " + name);
    }
  };
  const auto number = [&] {
    std::uint8_t b[4];
    read(b, 4);
    return std::int64_t{b[0]} << 24 | std::int64_t{b[1]} << 16 | std::int64_t{b[2]} << 8 | std::int64_t{b[3]};
  };
  const std::int64_t magic = number();
  if (magic >> 8 != 0x08) {
    throw std::runtime_error(name + " is no IDX file of bytes");
  }
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(magic & 0xff));
  std::generate(sizes.begin(), sizes.end(), number);
  torch::Tensor values = torch::empty(sizes, torch::kUInt8);
  read(values.data_ptr(), static_cast<std::size_t>(values.numel()));
  return values;
}

class Digits : public torch::data::datasets::Dataset<Digits> {
 public:
  Digits(torch::Tensor images, torch::Tensor labels) : images_(std::move(images)), labels_(std::move(labels)) {}

  static Digits read(const std::string& root, const std::string& part) {
    const auto images = read_idx(root + "/" + part + "-images-idx3-ubyte.gz");
    const auto labels = read_idx(root + "/" + part + "-labels-idx1-ubyte.gz");
    return {images.to(torch::kFloat).div_(255).unsqueeze_(1), labels.to(torch::kLong)};
  }

  Digits subset(const torch::Tensor& indices) const {
    return {images_.index_select(0, indices), labels_.index_select(0, indices)};
  }

  torch::data::Example<> get(std::size_t index) override {
    const auto i = static_cast<std::int64_t>(index);
    return {images_[i], labels_[i]};
  }
  torch::optional<std::size_t> size() const override { return static_cast<std::size_t>(labels_.size(0)); }

 private:
  torch::Tensor images_, labels_;
};

struct Score {
  double loss = 0, accuracy = 0;
};

template <class Loader>
Score evaluate(Net& net, Loader& loader) {
  const torch::InferenceMode inference;
  net->eval();
  Score sum;
  std::int64_t count = 0;
  for (const auto& batch : loader) {
    const auto output = net->forward(batch.data);
    sum.loss += torch::nn::functional::cross_entropy(
                    output, batch.target, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum))
                    .template item<double>();
    sum.accuracy += output.argmax(1).eq(batch.target).sum().template item<double>();
    count += batch.target.size(0);
  }
  const auto total = static_cast<double>(count);
  return {sum.loss / total, sum.accuracy / total};
}

void save(const Net& net, const torch::optim::Optimizer& optimizer, std::int64_t epoch, const std::string& name) {
  torch::serialize::OutputArchive archive, model, state;
  net->save(model);
  optimizer.save(state);
  archive.write("model", model);
  archive.write("optimizer", state);
  archive.write("epoch", torch::tensor(epoch));
  archive.save_to(name + ".tmp");
  std::rename((name + ".tmp").c_str(), name.c_str());
}

int main(int argc, char** argv) {
  try {
    Options options;
    if (argc > 1) {
      options.root = argv[1];
    }
    if (argc > 2) {
      options.epochs = std::atoll(argv[2]);
    }
    torch::manual_seed(static_cast<std::uint64_t>(options.seed));
    torch::set_num_threads(1);

    const auto digits = Digits::read(options.root, "train");
    const auto order = torch::randperm(static_cast<std::int64_t>(*digits.size()));
    const auto held_out = static_cast<std::int64_t>(options.val * static_cast<double>(order.size(0)));
    const auto prepare = [](Digits part) {
      return std::move(part)
          .map(torch::data::transforms::Normalize<>(0.1307, 0.3081))
          .map(torch::data::transforms::Stack<>());
    };
    const auto batch_size = static_cast<std::size_t>(options.batch_size);
    auto train = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
        prepare(digits.subset(order.narrow(0, held_out, order.size(0) - held_out))), batch_size);
    auto val = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
        prepare(digits.subset(order.narrow(0, 0, held_out))), batch_size);
    auto test = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
        prepare(Digits::read(options.root, "t10k")), batch_size);

    Net net(options);
    torch::nn::CrossEntropyLoss criterion;
    torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(options.lr));
    double best = 0;
    for (std::int64_t epoch = 0; epoch < options.epochs; ++epoch) {
      const double part = static_cast<double>(epoch) / static_cast<double>(options.epochs);
      for (auto& group : optimizer.param_groups()) {
        group.options().set_lr(options.lr * 0.5 * (1 + std::cos(std::numbers::pi * part)));
      }
      net->train();
      double loss_sum = 0;
      std::int64_t steps = 0;
      for (const auto& batch : *train) {
        optimizer.zero_grad();
        const auto loss = criterion(net->forward(batch.data), batch.target);
        loss.backward();
        optimizer.step();
        loss_sum += loss.template item<double>();
        ++steps;
      }
      const Score score = evaluate(net, *val);
      std::printf("epoch %ld/%ld  train loss %.4f  val loss %.4f  val acc %.4f\n", static_cast<long>(epoch + 1),
                  static_cast<long>(options.epochs), loss_sum / static_cast<double>(steps), score.loss, score.accuracy);
      save(net, optimizer, epoch, "digits.pt");
      if (score.accuracy > best) {
        best = score.accuracy;
        save(net, optimizer, epoch, "digits_best.pt");
      }
    }
    const Score score = evaluate(net, *test);
    std::printf("test loss %.4f  test acc %.4f\n", score.loss, score.accuracy);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
