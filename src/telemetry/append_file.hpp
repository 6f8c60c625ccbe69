// A file that grows by whole pieces: a piece that fails leaves nothing behind.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace danling::inline v0::detail {

class AppendFile {
 public:
  /// Opens or creates the file, and its folders. `operation` begins the messages of its errors. @throws Error
  AppendFile(std::filesystem::path path, std::string_view operation, bool from_empty);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// Writes all of `bytes`, or nothing. A file that someone removed is restored. @throws Error
  void append(std::string_view bytes);
  void truncate(std::uint64_t size);
  std::uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  [[noreturn]] void fail(int reason) const;

  std::filesystem::path path_;
  std::string_view operation_;
  int file_ = -1;
  std::uint64_t size_ = 0;
  bool torn_ = false;  // bytes behind `size_` could not be cut off
};

}  // namespace danling::inline v0::detail
