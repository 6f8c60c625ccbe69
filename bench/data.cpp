// Loaders compared with torch.utils.data.DataLoader and LibTorch's; text files with pandas, pyarrow and Python's json:
// ./dev bench data [--rounds N] [--quick].
//
// In every round each contestant of a table does its work once, in a rotating order; a ratio is the median of the
// ratios per round. First, all contestants deliver an epoch, and the sums of images and labels are compared. Python
// runs bench/data_peers.py in the interpreter of DANLING_PYTHON; without it, its rows are skipped.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/transforms/stack.h>
#include <torch/data/transforms/tensor.h>

#include <danling/checkpoint/file.hpp>
#include <danling/data/loader.hpp>
#include <danling/data/tensor_dataset.hpp>

#include "data_work.hpp"
#include "peers.hpp"
#include "tables.hpp"

namespace {

namespace dl = danling;
namespace fs = std::filesystem;
using bench::Contestant;
using bench::give_up;
using bench::Peers;
using bench::seconds_of;
using bench::Table;

constexpr std::int64_t kBatch = 64;
constexpr std::int64_t kPixels = 28 * 28;
constexpr double kMean = 0.1307;
constexpr double kStd = 0.3081;

/// Sums over an epoch.
struct Sums {
  double images = 0;
  double labels = 0;
  void add(const at::Tensor& input, const at::Tensor& target) {
    images += input.sum(at::kDouble).item<double>();
    labels += target.sum().item<double>();
  }
};

/// Like LibTorch's MNIST: images in [0, 1] as float32, one example at a time.
class Examples : public torch::data::datasets::Dataset<Examples> {
 public:
  Examples(at::Tensor images, at::Tensor labels) : images_(std::move(images)), labels_(std::move(labels)) {}
  torch::data::Example<> get(std::size_t index) override {
    return {images_[static_cast<std::int64_t>(index)], labels_[static_cast<std::int64_t>(index)]};
  }
  std::optional<std::size_t> size() const override { return images_.size(0); }

 private:
  at::Tensor images_;
  at::Tensor labels_;
};

class FromMemory {
 public:
  FromMemory(std::int64_t records, std::int64_t epochs) : records_(records), epochs_(epochs) {
    at::manual_seed(0);
    // Sparse, like images of digits.
    images_ = at::randint(0, 256, {records, 1, 28, 28}, at::kByte) * (at::rand({records, 1, 28, 28}) < 0.2);
    labels_ = at::randint(0, 10, {records}, at::kLong);
    dl::data::TensorDatasetOptions options;
    options.input_transform = dl::data::Affine{1.0 / (255.0 * kStd), -kMean / kStd};
    dataset_ = std::make_shared<dl::data::TensorDataset>(images_, labels_, options);
    start_peers();
  }

  Peers* peers() { return peers_.get(); }

  Table table() {
    Table table;
    table.title = "MNIST's images from memory, batches of 64, shuffled";
    table.unit = "samples/s";
    table.work = static_cast<double>(records_);
    table.contestants.push_back(ours("danling (C++)", 0));
    table.contestants.push_back(ours("danling (C++), 2 workers", 2));
    table.contestants.push_back(plain("plain: normalise 64 images in a row into one buffer", false));
    table.contestants.push_back(plain("plain: memcpy of 64 images in a row, then normalise", true));
    table.contestants.push_back(libtorch("LibTorch torch::data::DataLoader", 0));
    table.contestants.push_back(libtorch("LibTorch torch::data::DataLoader, 2 workers", 2));
    table.contestants.push_back(python("torch.utils.data.DataLoader", 0));
    table.contestants.push_back(python("torch.utils.data.DataLoader, 2 workers", 2));
    for (std::size_t i : {6, 7}) {
      table.targets.push_back({.of = 0, .to = {i}, .least = 20});
    }
    table.targets.push_back({.of = 0, .to = {4}});
    table.targets.push_back({.of = 1, .to = {5}});
    table.targets.push_back({.of = 0, .to = {2, 3}, .least = 0.5});
    return table;
  }

 private:
  void start_peers() {
    const std::string python = bench::python_of_peers(DANLING_PYTHON);
    if (python.empty()) {
      return;
    }
    std::string folder = (fs::temp_directory_path() / "danling-bench-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) {
      give_up("expected to create a directory in " + fs::temp_directory_path().string());
    }
    const std::string file = folder + "/data.pth";
    dl::save_file(dl::State::Map{{"images", images_}, {"labels", labels_}}, file);
    peers_ = std::make_unique<Peers>(python, DANLING_SOURCE_DIR "/bench/data_peers.py", std::vector<std::string>{file});
    fs::remove_all(folder);  // Python has already read the file
  }

