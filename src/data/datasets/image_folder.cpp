#include <danling/data/datasets/image_folder.hpp>

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <new>
#include <system_error>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include <danling/core/error.hpp>
#include <danling/data/dataset_like.hpp>
#include <danling/formats/file.hpp>

namespace danling::inline v0::data {

namespace {

constexpr std::string_view folder_component = "data.image_folder";
constexpr std::array<std::string_view, 3> readable_images = {".jpg", ".jpeg", ".png"};
// Other extensions that torchvision's ImageFolder accepts.
constexpr std::array<std::string_view, 6> other_images = {".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"};

/// True if `name` ends with `extension`, which is in lower case.
bool has_extension(std::string_view name, std::string_view extension) {
  return name.size() > extension.size() &&
         std::equal(extension.begin(), extension.end(), name.end() - static_cast<std::ptrdiff_t>(extension.size()),
                    [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b - 'A' + 'a') : b); });
}

[[noreturn]] void fail_to_list(const std::string& path, int error) {
  fail<DataError>(folder_component, "expected a readable directory, got ", quote(path), ": ",
                  std::generic_category().message(error));
}

/// The names in a directory, sorted by bytes, without those that begin with a dot.
struct Listing {
  std::vector<std::string> directories;
  std::vector<std::string> files;  // everything except directories
};

bool is_directory(const std::string& path, const dirent& entry) {
  if (entry.d_type == DT_DIR) {
    return true;
  }
  struct stat status{};
  return (entry.d_type == DT_LNK || entry.d_type == DT_UNKNOWN) && ::stat(path.c_str(), &status) == 0 &&
         S_ISDIR(status.st_mode);
}

Listing list(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()),
                                                      [](DIR* open) { return ::closedir(open); });
  if (directory == nullptr) {
    fail_to_list(path, errno);
  }
  Listing out;
  while (true) {
    errno = 0;
    const dirent* const entry = ::readdir(directory.get());
    if (entry == nullptr) {
      break;
    }
    const std::string_view name = entry->d_name;
    if (!name.starts_with('.')) {
      (is_directory(concat(path, "/", name), *entry) ? out.directories : out.files).emplace_back(name);
    }
  }
  if (errno != 0) {
    fail_to_list(path, errno);
  }
  std::sort(out.directories.begin(), out.directories.end());
  std::sort(out.files.begin(), out.files.end());
  return out;
}

std::vector<std::string> lower_extensions(std::vector<std::string> extensions) {
  check<ConfigError>(!extensions.empty(), folder_component, "expected at least one extension, got none");
  for (std::string& extension : extensions) {
    check<ConfigError>(extension.size() > 1 && extension.front() == '.', folder_component,
                       "expected extensions that begin with a dot, such as '.jpg', got ", quote(extension));
    for (char& c : extension) {
      c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
  }
  return extensions;
}

/// Reads a whole image; of other files only the beginning, whatever their size.
std::string read_image_file(const formats::InputFile& file) {
  const std::string begin = file.text(0, std::min<std::uint64_t>(file.size(), 16));
  if (!formats::image_format(begin)) {
    formats::decode_image(begin);  // throws with the file's kind
  }
  return file.text();
}

}  // namespace

/// Walks the directories of one class after another.
class ImageFolder::Lister {
 public:
  explicit Lister(ImageFolder& folder) : folder_(folder) {}

  void list_class(std::int64_t target, const std::string& path) {
    target_ = target;
    found_.clear();
    descend(path);
    // torchvision sorts directories by their full paths, not in the order of the walk.
    std::sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) { return a.path < b.path; });
    for (Found& directory : found_) {
      take(std::move(directory));
    }
  }

 private:
  struct Found {
    std::string path;
    std::vector<std::string> files;
  };

  void descend(const std::string& path) {
    struct stat status{};
    if (::stat(path.c_str(), &status) != 0) {
      fail_to_list(path, errno);
    }
    const std::pair identity(status.st_dev, status.st_ino);
    check<DataError>(std::find(above_.begin(), above_.end(), identity) == above_.end(), folder_component,
                     "expected directories without a cycle, got ", quote(path),
                     ", a link to a directory that contains it");
    above_.push_back(identity);
    Listing listing = list(path);
    std::erase_if(listing.files, [&](const std::string& name) { return !is_taken(path, name); });
    if (!listing.files.empty()) {
      found_.push_back({path, std::move(listing.files)});
    }
    for (const std::string& name : listing.directories) {
      descend(concat(path, "/", name));
    }
    above_.pop_back();
  }

  bool is_taken(const std::string& path, const std::string& name) const {
    const auto ends = [&](std::string_view extension) { return has_extension(name, extension); };
    if (folder_.options_.extensions) {
      return std::any_of(folder_.options_.extensions->begin(), folder_.options_.extensions->end(), ends);
    }
    if (std::any_of(other_images.begin(), other_images.end(), ends)) {
      fail<DataError>(folder_component, "expected JPEG and PNG images, got ", quote(concat(path, "/", name)),
                      ": convert it, or list the extensions to read in `extensions`");
    }
    return std::any_of(readable_images.begin(), readable_images.end(), ends);
  }

  void take(Found directory) {
    check<DataError>(folder_.directories_.size() < std::numeric_limits<std::uint32_t>::max(), folder_component,
                     "expected fewer than 2^32 directories");
    const auto number = static_cast<std::uint32_t>(folder_.directories_.size());
    folder_.directories_.push_back({std::move(directory.path), target_});
    for (const std::string& name : directory.files) {
      folder_.names_ += name;
      folder_.name_ends_.push_back(folder_.names_.size());
      folder_.directory_of_.push_back(number);
    }
  }

  ImageFolder& folder_;
  std::int64_t target_ = 0;
  std::vector<Found> found_;
  std::vector<std::pair<dev_t, ino_t>> above_;  // directories on the current path
};

