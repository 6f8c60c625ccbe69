// SinkThread: order, slow and failing sinks, drops, replays.
#include <danling/telemetry/sink_thread.hpp>

#include <atomic>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <thread>

#include <danling/core/error.hpp>

#include <support/catch.hpp>
#include <support/temp_dir.hpp>

namespace dl = danling;

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// A sink that keeps its calls as text.
class Kept : public dl::Sink {
 public:
  std::string name() const override { return "kept"; }
  std::int64_t begin(const dl::RunInfo& run) override {
    add(dl::detail::concat("begin ", run.lines));
    return holds;
  }
  void scalars(const dl::ScalarRecord& record) override {
    const std::lock_guard lock(mutex);
    if (failures > 0) {
      --failures;
      dl::detail::fail<dl::Error>("kept.write", "expected space, got none");
    }
    given.push_back(dl::detail::concat("line ", record.line));
  }
  void text(const dl::TextRecord& record) override { add(record.text); }
  void end(const dl::EndRecord& record) override { add(record.status); }
  void flush() override { ++flushes; }

  void add(const std::string& what) {
    const std::lock_guard lock(mutex);
    given.push_back(what);
  }
  std::vector<std::string> all() {
    const std::lock_guard lock(mutex);
    return given;
  }

  std::mutex mutex;
  std::vector<std::string> given;
  std::int64_t holds = 0;
  int failures = 0;
  std::atomic<int> flushes = 0;
};

/// Does not return from text() until it is opened.
class Gate : public Kept {
 public:
  void text(const dl::TextRecord& record) override {
    std::unique_lock lock(gate);
    waits = true;
    changed.notify_all();
    changed.wait(lock, [&] { return open; });
    add(record.text);
  }
  void wait_until_it_waits() {
    std::unique_lock lock(gate);
    changed.wait(lock, [&] { return waits; });
  }
  void open_it() {
    const std::lock_guard lock(gate);
    open = true;
    changed.notify_all();
  }

  std::mutex gate;
  std::condition_variable changed;
  bool waits = false, open = false;
};

class SinkLog {
 public:
  dl::SinkThread::Log log() {
    return [this](dl::LogLevel, const std::string& text) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(text);
    };
  }
  std::vector<std::string> all() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

std::shared_ptr<const dl::SinkItem> line(std::int64_t number, bool final = false) {
  return std::make_shared<dl::SinkItem>(dl::ScalarRecord{.line = number}, final);
}
std::shared_ptr<const dl::SinkItem> text(const std::string& what) {
  return std::make_shared<dl::SinkItem>(dl::TextRecord{.text = what}, true);
}

}  // namespace

TEST_CASE("SinkThread: a sink gets all records in order, then a flush", "[telemetry][sinks]") {
  const auto sink = std::make_shared<Kept>();
  SinkLog lines;
  dl::SinkThread thread(sink, lines.log());
  thread.begin({});
  thread.post(line(1));
  thread.post(text("hello"));
  thread.post(std::make_shared<dl::SinkItem>(dl::EndRecord{.status = "finished"}));
  CHECK(thread.drain(seconds(60)));
  CHECK(sink->all() == std::vector<std::string>{"begin 0", "line 1", "hello", "finished"});
  CHECK(sink->flushes >= 1);
  CHECK(thread.num_written() == 3);
  thread.close(seconds(60));
  CHECK(lines.all().empty());
}

TEST_CASE("SinkThread: a slow sink loses lines between boundaries, never final ones, and says how many",
          "[telemetry][sinks]") {
  const auto sink = std::make_shared<Gate>();
  SinkLog lines;
  dl::SinkThread thread(sink, lines.log(), {.capacity = 2});
  thread.post(text("first"));
  sink->wait_until_it_waits();
  for (std::int64_t number = 1; number <= 5; ++number) {
    thread.post(line(number));
  }
  thread.post(line(6, /*final=*/true));
  CHECK(thread.num_dropped() == 3);
  CHECK_FALSE(thread.drain(milliseconds(1)));
  sink->open_it();
  CHECK(thread.drain(seconds(60)));
  CHECK(sink->all() == std::vector<std::string>{"first", "line 1", "line 2", "line 6"});
  thread.close(seconds(60));
  CHECK(lines.all() ==
        std::vector<std::string>{
            "kept: the sink is too slow or fails: drops records between log boundaries; the end of the run "
            "logs their number",
            "kept: 3 records between log boundaries were dropped: the sink was too slow"});
}

TEST_CASE("SinkThread: a record that fails is given again until it is written", "[telemetry][sinks]") {
  const auto sink = std::make_shared<Kept>();
  sink->failures = 3;
  SinkLog lines;
  dl::SinkThread thread(sink, lines.log(), {.retry = milliseconds(1)});
  thread.post(line(1));
  thread.post(line(2));
  while (sink->all().size() < 2) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  thread.close(seconds(60));
  CHECK(sink->all() == std::vector<std::string>{"line 1", "line 2"});
  CHECK(lines.all() ==
        std::vector<std::string>{
            "kept: [kept.write] expected space, got none; training continues and keeps records in memory",
            "kept: recovered"});
}

TEST_CASE("SinkThread: close reports what a failing sink did not take", "[telemetry][sinks]") {
  const auto sink = std::make_shared<Kept>();
  sink->failures = 1 << 30;
  SinkLog lines;
  dl::SinkThread thread(sink, lines.log(), {.retry = seconds(600)});
  thread.post(line(1));
  thread.post(line(2));
  CHECK_FALSE(thread.drain(seconds(60)));  // at once: it fails
  thread.close(seconds(60));
  REQUIRE(lines.all().size() == 2);
  CHECK(lines.all()[1] == "kept: 2 records could not be written");
}

