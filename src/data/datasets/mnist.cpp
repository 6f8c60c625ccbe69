#include <danling/data/datasets/mnist.hpp>

#include <array>
#include <cstring>
#include <system_error>

#include <ATen/ops/empty.h>

#include <danling/core/error.hpp>
#include <danling/formats/idx.hpp>

#include <data/datasets/file_records.hpp>

namespace danling::inline v0::data {

namespace {

namespace fs = std::filesystem;

std::vector<std::string> idx_names(const std::string& stem, const std::string& suffix) {
  return {stem + "-" + suffix, stem + "-" + suffix + ".gz", stem + "." + suffix, stem + "." + suffix + ".gz"};
}

fs::path find_idx(const fs::path& folder, const std::vector<std::string>& names, std::string_view where) {
  std::error_code error;
  for (const auto& name : names) {
    if (fs::exists(folder / name, error)) {
      return folder / name;
    }
  }
  fail<DataError>(where, "expected one of the files ", join(names), " in ", quote(folder.string()),
                  ", got none of them");
}

c10::ScalarType scalar_type_of(formats::IdxType type) {
  switch (type) {
    case formats::IdxType::u8:
      return at::kByte;
    case formats::IdxType::i8:
      return at::kChar;
    case formats::IdxType::i16:
      return at::kShort;
    case formats::IdxType::i32:
      return at::kInt;
    case formats::IdxType::f32:
      return at::kFloat;
    case formats::IdxType::f64:
      break;
  }
  return at::kDouble;
}

at::Tensor to_tensor(const formats::IdxArray& array) {
  at::Tensor tensor = at::empty(array.dims, scalar_type_of(array.type));
  if (!array.bytes.empty()) {
    std::memcpy(tensor.mutable_data_ptr(), array.bytes.data(), array.bytes.size());
  }
  return tensor;
}

at::Tensor read_bytes(const fs::path& path, std::size_t rank, const char* what, std::string_view where) {
  const formats::IdxArray array = formats::read_idx(path);
  check<DataError>(array.type == formats::IdxType::u8 && array.dims.size() == rank, where, "expected ", what,
                   " as a uint8 array of rank ", rank, ", got ", formats::name(array.type), " of rank ",
                   array.dims.size(), " (file ", quote(path.string()), ")");
  return to_tensor(array);
}

void check_counts(const at::Tensor& images, const fs::path& images_path, const at::Tensor& labels,
                  const fs::path& labels_path, std::string_view where) {
  check<DataError>(images.size(0) == labels.size(0), where, "expected as many labels as images (", images.size(0),
                   " in ", quote(images_path.string()), "), got ", labels.size(0), " in ", quote(labels_path.string()));
}

void check_labels(const at::Tensor& labels, std::int64_t num_classes, const fs::path& path, std::string_view where) {
  const auto* const label = labels.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < labels.numel(); ++i) {
    check<DataError>(label[i] >= 0 && label[i] < num_classes, where, "expected a label below ", num_classes, ", got ",
                     label[i], " (file ", quote(path.string()), ", record ", i / (labels.numel() / labels.size(0)),
                     ")");
  }
}

template <class Options>
std::shared_ptr<TensorDataset> read_mnist(const fs::path& root, DatasetSplit part, const Options& options,
                                          const std::string& place, std::string_view where) {
  check<DataError>(!options.normalize || options.std > 0.0, where, "expected a std above 0, got ", options.std);
  const std::string prefix = part == DatasetSplit::train ? "train" : "t10k";
  const std::vector<std::string> image_names = idx_names(prefix + "-images", "idx3-ubyte");
  const fs::path folder = find_folder(root, std::span(&place, 1), image_names, where);
  const fs::path images_path = find_idx(folder, image_names, where);
  const fs::path labels_path = find_idx(folder, idx_names(prefix + "-labels", "idx1-ubyte"), where);
  at::Tensor images = read_bytes(images_path, 3, "images", where);
  const at::Tensor labels = read_bytes(labels_path, 1, "labels", where).to(at::kLong);
  check_counts(images, images_path, labels, labels_path, where);
  check_labels(labels, /*num_classes=*/10, labels_path, where);
  images = options.flatten ? images.flatten(1) : images.unsqueeze(1);

  const double mean = options.normalize ? options.mean : 0.0;
  const double std = options.normalize ? options.std : 1.0;
  TensorDatasetOptions dataset_options;
  dataset_options.input_transform = Affine{1.0 / (255.0 * std), -mean / std};
  dataset_options.split = part == DatasetSplit::train ? "train" : "test";
  const std::int64_t records = images.size(0);
  return std::make_shared<FileTensorDataset>(std::move(images), labels, std::move(dataset_options),
                                             std::vector<FileTensorDataset::Source>{{images_path.string(), records}});
}

}  // namespace

std::shared_ptr<TensorDataset> mnist(const fs::path& root, DatasetSplit part, const MnistOptions& options) {
  return read_mnist(root, part, options, "MNIST/raw", "data.mnist");
}

std::shared_ptr<TensorDataset> fashion_mnist(const fs::path& root, DatasetSplit part,
                                             const FashionMnistOptions& options) {
  return read_mnist(root, part, options, "FashionMNIST/raw", "data.fashion_mnist");
}

std::shared_ptr<TensorDataset> idx_dataset(const fs::path& images, const fs::path& labels,
                                           const IdxDatasetOptions& options) {
  check<ConfigError>(!labels.empty() || !options.num_classes, "data.idx",
                     "expected a file of labels, which num_classes is for, got none");
  at::Tensor input = to_tensor(formats::read_idx(images));
  at::Tensor target;
  if (!labels.empty()) {
    target = to_tensor(formats::read_idx(labels));
    check_counts(input, images, target, labels, "data.idx");
    if (at::isIntegralType(target.scalar_type(), /*includeBool=*/false)) {
      target = target.to(at::kLong);
    }
    if (options.num_classes) {
      check<DataError>(target.scalar_type() == at::kLong, "data.idx", "expected integers as labels of ",
                       *options.num_classes, " classes, got ", c10::toString(target.scalar_type()), " (file ",
                       quote(labels.string()), ")");
      check_labels(target, *options.num_classes, labels, "data.idx");
    }
  }
  TensorDatasetOptions dataset_options;
  dataset_options.input_transform = options.input_transform;
  dataset_options.split = options.split;
  const std::int64_t records = input.size(0);
  return std::make_shared<FileTensorDataset>(std::move(input), std::move(target), std::move(dataset_options),
                                             std::vector<FileTensorDataset::Source>{{images.string(), records}});
}

}  // namespace danling::inline v0::data
