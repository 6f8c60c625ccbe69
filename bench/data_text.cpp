// CSV and JSON lines compared with pandas, pyarrow, Python's json and nlohmann_json.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <danling/data/datasets/json_lines.hpp>
#include <danling/formats/table.hpp>

#include "data_work.hpp"
#include "peers.hpp"
#include "tables.hpp"

namespace bench {
namespace {

namespace dl = danling;
namespace fs = std::filesystem;

/// Random words, and files of them in a temporary directory that this object removes.
class TextFiles {
 public:
  explicit TextFiles(int rows) : rows_(rows) {
    std::string folder = (fs::temp_directory_path() / "danling-bench-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) {
      give_up("expected to create a directory in " + fs::temp_directory_path().string());
    }
    folder_ = folder;
  }
  ~TextFiles() { fs::remove_all(folder_); }
  TextFiles(const TextFiles&) = delete;
  TextFiles& operator=(const TextFiles&) = delete;

  /// Writes a file with `head` and a line per row.
  std::string write(const std::string& name, const std::string& head, const std::function<std::string(int)>& line) {
    const std::string path = folder_ + "/" + name;
    std::ofstream file(path, std::ios::binary);
    file << head;
    for (int row = 0; row < rows_; ++row) {
      file << line(row) << '\n';
    }
    if (!file.flush()) {
      give_up("expected to write " + path);
    }
    return path;
  }
  std::string words(int count) {
    static constexpr const char* all[] = {"a",     "of",      "the",      "gate",    "river",
                                          "under", "reading", "mountain", "although"};
    std::string out;
    for (int i = 0; i < count; ++i) {
      out += (i == 0 ? "" : " ") + std::string(all[random_() % std::size(all)]);
    }
    return out;
  }
  std::string number() { return std::to_string(static_cast<double>(random_() % 2'000'000) * 1e-6 - 1); }
  int integer(unsigned below) { return static_cast<int>(random_() % below); }

