// A path for what a target writes, in memory where the system has a file system for that.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace danling_fuzz {

class Scratch {
 public:
  Scratch() {
    const std::filesystem::path memory = "/dev/shm";
    std::error_code missing;
    const auto directory = std::filesystem::is_directory(memory, missing) && ::access(memory.c_str(), W_OK) == 0
                               ? memory
                               : std::filesystem::temp_directory_path();
    path_ = directory / ("danling-fuzz-" + std::to_string(::getpid()));
  }
  ~Scratch() {
    std::error_code missing;
    std::filesystem::remove(path_, missing);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace danling_fuzz
