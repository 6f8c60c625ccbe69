// Reads the files of a run, and compares those of two runs.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <danling/checkpoint/file.hpp>
#include <danling/danling.hpp>

#include <support/catch.hpp>

namespace runner_test {

namespace dl = danling;
namespace fs = std::filesystem;

/// A temporary directory, removed with the object.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "danling-runner-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

inline std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

/// The contents of these files of a run.
inline std::map<std::string, std::string> read_files(const fs::path& dir, const std::vector<std::string>& names) {
  std::map<std::string, std::string> out;
  for (const auto& name : names) {
    out[name] = read_file(dir / name);
  }
  return out;
}

/// The logs of all attempts of the run.
inline std::string logs_of(const fs::path& dir) {
  std::string out;
  for (const auto& entry : fs::directory_iterator(dir / "logs")) {
    out += read_file(entry.path());
  }
  return out;
}

inline std::size_t count(const std::string& text, const std::string& part) {
  std::size_t out = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) {
    ++out;
  }
  return out;
}

/// The first file of this name below `folder`.
inline fs::path find_file(const Folder& folder, const std::string& name) {
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    if (entry.path().filename() == name) {
      return entry.path();
    }
  }
  FAIL("expected a file " << name);
  return {};
}

/// Epochs that a checkpoint's run had trained.
inline std::int64_t epoch_of(const fs::path& checkpoint) {
  return dl::load_file(checkpoint).at("state").at("train").at("epoch").integer();
}

/// Updates that a checkpoint's run had made.
inline std::int64_t step_of(const fs::path& checkpoint) {
  return dl::load_file(checkpoint).at("state").at("train").at("global_step").integer();
}

/// The checkpoints in a directory without the config, which names the directory.
inline std::map<std::string, dl::State> checkpoints_in(const fs::path& dir, bool with_previous = false) {
  std::map<std::string, dl::State> out;
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (entry.path().extension() == ".pth" && (with_previous || entry.path().stem() != "previous")) {
      dl::State state = dl::load_file(entry.path());
      state.map().erase("runner");
      out[entry.path().filename().string()] = std::move(state);
    }
  }
  return out;
}

inline void check_same_checkpoints(const std::map<std::string, dl::State>& a,
                                   const std::map<std::string, dl::State>& b) {
  for (const auto& [name, state] : a) {
    CAPTURE(name);
    REQUIRE(b.contains(name));
    CHECK(dl::first_difference(state, b.at(name)) == "");
  }
  CHECK(a.size() == b.size());
}

/// metrics.jsonl without its times and rates, which differ from run to run.
inline std::string metrics_of(const fs::path& dir) {
  std::istringstream in(read_file(dir / "metrics.jsonl"));
  std::string line;
  std::string out;
  while (std::getline(in, line)) {
    out += line.substr(0, std::min(line.find(",\"telemetry\":"), line.rfind('}'))) + "\n";
  }
  return out;
}

/// The files of a run that do not depend on when or where it ran.
struct Outcome {
  dl::State checkpoint;  // latest.pth without the config, which names the directory
  std::string metrics;
  std::string results;
};

inline Outcome outcome_of(const fs::path& dir) {
  Outcome out;
  out.checkpoint = dl::load_file(dir / "checkpoints" / "latest.pth");
  out.checkpoint.map().erase("runner");
  out.metrics = metrics_of(dir);
  const auto text = read_file(dir / "results.json");
  out.results = text.substr(text.find("\"results\""));
  return out;
}

inline void check_same(const Outcome& a, const Outcome& b) {
  CHECK(dl::first_difference(a.checkpoint, b.checkpoint) == "");
  CHECK(a.metrics == b.metrics);
  CHECK(a.results == b.results);
}

}  // namespace runner_test
