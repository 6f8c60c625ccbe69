// CsvSink: writes the numbers of a run as a CSV table for spreadsheets.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <danling/telemetry/sink.hpp>

namespace danling::inline v0 {

namespace detail {
class AppendFile;
}

/// One row per line of metrics.jsonl: `split,mode,epoch,global_step,iteration,loss,lr,...,telemetry.time,...`. Dots
/// join nested names. A cell without a number is empty. Numbers have the shortest text that parses to the same value,
/// or are `nan`, `inf` or `-inf`. When a record has a new name, the sink rewrites the file with another column. A
/// resumed run rewrites the file from metrics.jsonl.
class CsvSink : public Sink {
 public:
  explicit CsvSink(std::filesystem::path file);
  ~CsvSink() override;

  std::string name() const override { return "csv"; }
  std::int64_t begin(const RunInfo& run) override;
  void scalars(const ScalarRecord& record) override;

 private:
  void add_columns(const std::vector<std::string>& names);

  std::filesystem::path path_;
  std::unique_ptr<detail::AppendFile> file_;
  std::vector<std::string> columns_;
};

}  // namespace danling::inline v0
