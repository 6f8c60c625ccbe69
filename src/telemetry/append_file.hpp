// AppendFile: a file that grows, whole pieces at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace danling::inline v0::detail {

class AppendFile {
 public:
  enum class Content { kept, emptied };

  /// Opens or creates. @throws Error with the system's reason
  AppendFile(std::filesystem::path path, Content content);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// @throws Error with the system's reason; then nothing of `bytes` is in the file, and it can be tried again.
  void append(std::string_view bytes);
  /// Writes the whole file again if someone removed it, with its directory. @throws Error
  void restore();
  /// Gives the file another name, replacing the file of that name, after it is on disk. @throws Error
  void rename(const std::filesystem::path& path);

  std::uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  void cut();

  std::filesystem::path path_;
  int file_ = -1;
  std::uint64_t size_ = 0;
  bool torn_ = false;  // bytes behind `size_` could not be cut off
};

}  // namespace danling::inline v0::detail
