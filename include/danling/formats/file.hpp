// Readers of files and atomic writers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <danling/core/detail/descriptor.hpp>
#include <danling/core/error.hpp>

namespace danling::inline v0::formats {

class SideThread;

/// Receives data piece by piece.
using PieceSink = std::function<void(std::span<const std::byte> piece)>;

/// The errors of a reader or writer: their type, and the `component.operation` of their messages.
class FileErrors {
 public:
  template <class E>
  static FileErrors of(std::string_view where) {
    return FileErrors(where, [](const std::string& text) { throw E(text); });
  }
  const std::string& where() const { return where_; }

  /// Throws `[where] parts...`.
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    raise_(danling::detail::concat("[", where_, "] ", parts...));
    __builtin_unreachable();
  }
  /// Throws ``[where] expected to <what> '<path>', got errno 28 (No space left on device)``.
  [[noreturn]] void fail_system(std::string_view what, const std::filesystem::path& path, int error) const;

 private:
  using Raise = void (*)(const std::string& text);
  FileErrors(std::string_view where, Raise raise) : where_(where), raise_(raise) {}

  std::string where_;
  Raise raise_;
};

FileErrors read_errors();   ///< CheckpointError with `checkpoint.read`
FileErrors write_errors();  ///< CheckpointError with `checkpoint.write`

/// A regular file open for positioned reads, which throw if the file is truncated while it is open. Several threads may
/// read at a time.
class InputFile {
 public:
  /// Throws ``[where] expected a readable file, got '<path>': <reason>`` if it cannot be opened or is not a regular
  /// file.
  explicit InputFile(std::filesystem::path path, FileErrors errors = read_errors());
  /// Opens the `length` bytes of the file from `offset` on as if they were a file. Throws also if the file is shorter.
  InputFile(std::filesystem::path path, std::uint64_t offset, std::uint64_t length);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const FileErrors& errors() const { return errors_; }
  /// Bytes in the file, or in its opened part, at opening.
  std::uint64_t size() const { return size_; }

  /// Fills `out` from `offset`. Throws if the file is shorter or cannot be read.
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  void read(std::uint64_t offset, std::span<char> out) const { read(offset, std::as_writable_bytes(out)); }
  /// Reads `count` bytes from `offset` on. Throws as read().
  std::string text(std::uint64_t offset, std::uint64_t count) const;
  /// Reads the whole file.
  std::string text() const { return text(0, size_); }
  /// Hints that this part will be read; costs about 1 us per 16 KiB. Call it for all records of a batch before reading
  /// the first: the device then reads them in parallel and in large pieces.
  void prefetch(std::uint64_t offset, std::uint64_t count) const;

 protected:
  void check_range(std::uint64_t offset, std::uint64_t count) const;
  /// Throws `expected a readable file`.
  [[noreturn]] void refuse(std::string_view reason) const;
  int descriptor() const { return descriptor_.get(); }

 private:
  friend class AtomicFile;
  std::filesystem::path path_;
  FileErrors errors_;
  danling::detail::Descriptor descriptor_;
  std::uint64_t begin_ = 0;
  std::uint64_t size_ = 0;
  bool whole_ = true;
};

/// Reads a file to its end: also a pipe, or a file of /proc, whose size is unknown.
std::string read_to_end(const std::filesystem::path& path, const FileErrors& errors);

/// A new file that is renamed to its target only when it is complete and on disk. Until then it is a temporary file in
/// the same directory, `.<name>.tmp-<process>-<number>`. The writer holds a lock on it; the destructor removes it
/// unless commit() succeeded. After an error every call throws: the system's results are unreliable after a failed
/// write or sync, and the content may be incomplete. One thread at a time.
class AtomicFile {
 public:
  /// Throws with the system's reason if the directory is not writable.
  explicit AtomicFile(std::filesystem::path target, FileErrors errors = write_errors());
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends `bytes`. Throws with the system's reason (disk full, file too large).
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// Appends `bytes` while `meanwhile` runs on a second thread (before the write on a single core); returns when both
  /// are done. For large pieces; `meanwhile` may read `bytes`. Throws also the exceptions of `meanwhile`.
  void write(std::span<const std::byte> bytes, const std::function<void()>& meanwhile);
  /// Appends another file. Shares its blocks if this file is empty, the source is a whole file and the file system
  /// supports it; else copies them.
  void write(const InputFile& source);
  /// Overwrites bytes from `offset` on, for example a checksum that precedes its content. Throws also if fewer bytes
  /// were written.
  void rewrite(std::uint64_t offset, std::string_view text);
  /// Bytes written so far.
  std::uint64_t size() const { return size_; }

  /// Syncs the file to disk and checks its size; nothing can be written afterwards. Waits for the disk.
  void finish();
  /// Calls finish(), renames the file to its target and syncs the directory. If only the last sync fails, throws
  /// although the file has its new name.
  void commit();

  const std::filesystem::path& target() const { return target_; }
  const std::filesystem::path& temporary() const { return temporary_; }

 private:
  void begin_write(std::size_t bytes);
  void flush();
  void append(std::span<const std::byte> bytes);
  void check_system(int error, std::string_view what);

  std::filesystem::path target_;
  FileErrors errors_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  int owner_ = 0;  // the owning process
  std::uint64_t size_ = 0;
  std::vector<std::byte> buffer_;
  std::uint64_t written_ = 0;        // passed to the system
  std::uint64_t writeback_end_ = 0;  // end of the bytes whose writeback has begun
  std::unique_ptr<SideThread> side_;
  bool failed_ = false;
  bool finished_ = false;
  bool committed_ = false;
};

/// Replaces the file at `path` by `text` atomically, as AtomicFile.
void replace_file(const std::filesystem::path& path, std::string_view text, const FileErrors& errors = write_errors());

/// Renames the complete directory `made` to `place` and removes an existing one, without an error if that fails. A
/// reader always finds one of the two if the file system can exchange names. Syncs nothing.
void replace_directory(const std::filesystem::path& made, const std::filesystem::path& place,
                       const FileErrors& errors = write_errors());

/// Syncs the entries of a directory to disk; no effect if the file system or a missing permission does not allow it.
void sync_directory(const std::filesystem::path& directory, const FileErrors& errors = write_errors());
/// Syncs the data of a file that other code writes; no effect if it is missing.
void sync_file(const std::filesystem::path& path, const FileErrors& errors = write_errors());

/// Adds a name to an existing file in two steps. The constructor preserves the current content: by a hard link, which
/// does not protect it from writes in place, else by shared blocks, else by a copy synced to disk. commit() renames it
/// to `name` and replaces a file of that name. Without commit() nothing remains.
class PendingAlias {
 public:
  /// @throws CheckpointError
  PendingAlias(const std::filesystem::path& existing, std::filesystem::path name);
  ~PendingAlias();
  PendingAlias(const PendingAlias&) = delete;
  PendingAlias& operator=(const PendingAlias&) = delete;
  /// Renames the content to `name`. A link is durable only after sync_directory(). @throws CheckpointError
  void commit();

 private:
  std::filesystem::path name_;
  std::filesystem::path link_;
  std::optional<AtomicFile> copy_;
};

/// Removes the temporary files of AtomicFile in `directory` whose writers have ended: unlocked files whose names begin
/// with a dot and contain ".tmp-". Do not call it while a PendingAlias of this directory exists. Returns the removed
/// paths.
std::vector<std::filesystem::path> remove_stale_temporaries(const std::filesystem::path& directory) noexcept;

}  // namespace danling::inline v0::formats
