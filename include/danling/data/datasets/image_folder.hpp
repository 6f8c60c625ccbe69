// A directory of images in which each subdirectory is a class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/data/dataset.hpp>
#include <danling/data/datasets/image.hpp>

namespace danling::inline v0::data {

struct ImageFolderOptions {
  /// Of the files that are taken, in any case; others are passed over. Nothing stands for `.jpg`, `.jpeg` and `.png`,
  /// and refuses images of other formats, which are read by no option.
  std::optional<std::vector<std::string>> extensions = {};
  /// Whether a class may have no image.
  bool allow_empty = false;
  std::string split = {};
  /// How each image is decoded, resized and cropped. Images of a batch must end up of one size.
  ImageOptions image = {};
};

/// Samples in the order of torchvision's ImageFolder: classes sorted by name, then directories, then files, by bytes.
/// Symbolic links are followed; names that begin with a dot are passed over. `target` is int64 []. Files are read when
/// their samples are; their names take the memory of their characters and twelve bytes each.
class ImageFolder final : public Dataset<Batch> {
 public:
  /// @throws DataError when a directory cannot be read or contains itself, when there are no classes, or a class
  /// without images; ConfigError when the options make no sense.
  explicit ImageFolder(std::filesystem::path root, ImageFolderOptions options = {});

  std::int64_t size() const override { return static_cast<std::int64_t>(directory_of_.size()); }
  /// @throws DataError naming the file that cannot be read or decoded. From several threads at a time.
  Sample get(std::int64_t index, const SampleInfo& info) const;
  /// The same in epoch 0, without a seed.
  Sample get(std::int64_t index) const;
  /// See `collate_images`.
  Batch collate(std::vector<Sample> samples) const { return collate_images(std::move(samples)); }
  Batch get_batch(std::span<const std::int64_t> indices) override;
  Batch read(std::span<const std::int64_t> indices, const BatchInfo& info) override;
  /// `path` and `class`.
  State source_info(std::int64_t index) const override;
  /// The path below the root.
  std::optional<std::string> entry_key(std::int64_t index) const override;
  std::string split() const override { return options_.split; }

  const std::vector<std::string>& classes() const { return classes_; }
  std::map<std::string, std::int64_t> class_to_idx() const;
  /// @throws DataError when `index` is not in [0, size()), as the following.
  std::filesystem::path path(std::int64_t index) const;
  /// The number of its class.
  std::int64_t target(std::int64_t index) const;
  /// Of all samples, int64 [size()]; what weights of samplers are made from.
  at::Tensor targets() const;

 private:
  struct Directory {
    std::string path;
    std::int64_t target = 0;
  };
  class Lister;

  std::size_t check_index(std::int64_t index) const;

  std::filesystem::path root_;
  ImageFolderOptions options_;
  std::vector<std::string> classes_;
  std::vector<Directory> directories_;
  std::string names_;                        // of all files, one after another
  std::vector<std::uint64_t> name_ends_;     // of each file, in `names_`
  std::vector<std::uint32_t> directory_of_;  // of each file, in `directories_`
};

std::shared_ptr<ImageFolder> image_folder(std::filesystem::path root, ImageFolderOptions options = {});

}  // namespace danling::inline v0::data
