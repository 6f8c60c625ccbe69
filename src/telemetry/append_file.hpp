// AppendFile: appends pieces to a file, each completely or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include <danling/core/detail/descriptor.hpp>

namespace danling::inline v0::detail {

class AppendFile {
 public:
  enum class Content { kept, emptied, created };

  /// Opens or creates the file; refuses an existing one for `created`. @throws Error with the system's reason
  AppendFile(std::filesystem::path path, Content content);

  /// Appends `bytes`. @throws Error with the system's reason; the file then has none of `bytes`, and a retry is safe
  void append(std::string_view bytes);
  /// If the file was removed, writes it again with its whole content and recreates its directory. @throws Error
  void restore();
  /// Syncs the file to disk, then renames it and replaces a file of that name. @throws Error
  void rename(const std::filesystem::path& path);

  std::uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  void cut();

  std::filesystem::path path_;
  Descriptor file_;
  std::uint64_t size_ = 0;
  bool torn_ = false;  // the file has bytes behind `size_` because truncation failed
};

}  // namespace danling::inline v0::detail
