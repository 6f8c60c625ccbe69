// Runs a target over the files of directories, without a fuzzer: replay_<target> DIRECTORY...
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "target.hpp"

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      files.push_back(entry.path());
    }
  }
  if (files.empty()) {
    std::fprintf(stderr, "expected directories with files, got none\n");
    return 1;
  }
  std::sort(files.begin(), files.end());
  danling_fuzz::check(nullptr, 0);
  for (const auto& path : files) {
    std::fprintf(stderr, "%s\n", path.c_str());  // the last line names the file at which a run ends
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    danling_fuzz::check(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  }
  std::printf("%zu inputs\n", files.size());
  return 0;
}
