// Resuming with a FileCheckpointManager: finds and adopts states of earlier runs.
#include <system_error>

#include <danling/checkpoint/file.hpp>
#include <danling/checkpoint/file_manager.hpp>
#include <danling/formats/file.hpp>

#include <checkpoint/counters.hpp>
#include <checkpoint/directory.hpp>

namespace danling::inline v0 {
namespace fs = std::filesystem;

std::optional<ValidCheckpoint> FileCheckpointManager::load_newest_valid_from(const fs::path& directory,
                                                                             const CheckpointFilter& filter) {
  if (directory == options().directory) {
    return load_newest_valid(filter);
  }
  return CheckpointDirectory(directory).load_newest_valid(filter);
}

std::optional<fs::path> FileCheckpointManager::find_final_model(const fs::path& directory) {
  CheckpointDirectory there(directory);
  const auto latest = there.path_of("latest");
  try {
    // Only the last save of a run writes a model as `latest`.
    const State state = there.load(latest);
    const bool has_model = state.find("model") != nullptr || state.find("models") != nullptr;
    return state.find("state") == nullptr && has_model ? std::optional(latest) : std::nullopt;
  } catch (const CheckpointError&) {
    return std::nullopt;
  }
}

bool FileCheckpointManager::is_latest(const fs::path& checkpoint) const {
  std::error_code missing;
  return fs::equivalent(checkpoint, path_of("latest"), missing);
}

std::vector<std::string> FileCheckpointManager::adopt(const fs::path& directory, const CheckpointHistory& history) {
  std::vector<std::string> problems;
  if (options().load_only) {
    return problems;
  }
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(directory, missing)) {
    const std::string name = entry.path().stem().string();
    const bool best = name == "best";
    const auto target = options().directory / entry.path().filename();
    if (entry.path().extension() != ".pth" || (!best && !name.starts_with("ckpt-")) || fs::exists(target, missing)) {
      continue;
    }
    try {
      const auto counters = counters_in(entry.path());
      if (!counters) {
        continue;
      }
      const auto progress = history.step_mode ? counters->global_step : counters->epoch;
      if (progress > history.progress) {
        continue;
      }
      if (!best) {
        formats::PendingAlias(entry.path(), target).commit();
      }
      if (progress == history.best) {
        formats::PendingAlias(entry.path(), path_of("best")).commit();
      }
    } catch (const CheckpointError& error) {
      problems.emplace_back(error.what());
    }
  }
  return problems;
}

std::optional<BestCheckpoint> FileCheckpointManager::best_checkpoint() const {
  if (options().load_only) {
    return std::nullopt;
  }
  std::error_code missing;
  const auto path = path_of("best");
  if (!fs::exists(path, missing)) {
    return BestCheckpoint{};
  }
  auto index = result_in(path);
  try {
    index = index || !counters_in(path) ? index : std::optional<std::int64_t>(-1);
  } catch (const CheckpointError&) {  // unknown if the file is damaged
  }
  return BestCheckpoint{true, index};
}

std::optional<std::string> FileCheckpointManager::republish_best(std::int64_t index,
                                                                 std::vector<std::string>& problems) {
  const auto best = path_of("best");
  std::error_code missing;
  for (fs::directory_iterator entry(options().directory, missing), end; !missing && entry != end;
       entry.increment(missing)) {
    const std::string name = entry->path().stem().string();
    if (entry->path().extension() != ".pth" || name == "best" || name.starts_with('.') ||
        result_in(entry->path()) != index) {
      continue;
    }
    try {
      verify_file(entry->path());
      formats::PendingAlias(entry->path(), best).commit();
      formats::sync_directory(options().directory);
      return entry->path().filename().string();
    } catch (const CheckpointError& error) {
      problems.emplace_back(error.what());
    }
  }
  return std::nullopt;
}

}  // namespace danling::inline v0
