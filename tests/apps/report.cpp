// danling report: the page as a file. report_browser.py opens it in Chromium.
#include <cstdlib>
#include <regex>

#include <nlohmann/json.hpp>

#include <danling/core/format.hpp>

#include <apps/command.hpp>
#include <apps/run_files.hpp>

// Compiled as one unit with the other tests.
namespace danling_test::report_cases {
namespace {

using Json = nlohmann::json;

/// The data of a page, as the browser's parser of HTML finds them.
Json data_of(const std::string& page) {
  const std::string mark = R"(<script type="application/json" id="data">)";
  const auto begin = page.find(mark);
  REQUIRE(begin != std::string::npos);
  const auto end = page.find('<', begin + mark.size());
  REQUIRE(page.compare(end, 9, "</script>") == 0);
  return Json::parse(page.substr(begin + mark.size(), end - begin - mark.size()));
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t out = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++out;
  }
  return out;
}

std::string notes_of(const Json& run) {
  std::string out;
  for (const auto& note : run["notes"]) {
    out += note.get<std::string>() + "\n";
  }
  return out;
}

TEST_CASE("report: one page in the run's directory, with everything that the run has written", "[apps][report]") {
  const TempDir dir;
  const auto run = write_run(dir.path(), {});
  write_file(run / "profiles" / "rank0" / "summary.json",
             R"({"wall_us": 1000.0, "ranges": [{"name": "forward", "total_us": 600.0, "count": 3}],
                 "operators": [{"name": "aten::mm", "self_us": 500.0, "total_us": 550.0, "count": 9}]})");
  write_file(run / "metadata" / "system.yaml", "cpu: {model: Test, cores: 2}\n");
  const auto made = run_danling({"report", run.string()});
  CHECK(made.err.empty());
  REQUIRE(made.code == 0);
  CHECK(made.out.starts_with((run / "report.html").string() + ": 1 run, "));
  const std::string page = read_file(run / "report.html");
  CHECK(made.out.ends_with(" KiB\n"));  // the page's script and style alone take kilobytes

  // Self-contained: no address of another file, and a policy that forbids to load one.
  CHECK(page.find("default-src 'none'; script-src 'nonce-") != std::string::npos);
  CHECK(page.find("connect-src 'none'") != std::string::npos);
  CHECK_FALSE(std::regex_search(page.substr(0, page.find("id=\"data\"")), std::regex("(src|href)=\"(?!data:,)")));
  CHECK_FALSE(std::regex_search(page, std::regex("@import|url\\(|%[A-Z]+%")));

  const Json data = data_of(page);
  CHECK(data["live"] == false);
  REQUIRE(data["runs"].size() == 1);
  const Json& first = data["runs"][0];
  CHECK(first["label"] == "lin");
  CHECK(first["status"] == "finished");
  CHECK(first["notes"].empty());
  CHECK(first["summary"]["seconds"] == 12.5);
  CHECK(first["score"] == Json({{"path", "val.loss"}, {"higher", false}}));
  CHECK(first["results"]["best"] == 3);
  CHECK(first["results"]["rows"].size() == 4);
  CHECK(first["results"]["rows"][2]["values"]["val.loss"] == 0.5);
  CHECK(first["changed"] == Json::parse(R"([["optim.lr", "0.5"]])"));
  CHECK(first["checkpoints"].size() == 2);
  CHECK(first["checkpoints"][0]["bytes"] == 2000);
  CHECK(first["checkpoints"][0]["inode"] == first["checkpoints"][1]["inode"]);
  CHECK(first["metadata"] ==
        Json::parse(R"([{"name": "system", "entries": [["cpu.model", "Test"], ["cpu.cores", "2"]]}])"));
  CHECK(first["profiles"][0]["path"] == "profiles/rank0/summary.json");
  CHECK(first["profiles"][0]["operators"][0]["self_us"] == 500.0);
  for (const auto& curve : first["curves"]) {
    if (curve["name"] == "loss" && curve["split"] == "train") {
      CHECK(curve["steps"].size() == 40);
      CHECK(curve["values"][2] == 0.5 / 3);  // exact
      CHECK_FALSE(curve.contains("means"));
    }
  }
}

TEST_CASE("report: hostile names, errors and configs stay text", "[apps][report]") {
  const TempDir dir;
  const std::string attack = "</script><script>alert(1)</script><!-- %SCRIPT% %DATA% \xff";
  const auto run = write_run(dir.path(), {.name = attack,
                                          .status = "crashed",
                                          .error = attack,
                                          .extra_config = "note: '</script><img src=x onerror=alert(1)>'\n"});
  const auto metrics = run / "metrics.jsonl";
  std::ofstream(metrics, std::ios::app) << R"({"split":"</script><b>","mode":"train","global_step":1,"<!--<script>":1})"
                                           "\n";
  const auto plain = write_run(dir.path(), {.lineage = "plain"});
  REQUIRE(run_danling({"report", run.string(), "-o", (dir / "x.html").string()}).code == 0);
  REQUIRE(run_danling({"report", plain.string(), "-o", (dir / "plain.html").string()}).code == 0);
  const std::string page = read_file(dir / "x.html");
  CHECK(count_of(page, "</script") == count_of(read_file(dir / "plain.html"), "</script"));
  CHECK(page.find("<img") == std::string::npos);
  CHECK(page.find("<!--") == std::string::npos);
  const Json first = data_of(page)["runs"][0];
  CHECK(first["summary"]["error"] == "</script><script>alert(1)</script><!-- %SCRIPT% %DATA% \xef\xbf\xbd");
  CHECK(first["curves"].back()["name"] == "<!--<script>");
}

