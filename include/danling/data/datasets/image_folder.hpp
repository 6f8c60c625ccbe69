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
  /// Extensions of the files to read, case-insensitive; other files are skipped. By default `.jpg`, `.jpeg` and `.png`,
  /// and images in other formats, which no option can read, are an error.
  std::optional<std::vector<std::string>> extensions = {};
  /// Allows classes without images.
  bool allow_empty = false;
  std::string split = {};
  /// Decoding, resizing and cropping. All images of a batch must have one size afterwards.
  ImageOptions image = {};
};

/// Samples in the order of torchvision's ImageFolder: classes by name, then directories, then files, compared by bytes.
/// Follows symbolic links; skips names that begin with a dot. `target` is int64 []. Reads each file with its sample; a
/// file takes the memory of its name plus twelve bytes.
class ImageFolder final : public Dataset<Batch> {
 public:
  /// @throws DataError when a directory cannot be read or contains itself, without classes, or for a class without
  /// images; ConfigError for invalid options.
  explicit ImageFolder(std::filesystem::path root, ImageFolderOptions options = {});

  std::int64_t size() const override { return static_cast<std::int64_t>(directory_of_.size()); }
  /// Reads a sample; thread-safe. @throws DataError with the file that cannot be read or decoded.
  Sample get(std::int64_t index, const SampleInfo& info) const;
  /// The same in epoch 0, without a seed.
  Sample get(std::int64_t index) const;
  /// See `collate_images`.
  Batch collate(std::vector<Sample> samples) const { return collate_images(std::move(samples)); }
  Batch get_batch(std::span<const std::int64_t> indices) override;
  Batch read(std::span<const std::int64_t> indices, const BatchInfo& info) override;
  /// Returns `path` and `class`.
  State source_info(std::int64_t index) const override;
  /// Returns the path relative to the root.
  std::optional<std::string> entry_key(std::int64_t index) const override;
  std::string split() const override { return options_.split; }

  const std::vector<std::string>& classes() const { return classes_; }
  std::map<std::string, std::int64_t> class_to_idx() const;
  /// Returns the file of the sample. @throws DataError when `index` is not in [0, size())
  std::filesystem::path path(std::int64_t index) const;
  /// Returns the class index of the sample. @throws DataError when `index` is not in [0, size())
  std::int64_t target(std::int64_t index) const;
  /// Returns the class indices of all samples, int64 [size()], for the weights of samplers.
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
  std::string names_;                        // names of all files, concatenated
  std::vector<std::uint64_t> name_ends_;     // end of each name in `names_`
  std::vector<std::uint32_t> directory_of_;  // directory of each file in `directories_`
};

std::shared_ptr<ImageFolder> image_folder(std::filesystem::path root, ImageFolderOptions options = {});

}  // namespace danling::inline v0::data
