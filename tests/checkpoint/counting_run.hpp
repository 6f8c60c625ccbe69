// A run to save whose whole state is a number, and looks at the files that its manager leaves.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>

#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>

#include <danling/checkpoint/file.hpp>
#include <danling/checkpoint/file_manager.hpp>
#include <danling/state/state.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace checkpoint_test {

using danling::CheckpointError;
using danling::CheckpointOptions;
using danling::CheckpointRequest;
using danling::FileCheckpointManager;
using danling::State;
using danling_test::error_of;
using Names = std::set<std::string>;

// A run whose whole state is a number and a model of one tensor.
struct CountingRun {
  std::int64_t step = 0;
  std::int64_t size = 4;

  State model() const {
    State out;
    out["model"]["weight"] = at::full({size}, static_cast<double>(step), at::kFloat);
    out["model"]["updates"] = at::scalar_tensor(step, at::kLong);
    out["ema"] = nullptr;
    return out;
  }
  State full() const {
    State out = model();
    out["state"]["step"] = step;
    return out;
  }
  FileCheckpointManager manager(CheckpointOptions options) {
    return FileCheckpointManager(std::move(options), [this] { return full(); }, [this] { return model(); });
  }
};

inline CheckpointRequest epoch_request(std::int64_t epoch) {
  CheckpointRequest out;
  out.epoch = epoch;
  return out;
}

inline CheckpointRequest last_request(std::int64_t epoch) {
  CheckpointRequest out = epoch_request(epoch);
  out.last_step = true;
  return out;
}

inline std::set<std::string> names_in(const std::filesystem::path& directory) {
  std::set<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    out.insert(entry.path().filename().string());
  }
  return out;
}

inline std::int64_t step_in(const std::filesystem::path& path) {
  return danling::load_file(path).at("state").at("step").integer();
}

inline ino_t inode_of(const std::filesystem::path& path) {
  struct stat status{};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_ino;
}

inline void damage(const std::filesystem::path& path) {
  // In place, so that every other name of the file sees it too.
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('x');
  REQUIRE(file.good());
}

}  // namespace checkpoint_test
