#include <danling/telemetry/tensorboard_sink.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>

#include <danling/core/error.hpp>
#include <danling/formats/event_file.hpp>

#include <telemetry/append_file.hpp>
#include <telemetry/external_run.hpp>
#include <telemetry/tensorboard_summary.hpp>

namespace danling::inline v0 {
namespace {

namespace fs = std::filesystem;
using detail::TensorBoardSummary;
using formats::EventHead;
using formats::ProtobufWriter;

constexpr std::string_view tensorboard_where = "tensorboard.begin";
constexpr std::string_view name_begin = "events.out.tfevents.";
constexpr std::string_view name_end = ".danling";
constexpr std::string_view writer_name = "danling";

ProtobufWriter make_event(double time, std::int64_t step) {
  ProtobufWriter out;
  out.number(1, time);
  if (step != 0) {
    out.integer(2, step);
  }
  return out;
}

std::string record_of(const ProtobufWriter& event) {
  std::string out;
  formats::append_tfrecord(out, event.bytes());
  return out;
}

// Formats an event that does not belong to a line of metrics.jsonl.
std::string beside_lines(ProtobufWriter event, const TensorBoardSummary& summary, std::int64_t lines_before,
                         bool in_step = false) {
  event.message(5, summary.message()).integer(formats::event_lines_before_field, lines_before);
  if (in_step) {
    event.integer(formats::event_in_step_field, 1);
  }
  return record_of(event);
}

// Returns the seconds in the name of a file of this class; nullopt for other files.
std::optional<std::int64_t> seconds_in(const std::string& name) {
  if (!name.starts_with(name_begin) || !name.ends_with(name_end) ||
      name.size() <= name_begin.size() + name_end.size()) {
    return {};
  }
  const char* const first = name.data() + name_begin.size();
  const char* const last = name.data() + name.size() - name_end.size();
  std::int64_t seconds = 0;
  const auto [end, error] = std::from_chars(first, last, seconds);
  return error == std::errc() && end == last && seconds >= 0 ? std::optional(seconds) : std::nullopt;
}

// Returns the files of this class in a directory, in the order in which TensorBoard reads them (by name).
std::map<std::int64_t, fs::path> own_files(const fs::path& directory) {
  std::map<std::int64_t, fs::path> out;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    if (const auto seconds = seconds_in(entry->path().filename().string())) {
      std::error_code other;
      if (entry->is_regular_file(other)) {
        out.emplace(*seconds, entry->path());
      }
    }
  }
  return out;
}

// Returns the newest directory in `root` with files of this class, or an empty path.
fs::path latest_directory(const fs::path& root) {
  fs::path out;
  std::error_code error;
  for (fs::directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path() > out && !own_files(entry->path()).empty()) {
      out = entry->path();
    }
  }
  return out;
}

struct EventExtent {
  bool own = false;         // written by this class
  bool whole = true;        // at most an incomplete record is behind `bytes`
  std::uint64_t bytes = 0;  // position of the first event to remove
  std::uint64_t size = 0;   // size of the file
  std::int64_t held = 0;    // the last line of metrics.jsonl before `bytes`
};

bool belongs(const EventHead& event, const RunInfo& run) {
  return (!event.line || *event.line <= run.lines) &&
         (!event.lines_before ||
          (*event.lines_before <= run.lines && event.step <= run.global_step - (event.in_step ? 1 : 0)));
}

EventExtent extent_of(const fs::path& path, const RunInfo& run) {
  EventExtent out;
  try {
    formats::EventFileReader reader(path);
    out.size = reader.size();
    for (auto event = reader.next_event(); event; event = reader.next_event()) {
      if (out.bytes == 0) {
        out.own = event->writer == writer_name;
      }
      if (!out.own || !belongs(*event, run)) {
        out.whole = false;
        return out;
      }
      out.bytes = reader.offset();
      out.held = std::max(out.held, event->line.value_or(0));
    }
  } catch (const DataError&) {
    out.whole = false;  // TensorBoard also stops here
  }
  return out;
}

// Removes events after the position from which the run continues. Returns the last line that the files have.
std::int64_t cut(const std::map<std::int64_t, fs::path>& files, const RunInfo& run) {
  std::int64_t held = 0;
  bool found = false;
  for (const auto& [seconds, path] : files) {
    const EventExtent extent = extent_of(path, run);
    if (!extent.own) {
      continue;
    }
    std::error_code error;
    if (found) {
      fs::remove(path, error);
    } else if (extent.bytes < extent.size) {
      fs::resize_file(path, extent.bytes, error);
    }
    check(!error, tensorboard_where, "expected to cut off events of later steps in ", path.string(), ", got ",
          quote(error.message()));
    held = found ? held : std::max(held, extent.held);
    found = found || !extent.whole;
  }
  return held;
}

std::int64_t now() {
  using namespace std::chrono;
  return duration_cast<seconds>(system_clock::now().time_since_epoch()).count();
}

}  // namespace

