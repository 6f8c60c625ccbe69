// best.pth and best.json: they hold the same result, and where it is not the best one, the run says so.
#include <danling/runner/base_runner.hpp>

#include <utility>

#include <danling/checkpoint/file.hpp>
#include <danling/checkpoint/file_manager.hpp>
#include <danling/formats/file.hpp>
#include <danling/formats/pth.hpp>
#include <danling/workspace/files.hpp>

#include "runner/services.hpp"

namespace danling::inline v0 {
namespace {

namespace fs = std::filesystem;
using formats::RecordTree;

const RecordTree* part(const RecordTree* tree, const char* key) {
  return tree != nullptr && tree->is_map() ? tree->find(key) : nullptr;
}

// The index of the result that a checkpoint was saved with; nothing for one from inside an epoch, of a model alone, or
// that cannot be read.
std::optional<std::int64_t> result_in(const fs::path& path) {
  try {
    const formats::PthReader reader(path);
    const RecordTree* loop = part(&reader.tree(), "loop");
    const RecordTree* split = part(loop, "split");
    const RecordTree* round = part(loop, "round");
    const RecordTree* rows = part(&reader.tree(), "results");
    const bool inside = split == nullptr || !split->is_string() || !split->string().empty() || round == nullptr ||
                        !round->is_map() || !round->map().empty();
    if (inside || rows == nullptr || !rows->is_list() || rows->items().empty()) {
      return std::nullopt;
    }
    const RecordTree* index = part(&rows->items().back(), "index");
    return index != nullptr && index->is_integer() ? std::optional(index->integer()) : std::nullopt;
  } catch (const CheckpointError&) {
    return std::nullopt;
  }
}

// Whether best.json is of this result: a full disk may have kept it from being written, and the process then died.
bool is_in_best_file(const fs::path& run, std::int64_t index) {
  try {
    return read_text(run / "best.json").find(concat("\n    \"index\": ", index, ".0")) != std::string::npos;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::string BaseRunner::round_name(std::int64_t index) const {
  return is_step_mode() ? concat("step ", index) : concat("epoch ", index + 1);
}

void BaseRunner::settle_best() {
  auto& services = *services_;
  services.best_held.reset();
  const std::string told = std::exchange(unsaved_best_, {});
  const auto* manager = dynamic_cast<const FileCheckpointManager*>(services.checkpoint_manager.get());
  const auto* best = results_.saved_best();
  if (manager == nullptr || manager->options().load_only || best == nullptr || !services.workspace.is_open()) {
    return;
  }
  const auto path = manager->path_of("best");
  std::error_code missing;
  const bool there = fs::exists(path, missing);
  const std::int64_t held = there ? result_in(path).value_or(-1) : -1;
  const auto failing = manager->checkpoint_health().failing;
  const auto reason = failing.find("best");
  // A model alone does not say of which epoch it is.
  const bool right = there && (held >= 0 ? held == best->index : reason == failing.end());
  if (right && is_in_best_file(services.workspace.dir(), best->index)) {
    return;
  }
  if (!right && !link_best(path, best->index)) {
    unsaved_best_ = concat("checkpoint: the best state, of ", round_name(best->index), ", is not on disk; ",
                           held >= 0 ? concat("best.pth holds ", round_name(held))
                           : there   ? std::string("best.pth is not of it")
                                     : std::string("there is no best.pth"),
                           reason != failing.end() ? concat(": ", reason->second) : std::string());
    services.best_held = held;
    if (unsaved_best_ != told) {
      services.logger.warning(unsaved_best_);
    }
    if (row_of_best_file() == nullptr) {
      fs::remove(services.workspace.dir() / "best.json", missing);
    }
  }
  try {
    settle_records(/*again=*/true);
  } catch (const Error& error) {
    services.logger.warning(error.what());
  }
}

// The state may have another name: one of the history, or the newest of all.
bool BaseRunner::link_best(const fs::path& path, std::int64_t index) {
  auto& logger = services_->logger;
  std::error_code missing;
  for (fs::directory_iterator entry(path.parent_path(), missing), end; !missing && entry != end;
       entry.increment(missing)) {
    const std::string name = entry->path().stem().string();
    if (entry->path().extension() != ".pth" || name == "best" || name.starts_with('.') ||
        result_in(entry->path()) != index) {
      continue;
    }
    try {
      verify_file(entry->path());
      formats::PendingAlias(entry->path(), path).commit();
      formats::sync_directory(path.parent_path());
      logger.info(concat("checkpoint: made best.pth anew from ", entry->path().filename().string()));
      return true;
    } catch (const CheckpointError& error) {
      logger.warning(error.what());
    }
  }
  return false;
}

const ResultBook::Row* BaseRunner::row_of_best_file() const {
  const auto& held = services_->best_held;
  if (!held) {
    return results_.saved_best();
  }
  for (const auto& row : results_.rows()) {
    if (row.index == *held) {
      return &row;
    }
  }
  return nullptr;
}

}  // namespace danling::inline v0