  // Passes everything that an epoch delivers to `take`.
  template <class Take>
  static void epoch_of(dl::data::Loader<dl::Batch>& loader, const Take& take) {
    for (dl::Batch& batch : loader) {
      take(batch.input, batch.target);
    }
  }
  template <class LibTorchLoader, class Take>
  static void epoch_of(LibTorchLoader& loader, const Take& take) {
    for (auto& batch : loader) {
      take(batch.data, batch.target);
    }
  }

  // Mean seconds per epoch of several epochs, and the sums of one epoch.
  template <class Loader>
  Contestant contestant(const std::string& name, std::shared_ptr<Loader> loader) {
    return {.name = name,
            .time =
                [this, loader] {
                  return seconds_of([&] {
                           for (std::int64_t i = 0; i < epochs_; ++i) {
                             epoch_of(*loader, [](const at::Tensor& input, const at::Tensor&) {
                               bench::keep(input.const_data_ptr());
                             });
                           }
                         }) /
                         static_cast<double>(epochs_);
                },
            .value =
                [loader] {
                  Sums sums;
                  epoch_of(*loader,
                           [&](const at::Tensor& input, const at::Tensor& target) { sums.add(input, target); });
                  return std::vector<double>{sums.images, sums.labels};
                }};
  }

  Contestant ours(const std::string& name, std::int64_t num_workers) {
    return contestant(name, std::make_shared<dl::data::Loader<dl::Batch>>(
                                dataset_, dl::data::LoaderOptions{.batch_size = kBatch,
                                                                  .shuffle = true,
                                                                  .num_workers = num_workers,
                                                                  .persistent_workers = num_workers > 0}));
  }

  Contestant libtorch(const std::string& name, std::size_t workers) {
    auto dataset = Examples(images_.to(at::kFloat).div_(255), labels_)
                       .map(torch::data::transforms::Normalize<>(kMean, kStd))
                       .map(torch::data::transforms::Stack<>());
    auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
        std::move(dataset), torch::data::DataLoaderOptions(kBatch).workers(workers));
    return contestant(name, std::shared_ptr(std::move(loader)));
  }

  Contestant python(const std::string& name, std::int64_t workers) {
    const std::string suffix = " " + std::to_string(workers);
    return {.name = name,
            .time = [this, suffix] { return peers_->ask("time" + suffix); },
            .value =
                [this, suffix] {
                  return std::vector<double>{peers_->ask("images" + suffix), peers_->ask("labels" + suffix)};
                },
            .failure = peers_ ? "" : bench::no_python};
  }

  // The minimum cost of batches of normalized images on one core: images in file order, one buffer for all batches.
  Contestant plain(const std::string& name, bool copy) {
    const auto pass = [this, copy](const auto& take) {
      const auto* pixels = images_.const_data_ptr<std::uint8_t>();
      for (std::int64_t at = 0; at < records_; at += kBatch) {
        const std::int64_t count = std::min(kBatch, records_ - at);
        const auto size = static_cast<std::size_t>(count * kPixels);
        const std::uint8_t* from = pixels + at * kPixels;
        if (copy) {
          std::memcpy(copied_.data(), from, size);
          from = copied_.data();
        }
        bench::normalize(from, buffer_.data(), size, static_cast<float>(1.0 / (255.0 * kStd)),
                         static_cast<float>(-kMean / kStd));
        take(count);
      }
    };
    return {.name = name,
            .time =
                [this, pass] {
                  return seconds_of([&] {
                           for (std::int64_t i = 0; i < epochs_; ++i) {
                             pass([&](std::int64_t) { bench::keep(buffer_.data()); });
                           }
                         }) /
                         static_cast<double>(epochs_);
                },
            .value =
                [this, pass] {
                  double sum = 0;
                  pass([&](std::int64_t count) {
                    sum += at::from_blob(buffer_.data(), {count * kPixels}).sum(at::kDouble).item<double>();
                  });
                  return std::vector<double>{sum, labels_.sum().item<double>()};
                }};
  }

