// Files for one test.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace danling_test {

/// A directory that is removed with its contents.
class ConfigFiles {
 public:
  ConfigFiles() {
    std::string pattern = (std::filesystem::temp_directory_path() / "danling-config-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~ConfigFiles() { std::filesystem::remove_all(path_); }
  ConfigFiles(const ConfigFiles&) = delete;
  ConfigFiles& operator=(const ConfigFiles&) = delete;

  std::string path(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
    return path(name);
  }

 private:
  std::string path_;
};

}  // namespace danling_test
