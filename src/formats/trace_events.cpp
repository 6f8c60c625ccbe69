#include <formats/trace_events.hpp>

#include <array>
#include <cmath>
#include <istream>
#include <span>
#include <streambuf>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>

#include <formats/gzip.hpp>

namespace danling::inline v0::formats {

std::uint32_t TraceNames::find(std::string_view text) {
  const auto [found, added] = numbers_.try_emplace(std::string(text), static_cast<std::uint32_t>(texts_.size()));
  if (added) {
    texts_.push_back(&found->first);
  }
  return found->second;
}

namespace {

using Json = nlohmann::json;

/// The content of a file, plain or gzip'd, for the parser.
class ContentBuffer : public std::streambuf {
 public:
  explicit ContentBuffer(const InputFile& file) : reader_(file) {}

  /// The reason why reading ended early; empty at the end of the file.
  std::string_view failure() const { return reader_.cut_off() ? "unexpected end of file" : reader_.damage(); }

 protected:
  int_type underflow() override {
    const std::size_t count = reader_.read(std::as_writable_bytes(std::span(piece_)));
    setg(piece_.data(), piece_.data(), piece_.data() + count);
    return count == 0 ? traits_type::eof() : traits_type::to_int_type(piece_.front());
  }

 private:
  ContentReader reader_;
  std::array<char, 1U << 18U> piece_{};
};

/// Receives the values of a trace, which is an object with a list `traceEvents`, or only the list.
class EventReader {
 public:
  EventReader(TraceEvents& out, bool by_shape) : out_(out), by_shape_(by_shape) {}

  const std::string& error() const { return error_; }

  // The functions that nlohmann::json::sax_parse calls.
  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(Json::number_integer_t value) { return number(static_cast<double>(value), value); }
  bool number_unsigned(Json::number_unsigned_t value) {
    return number(static_cast<double>(value), static_cast<std::int64_t>(value));
  }
  bool number_float(Json::number_float_t value, const std::string&) {
    return number(value, static_cast<std::int64_t>(std::abs(value) < 9e18 ? value : 0));
  }
  bool binary(Json::binary_t&) { return true; }
  bool string(std::string& text);
  bool start_object(std::size_t);
  bool key(std::string& text);
  bool end_object();
  bool start_array(std::size_t);
  bool end_array();
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) {
    error_ = concat("byte ", position);
    return false;
  }

 private:
  enum class Field { none, ph, cat, name, pid, tid, ts, dur, args };
  enum class Arg { none, sizes, values, bytes, device_type };
  struct Raw {
    std::string ph, cat, name, pid, tid;
    double ts = 0.0, dur = 0.0;
    std::vector<std::vector<std::int64_t>> sizes;
    std::vector<std::string> values;
    std::int64_t bytes = 0, device_type = 0;
    bool has_sizes = false;
  };

  bool in_event() const { return depth_ == list_depth_ + 1 && list_depth_ > 0; }
  bool in_args() const { return depth_ >= list_depth_ + 2 && list_depth_ > 0 && field_ == Field::args; }
  bool number(double value, std::int64_t whole);
  void add();

