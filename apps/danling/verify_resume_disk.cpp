#include "verify_resume_disk.hpp"

#include <sys/stat.h>

#include <danling/checkpoint/file.hpp>
#include <danling/core/error.hpp>
#include <danling/core/format.hpp>
#include <danling/formats/detail/dcp_reader.hpp>

#include "verify_resume_compare.hpp"
#include "verify_resume_names.hpp"

namespace danling_command {

namespace fs = std::filesystem;

void DiskCheck::look() {
  checkpoints_.clear();
  history_.clear();
  attempts_.clear();
  saves_.clear();
  has_latest_ = false;
  in_save_ = false;
  for (const auto& path : files_below(root_)) {
    const auto attempt = path.find("/attempts/");
    if (attempt != std::string::npos) {
      attempts_.insert(path.substr(0, path.find('/', attempt + 10)));
      continue;
    }
    if (const auto save = save_of(path); !save.empty()) {
      std::error_code error;
      if (fs::exists(root_ / save / danling::formats::dcp_manifest_name, error)) {
        saves_.insert(save);
      } else {
        in_save_ = true;
      }
      continue;
    }
    const auto name = name_of(path);
    if (is_checkpoint(path)) {
      checkpoints_.push_back(path);
      has_latest_ = has_latest_ || is_latest(path);
      if (is_history(path)) {
        history_.insert(path);
      }
    } else if (is_temporary(path) &&
               (name.find(".pth") != std::string::npos || name.find(".pointer") != std::string::npos)) {
      in_save_ = true;
    }
  }
}

DiskCheck::Identity DiskCheck::identity_of(const std::string& path) const {
  struct stat status{};
  danling::detail::check<danling::CheckpointError>(::stat((root_ / path).c_str(), &status) == 0, "verify-resume.disk",
                                                   "expected to examine the file, got ", path);
  return {status.st_ino, status.st_size, status.st_mtim.tv_sec * std::int64_t{1000000000} + status.st_mtim.tv_nsec};
}

std::string DiskCheck::damage_of_file(const std::string& path) {
  const auto [known, added] = known_.try_emplace(identity_of(path));
  if (added) {
    try {
      danling::verify_file(root_ / path);
    } catch (const danling::Error& error) {
      known->second = error.what();
    }
  }
  return known->second;
}

std::string DiskCheck::damage_of_shards(const std::string& path) {
  std::vector<Identity> files;
  for (const auto& file : files_below(root_ / path)) {
    files.push_back(identity_of((fs::path(path) / file).string()));
  }
  const auto [known, added] = known_dirs_.try_emplace(files);
  if (added) {
    try {
      danling::formats::DcpReader reader(root_ / path);
      for (const auto& file : reader.files()) {
        reader.verify(file);
      }
      reader.tree();
    } catch (const danling::Error& error) {
      known->second = error.what();
    }
  }
  return known->second;
}

std::string DiskCheck::problem(std::int64_t saves) {
  std::set<std::string> sound;  // identities of intact checkpoints
  for (const auto& path : saves_) {
    if (const auto damage = damage_of_shards(path); !damage.empty()) {
      return danling::detail::concat("the checkpoint ", path, " is damaged: ", damage);
    }
    if (!name_of(path).starts_with("model-g")) {
      sound.insert(path);
    }
  }
  for (const auto& path : checkpoints_) {
    if (path.ends_with(".pointer")) {
      std::string target;
      try {
        target = danling::formats::resolve_dcp(root_ / path).lexically_relative(root_).string();
      } catch (const danling::Error& error) {
        return danling::detail::concat("the name ", path, " that is damaged: ", error.what());
      }
      if (!saves_.contains(target)) {
        return danling::detail::concat("the name ", path, " of ", target, ", which is missing or incomplete");
      }
      continue;
    }
    if (const auto damage = damage_of_file(path); !damage.empty()) {
      return danling::detail::concat("the checkpoint ", path, " is damaged: ", damage);
    }
    if (!is_model(path)) {
      sound.insert(danling::to_text(static_cast<std::int64_t>(std::get<0>(identity_of(path)))));
    }
  }
  if (saves >= 2 && sound.size() < 2) {
    return danling::detail::concat("expected two sound checkpoints in different files after ", saves, " saves, got ",
                                   sound.size());
  }
  return {};
}

}  // namespace danling_command
