// Event files: a run as TensorBoard reads it, one Event message in each TFRecord.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

namespace danling::inline v0::formats {

/// Fields that danling adds to its Event messages. TensorBoard's readers skip them.
constexpr int event_line_field = 1000;          ///< the line of metrics.jsonl that the event repeats
constexpr int event_in_step_field = 1002;       ///< of such: 1 when a step made it
constexpr int event_lines_before_field = 1001;  ///< of other events: how many lines came before

/// The CRC-32C (Castagnoli) of `bytes`.
std::uint32_t crc32c(std::string_view bytes);

/// Appends `message` as a TFRecord: length, masked CRC-32C of the length, message, masked CRC-32C of the message.
/// Source: https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
void append_tfrecord(std::string& out, std::string_view message);

/// The fields of an Event that its writer needs to continue.
struct EventHead {
  std::int64_t step = 0;
  std::string writer;  ///< source_metadata.writer; in the first event of a file
  std::optional<std::int64_t> line, lines_before;
  bool in_step = false;
};

/// Reads the records of an event file, as long as it was when opened.
class EventFileReader {
 public:
  /// @throws DataError when it cannot be read.
  explicit EventFileReader(std::filesystem::path path);

  /// The next record, or nothing at the end of the file and before an incomplete record. Valid until the next call.
  /// @throws DataError when a checksum is wrong; so does every later call.
  std::optional<std::string_view> next();
  /// Its Event. @throws DataError also when the record is no message.
  std::optional<EventHead> next_event();
  /// Where the record begins that next() reads next: the end of the last complete one.
  std::uint64_t offset() const { return offset_; }
  std::uint64_t size() const { return size_; }

 private:
  std::filesystem::path path_;
  std::ifstream file_;
  std::uint64_t size_ = 0, offset_ = 0;
  std::uint64_t position_ = 0;  // of the stream
  std::string record_;
};

/// A new event file. One thread at a time.
class EventFileWriter {
 public:
  /// @throws Error when it cannot be created, or exists.
  explicit EventFileWriter(std::filesystem::path path);
  ~EventFileWriter();
  EventFileWriter(const EventFileWriter&) = delete;
  EventFileWriter& operator=(const EventFileWriter&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Appends TFRecords, all or none, so that a failed call can be repeated. Recreates a removed file and its directory
  /// with the whole content. @throws Error with the system's reason (disk full, file too large).
  void append(std::string_view records);

 private:
  int write(std::string_view records) noexcept;

  std::filesystem::path path_;
  int file_ = -1;
  std::uint64_t size_ = 0;
  bool torn_ = false;  // part of a record behind `size_` could not be cut off
};

}  // namespace danling::inline v0::formats
