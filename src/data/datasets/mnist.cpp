#include <danling/data/datasets/mnist.hpp>

#include <array>
#include <cstring>
#include <system_error>

#include <ATen/ops/empty.h>

#include <danling/core/error.hpp>
#include <danling/formats/idx.hpp>

namespace danling::inline v0::data {

namespace {

namespace fs = std::filesystem;

fs::path find_file(const fs::path& root, const std::string& stem, const std::string& suffix) {
  std::error_code error;
  check<DataError>(fs::is_directory(root, error), "data.mnist", "expected a directory with the data, got ",
                   quote(root.string()), fs::exists(root, error) ? ", which is a file" : ", which does not exist");
  const std::array<std::string, 4> names = {stem + "-" + suffix, stem + "-" + suffix + ".gz", stem + "." + suffix,
                                            stem + "." + suffix + ".gz"};
  for (const auto& name : names) {
    if (fs::exists(root / name, error)) {
      return root / name;
    }
  }
  fail<DataError>("data.mnist", "expected one of the files ", join(names), " in ", quote(root.string()),
                  ", got none of them");
}

at::Tensor read_bytes(const fs::path& path, std::size_t rank, const char* what) {
  const formats::IdxArray array = formats::read_idx(path);
  check<DataError>(array.type == formats::IdxType::u8 && array.dims.size() == rank, "data.mnist", "expected ", what,
                   " as a uint8 array of rank ", rank, ", got ", formats::name(array.type), " of rank ",
                   array.dims.size(), " (file ", quote(path.string()), ")");
  at::Tensor tensor = at::empty(array.dims, at::kByte);
  if (!array.bytes.empty()) {
    std::memcpy(tensor.mutable_data_ptr(), array.bytes.data(), array.bytes.size());
  }
  return tensor;
}

}  // namespace

std::shared_ptr<TensorDataset> mnist(const fs::path& root, Part part, const MnistOptions& options) {
  check<DataError>(!options.normalize || options.std > 0.0, "data.mnist", "expected a std above 0, got ", options.std);
  const std::string prefix = part == Part::train ? "train" : "t10k";
  const fs::path images_path = find_file(root, prefix + "-images", "idx3-ubyte");
  const fs::path labels_path = find_file(root, prefix + "-labels", "idx1-ubyte");
  at::Tensor images = read_bytes(images_path, 3, "images");
  const at::Tensor labels = read_bytes(labels_path, 1, "labels");
  check<DataError>(images.size(0) == labels.size(0), "data.mnist", "expected as many labels as images (",
                   images.size(0), " in ", quote(images_path.string()), "), got ", labels.size(0), " in ",
                   quote(labels_path.string()));
  images = options.flatten ? images.flatten(1) : images.unsqueeze(1);

  const double mean = options.normalize ? options.mean : 0.0;
  const double std = options.normalize ? options.std : 1.0;
  TensorDatasetOptions dataset_options;
  dataset_options.input_transform = Affine{1.0 / (255.0 * std), -mean / std};
  dataset_options.split = part == Part::train ? "train" : "test";
  return std::make_shared<TensorDataset>(images, labels.to(at::kLong), std::move(dataset_options));
}

}  // namespace danling::inline v0::data
