// CsvSink: the numbers of a run as a table for spreadsheets.
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

/// One row per line of metrics.jsonl: `split,mode,epoch,global_step,iteration,loss,lr,...,telemetry.time,...`; nested
/// names are joined by dots. A cell without a number is empty; numbers are the shortest text that reads back equal, and
/// `nan`, `inf`, `-inf`. When a record has a new name, the file is written again with a further column. It is a copy:
/// a resumed run writes it anew from metrics.jsonl.
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