TEST_CASE("SinkThread: close gives each record one attempt", "[telemetry][sinks]") {
  struct Picky : Kept {
    void text(const dl::TextRecord& record) override {
      record.text == "bad" ? dl::detail::fail<dl::Error>("picky", "expected a good text, got a bad one")
                           : add(record.text);
    }
  };
  const auto sink = std::make_shared<Picky>();
  SinkLog lines;
  dl::SinkThread thread(sink, lines.log(), {.retry = seconds(600)});
  for (const char* word : {"first", "bad", "second", "bad"}) {
    thread.post(text(word));
  }
  thread.post(std::make_shared<dl::SinkItem>(dl::EndRecord{.status = "finished"}));
  thread.close(seconds(60));
  CHECK(sink->all() == std::vector<std::string>{"first", "second", "finished"});
  CHECK(lines.all().back() == "kept: 2 records could not be written");
}

TEST_CASE("SinkThread: what waits holds a bounded amount of memory, beside which numbers have their place",
          "[telemetry][sinks]") {
  const auto sink = std::make_shared<Gate>();
  SinkLog lines;
  dl::SinkThread thread(sink, lines.log(), {.capacity = 2, .capacity_bytes = 10000});
  thread.post(text("first"));
  sink->wait_until_it_waits();
  const auto late = [](std::size_t bytes) {
    return std::make_shared<dl::SinkItem>([] { return dl::TextRecord{.text = "late"}; }, bytes);
  };
  thread.post(late(1 << 20));  // alone, whatever its size
  thread.post(late(2000));
  CHECK(thread.num_dropped() == 1);
  thread.post(line(1));
  thread.post(line(2));
  CHECK(thread.num_dropped() == 1);
  sink->open_it();
  CHECK(thread.drain(seconds(60)));
  CHECK(sink->all() == std::vector<std::string>{"first", "late", "line 1", "line 2"});
  thread.close(seconds(60));
}

TEST_CASE("SinkThread: close leaves a sink that hangs", "[telemetry][sinks]") {
  const auto sink = std::make_shared<Gate>();
  SinkLog lines;
  {
    dl::SinkThread thread(sink, lines.log());
    thread.post(text("never"));
    sink->wait_until_it_waits();
    thread.close(milliseconds(1));
  }
  CHECK(lines.all() ==
        std::vector<std::string>{"kept: 1 record could not be written: the sink did not return in time"});
  sink->open_it();  // its thread ends, and logs nothing
  while (sink.use_count() > 1) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  CHECK(lines.all().size() == 1);
}

TEST_CASE("SinkThread: lines that a sink lacks are read from metrics.jsonl", "[telemetry][sinks]") {
  const danling_test::TempDir folder;
  const auto file = folder / "metrics.jsonl";
  std::ofstream(file) << R"({"split":"train","mode":"train","global_step":1,"loss":0.5})"
                      << "\n"
                      << R"({"split":"train","mode":"train","global_step":2,"loss":0.25})"
                      << "\n"
                      << R"({"split":"val","mode":"evaluate","global_step":2,"loss":0.125})"
                      << "\n";
  const auto sink = std::make_shared<Kept>();
  SinkLog lines;
  dl::SinkThread thread(sink, lines.log(), {.retry = milliseconds(1)});
  SECTION("those after the ones it holds, up to the run's") {
    sink->holds = 1;
    thread.begin({.metrics_file = file, .lines = 3});
    thread.post(line(4));
    CHECK(thread.drain(seconds(60)));
    CHECK(sink->all() == std::vector<std::string>{"begin 3", "line 2", "line 3", "line 4"});
    thread.close(seconds(60));
    CHECK(lines.all().empty());
  }
  SECTION("each once, when it fails in between") {
    sink->failures = 2;
    thread.begin({.metrics_file = file, .lines = 3});
    while (sink->all().size() < 4) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    thread.close(seconds(60));
    CHECK(sink->all() == std::vector<std::string>{"begin 3", "line 1", "line 2", "line 3"});
  }
  SECTION("a file with fewer lines is reported") {
    thread.begin({.metrics_file = file, .lines = 5});
    thread.post(line(6));
    CHECK(thread.drain(seconds(60)));
    thread.close(seconds(60));
    CHECK(sink->all().back() == "line 6");
    CHECK(lines.all() == std::vector<std::string>{dl::detail::concat("kept: expected 5 lines in ", file.string(),
                                                                     ", got 3; skips the missing records")});
  }
}

TEST_CASE("SinkThread: a record that cannot be built is left out", "[telemetry][sinks]") {
  const auto sink = std::make_shared<Kept>();
  SinkLog lines;
  dl::SinkThread thread(sink, lines.log());
  thread.post(
      std::make_shared<dl::SinkItem>([]() -> dl::SinkRecord { throw std::runtime_error("the device is gone"); }, 0));
  thread.post(text("next"));
  CHECK(thread.drain(seconds(60)));
  thread.close(seconds(60));
  CHECK(sink->all() == std::vector<std::string>{"next"});
  CHECK(lines.all() == std::vector<std::string>{"kept: dropped a record: the device is gone"});
}

TEST_CASE("SinkItem: two sinks build a late record once", "[telemetry][sinks]") {
  std::atomic<int> built = 0;
  const auto item = std::make_shared<dl::SinkItem>(
      [&built]() -> dl::SinkRecord {
        ++built;
        return dl::TextRecord{.text = "late"};
      },
      0);
  const auto one = std::make_shared<Kept>(), two = std::make_shared<Kept>();
  SinkLog lines;
  dl::SinkThread first(one, lines.log()), second(two, lines.log());
  first.post(item);
  second.post(item);
  CHECK(first.drain(seconds(60)));
  CHECK(second.drain(seconds(60)));
  CHECK(built == 1);
  CHECK(one->all() == two->all());
}
