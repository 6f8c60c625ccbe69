// Loads and resumes with a TorchDistributedCheckpointManager.
#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

#include <danling/checkpoint/sharded_manager.hpp>
#include <danling/checkpoint/weights.hpp>
#include <danling/core/error.hpp>
#include <danling/formats/detail/pickle.hpp>
#include <danling/formats/file.hpp>

#include <checkpoint/counters.hpp>
#include <checkpoint/sharded_manager_impl.hpp>

namespace danling::inline v0 {
namespace {

namespace fs = std::filesystem;
using formats::RecordTree;

// Selects the boxes of the tensors of a whole state; skipped tensors are missing in maps, and null in lists.
State select_boxes(const State& state, const std::string& name, const ShardSelector& wanted) {
  const auto below = [&](const std::string& key) { return name.empty() ? key : concat(name, ".", key); };
  if (state.is_tensor()) {
    at::Tensor out = state.tensor();
    const auto box = wanted(name, out.sizes());
    if (!box) {
      return nullptr;
    }
    for (std::size_t d = 0; d < box->sizes.size(); ++d) {
      out = out.narrow(static_cast<std::int64_t>(d), box->offsets.at(d), box->sizes[d]);
    }
    return box->sizes.empty() ? out : out.clone();
  }
  if (state.is_map()) {
    State::Map out;
    for (const auto& [key, value] : state.map()) {
      State selected = select_boxes(value, below(key.is_string() ? key.string() : to_text(key.integer())), wanted);
      if (!value.is_tensor() || !selected.is_null()) {
        out.append(key, std::move(selected));
      }
    }
    return out;
  }
  if (state.is_list() || state.is_tuple()) {
    State::List out;
    for (std::size_t i = 0; i < state.items().size(); ++i) {
      out.push_back(select_boxes(state.items()[i], below(to_text(i)), wanted));
    }
    return state.is_list() ? State(std::move(out)) : State(State::Tuple{std::move(out)});
  }
  return state;
}

State load_part(const fs::path& path, const ShardSelector& wanted) {
  State state = is_sharded(path) ? load_sharded(path, wanted) : load_weights(path);
  check<CheckpointError>(state.is_map(), "checkpoint.read", "expected a checkpoint of named parts, got ", state.kind(),
                         " (", quote(path.string()), ")");
  return wanted && !is_sharded(path) ? select_boxes(state, "", wanted) : state;
}

// Packs the findings of rank 0 for all ranks: paths and skipped paths with reasons, or an error text instead.
std::string pack_candidates(const fs::path& directory) {
  std::vector<SkippedCheckpoint> skipped;
  std::vector<fs::path> paths;
  try {
    paths = ShardedDirectory(directory).candidates(skipped);
  } catch (const std::exception& error) {  // sent too: otherwise the other ranks would wait for the list
    return formats::write_pickle(RecordTree(std::string(error.what())), {});
  }
  RecordTree::List out;
  for (const auto& path : paths) {
    out.emplace_back(RecordTree::List{path.string()});
  }
  for (const auto& [path, reason] : skipped) {
    out.emplace_back(RecordTree::List{path.string(), reason});
  }
  return formats::write_pickle(RecordTree(std::move(out)), {});
}

std::optional<formats::DcpManifest> manifest_in(const fs::path& directory) {
  try {
    return formats::find_dcp_manifest(directory);
  } catch (const CheckpointError&) {
    return std::nullopt;
  }
}

// Links the files of a checkpoint under other names, its manifest last.
void link_save(const fs::path& from, const fs::path& to) {
  fs::create_directories(to);
  for (const auto& entry : fs::directory_iterator(from)) {
    if (entry.is_regular_file() && entry.path().filename() != formats::dcp_manifest_name) {
      formats::PendingAlias(entry.path(), to / entry.path().filename()).commit();
    }
  }
  formats::PendingAlias(from / formats::dcp_manifest_name, to / formats::dcp_manifest_name).commit();
  formats::sync_directory(to);
}

// Returns whether a save to a file came after those in directories: the run continued with the other backend.
bool has_newer_file(const fs::path& directory, const std::vector<fs::path>& saves) {
  CheckpointCounters newest;
  for (const auto& save : saves) {
    if (const auto manifest = manifest_in(save); manifest && manifest->epoch && manifest->global_step) {
      newest = std::max(newest, {*manifest->epoch, *manifest->global_step, manifest->micro_step.value_or(0)});
    }
  }
  try {
    const fs::path latest = directory / "latest.pth";
    const auto counters = fs::exists(latest) ? counters_in(latest) : std::nullopt;
    return counters && *counters > newest;
  } catch (const std::exception&) {
    return false;  // damaged: the directories are what is left
  }
}

// Each rank reads the file. Ranks must not resume from different files, as after a read error on one machine.
std::optional<ValidCheckpoint> load_newest_file(const fs::path& directory, const CheckpointFilter& filter,
                                                const Group& group) {
  std::optional<ValidCheckpoint> out;
  std::exception_ptr error;
  std::string outcome = "no checkpoint";
  try {
    out = CheckpointDirectory(directory).load_newest_valid(filter);
    outcome = out ? out->path.filename().string() : outcome;
  } catch (const CheckpointError& failure) {
    error = std::current_exception();
    outcome = failure.what();
  }
  const auto outcomes = group.all_gather(outcome);
  if (error) {
    std::rethrow_exception(error);
  }
  const auto other = std::find_if(outcomes.begin(), outcomes.end(), [&](const auto& text) { return text != outcome; });
  check<CheckpointError>(other == outcomes.end(), "checkpoint.newest",
                         "expected the same checkpoint on all ranks, got ", outcome, " and on rank ",
                         other - outcomes.begin(), " ", other == outcomes.end() ? std::string() : *other);
  return out;
}

}  // namespace

State TorchDistributedCheckpointManager::load_checkpoint(const fs::path& path) {
  return load_part(path, impl_->wanted());
}

std::optional<ValidCheckpoint> TorchDistributedCheckpointManager::load_newest_valid() {
  return load_newest_valid_from(options().directory, {});
}

std::optional<ValidCheckpoint> TorchDistributedCheckpointManager::load_newest_valid_from(
    const fs::path& directory, const CheckpointFilter& filter) {
  impl_->settle(std::nullopt);
  const Group& group = impl_->group();
  const std::string found = group.rank() == 0 ? pack_candidates(directory) : std::string();
  const RecordTree list = formats::read_pickle(group.broadcast(found, 0), "the checkpoints that rank 0 found").tree;
  check<CheckpointError>(!list.is_string(), "checkpoint.newest", "expected to list ", quote(directory.string()),
                         " on rank 0, got ", list.is_string() ? list.string() : std::string());
  ValidCheckpoint out;
  std::vector<fs::path> paths;
  for (const auto& item : list.list()) {
    if (item.list().size() == 1) {
      paths.emplace_back(item.list()[0].string());
    } else {
      out.skipped.push_back({item.list()[0].string(), item.list()[1].string()});
    }
  }
  const bool newer = group.rank() == 0 && has_newer_file(directory, paths);
  if (paths.empty() || group.broadcast(newer ? "file" : "", 0) == "file") {  // or was killed in its first save
    std::optional<ValidCheckpoint> whole;
    try {
      whole = load_newest_file(directory, filter, group);
    } catch (const CheckpointError& error) {  // on all ranks, or on none
      if (paths.empty()) {
        throw;
      }
      out.skipped.push_back({directory / "latest.pth", error.what()});
    }
    if (whole && impl_->wanted()) {
      whole->state = select_boxes(whole->state, "", impl_->wanted());
    }
    if (whole || paths.empty()) {
      return whole;
    }
  }
  for (const auto& path : paths) {
    std::string reason;
    try {
      out.state = load_part(path, impl_->wanted());
      reason = filter ? filter(out.state) : std::string();
    } catch (const CheckpointError& error) {
      reason = error.what();
    }
    const auto reasons = group.all_gather(reason);
    const auto first = std::find_if(reasons.begin(), reasons.end(), [](const auto& text) { return !text.empty(); });
    if (first == reasons.end()) {
      out.path = path;
      if (group.rank() == 0) {
        impl_->directory().note_valid(path);
      }
      return out;
    }
    out.skipped.push_back({path, *first});
    out.state = State();
  }
  std::vector<std::string> reasons;
  for (const auto& skipped : out.skipped) {
    reasons.push_back(skipped.reason);
  }
  fail<CheckpointError>("checkpoint.newest", "expected a valid checkpoint in ", quote(directory.string()), ", got ",
                        reasons.size(), " that cannot be read:\n  ", join(reasons, "\n  "));
}

std::optional<fs::path> TorchDistributedCheckpointManager::find_final_model(const fs::path& directory) {
  const auto latest = ShardedDirectory(directory).find("latest");
  const auto manifest = latest ? manifest_in(*latest) : std::nullopt;
  return manifest && manifest->is_model ? latest : std::nullopt;
}

bool TorchDistributedCheckpointManager::is_latest(const fs::path& checkpoint) const {
  const auto latest = impl_->directory().find("latest");
  std::error_code missing;
  return latest && fs::equivalent(resolve_sharded(checkpoint), *latest, missing);
}

std::vector<std::string> TorchDistributedCheckpointManager::adopt(const fs::path& directory,
                                                                  const CheckpointHistory& history) {
  std::vector<std::string> problems;
  if (options().load_only || impl_->group().rank() != 0) {
    return problems;
  }
  ShardedDirectory& own = impl_->directory();
  const ShardedDirectory there(directory);
  for (const auto& name : there.names()) {
    const bool best = name == "best";
    const auto from = there.find(name);
    if (!from || (!best && !parse_history_name(name)) || own.find(name)) {
      continue;
    }
    try {
      const auto manifest = formats::find_dcp_manifest(*from);
      if (!manifest || !manifest->epoch || !manifest->global_step) {
        continue;
      }
      const auto progress = history.step_mode ? *manifest->global_step : *manifest->epoch;
      if (progress > history.progress || (best && progress != history.best)) {
        continue;
      }
      const fs::path to = own.path() / from->filename();
      if (from->parent_path() != own.path() && !formats::find_dcp_manifest(to)) {
        link_save(*from, to);
      }
      if (!best) {
        own.point(name, to.filename().string());
      }
      if (progress == history.best) {
        own.point("best", to.filename().string());
      }
    } catch (const CheckpointError& error) {
      problems.emplace_back(error.what());
    } catch (const fs::filesystem_error& error) {
      problems.emplace_back(
          concat("[checkpoint.write] expected to adopt ", quote(from->string()), ", got ", error.what()));
    }
  }
  return problems;
}

std::optional<BestCheckpoint> TorchDistributedCheckpointManager::best_checkpoint() const {
  if (options().load_only) {
    return std::nullopt;
  }
  const auto best = impl_->directory().find("best");
  if (!best) {
    return BestCheckpoint{};
  }
  const auto manifest = manifest_in(*best);
  auto index = manifest ? manifest->result : std::nullopt;
  if (!index && manifest && manifest->global_step) {
    index = -1;
  }
  return BestCheckpoint{true, index};
}

std::optional<State> TorchDistributedCheckpointManager::load_best() {
  impl_->settle(std::nullopt);
  const auto best = impl_->directory().find("best");
  return best ? std::optional(load_part(*best, impl_->wanted())) : std::nullopt;
}

std::optional<std::string> TorchDistributedCheckpointManager::republish_best(std::int64_t index,
                                                                             std::vector<std::string>& problems) {
  if (impl_->group().rank() != 0) {
    return std::nullopt;
  }
  ShardedDirectory& own = impl_->directory();
  for (const auto& name : own.names()) {
    const auto path = own.find(name);
    const auto manifest = name != "best" && path ? manifest_in(*path) : std::nullopt;
    if (!manifest || manifest->result != index) {
      continue;
    }
    try {
      verify_sharded(*path);
      own.point("best", path->filename().string());
      return name;
    } catch (const CheckpointError& error) {
      problems.emplace_back(error.what());
    }
  }
  return std::nullopt;
}

fs::path TorchDistributedCheckpointManager::path_of(const std::string& name) const {
  return impl_->directory().find(name).value_or(impl_->directory().path() / name);
}

}  // namespace danling::inline v0
