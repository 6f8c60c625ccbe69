// Event files: records that the writer frames with the same bytes, one behind the other, or an error.
#include <danling/formats/event_file.hpp>

#include <string>

#include <danling/core/error.hpp>

#include "memory_file.hpp"

namespace danling_fuzz {

// A record is held once, and once more where this file frames it; the input twice more.
const Allowance allowance{std::size_t{1} << 22, 8};

void run(std::string_view input) {
  const MemoryFile file(input);
  danling::formats::EventFileReader records(file.path());
  std::size_t whole = 0;
  std::string framed;
  for (auto record = records.next(); record; record = records.next()) {
    framed.clear();
    danling::formats::append_tfrecord(framed, *record);
    require(framed == input.substr(whole, records.offset() - whole), "a record as its writer frames it");
    whole = records.offset();
  }
  require(whole <= input.size(), "records inside the file");

  // Behind checksums that hold.
  framed.clear();
  danling::formats::append_tfrecord(framed, input);
  const MemoryFile one(framed);
  danling::formats::EventFileReader event(one.path());
  try {
    require(event.next_event().has_value() && event.offset() == framed.size(), "an event of the whole record");
  } catch (const danling::DataError&) {
    require(event.offset() == 0, "a place before the record that is no event");
  }

  danling::formats::EventFileReader events(file.path());
  while (const auto next = events.next_event()) {
    require(next->writer.size() <= input.size(), "a writer of the file");
  }
  require(events.offset() == whole, "an event in each record");
}

}  // namespace danling_fuzz