  std::int64_t records_;
  std::int64_t epochs_;
  at::Tensor images_;
  at::Tensor labels_;
  std::vector<std::uint8_t> copied_ = std::vector<std::uint8_t>(kBatch * kPixels);
  std::vector<float> buffer_ = std::vector<float>(kBatch * kPixels);
  std::shared_ptr<dl::data::TensorDataset> dataset_;
  std::unique_ptr<Peers> peers_;
};

/// 10^12 records without read cost.
struct Endless {
  std::int64_t size() const { return 1'000'000'000'000; }
  dl::Batch get_batch(std::span<const std::int64_t> indices) {
    at::Tensor input = at::empty({static_cast<std::int64_t>(indices.size())}, at::kLong);
    std::copy(indices.begin(), indices.end(), input.mutable_data_ptr<std::int64_t>());
    return {.input = input};
  }
};

Table order_table(std::int64_t records, Peers* peers) {
  constexpr std::int64_t drawn = 200'000;
  const auto sampler = [](std::int64_t size) {
    return [size] {
      dl::data::RandomSampler order(size, 1);
      std::vector<std::int64_t> indices(kBatch);
      return seconds_of([&] {
               order.set_epoch(3);
               for (std::int64_t i = 0; i < drawn; i += kBatch) {
                 order.fill((i * 7) % (size - kBatch), indices);
                 bench::keep(indices.data());
               }
             }) /
             drawn;
    };
  };
  const auto libtorch = [records] {
    torch::data::samplers::RandomSampler order(records);
    return seconds_of([&] {
             order.reset();
             while (auto indices = order.next(kBatch)) {
               bench::keep(indices->data());
             }
           }) /
           static_cast<double>(records);
  };
  Table table;
  table.title = "order: an index of a shuffled epoch, the beginning of the epoch included";
  table.contestants = {{.name = "danling (C++) RandomSampler, 60,000 records", .time = sampler(records)},
                       {.name = "danling (C++) RandomSampler, 10^12 records", .time = sampler(Endless().size())},
                       {.name = "LibTorch samplers::RandomSampler, 60,000 records", .time = libtorch},
                       {.name = "torch.utils.data.RandomSampler, 60,000 records",
                        .time = [peers] { return peers->ask("order"); },
                        .failure = peers != nullptr ? "" : bench::no_python}};
  table.targets = {{.of = 0, .to = {2}}, {.of = 0, .to = {3}}};
  return table;
}

Table resume_table() {
  const auto resume = [](std::int64_t num_workers) {
    return [num_workers] {
      const dl::data::LoaderOptions options = {.batch_size = kBatch, .shuffle = true, .num_workers = num_workers};
      dl::data::Loader<dl::Batch> before(Endless(), options);
      dl::State state = before.state_dict();
      state["epoch"] = 3;
      state["samples"] = 499'999'999'968;
      dl::data::Loader<dl::Batch> loader(Endless(), options);
      return seconds_of([&] {
        loader.load_state_dict(state);
        loader.start_epoch(3);
        if (!loader.next()) {
          give_up("expected a batch in the middle of the epoch, got its end");
        }
        bench::keep(loader.batch().input.const_data_ptr());
      });
    };
  };
  Table table;
  table.title = "resume: load a state in the middle of 10^12 shuffled records, and the first batch";
  table.contestants = {{.name = "danling (C++)", .time = resume(0)},
                       {.name = "danling (C++), 2 workers started for it", .time = resume(2)}};
  return table;
}

}  // namespace

int main(int argc, char** argv) {
  bench::begin_results("data", argc, argv);
  try {
    // Forked first: they must not inherit threads.
    bench::Processes processes;
    int rounds = 7;
    bool quick = false;
    for (int i = 1; i < argc; ++i) {
      const std::string name = argv[i];
      if (name == "--quick") {
        quick = true;
        rounds = 1;
      } else if (name == "--rounds" && i + 1 < argc) {
        rounds = std::stoi(argv[++i]);
      } else {
        give_up("usage: bench_data [--rounds N] [--quick]");
      }
    }
    at::set_num_threads(1);
    rounds = std::max(rounds, 1);
    const std::int64_t records = quick ? 6'000 : 60'000;
    FromMemory memory(records, quick ? 2 : 10);
    bench::run(memory.table(), rounds);
    bench::run(order_table(records, memory.peers()), rounds);
    bench::run(resume_table(), rounds);
    bench::measure_text(memory.peers(), rounds, quick);
    bench::measure_workers(processes, rounds, quick);
    bench::measure_waits(rounds, quick);
    bench::measure_memory(quick);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return bench::finish();
}
