// A memory-mapped file for reading: for data larger than memory, or for random access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include <danling/formats/file.hpp>

namespace danling::inline v0::formats {

/// Access pattern of a mapped file; controls the system's read-ahead.
enum class Access { normal, sequential, random };

/// An InputFile whose content is mapped too, with its size at opening. Costs address space, no memory of the process.
/// Errors are DataErrors; `where` is the `component.operation` of messages.
///
/// If a mapped file is truncated, reading a lost page ends the process with SIGBUS. Readers call `check_size()` before
/// each batch; it throws instead, unless the file is truncated during the batch. To replace a data file, rename a new
/// one over it, which does not affect mappings; never truncate or rewrite it in place. A device error during a page
/// read also ends the process.
class MappedFile : public InputFile {
 public:
  /// @throws DataError with the system's reason if it cannot be opened or mapped, or is not a regular file
  explicit MappedFile(std::filesystem::path path, Access access = Access::normal, std::string_view where = "data.file");
  ~MappedFile();

  /// The whole file.
  std::span<const std::byte> bytes() const { return {data_, static_cast<std::size_t>(size())}; }
  /// A part of the file. @throws DataError if it is not inside the file
  std::span<const std::byte> bytes(std::uint64_t offset, std::uint64_t count) const;
  /// The whole file as text.
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), static_cast<std::size_t>(size())}; }

  /// Queries the file's size. @throws DataError if the file is shorter than at opening
  void check_size() const;
  /// Hints the access pattern of later reads.
  void advise(Access access) const;

 private:
  const std::byte* data_ = nullptr;
};

}  // namespace danling::inline v0::formats
