// TensorBoard event files: one Event message per TFRecord.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

namespace danling::inline v0::formats {

/// Fields that danling adds to its Event messages. TensorBoard's readers skip them.
constexpr int event_line_field = 1000;          ///< the line of metrics.jsonl that the event copies
constexpr int event_in_step_field = 1002;       ///< for such an event: 1 if a step wrote the line
constexpr int event_lines_before_field = 1001;  ///< for any other event: the number of lines before it

/// Returns the CRC-32C (Castagnoli) of `bytes`.
std::uint32_t crc32c(std::string_view bytes);

/// Appends `message` as a TFRecord: length, masked CRC-32C of the length, message, masked CRC-32C of the message.
/// Source: https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
void append_tfrecord(std::string& out, std::string_view message);

/// The fields of an Event that a resumed writer needs.
struct EventHead {
  std::int64_t step = 0;
  std::string writer;  ///< source_metadata.writer; in the first event of a file
  std::optional<std::int64_t> line, lines_before;
  bool in_step = false;
};

/// Reads the records of an event file; ignores bytes appended after opening.
class EventFileReader {
 public:
  /// @throws DataError if the file cannot be read
  explicit EventFileReader(std::filesystem::path path);

  /// Returns the next record, valid until the next call; nullopt at the end of the file or before an incomplete record.
  /// @throws DataError if a checksum is wrong; every later call then throws too
  std::optional<std::string_view> next();
  /// Reads the next record as an Event. @throws DataError as next(), and if the record is not a message
  std::optional<EventHead> next_event();
  /// The position of the record that next() reads next, which is the end of the last complete record.
  std::uint64_t offset() const { return offset_; }
  std::uint64_t size() const { return size_; }

 private:
  std::filesystem::path path_;
  std::ifstream file_;
  std::uint64_t size_ = 0, offset_ = 0;
  std::uint64_t position_ = 0;  // of the stream
  std::string record_;
};

/// Creates an event file and appends to it. One thread at a time.
class EventFileWriter {
 public:
  /// @throws Error if the file exists or cannot be created
  explicit EventFileWriter(std::filesystem::path path);
  ~EventFileWriter();
  EventFileWriter(const EventFileWriter&) = delete;
  EventFileWriter& operator=(const EventFileWriter&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Appends TFRecords, all or none, so a caller may retry after an error. Recreates a removed file and its directory
  /// with the whole content. @throws Error with the system's reason (disk full, file too large)
  void append(std::string_view records);

 private:
  int write(std::string_view records) noexcept;

  std::filesystem::path path_;
  int file_ = -1;
  std::uint64_t size_ = 0;
  bool torn_ = false;  // the file still has part of a record behind `size_`: truncation failed
};

}  // namespace danling::inline v0::formats
