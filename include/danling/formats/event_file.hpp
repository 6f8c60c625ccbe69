// TensorBoard event files: one Event message per TFRecord.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <danling/formats/file.hpp>

namespace danling::inline v0::formats {

/// Fields that danling adds to its Event messages. TensorBoard's readers skip them.
constexpr int event_line_field = 1000;          ///< number, from 1, of the line of metrics.jsonl that it copies
constexpr int event_in_step_field = 1002;       ///< 1 if a step of training wrote that line
constexpr int event_lines_before_field = 1001;  ///< without a line: number of lines written before the event

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
  /// @throws DataError as InputFile
  explicit EventFileReader(std::filesystem::path path);

  /// Returns the next record, valid until the next call; nullopt at the end of the file or before an incomplete record.
  /// @throws DataError if a checksum is wrong; every later call then throws too
  std::optional<std::string_view> next();
  /// Reads the next record as an Event. @throws DataError as next(), and if the record is not a message
  std::optional<EventHead> next_event();
  /// The position of the record that next() reads next, which is the end of the last complete record.
  std::uint64_t offset() const { return offset_; }
  std::uint64_t size() const { return file_.size(); }

 private:
  std::string_view bytes(std::uint64_t offset, std::uint64_t count);

  InputFile file_;
  std::uint64_t offset_ = 0;
  std::string buffer_;       // the part of the file that was read last
  std::uint64_t begin_ = 0;  // its position
};

}  // namespace danling::inline v0::formats
