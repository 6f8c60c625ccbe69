// Images and labels in memory, with the file of each record.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <danling/data/tensor_dataset.hpp>

namespace danling::inline v0::data {

/// A TensorDataset whose records come from files, one file after another.
class FileTensorDataset : public TensorDataset {
 public:
  struct Source {
    std::string file;
    std::int64_t records;
  };
  FileTensorDataset(at::Tensor input, at::Tensor target, TensorDatasetOptions options, std::vector<Source> sources)
      : TensorDataset(std::move(input), std::move(target), std::move(options)), sources_(std::move(sources)) {}

  State source_info(std::int64_t index) const override {
    for (const Source& source : sources_) {
      if (index < source.records) {
        return State::Map{{"file", source.file}, {"record", index}};
      }
      index -= source.records;
    }
    return {};
  }

 private:
  std::vector<Source> sources_;
};

/// Returns the first of `root` and its subdirectories `places` that contains one of the files `names`; `root` if none
/// does.
std::filesystem::path find_folder(const std::filesystem::path& root, std::span<const std::string> places,
                                  std::span<const std::string> names, std::string_view where);

}  // namespace danling::inline v0::data
