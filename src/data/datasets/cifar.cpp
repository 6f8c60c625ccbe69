#include <danling/data/datasets/cifar.hpp>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include <danling/core/error.hpp>
#include <danling/formats/detail/mapped_file.hpp>

#include <data/datasets/file_records.hpp>

namespace danling::inline v0::data {

namespace {

constexpr std::size_t cifar_pixels = 3 * 32 * 32;

/// Differences between the two datasets.
struct CifarLayout {
  std::string_view where;
  std::string folder;
  std::vector<std::string> files;
  /// Bytes before the pixels, the position of the label among them, and the number of classes for each.
  std::vector<int> classes;
  std::size_t label = 0;
};

/// A TensorDataset whose batches are normalized: (p / 255 - mean) / std by channel.
class CifarDataset final : public FileTensorDataset {
 public:
  CifarDataset(at::Tensor images, at::Tensor labels, TensorDatasetOptions options, std::vector<Source> sources,
               const std::array<double, 3>& mean, const std::array<double, 3>& std)
      : FileTensorDataset(std::move(images), std::move(labels), std::move(options), std::move(sources)),
        scale_(at::empty({3, 1, 1}, at::kFloat)),
        shift_(at::empty({3, 1, 1}, at::kFloat)) {
    for (std::size_t c = 0; c < 3; ++c) {
      scale_.mutable_data_ptr<float>()[c] = static_cast<float>(1.0 / (255.0 * std[c]));
      shift_.mutable_data_ptr<float>()[c] = static_cast<float>(-mean[c] / std[c]);
    }
  }

  Batch get_batch(std::span<const std::int64_t> indices) override {
    Batch batch = TensorDataset::get_batch(indices);
    batch.input = at::mul(batch.input, scale_).add_(shift_);
    return batch;
  }

 private:
  at::Tensor scale_;
  at::Tensor shift_;
};

std::shared_ptr<TensorDataset> read_cifar(const std::filesystem::path& root, DatasetSplit part,
                                          const CifarLayout& layout, bool normalize, const std::array<double, 3>& mean,
                                          const std::array<double, 3>& std) {
  for (std::size_t c = 0; normalize && c < 3; ++c) {
    check<ConfigError>(std[c] > 0.0, layout.where, "expected a std above 0 for each channel, got ", std[c]);
  }
  const std::size_t bytes = layout.classes.size() + cifar_pixels;
  const std::filesystem::path folder = find_folder(root, std::span(&layout.folder, 1), layout.files, layout.where);
  std::vector<std::unique_ptr<formats::MappedFile>> files;
  std::vector<FileTensorDataset::Source> sources;
  std::int64_t total = 0;
  for (const std::string& name : layout.files) {
    files.push_back(std::make_unique<formats::MappedFile>(folder / name, formats::Access::sequential, layout.where));
    check<DataError>(files.back()->size() % bytes == 0, layout.where, "expected whole records of ", bytes,
                     " bytes, got ", files.back()->size(), " bytes: record ", files.back()->size() / bytes,
                     " is cut off (file ", quote(files.back()->path().string()), ")");
    sources.push_back({files.back()->path().string(), static_cast<std::int64_t>(files.back()->size() / bytes)});
    total += sources.back().records;
  }

  at::Tensor images = at::empty({total, 3, 32, 32}, at::kByte);
  at::Tensor labels = at::empty({total}, at::kLong);
  auto* pixels = images.mutable_data_ptr<std::uint8_t>();
  auto* label = labels.mutable_data_ptr<std::int64_t>();
  for (std::size_t f = 0; f < files.size(); ++f) {
    const std::byte* record = files[f]->bytes().data();
    for (std::int64_t i = 0; i < sources[f].records; ++i, record += bytes) {
      for (std::size_t k = 0; k < layout.classes.size(); ++k) {
        check<DataError>(std::to_integer<int>(record[k]) < layout.classes[k], layout.where, "expected a label below ",
                         layout.classes[k], ", got ", std::to_integer<int>(record[k]), " (file ",
                         quote(sources[f].file), ", record ", i, ")");
      }
      *label++ = std::to_integer<std::int64_t>(record[layout.label]);
      std::memcpy(pixels, record + layout.classes.size(), cifar_pixels);
      pixels += cifar_pixels;
    }
  }
  TensorDatasetOptions options;
  options.split = part == DatasetSplit::train ? "train" : "test";
  constexpr std::array<double, 3> zeros = {0.0, 0.0, 0.0};
  constexpr std::array<double, 3> ones = {1.0, 1.0, 1.0};
  return std::make_shared<CifarDataset>(std::move(images), std::move(labels), std::move(options), std::move(sources),
                                        normalize ? mean : zeros, normalize ? std : ones);
}

}  // namespace

std::filesystem::path find_folder(const std::filesystem::path& root, std::span<const std::string> places,
                                  std::span<const std::string> names, std::string_view where) {
  std::error_code error;
  check<DataError>(std::filesystem::is_directory(root, error), where, "expected a directory with the data, got ",
                   quote(root.string()),
                   std::filesystem::exists(root, error) ? ", which is a file" : ", which does not exist");
  std::vector<std::filesystem::path> folders = {root};
  for (const std::string& place : places) {
    folders.push_back(root / place);
  }
  for (const auto& folder : folders) {
    for (const std::string& name : names) {
      if (std::filesystem::exists(folder / name, error)) {
        return folder;
      }
    }
  }
  return root;
}

std::shared_ptr<TensorDataset> cifar10(const std::filesystem::path& root, DatasetSplit part,
                                       const Cifar10Options& options) {
  CifarLayout layout{"data.cifar10", "cifar-10-batches-bin", {"test_batch.bin"}, {10}, 0};
  if (part == DatasetSplit::train) {
    layout.files = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"};
  }
  return read_cifar(root, part, layout, options.normalize, options.mean, options.std);
}

std::shared_ptr<TensorDataset> cifar100(const std::filesystem::path& root, DatasetSplit part,
                                        const Cifar100Options& options) {
  const CifarLayout layout{"data.cifar100",
                           "cifar-100-binary",
                           {part == DatasetSplit::train ? "train.bin" : "test.bin"},
                           {20, 100},
                           options.coarse ? std::size_t{0} : std::size_t{1}};
  return read_cifar(root, part, layout, options.normalize, options.mean, options.std);
}

}  // namespace danling::inline v0::data