  TraceEvents& out_;
  bool by_shape_;
  int depth_ = 0, list_depth_ = 0;
  bool is_list_next_ = false;
  Field field_ = Field::none;
  Arg arg_ = Arg::none;
  Raw raw_;
  std::string error_, scratch_;
};

bool EventReader::string(std::string& text) {
  if (in_event()) {
    switch (field_) {
      case Field::ph:
        raw_.ph = text;
        break;
      case Field::cat:
        raw_.cat = text;
        break;
      case Field::name:
        raw_.name = text;
        break;
      case Field::pid:
        raw_.pid = text;
        break;
      case Field::tid:
        raw_.tid = text;
        break;
      default:
        break;
    }
  } else if (in_args() && arg_ == Arg::values) {
    raw_.values.push_back(text);
  }
  return true;
}

bool EventReader::number(double value, std::int64_t whole) {
  if (in_event()) {
    switch (field_) {
      case Field::ts:
        raw_.ts = value;
        break;
      case Field::dur:
        raw_.dur = value;
        break;
      case Field::pid:
        raw_.pid = std::to_string(whole);
        break;
      case Field::tid:
        raw_.tid = std::to_string(whole);
        break;
      default:
        break;
    }
  } else if (in_args()) {
    if (arg_ == Arg::sizes && !raw_.sizes.empty()) {
      raw_.sizes.back().push_back(whole);
    } else if (arg_ == Arg::bytes) {
      raw_.bytes = whole;
    } else if (arg_ == Arg::device_type) {
      raw_.device_type = whole;
    }
  }
  return true;
}

bool EventReader::start_object(std::size_t) {
  ++depth_;
  is_list_next_ = false;
  if (in_event()) {
    raw_.ph.clear(), raw_.cat.clear(), raw_.name.clear(), raw_.pid.clear(), raw_.tid.clear();
    raw_.sizes.clear(), raw_.values.clear();
    raw_.ts = raw_.dur = 0.0;
    raw_.bytes = raw_.device_type = 0;
    raw_.has_sizes = false;
    field_ = Field::none;
    arg_ = Arg::none;
  }
  return true;
}

bool EventReader::key(std::string& text) {
  if (list_depth_ == 0) {
    is_list_next_ = depth_ == 1 && text == "traceEvents";
  } else if (in_event()) {
    field_ = text == "ph"     ? Field::ph
             : text == "cat"  ? Field::cat
             : text == "name" ? Field::name
             : text == "pid"  ? Field::pid
             : text == "tid"  ? Field::tid
             : text == "ts"   ? Field::ts
             : text == "dur"  ? Field::dur
             : text == "args" ? Field::args
                              : Field::none;
  } else if (in_args() && depth_ == list_depth_ + 2) {
    arg_ = text == "Input Dims"        ? Arg::sizes
           : text == "Concrete Inputs" ? Arg::values
           : text == "Bytes"           ? Arg::bytes
           : text == "Device Type"     ? Arg::device_type
                                       : Arg::none;
    raw_.has_sizes = raw_.has_sizes || arg_ == Arg::sizes;
  }
  return true;
}

bool EventReader::end_object() {
  if (in_event()) {
    add();
  }
  --depth_;
  return true;
}

bool EventReader::start_array(std::size_t) {
  ++depth_;
  if (list_depth_ == 0 && (is_list_next_ || depth_ == 1)) {
    list_depth_ = depth_;
  } else if (in_args() && arg_ == Arg::sizes && depth_ == list_depth_ + 4) {
    raw_.sizes.emplace_back();
  }
  is_list_next_ = false;
  return true;
}

bool EventReader::end_array() {
  if (depth_ == list_depth_) {
    list_depth_ = -1;  // only metadata follows
  }
  --depth_;
  return true;
}

void EventReader::add() {
  TraceEvent event;
  const std::string& cat = raw_.cat;
  if (raw_.ph == "X") {
    if (cat == "cpu_op") {
      event.kind = TraceKind::op;
    } else if (cat == "user_annotation") {
      event.kind = TraceKind::range;
    } else if (cat == "kernel" || cat == "gpu_memcpy" || cat == "gpu_memset") {
      event.kind = TraceKind::kernel;
    } else if (cat.ends_with("_runtime") || cat.ends_with("_driver")) {
      event.kind = TraceKind::runtime;
    } else {
      return;  // Python functions, device copies of ranges, and the profiler's own work
    }
  } else if (raw_.ph == "i" && raw_.name == "[memory]") {
    event.kind = TraceKind::memory;
    event.amount = raw_.bytes;
    event.on_device = raw_.device_type != 0;
  } else {
    return;
  }
  constexpr double most = 2e15;  // microseconds: beyond the time since 1970
  if (!(std::abs(raw_.ts) < most && raw_.dur >= 0.0 && raw_.dur < most)) {
    return;
  }
  // A double stores a month in microseconds with an error of less than half a nanosecond.
  event.begin = std::llround(raw_.ts * 1000.0);
  event.end = event.begin + std::llround(raw_.dur * 1000.0);
  event.name = out_.names.find(raw_.name);
  scratch_.assign(raw_.pid).append("\n").append(raw_.tid);
  event.track = out_.tracks.find(scratch_);
  if (raw_.has_sizes && event.kind == TraceKind::op) {
    event.amount = trace_flops(raw_.name, raw_.sizes, raw_.values);
    if (by_shape_) {
      scratch_ = "[";
      for (const auto& sizes : raw_.sizes) {
        scratch_ += concat(scratch_.size() > 1 ? ", [" : "[", join(sizes), "]");
      }
      event.shapes = out_.names.find(scratch_ + "]");
    }
  }
  out_.events.push_back(event);
}

}  // namespace

TraceEvents read_trace_events(const std::filesystem::path& path, bool by_shape) {
  TraceEvents out;
  const InputFile file(path, FileErrors::of<DataError>("trace.read"));
  ContentBuffer buffer(file);
  std::istream text(&buffer);
  EventReader reader(out, by_shape);
  const bool whole = Json::sax_parse(text, &reader, Json::input_format_t::json, /*strict=*/false);
  if (!whole) {
    out.cut_off = concat("the file is damaged or ends early, at ", reader.error(),
                         buffer.failure().empty() ? "" : concat(" (", buffer.failure(), ")"));
  }
  check<DataError>(!out.events.empty(), "trace.read",
                   "expected a trace with events of a profiler, in Chrome's JSON format (*.pt.trace.json), got ",
                   quote(path.string()), ", ",
                   whole ? "a JSON file without such events" : concat("unreadable JSON: ", out.cut_off));
  return out;
}

}  // namespace danling::inline v0::formats
