#include "verify_resume_disk.hpp"

#include <sys/stat.h>

#include <danling/checkpoint/file.hpp>
#include <danling/core/error.hpp>
#include <danling/core/format.hpp>

#include "verify_resume_compare.hpp"

namespace danling_command {

namespace fs = std::filesystem;

void DiskCheck::look() {
  checkpoints_.clear();
  history_.clear();
  attempts_.clear();
  has_latest_ = false;
  in_save_ = false;
  for (const auto& path : files_below(root_)) {
    const auto attempt = path.find("/attempts/");
    if (attempt != std::string::npos) {
      attempts_.insert(path.substr(0, path.find('/', attempt + 10)));
      continue;
    }
    const auto name = path.substr(path.find_last_of('/') + 1);
    if (name.find(".pth") == std::string::npos) {
      continue;
    }
    if (name.starts_with(".")) {
      in_save_ = true;
    } else {
      checkpoints_.push_back(path);
      has_latest_ = has_latest_ || name == "latest.pth";
      if (name.starts_with("ckpt-")) {
        history_.insert(path);
      }
    }
  }
}

std::string DiskCheck::problem(std::int64_t saves) {
  std::set<std::uint64_t> sound;
  for (const auto& path : checkpoints_) {
    struct stat status {};
    if (::stat((root_ / path).c_str(), &status) != 0) {
      return danling::concat(path, " cannot be examined");
    }
    const Identity identity(status.st_ino, status.st_size,
                            status.st_mtim.tv_sec * std::int64_t{1000000000} + status.st_mtim.tv_nsec);
    const auto [known, added] = known_.try_emplace(identity);
    if (added) {
      try {
        danling::verify_file(root_ / path);
      } catch (const danling::Error& error) {
        known->second = error.what();
      }
    }
    if (!known->second.empty()) {
      return danling::concat("the checkpoint ", path, " is damaged: ", known->second);
    }
    if (!path.ends_with("/model.pth")) {
      sound.insert(status.st_ino);
    }
  }
  if (saves >= 2 && sound.size() < 2) {
    return danling::concat("expected two sound checkpoints in different files after ", saves, " saves, got ",
                           sound.size());
  }
  return {};
}

}  // namespace danling_command
