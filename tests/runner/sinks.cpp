// Sinks of a runner: what they receive, when, and after a resume, a roll-back and a failure.
#include <mutex>

#include <danling/formats/image.hpp>
#include <danling/formats/table.hpp>
#include <danling/telemetry/metrics_lines.hpp>
#include <danling/telemetry/sink.hpp>

#include "fixture.hpp"

namespace runner_test {
namespace {
namespace sinks {

/// The calls of a sink, as text; outlives the runner.
struct Given {
  std::mutex mutex;
  std::vector<std::string> lines;
  std::vector<dl::ScalarRecord> scalars;
  std::vector<dl::HistogramRecord> histograms;
  std::vector<dl::ImageRecord> images;
  dl::RunInfo run;
  dl::EndRecord end;
};

/// Ten lines, as a user writes it.
struct MySink : dl::Sink {
  explicit MySink(std::shared_ptr<Given> g, bool histograms = false) : given(std::move(g)), wants(histograms) {}
  std::string name() const override { return "mine"; }
  bool wants_histograms() const override { return wants; }
  std::int64_t begin(const dl::RunInfo& run) override {
    const std::lock_guard lock(given->mutex);
    given->run = run;
    std::erase_if(given->scalars, [&](const auto& record) { return record.line > run.lines; });
    given->lines.push_back(dl::detail::concat("begin after ", run.lines));
    return given->scalars.empty() ? 0 : given->scalars.back().line;
  }
  void scalars(const dl::ScalarRecord& record) override {
    refuse();
    const std::lock_guard lock(given->mutex);
    given->scalars.push_back(record);
  }
  void result(const dl::ResultRecord& record) override {
    refuse();
    const std::lock_guard lock(given->mutex);
    given->lines.push_back(
        dl::detail::concat("result ", record.number, " at ", record.global_step, record.best ? " best" : ""));
  }
  void text(const dl::TextRecord& record) override {
    const std::lock_guard lock(given->mutex);
    given->lines.push_back(dl::detail::concat(record.name, " at ", record.global_step, ": ", record.text));
  }
  void histogram(const dl::HistogramRecord& record) override {
    const std::lock_guard lock(given->mutex);
    given->histograms.push_back(record);
  }
  void image(const dl::ImageRecord& record) override {
    const std::lock_guard lock(given->mutex);
    given->images.push_back(record);
  }
  void end(const dl::EndRecord& record) override {
    refuse();
    const std::lock_guard lock(given->mutex);
    given->end = record;
    given->lines.push_back(record.status + (record.error.empty() ? "" : ": " + record.error));
  }
  void refuse() const {
    if (fails) {
      dl::detail::fail<dl::Error>("mine.write", "expected a network, got none");
    }
  }
  std::shared_ptr<Given> given;
  bool wants, fails = false;
};

TinyConfig sink_config(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 2;
  config.log_interval = 2;
  return config;
}

/// The lines of metrics.jsonl without times.
std::vector<std::string> lines_of(const std::vector<dl::ScalarRecord>& records) {
  std::vector<std::string> out;
  for (const auto& record : records) {
    out.push_back(dl::detail::concat(record.line, " ", record.split, " ", record.mode, " ", record.epoch.value_or(-1),
                                     " ", record.global_step, " ", record.iteration.value_or(-1), " ",
                                     record.values.text(17)));
  }
  return out;
}
std::vector<std::string> lines_of(const std::filesystem::path& file) {
  std::vector<dl::ScalarRecord> records;
  dl::read_metrics_lines(file, 0, 1 << 20, [&](dl::ScalarRecord record) { records.push_back(std::move(record)); });
  return lines_of(records);
}

TEST_CASE("sinks: one gets each line of metrics.jsonl, the results and the end", "[runner][sinks]") {
  const Folder folder;
  const auto given = std::make_shared<Given>();
  std::filesystem::path file;
  {
    TinyRunner runner(sink_config(folder));
    runner.add_sink(std::make_shared<MySink>(given));
    runner.train();
    file = runner.workspace().metrics_file();
    runner.close();
  }
  CHECK(lines_of(given->scalars) == lines_of(file));
  CHECK(given->scalars.size() == 2 * (3 + 2));  // boundaries and both ends of a pass
  CHECK(given->lines ==
        std::vector<std::string>{"begin after 0", "result 1 at 7 best", "result 2 at 14 best", "finished"});
  CHECK(given->run.metrics_file == file);
  CHECK(given->run.dir == file.parent_path());
  CHECK(given->run.global_step == 0);
  const auto option = [&](const std::string& key) {
    const auto found = std::find_if(given->run.hparams.begin(), given->run.hparams.end(),
                                    [&](const auto& entry) { return entry.first == key; });
    return found == given->run.hparams.end() ? std::string("none") : found->second;
  };
  CHECK(option("optim.lr") == "0.05");
  CHECK(option("optim.type") == "adamw");
  CHECK(option("hidden") == "8");
  CHECK(option("workspace_root") == "none");  // does not determine the run
  CHECK(given->end.global_step == 14);
  CHECK(given->end.metrics.front().first == "train/loss");
  for (const auto& record : given->scalars) {
    CHECK(record.time > 1.7e9);
    CHECK_FALSE(record.telemetry.contains("timestamp"));
    CHECK(*record.telemetry.number("mem_host_mb") > 0);
    CHECK(*record.telemetry.number("mem_host_peak_mb") >= *record.telemetry.number("mem_host_mb"));
  }
}

TEST_CASE("sinks: a run that was stopped goes on without repeated or missing lines", "[runner][sinks]") {
  const auto run = [](bool interrupted) {
    const Folder folder;
    TinyConfig config = sink_config(folder);
    config.csv = true;
    config.auto_resume = true;
    config.checkpoint.interval = 3;
    const auto given = std::make_shared<Given>();
    if (interrupted) {
      for (const std::int64_t stop : {4, 9}) {
        TinyRunner runner(config);
        runner.add_sink(std::make_shared<MySink>(given));
        runner.before_step = [&](TinyRunner& self, std::int64_t) {
          if (self.state().train.global_step == stop) {
            self.request_stop();
          }
        };
        CHECK_THROWS_AS(runner.train(), dl::Stopped);
        runner.close();
        CHECK(given->lines.back() == "stopped");
        // A sink that lost its last records, as a killed process does, and one that wrote some too many.
        const std::lock_guard lock(given->mutex);
        given->scalars.pop_back();
      }
    }
    TinyRunner runner(config);
    runner.add_sink(std::make_shared<MySink>(given));
    runner.train();
    const auto file = runner.workspace().metrics_file();
    runner.close();
    CHECK(lines_of(given->scalars) == lines_of(file));
    const auto table = dl::formats::read_csv(file.parent_path() / "metrics.csv");
    CHECK(table.num_rows() == given->scalars.size());
    for (std::size_t row = 0; row < table.num_rows(); ++row) {
      CHECK(table.column("loss").floats()[row] == *given->scalars[row].values.number("loss"));
    }
    return lines_of(given->scalars);
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("sinks: a roll-back takes back the lines after the checkpoint", "[runner][sinks]") {
  struct Spoilt : TinyRunner {
    using TinyRunner::TinyRunner;
    ~Spoilt() override { close(); }
    dl::StepOutput train_step(dl::Batch& batch) override {
      if (state().train.micro_step == 10) {
        batch.input = batch.input * std::numeric_limits<double>::quiet_NaN();
      }
      return TinyRunner::train_step(batch);
    }
  };
  const Folder folder;
  TinyConfig config = sink_config(folder);
  config.on_nonfinite = "rollback";
  const auto given = std::make_shared<Given>();
  Spoilt runner(config);
  runner.add_sink(std::make_shared<MySink>(given));
  runner.train();
  const auto file = runner.workspace().metrics_file();
  runner.close();
  CHECK(lines_of(given->scalars) == lines_of(file));
  CHECK(std::count_if(given->lines.begin(), given->lines.end(),
                      [](const auto& line) { return line.starts_with("begin"); }) == 2);
}

TEST_CASE("sinks: scores of the program are lines, also after a resume", "[runner][sinks]") {
  const auto run = [](bool interrupted) {
    const Folder folder;
    TinyConfig config = sink_config(folder);
    config.csv = config.auto_resume = true;
    config.checkpoint.interval = 3;
    const auto given = std::make_shared<Given>();
    const auto train = [&](std::int64_t stop) {
      TinyRunner runner(config);
      runner.add_sink(std::make_shared<MySink>(given));
      runner.before_step = [&](TinyRunner& self, std::int64_t) {
        const auto step = self.state().train.global_step;
        self.write_score("square", static_cast<double>(step * step), "mine");
        if (step == stop) {
          self.request_stop();
        }
      };
      if (stop >= 0) {
        CHECK_THROWS_AS(runner.train(), dl::Stopped);
      } else {
        runner.train();
      }
      const auto file = runner.workspace().metrics_file();
      runner.close();
      CHECK(lines_of(given->scalars) == lines_of(file));
      return dl::formats::read_csv(file.parent_path() / "metrics.csv").num_rows();
    };
    if (interrupted) {
      train(4);
      const std::lock_guard lock(given->mutex);
      given->scalars.pop_back();  // as a killed process leaves it
    }
    const std::size_t rows = train(-1);
    CHECK(rows == given->scalars.size());
    return lines_of(given->scalars);
  };
  const auto lines = run(false);
  CHECK(lines.size() == 2 * (3 + 2) + 14);
  CHECK(run(true) == lines);
}

TEST_CASE("sinks: a key of files without files is refused", "[runner][sinks]") {
  const Folder folder;
  TinyConfig config = sink_config(folder);
  config.record = false;
  config.csv = true;
  CHECK(error_of<dl::ConfigError>([&] { const TinyRunner runner(config); }) ==
        "[config.validate] expected 'record: true' with 'csv', got false, which writes nothing");
}

TEST_CASE("sinks: a record says whether a step made it, and a run that ends again has its results", "[runner][sinks]") {
  struct Writer : dl::Callback {
    std::string name() const override { return "writer"; }
    void on_step(const dl::StepEvent& event) override { event.runner.write_histogram("after", torch::ones(3)); }
  };
  const Folder folder;
  TinyConfig config = sink_config(folder);
  config.histogram_interval = 7;
  config.auto_resume = true;
  const auto given = std::make_shared<Given>();
  for (const std::int64_t epochs : {1, 1, 2}) {  // the second has nothing to do
    config.epochs = epochs;
    TinyRunner runner(config);
    runner.add(Writer());
    runner.add_sink(std::make_shared<MySink>(given, /*histograms=*/true));
    runner.train();
    runner.close();
    CHECK(given->end.status == "finished");
    CHECK(given->end.global_step == 7 * epochs);
    CHECK_FALSE(given->end.metrics.empty());
  }
  std::int64_t during = 0, after = 0;
  for (const auto& record : given->histograms) {
    CHECK(record.in_step == (record.name != "after"));
    CHECK((record.name == "after" || record.global_step % 7 == 0));
    ++(record.in_step ? during : after);
  }
  CHECK(after == 14);
  CHECK(during == 2 * 2 * 4);  // weights and gradients of four parameters, at updates 0 and 7
  const std::string best = read_file(find_file(folder, "best.json"));
  CHECK_THAT(best, ContainsSubstring("\"score_mode\": \"min\""));
}

TEST_CASE("sinks: one that always fails ends nothing and is reported once", "[runner][sinks]") {
  const Folder folder;
  const auto given = std::make_shared<Given>();
  const auto sink = std::make_shared<MySink>(given);
  sink->fails = true;
  std::vector<std::string> warnings;
  TinyRunner runner(sink_config(folder));
  runner.logger().set_sink([&](dl::LogLevel level, std::string_view text) {
    if (level == dl::LogLevel::warning) {
      warnings.emplace_back(text);
    }
  });
  runner.add_sink(sink);
  runner.train();
  CHECK(runner.state().train.global_step == 14);
  runner.close();
  CHECK(warnings == std::vector<std::string>{"mine: [mine.write] expected a network, got none; training continues and "
                                             "keeps records in memory",
                                             "mine: 13 records could not be written"});
}

TEST_CASE("sinks: texts, pictures, numbers and histograms of the program, at their step", "[runner][sinks]") {
  const Folder folder;
  const auto given = std::make_shared<Given>();
  TinyConfig config = sink_config(folder);
  config.record = false;  // sinks of the program get everything nevertheless
  config.histogram_interval = 0;
  TinyRunner runner(config);
  runner.write_text("before", "no effect");
  runner.add_sink(std::make_shared<MySink>(given, /*histograms=*/true));
  runner.before_step = [](TinyRunner& self, std::int64_t) {
    if (self.state().train.global_step == 3) {
      self.write_text("note", "*three*");
      self.write_image("gray", torch::full({2, 5}, 0.5));
      self.write_image("colours", torch::full({3, 4, 6}, 200, torch::kByte));
      self.write_histogram("numbers", torch::arange(10, torch::kLong));
      self.write_score("auc", 0.75, "val");
      CHECK(
          error_of<dl::ConfigError>([&] { self.write_image("odd", torch::ones({2, 4, 4})); }) ==
          "[runner.write_image] expected a real picture [3, height, width], [1, height, width] or [height, width] for "
          "'odd', got [2, 4, 4]");
      CHECK(error_of<dl::ConfigError>([&] { self.write_histogram("odd", torch::Tensor()); }) ==
            "[runner.write_histogram] expected a dense tensor of real numbers for 'odd', got an undefined one");
    }
  };
  runner.train();
  runner.close();
  CHECK(given->lines[1] == "note at 3: *three*");
  REQUIRE(given->images.size() == 2);
  CHECK(given->images[0].width == 5);
  CHECK(given->images[0].channels == 1);
  CHECK(given->images[1].height == 4);
  CHECK(given->images[1].global_step == 3);
  if (dl::formats::has_images()) {
    const auto image = dl::formats::decode_image(given->images[0].png);
    CHECK(image.pixels == std::vector<std::uint8_t>(10, 128));  // 127.5 to even
    CHECK(dl::formats::decode_image(given->images[1].png).pixels == std::vector<std::uint8_t>(72, 200));
  }
  REQUIRE(given->histograms.size() == 1);
  CHECK(given->histograms[0].histogram.sum == 45);
  CHECK(given->histograms[0].name == "numbers");
  const auto score = std::find_if(given->scalars.begin(), given->scalars.end(),
                                  [](const auto& record) { return record.values.contains("auc"); });
  REQUIRE(score != given->scalars.end());
  CHECK(score->split == "val");
  CHECK(score->global_step == 3);
  CHECK(given->run.dir.empty());
}

TEST_CASE("sinks: histograms are of the gradients of the loss, whatever the window and the loss scale",
          "[runner][sinks]") {
  // The gradient of the mean loss over the first 16 records, computed apart.
  const auto expected = [](TinyRunner& runner) {
    const auto points = make_points(50, 0);
    const auto loss =
        torch::nn::functional::cross_entropy(runner.model(points.input.slice(0, 0, 16)), points.target.slice(0, 0, 16));
    const auto named = runner.model.named_parameters();
    return torch::autograd::grad({loss}, {named.front().second})[0].detach();
  };
  for (const std::string precision : {"fp32", "fp16"}) {
    CAPTURE(precision);
    const Folder folder;
    TinyConfig config = sink_config(folder);
    config.precision = precision;
    config.accum_steps = 2;
    config.dropout = 0;
    config.dataloader.shuffle = false;
    config.histogram_interval = 2;
    const auto given = std::make_shared<Given>();
    TinyRunner runner(config);
    runner.add_sink(std::make_shared<MySink>(given, /*histograms=*/true));
    at::Tensor gradient, weight;
    runner.before_step = [&](TinyRunner& self, std::int64_t number) {
      if (number == 0) {
        gradient = expected(self);
        weight = self.model.named_parameters().front().second.detach().clone();
      }
    };
    runner.train();
    runner.close();
    // Updates 0, 2, 4, 6; four parameters each.
    REQUIRE(given->histograms.size() == 4 * 4 * 2);
    CHECK(given->histograms[0].name == "weights/0.weight");
    CHECK(given->histograms[1].name == "gradients/0.weight");
    CHECK(given->histograms[0].histogram.count == 32);
    const double tolerance = precision == "fp32" ? 1e-5 : 1e-2;
    CHECK(given->histograms[0].histogram.sum == Approx(weight.sum().item<double>()).epsilon(1e-5));
    CHECK(given->histograms[1].histogram.sum_of_squares ==
          Approx(gradient.square().sum().item<double>()).epsilon(tolerance));
    CHECK(given->histograms[8].global_step == 2);
  }
}

TEST_CASE("performance: the operations of the model are counted, or taken from the config", "[runner]") {
  const auto rates = [](const std::function<void(TinyConfig&)>& set) {
    const Folder folder;
    TinyConfig config = sink_config(folder);
    set(config);
    const auto given = std::make_shared<Given>();
    TinyRunner runner(config);
    runner.add_sink(std::make_shared<MySink>(given));
    runner.train();
    runner.close();
    return given->scalars;
  };
  // Two linear layers: a multiplication and an addition per weight, three times for training.
  constexpr double per_sample = 3.0 * 2 * (4 * 8 + 8 * 3);
  for (const auto& record : rates([](TinyConfig& config) { config.performance.peak_flops = 1e9; })) {
    const dl::Result& telemetry = record.telemetry;
    const double operations = record.mode == "train" ? per_sample : per_sample / 3.0;  // the forward pass alone
    CHECK(*telemetry.number("tflops") * 1e12 == Approx(operations * *telemetry.number("samples_per_s")));
    CHECK(*telemetry.number("mfu_pct") == Approx(100 * *telemetry.number("tflops") * 1e12 / 1e9));
    CHECK_FALSE(telemetry.contains("hw_tflops"));
  }
  // Operations that recompute repeats, and the shards of a step, do not count twice.
  for (const auto& change :
       std::vector<std::function<void(TinyConfig&)>>{[](TinyConfig& config) { config.recompute = {".*"}; },
                                                     [](TinyConfig& config) {
                                                       config.deterministic = true;
                                                       config.parallel.virtual_ranks = 2;
                                                       config.dataloader.batch_size = 5;
                                                     }}) {
    for (const auto& record : rates(change)) {
      const double operations = record.mode == "train" ? per_sample : per_sample / 3.0;
      CHECK(*record.telemetry.number("tflops") * 1e12 ==
            Approx(operations * *record.telemetry.number("samples_per_s")));
      if (record.mode == "train" && !record.iteration) {  // a step is an update, whatever its shards
        const double per_step = *record.telemetry.number("samples_per_s") * *record.telemetry.number("time");
        const auto steps = record.global_step / (*record.epoch + 1);
        CHECK(per_step == Approx(50.0 / static_cast<double>(steps)));
      }
    }
  }
  const auto set = rates([](TinyConfig& config) {
    config.performance.model_flops_per_sample = 1e6;
    config.performance.hardware_flops_per_sample = 2e6;
  });
  CHECK(*set[0].telemetry.number("tflops") * 1e12 == Approx(1e6 * *set[0].telemetry.number("samples_per_s")));
  CHECK(*set[0].telemetry.number("hw_tflops") == Approx(2 * *set[0].telemetry.number("tflops")));
  CHECK_FALSE(set[0].telemetry.contains("mfu_pct"));
}

}  // namespace sinks
}  // namespace
}  // namespace runner_test
