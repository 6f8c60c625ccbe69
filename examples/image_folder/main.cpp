// A directory of PNG files, one subdirectory per class: decoded, cropped and shuffled by workers while the model
// trains.
//
//   image_folder                          writes the bundled digits as PNG files to ./digits, and trains on them
//   image_folder --data.root DIR          DIR/train/CLASS/*.png (or .jpg) and DIR/test/CLASS/*.png
#include <filesystem>
#include <span>

#include <torch/torch.h>

#include <danling/danling.hpp>
#include <danling/formats/image.hpp>

namespace dl = danling;
namespace fs = std::filesystem;

struct FolderConfig : dl::RunnerConfig {
  struct Data : dl::Config {
    std::string root = "digits";
    void fields(dl::Fields& f) override {
      f("root", root, "folder with train and test; absent: the digits").non_semantic();
    }
  } data;
  std::int64_t size = 28, channels = 16;

  FolderConfig() {
    seed = 1;
    num_threads = 1;
    epochs = 8;
    score_name = "acc";
    test_splits = {"test"};
    dataloader.batch_size = 64;
    dataloader.num_workers = 2;
    optim.type = "adamw";
    optim.lr = 3e-3;
    sched.type = "cosine";
    sched.scaling = "numerical";
  }

  void fields(dl::Fields& f) override {
    f("data", data, "the images");
    f("size", size, "height and width of an image for the model").at_least(8);
    f("channels", channels, "of the first convolution; the second has twice as many");
  }
};

/// Writes the digits of examples/mnist to `folder`/CLASS/NUMBER.png.
void write_digits(const fs::path& folder, dl::data::DatasetSplit part) {
  const auto digits = dl::data::mnist(DIGITS, part);
  for (std::int64_t i = 0; i < digits->size(); ++i) {
    const auto image = digits->input()[i].contiguous();  // uint8 [28, 28]
    const auto directory = folder / std::to_string(digits->target()[i].item<std::int64_t>());
    fs::create_directories(directory);
    dl::write_atomic(directory / (std::to_string(i) + ".png"),
                     dl::formats::encode_png({static_cast<const std::byte*>(image.data_ptr()), 28 * 28}, 28, 28, 1));
  }
}

class FolderRunner : public dl::TorchRunner {
 public:
  explicit FolderRunner(const FolderConfig& config) : TorchRunner(config) {
    const fs::path root = config.data.root;
    if (!fs::exists(root)) {
      write_digits(root / "test", dl::data::DatasetSplit::test);
      write_digits(root / "train", dl::data::DatasetSplit::train);
    }
    const dl::data::ImageOptions gray = {.decode = {.channels = dl::formats::ImageChannels::gray}};
    auto plain = gray, augmented = gray;
    plain.resize_to = {config.size, config.size};
    augmented.random_resized_crop = {
        .size = {config.size, config.size}, .min_scale = 0.7, .min_ratio = 0.85, .max_ratio = 1.15};

    namespace tr = dl::data::transforms;
    const auto normalize = tr::normalize({0.13}, {0.31});  // of whole batches, which is cheaper
    const auto images = [&](const char* part, const dl::data::ImageOptions& options) {
      return dl::data::image_folder(root / part, {.image = options});
    };
    const auto parts = dl::data::random_split(images("train", plain), {0.9, 0.1}, /*seed=*/0);
    datasets["train"] =
        dl::data::map_batches(dl::data::subset(images("train", augmented), parts[0].indices()), normalize);
    datasets["val"] = dl::data::map_batches(parts[1], normalize);
    const auto test = images("test", plain);
    datasets["test"] = dl::data::map_batches(test, normalize);

    using namespace torch::nn;
    const std::int64_t c = config.channels, edge = config.size / 4, classes = std::ssize(test->classes());
    model = Sequential(Conv2d(Conv2dOptions(1, c, 3).padding(1)), ReLU(), MaxPool2d(2),
                       Conv2d(Conv2dOptions(c, 2 * c, 3).padding(1)), ReLU(), MaxPool2d(2), Flatten(),
                       Linear(2 * c * edge * edge, classes));
    criterion = CrossEntropyLoss();
    metrics = dl::accuracy_metrics(classes);
  }
};

int main(int argc, char** argv) { return dl::run<FolderRunner, FolderConfig>(argc, argv); }
