// Finds the checkpoint to resume: the one that the config names, or that of an earlier attempt with the same config.
#include <string>
#include <utility>
#include <vector>

#include <danling/checkpoint/manager.hpp>
#include <danling/checkpoint/sharded.hpp>
#include <danling/checkpoint/weights.hpp>
#include <danling/config/tree.hpp>
#include <danling/core/error.hpp>
#include <danling/runner/base_runner.hpp>
#include <danling/workspace/files.hpp>
#include <danling/workspace/workspace.hpp>

#include <runner/deepspeed_pointers.hpp>
#include <runner/earlier_run.hpp>
#include <runner/restorer.hpp>
#include <runner/services.hpp>

namespace danling::inline v0 {
namespace {

/// Sharded checkpoints that a run on a grid with slices or stages left, the newest first.
std::vector<std::filesystem::path> shards_in(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> out;
  for (const char* const pointer : {"latest.pointer", "previous.pointer"}) {
    try {
      std::error_code missing;
      if (std::filesystem::exists(resolve_sharded(directory / pointer) / "manifest.json", missing)) {
        out.push_back(directory / pointer);
      }
    } catch (const CheckpointError&) {  // a damaged pointer; the other one may be valid
    }
  }
  return out;
}

/// A checkpoint in a directory of checkpoints by its name, a file or a pointer to shards; empty without one.
std::filesystem::path named_in(const std::filesystem::path& directory, const std::string& name) {
  std::error_code missing;
  for (const char* extension : {".pth", ".pointer"}) {
    if (auto path = directory / (name + extension); std::filesystem::exists(path, missing)) {
      return path;
    }
  }
  return {};
}

/// The newest checkpoint among the attempts that were moved aside; empty if there is none. Their names are times,
/// behind `before-` if the attempt's own was unknown: each of the others counts as newer.
std::filesystem::path checkpoint_aside(const std::filesystem::path& run, const std::string& dir_name) {
  std::filesystem::path newest;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(run / "attempts", error), end; !error && entry != end;
       entry.increment(error)) {
    const auto checkpoint = named_in(entry->path() / dir_name, "latest");
    const auto rank = [](const std::filesystem::path& path) {
      const std::string name = path.parent_path().parent_path().filename().string();
      return std::pair(!name.starts_with("before-"), path.string());
    };
    if (!checkpoint.empty() && (newest.empty() || rank(newest) < rank(checkpoint))) {
      newest = checkpoint;
    }
  }
  return newest;
}

std::int64_t steps_of(const State& checkpoint) {
  return checkpoint.at("state").at("train").at("global_step").integer();
}

/// The differences of the lineage's last run with checkpoints from this config, for a user who changed an option and
/// expects to continue; empty if there is no such run.
std::string other_run(WorkspaceOptions place, const std::string& canonical) {
  place.config_id.clear();
  for (const FoundRun& run : find_runs(place)) {
    const auto config = run.dir / "metadata" / "config.canonical.yaml";
    std::error_code missing;
    if (named_in(run.dir / place.checkpoint_dir_name, "latest").empty() || !std::filesystem::exists(config, missing)) {
      continue;
    }
    std::string text;
    try {
      for (const Difference& difference :
           find_differences(from_yaml(read_text(config), config.string()), from_yaml(canonical, "config"))) {
        text += concat(text.empty() ? "" : "; ", difference.key, " is ", difference.first, " there and ",
                       difference.second, " here");
      }
    } catch (const Error&) {  // a damaged file
    }
    return text.empty() ? "" : concat("auto_resume: the lineage's last run is ", run.dir.string(), ", where ", text);
  }
  return {};
}

// Names the file that a user means who names a directory of the library.
void expect_file(std::string_view where, std::string_view kind, const std::filesystem::path& inside) {
  check<ConfigError>(inside.empty(), where, "expected a checkpoint, got the directory of ", kind,
                     "; name the file: ", inside.string());
}

}  // namespace

