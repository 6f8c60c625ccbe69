// In place of the readers of tables, in a library that is built without them.
#include <danling/core/error.hpp>
#include <danling/formats/table.hpp>

namespace danling::inline v0::formats {
namespace {

[[noreturn]] void refuse_table(const char* operation, const std::filesystem::path& path) {
  fail<DataError>(operation, "expected a library that reads tables, got one built without: build danling with ",
                  "-DDANLING_WITH_TABLES=ON to read ", path.string());
}

}  // namespace

Table read_csv(const std::filesystem::path& path, const CsvOptions&) { refuse_table("data.csv", path); }
Table read_json_lines(const std::filesystem::path& path, const JsonTableOptions&) { refuse_table("data.json", path); }

}  // namespace danling::inline v0::formats