ImageFolder::ImageFolder(std::filesystem::path root, ImageFolderOptions options)
    : root_(std::move(root)), options_(std::move(options)) {
  options_.image.validate();
  if (options_.extensions) {
    options_.extensions = lower_extensions(std::move(*options_.extensions));
  }
  const std::string path = root_.string();
  classes_ = list(path).directories;
  check<DataError>(!classes_.empty(), folder_component, "expected a directory for each class in ", quote(path),
                   ", got none");
  Lister lister(*this);
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    const std::int64_t before = size();
    const std::string of_class = concat(path, path.ends_with('/') ? "" : "/", classes_[i]);
    lister.list_class(static_cast<std::int64_t>(i), of_class);
    check<DataError>(size() > before || options_.allow_empty, folder_component, "expected images (",
                     options_.extensions ? join(*options_.extensions) : join(readable_images),
                     ") in each class, got none in ", quote(of_class), ": remove it, or set allow_empty");
  }
  names_.shrink_to_fit();
  name_ends_.shrink_to_fit();
  directory_of_.shrink_to_fit();
}

std::size_t ImageFolder::check_index(std::int64_t index) const {
  check<DataError>(index >= 0 && index < size(), folder_component, "expected an index in [0, ", size(), "), got ",
                   index);
  return static_cast<std::size_t>(index);
}

std::filesystem::path ImageFolder::path(std::int64_t index) const {
  const std::size_t i = check_index(index);
  const std::size_t begin = i == 0 ? 0 : name_ends_[i - 1];
  return concat(directories_[directory_of_[i]].path, "/",
                std::string_view(names_).substr(begin, name_ends_[i] - begin));
}

std::int64_t ImageFolder::target(std::int64_t index) const {
  return directories_[directory_of_[check_index(index)]].target;
}

at::Tensor ImageFolder::targets() const {
  at::Tensor out = at::empty({size()}, at::kLong);
  auto* const values = out.mutable_data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < directory_of_.size(); ++i) {
    values[i] = directories_[directory_of_[i]].target;
  }
  return out;
}

std::map<std::string, std::int64_t> ImageFolder::class_to_idx() const {
  std::map<std::string, std::int64_t> out;
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    out[classes_[i]] = static_cast<std::int64_t>(i);
  }
  return out;
}

Sample ImageFolder::get(std::int64_t index, const SampleInfo& info) const {
  const std::filesystem::path file = path(index);
  const formats::InputFile opened(file, formats::FileErrors::of<DataError>(folder_component));
  Sample sample;
  try {
    sample.input = read_image(read_image_file(opened), options_.image, info);
  } catch (const std::bad_alloc&) {
    fail<DataError>(folder_component, "expected an image that fits into memory, got a file of ", opened.size(),
                    " bytes (file ", quote(file.string()), ")");
  } catch (const DataError& error) {
    throw DataError(concat(error.what(), " (file ", quote(file.string()), ")"));
  }
  sample.target = at::scalar_tensor(target(index), at::kLong);
  return sample;
}

Sample ImageFolder::get(std::int64_t index) const {
  const BatchInfo info = BatchInfo::of({&index, 1});
  return get(index, SampleInfo(info, 0));
}

Batch ImageFolder::get_batch(std::span<const std::int64_t> indices) { return read(indices, BatchInfo::of(indices)); }

Batch ImageFolder::read(std::span<const std::int64_t> indices, const BatchInfo& info) {
  std::vector<Sample> samples;
  samples.reserve(indices.size());
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const SampleInfo sample(info, i);
    try {
      samples.push_back(get(indices[i], sample));
    } catch (...) {
      detail::rethrow_for_record(sample, indices[i], detail::source_of_failed(*this, indices[i]));
    }
  }
  try {
    return collate_images(std::move(samples));
  } catch (const CollateError& error) {
    const std::size_t i = error.sample();
    detail::rethrow_for_sample(error, SampleInfo(info, i), indices[i], entry_key(indices[i]));
  }
}

std::optional<std::string> ImageFolder::entry_key(std::int64_t index) const {
  return path(index).lexically_relative(root_).string();
}

State ImageFolder::source_info(std::int64_t index) const {
  State out;
  out["path"] = path(index).string();
  out["class"] = classes_[static_cast<std::size_t>(target(index))];
  return out;
}

std::shared_ptr<ImageFolder> image_folder(std::filesystem::path root, ImageFolderOptions options) {
  return std::make_shared<ImageFolder>(std::move(root), std::move(options));
}

}  // namespace danling::inline v0::data