detail::RestorePoint BaseRunner::Internals::Restorer::find() {
  auto& services = *runner_.services_;
  CheckpointManager& manager = runner_.checkpoint_manager();
  const detail::RunBoundary boundary{runner_.epochs(), runner_.config().steps.value_or(0), runner_.config().patience};
  detail::RestorePoint out;
  const auto read = [this](const std::filesystem::path& path) {
    const auto absolute = std::filesystem::absolute(path);
    return detail::RestorePoint{.path = absolute, .state = runner_.read_checkpoint(absolute)};
  };
  if (runner_.config().resume.has_value() + runner_.config().auto_resume + runner_.config().pretrained.has_value() >
      1) {
    services.logger.warning(
        "runner.auto_restore: more than one of resume, auto_resume and pretrained is set; the first of these applies");
  }
  std::error_code missing;
  const bool wanted = runner_.config().auto_resume && !runner_.config().resume;
  if (wanted || (runner_.config().resume && !std::filesystem::exists(*runner_.config().resume, missing))) {
    if (const auto source = services.workspace.interrupted_source(); !source.empty()) {
      services.logger.warning(
          concat("resume: an earlier attempt ended before it had copied ", source.string(), "; resumes from there"));
      return read(source);
    }
  }
  if (runner_.config().resume) {
    const std::filesystem::path path = *runner_.config().resume;
    expect_file("runner.resume", "a run", named_in(path / runner_.config().checkpoint.dir_name, "latest"));
    const auto inside = named_in(path, "latest");
    if (!inside.empty() && detail::tagged_state_file(path) == path) {  // else DeepSpeed's, which can be resumed
      expect_file("runner.resume", "the checkpoints of a run", inside);
    }
    return read(path);
  }
  if (runner_.config().auto_resume) {
    std::string unsound;
    for (const auto& run : find_runs(services.workspace.options())) {
      const auto directory = run.dir / runner_.config().checkpoint.dir_name;
      const bool own = services.workspace.contains(directory);
      const detail::EarlierRun earlier(run.dir, services.logger);
      const auto finished = [&] {
        const auto model = own ? manager.find_final_model(directory) : std::nullopt;
        if (model) {
          out = read(*model);
          out.finished = true;
        }
        return model.has_value();
      };
      if (own && earlier.is_complete(boundary) && finished()) {
        return out;
      }
      std::optional<ValidCheckpoint> found;
      try {
        // A model-only file, written with checkpoint.last_save_model_only.
        found = manager.load_newest_valid_from(directory, [](const State& state) {
          return state.find("state") != nullptr ? "" : "contains only model weights; cannot resume";
        });
      } catch (const CheckpointError& error) {
        if (own && earlier.is_done(boundary) && finished()) {
          return out;
        }
        services.logger.warning(concat("auto_resume: skipped ", run.dir.string(), ": ", error.what()));
        unsound = unsound.empty() ? error.what() : unsound;
      }
      for (const auto& shards : runner_.saves_shards() ? std::vector<std::filesystem::path>() : shards_in(directory)) {
        try {
          auto other = read(shards);
          if (!found || steps_of(other.state) > steps_of(found->state)) {
            return other;
          }
          break;
        } catch (const CheckpointError& error) {
          services.logger.warning(concat("auto_resume: skipped ", shards.string(), ": ", error.what()));
          unsound = unsound.empty() ? error.what() : unsound;
        }
      }
      if (!found) {
        continue;
      }
      for (const auto& damaged : found->skipped) {
        services.logger.warning(concat("auto_resume: skipped ", damaged.path.string(), ": ", damaged.reason));
      }
      if (run.code_id != runner_.code_id()) {
        const auto display_id = [](const std::string& id) {
          return id.empty() ? std::string("of unknown identity") : id;
        };
        services.logger.warning(concat("auto_resume: the checkpoint was written by code ", display_id(run.code_id),
                                       ", this is code ", display_id(runner_.code_id())));
      }
      out.path = std::filesystem::absolute(found->path);
      out.state = std::move(found->state);
      return out;
    }
    check<CheckpointError>(unsound.empty(), "runner.auto_resume",
                           "expected an undamaged checkpoint to resume from, got none; move the ",
                           "run's directory away to start a new run: ", unsound);
    const auto& place = services.workspace.options();
    services.logger.info(concat("auto_resume: found no checkpoint of config ", runner_.config_id_, " in lineage ",
                                quote(place.lineage), " below ", place.root, "; starts a new run"));
    if (const std::string other = other_run(place, canonical_yaml(runner_.config())); !other.empty()) {
      services.logger.info(other);
    }
    const auto aside = checkpoint_aside(services.workspace.dir(), runner_.config().checkpoint.dir_name);
    if (!aside.empty()) {
      services.logger.warning(
          concat("auto_resume: a new start moved the checkpoints of this config aside; to continue ",
                 "from them, --resume ", detail::shell_word(aside.string())));
    }
  }
  if (runner_.config().pretrained) {
    check<ConfigError>(std::filesystem::exists(*runner_.config().pretrained, missing), "runner.load_pretrained",
                       "expected an existing file as 'pretrained', got ", quote(*runner_.config().pretrained));
    expect_file(
        "runner.load_pretrained", "a run",
        named_in(std::filesystem::path(*runner_.config().pretrained) / runner_.config().checkpoint.dir_name, "model"));
    if (runner_.saves_shards()) {  // read it whole
      const auto path = std::filesystem::absolute(*runner_.config().pretrained);
      out.path = path;
      out.state = load_weights(path);
    } else {
      out = read(*runner_.config().pretrained);
    }
    out.weights_only = true;
  }
  return out;
}

}  // namespace danling::inline v0