TensorBoardSink::TensorBoardSink() = default;
TensorBoardSink::~TensorBoardSink() = default;

// Each begin() starts a new file, since a running TensorBoard may have read beyond the truncation in the old file.
std::int64_t TensorBoardSink::begin(const RunInfo& run) {
  train_splits_ = run.train_splits;
  check<ConfigError>(!run.dir.empty(), tensorboard_where,
                     "expected a run with a directory, got one with record: false");
  const fs::path root = run.dir / "tensorboard";
  if (directory_.parent_path() != root || attempt_ != run.timestamp) {
    const fs::path earlier = run.lines > 0 ? latest_directory(root) : fs::path();
    directory_ = earlier.empty() ? root / run.timestamp : earlier;
    attempt_ = run.timestamp;
  }
  file_.reset();
  const auto files = own_files(directory_);
  const std::int64_t held = cut(files, run);

  last_time_ = run.time;
  ProtobufWriter source, head = make_event(run.time, 0);
  source.text(1, writer_name);
  std::string records = record_of(head.text(3, "brain.Event:2").message(10, source));
  // At a further event of this kind, a running TensorBoard drops the points from this step on.
  ProtobufWriter session_log, start = make_event(run.time, files.empty() ? 0 : run.global_step + 1);
  records += record_of(start.message(7, session_log.integer(1, 1)));
  if (files.empty()) {
    TensorBoardSummary summary;
    summary.session_start(run.hparams, run.time);
    summary.text("config", concat("```yaml\n", run.config, run.config.ends_with('\n') ? "" : "\n", "```\n"));
    ProtobufWriter first = make_event(run.time, 0);
    records += record_of(first.message(5, summary.message()));
  }
  std::error_code ignored;
  fs::create_directories(directory_, ignored);
  const std::int64_t seconds = std::max(run.time > 0 ? static_cast<std::int64_t>(run.time) : now(),
                                        files.empty() ? std::int64_t{0} : files.rbegin()->first + 1);
  const std::string digits = std::to_string(seconds);
  auto file = std::make_unique<detail::AppendFile>(
      directory_ /
          concat(name_begin, std::string(10 - std::min<std::size_t>(10, digits.size()), '0'), digits, name_end),
      detail::AppendFile::Content::created);
  try {
    file->append(records);
  } catch (...) {
    fs::remove(file->path(), ignored);
    throw;
  }
  file_ = std::move(file);
  return held;
}

double TensorBoardSink::wall_time(double time) { return last_time_ = time > 0 ? time : last_time_; }

void TensorBoardSink::append(const std::string& event) {
  check<StateError>(file_ != nullptr, "tensorboard.append", "expected begin() before the first record, got none");
  file_->restore();
  file_->append(event);
}

void TensorBoardSink::scalars(const ScalarRecord& record) {
  if (record.iteration && record.mode != "train") {
    return;  // the step does not change during an evaluation
  }
  const std::string label = detail::series_of(record, train_splits_);
  TensorBoardSummary summary;
  summary.scalars(label, record.values);
  summary.scalars(concat("telemetry/", label), record.telemetry);
  if (!summary.empty()) {
    ProtobufWriter event = make_event(wall_time(record.time), record.global_step);
    append(record_of(event.message(5, summary.message()).integer(formats::event_line_field, record.line)));
  }
}

void TensorBoardSink::histogram(const HistogramRecord& record) {
  TensorBoardSummary summary;
  if (record.histogram.count > 0) {
    summary.histogram(record.name, record.histogram);
  }
  if (record.histogram.nonfinite > 0) {
    summary.scalar(concat("nonfinite/", record.name), static_cast<double>(record.histogram.nonfinite));
  }
  if (!summary.empty()) {
    append(beside_lines(make_event(wall_time(record.time), record.global_step), summary, record.line, record.in_step));
  }
}

void TensorBoardSink::text(const TextRecord& record) {
  TensorBoardSummary summary;
  summary.text(record.name, record.text);
  append(beside_lines(make_event(wall_time(record.time), record.global_step), summary, record.line, record.in_step));
}

void TensorBoardSink::image(const ImageRecord& record) {
  TensorBoardSummary summary;
  summary.image(record);
  append(beside_lines(make_event(wall_time(record.time), record.global_step), summary, record.line, record.in_step));
}

void TensorBoardSink::end(const EndRecord& record) {
  TensorBoardSummary summary;
  for (const auto& [name, value] : record.metrics) {
    summary.scalar(concat("results/", name), value);
  }
  if (!record.error.empty()) {
    summary.text("error", concat("```\n", record.error, "\n```\n"));
  }
  if (record.status != "stopped") {  // a stopped run may resume, and TensorBoard would keep its first end
    summary.session_end(record.status == "finished", wall_time(record.time));
  }
  if (!summary.empty()) {
    // Belongs behind every line, so an attempt that resumes this run removes it.
    append(beside_lines(make_event(wall_time(record.time), record.global_step), summary,
                        std::numeric_limits<std::int64_t>::max()));
  }
}

}  // namespace danling::inline v0