 private:
  int rows_;
  std::string folder_;
  std::mt19937 random_{5};
};

std::vector<double> values_of(const dl::formats::Table& table, bool texts) {
  double sum = 0;
  for (const double x : table.column("x").floats()) {
    sum += x;
  }
  std::vector<double> out = {static_cast<double>(table.num_rows()), sum};
  if (texts) {
    out.push_back(static_cast<double>(table.column("text").texts().bytes()));
  }
  return out;
}

Contestant table_of(const std::string& name, bool texts, const std::function<dl::formats::Table()>& read) {
  return {.name = name,
          .time = [read] { return seconds_of([&] { keep(&read().columns()); }); },
          .value = [read, texts] { return values_of(read(), texts); }};
}

Contestant peer(Peers* peers, const std::string& name, const std::string& arguments, bool texts) {
  Contestant out{.name = name,
                 .time = [=] { return peers->ask("read " + arguments); },
                 .value =
                     [=] {
                       std::vector<double> values = {peers->ask("rows " + arguments),
                                                     peers->ask("numbers " + arguments)};
                       if (texts) {
                         values.push_back(peers->ask("texts " + arguments));
                       }
                       return values;
                     },
                 .failure = peers != nullptr ? "" : no_python};
  try {
    if (peers != nullptr) {
      peers->ask("rows " + arguments);
    }
  } catch (const NoAnswer& answer) {
    out.failure = answer.what();
  }
  return out;
}

std::string threads_text(int threads) { return threads == 1 ? ", 1 thread" : ", 2 threads"; }

void measure_csv(const std::string& title, const std::string& path, bool texts, Peers* peers, int rounds) {
  for (const int threads : {1, 2}) {
    const auto read = [path, threads] { return dl::formats::read_csv(path, {.num_threads = threads}); };
    Table table;
    table.title = title + threads_text(threads);
    table.contestants = {table_of("danling (C++) read_csv", texts, read), table_of("the same again", texts, read),
                         peer(peers, "pyarrow.csv.read_csv", "pyarrow " + std::to_string(threads) + " " + path, texts),
                         peer(peers, "pandas.read_csv (1 thread)", "pandas 1 " + path, texts)};
    table.targets = {{.of = 0, .to = {2}, .least = 1, .headline = threads == 1},
                     {.of = 0, .to = {3}, .least = 1, .headline = threads == 1}};
    table.control = 1;
    run(table, rounds);
  }
}

void measure_json(const std::string& title, const std::string& path, Peers* peers, int rounds) {
  for (const int threads : {1, 2}) {
    const auto read = [path, threads] { return dl::formats::read_json_lines(path, {.num_threads = threads}); };
    Table table;
    table.title = title + threads_text(threads);
    table.contestants = {
        table_of("danling (C++) read_json_lines", true, read), table_of("the same again", true, read),
        peer(peers, "pyarrow.json.read_json", "pyarrow_json " + std::to_string(threads) + " " + path, true)};
    table.targets = {{.of = 0, .to = {2}, .least = 1, .headline = threads == 1}};
    table.control = 1;
    run(table, rounds);
  }
}

/// Parses all records to trees; drops each before the next.
void measure_records(const std::string& title, const std::string& path, Peers* peers, int rounds) {
  const auto read = [path] {
    const dl::data::JsonLines lines{fs::path(path)};
    double sum = 0;
    for (std::int64_t i = 0; i < lines.size(); ++i) {
      sum += lines.get(i).at("x").number();
    }
    return std::vector<double>{static_cast<double>(lines.size()), sum};
  };
  const auto read_nlohmann = [path] {
    std::ifstream file(path, std::ios::binary);
    double rows = 0;
    double sum = 0;
    for (std::string line; std::getline(file, line); ++rows) {
      sum += nlohmann::json::parse(line).at("x").get<double>();
    }
    return std::vector<double>{rows, sum};
  };
  const auto here = [](const std::string& name, const std::function<std::vector<double>()>& all) {
    return Contestant{.name = name, .time = [all] { return seconds_of([&] { keep(all().data()); }); }, .value = all};
  };
  Table table;
  table.title = title + ", record by record";
  table.contestants = {
      here("danling (C++) JsonLines::get", read), here("the same again", read),
      peer(peers, "json.loads of each line", "json 1 " + path, false),
      peer(peers, "pyarrow.json.read_json, the whole as a table, 1 thread", "pyarrow_json 1 " + path, false),
      here("nlohmann::json::parse of each line", read_nlohmann)};
  table.targets = {
      {.of = 0, .to = {2}, .least = 1}, {.of = 0, .to = {3}, .least = 1}, {.of = 0, .to = {4}, .least = 1}};
  table.control = 1;
  run(table, rounds);
}

}  // namespace

void measure_text(Peers* peers, int rounds, bool quick) {
  TextFiles files(quick ? 5'000 : 100'000);
  const std::string texts = files.write("texts.csv", "id,x,title,text\n", [&](int row) {
    return std::to_string(row) + "," + files.number() + "," + files.words(3) + ",\"" + files.words(12) + ", " +
           files.words(4) + "\"";
  });
  measure_csv("CSV with texts, some in quotes", texts, true, peers, rounds);
  const std::string plain = files.write("plain.csv", "x,a,b,text\n", [&](int) {
    return files.number() + "," + files.words(1) + "," + files.words(2) + "," + files.words(4);
  });
  measure_csv("CSV with texts without quotes", plain, true, peers, rounds);
  const std::string numbers = files.write("numbers.csv", "x,a,b,c,d,e,i,j\n", [&](int row) {
    std::string line;
    for (int i = 0; i < 6; ++i) {
      line += files.number() + ",";
    }
    return line + std::to_string(row) + "," + std::to_string(files.integer(1000));
  });
  measure_csv("CSV of numbers", numbers, false, peers, rounds);
  const std::string flat = files.write("flat.jsonl", "", [&](int row) {
    return "{\"id\": " + std::to_string(row) + ", \"x\": " + files.number() +
           ", \"label\": " + std::to_string(files.integer(10)) + ", \"ok\": true, \"text\": \"" + files.words(8) +
           "\"}";
  });
  measure_json("JSON lines, flat", flat, peers, rounds);
  measure_records("JSON lines, flat", flat, peers, rounds);
  const auto nested = [&](int row, const std::string& lists) {
    return "{\"id\": " + std::to_string(row) + ", \"x\": " + files.number() + ", \"user\": {\"name\": \"" +
           files.words(2) + "\", \"age\": " + std::to_string(files.integer(90)) +
           "}, \"meta\": {\"score\": " + files.number() + ", \"at\": {\"line\": " + std::to_string(row) +
           ", \"page\": " + std::to_string(files.integer(300)) + "}}" + lists + ", \"text\": \"" + files.words(6) +
           "\"}";
  };
  measure_json("JSON lines, objects in objects",
               files.write("nested.jsonl", "", [&](int row) { return nested(row, ""); }), peers, rounds);
  const std::string lists = files.write("lists.jsonl", "", [&](int row) {
    return nested(row, ", \"tags\": [\"" + files.words(1) + "\", \"" + files.words(1) + "\"], \"boxes\": [[" +
                           files.number() + ", " + files.number() + ", " + files.number() + ", " + files.number() +
                           "]]");
  });
  measure_records("JSON lines, objects and lists in objects", lists, peers, rounds);
}

}  // namespace bench