TEST_CASE("report: several runs, by name or by the directory around them, each under a name of its own",
          "[apps][report]") {
  const TempDir dir;
  const auto a = write_run(dir.path(), {.lineage = "a"});
  const auto b = write_run(dir.path(), {.lineage = "b", .lr = 0.25});
  const auto elsewhere = write_run(dir / "other", {.lineage = "a"});
  const auto file = (dir / "all.html").string();
  const auto made = run_danling({"report", dir.path().string(), elsewhere.string(), a.string(), "--output=" + file});
  REQUIRE(made.code == 0);
  CHECK(made.out.starts_with(file + ": 3 runs, "));
  const Json runs = data_of(read_file(file))["runs"];
  REQUIRE(runs.size() == 3);
  CHECK(runs[0]["label"] == a.string());  // the lineage and the id are those of the other one too
  CHECK(runs[1]["label"] == "b");
  CHECK(runs[2]["label"] == elsewhere.string());
}

TEST_CASE("report: half-written, empty, damaged and newer files become notes of the page", "[apps][report]") {
  const TempDir dir;
  const auto run = write_run(dir.path(), {});
  std::ofstream(run / "metrics.jsonl", std::ios::trunc);
  write_file(run / "results.json", R"({"name": "x", "results": {)");
  write_file(run / "best.json", "");
  write_file(run / "summary.json", R"({"format": 7, "status": "finished", "seconds": 1.0})");
  write_file(run / "profiles" / "summary.json", "[1");
  write_file(run / "metadata" / "config.full.yaml", "a: [1\n");
  const auto file = dir / "x.html";
  const auto made = run_danling({"report", run.string(), "-o", file.string()});
  CHECK(made.err.empty());
  REQUIRE(made.code == 0);
  const Json empty = data_of(read_file(file))["runs"][0];
  const std::string notes = notes_of(empty);
  INFO(notes);
  CHECK(notes.find("metrics.jsonl has no complete line yet: no curves\n") != std::string::npos);
  CHECK(notes.find("expected a JSON object in '" + (run / "results.json").string() +
                   "', got other or truncated text\n") != std::string::npos);
  CHECK(notes.find("expected a JSON object in '" + (run / "best.json").string() + "', got an empty file\n") !=
        std::string::npos);
  CHECK(notes.find("expected format 1 in " + (run / "summary.json").string() +
                   ", got 7: a newer version of danling wrote it, so this page may be incomplete\n") !=
        std::string::npos);
  CHECK(notes.find("expected a JSON object in '" + (run / "profiles" / "summary.json").string() + "'") !=
        std::string::npos);
  CHECK(notes.find("config.full.yaml") != std::string::npos);
  CHECK(empty["curves"].empty());

  write_file(run / "metrics.jsonl",
             "{\"global_step\":1,\"loss\":2}\nnonsense\n{\"global_step\":2,\"loss\":\"NaN\"}\n{\"glo");
  REQUIRE(run_danling({"report", run.string(), "-o", file.string()}).code == 0);
  const Json damaged = data_of(read_file(file))["runs"][0];
  CHECK(notes_of(damaged).find("metrics.jsonl: skipped 1 damaged line of 3; line 2: syntax error") !=
        std::string::npos);
  CHECK(damaged["curves"][0]["last"] == Json::parse(R"([2, "NaN"])"));
  CHECK(damaged["curves"][0]["bad_steps"] == Json::parse("[2]"));
}

TEST_CASE("report: what is no run is one clear error", "[apps][report]") {
  const TempDir dir;
  const auto error = [&](const std::vector<std::string>& words) {
    auto all = words;
    all.insert(all.begin(), "report");
    const auto result = run_danling(all);
    CHECK(result.code == 2);
    CHECK(result.out.empty());
    return result.err;
  };
  const std::string missing = (dir / "missing").string();
  CHECK(error({missing}) ==
        "[danling report] expected the directory of a run, got '" + missing + "', which does not exist\n");
  write_file(dir / "file", "x");
  CHECK(error({(dir / "file").string()}) ==
        "[danling report] expected the directory of a run, got '" + (dir / "file").string() + "', which is a file\n");
  std::filesystem::create_directory(dir / "empty");
  CHECK(error({(dir / "empty").string()}) ==
        "[danling report] expected the directory of a run, or one that contains runs, got '" +
            (dir / "empty").string() + "', which has no metadata of a run\n");
  CHECK(error({}) == "[danling report] expected the directory of at least one run, got none; --help shows the usage\n");
  const auto run = write_run(dir.path(), {});
  CHECK(error({run.string(), "-o", (dir / "no" / "x.html").string()}) ==
        "[workspace.write] expected to create '" + (dir / "no" / "x.html").string() +
            "', got errno 2 (No such file or directory)\n");
}

TEST_CASE("report: the page works in Chromium", "[apps][report][browser]") {
  const TempDir dir;
  const auto a = write_run(dir.path(), {.lineage = "a"});
  const auto b = write_run(dir.path(), {.lineage = "b<img src=x onerror=alert(1)>",
                                        .status = "crashed",
                                        .error = "<b>bad</b>",
                                        .lr = 0.25,
                                        .steps = 4000});
  const std::string file = (dir / "page.html").string();
  REQUIRE(run_danling({"report", a.string(), b.string(), "-o", file}).code == 0);
  const std::string script = std::string("python3 '") + DANLING_SOURCE_DIR + "/tests/apps/report_browser.py' '";
  const int status = std::system((script + file + "'").c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    WARN("skipped: no Chromium (set DANLING_CHROMIUM), or no python3");
    return;
  }
  CHECK(status == 0);
}

}  // namespace
}  // namespace danling_test::report_cases
