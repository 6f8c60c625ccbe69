// A runner's directory: what it restores from, an earlier attempt moved aside, logs and metadata.
#include <danling/runner/base_runner.hpp>

#include <danling/config/tree.hpp>

#include "runner/record.hpp"
#include "runner/services.hpp"

namespace danling::inline v0 {

void BaseRunner::find_workspace() {
  CodeIdentity code = read_code_identity();
  code_id_ = code.id;
  WorkspaceOptions options;
  options.root = config().workspace_root;
  options.lineage = config().lineage;
  options.name = name();
  options.code_id = code_id_;
  options.config_id = config_id_;
  options.timestamp = timestamp_;
  options.checkpoint_dir_name = config().checkpoint.dir_name;
  services_ = std::make_unique<detail::RunnerServices>(std::move(options), std::move(code), config().console);
  auto& services = *services_;
  services.restore_from = restore_source();
  if (!services.restore_from.empty() && services.restore_state.is_null()) {
    services.restore_state = read_checkpoint(services.restore_from);
  }
}

void BaseRunner::open_workspace() {
  auto& services = *services_;
  auto& workspace = services.workspace;
  const auto& from = services.restore_from;
  // A run goes on in its directory when it resumes the newest state there. From an older one it starts a new attempt,
  // so that what came after that state is kept.
  const bool inside = !from.empty() && !services.weights_only && workspace.holds(from);
  std::error_code ignored;
  const bool newest = std::filesystem::equivalent(from, workspace.checkpoint_dir() / "latest.pth", ignored);
  const bool going_on = inside && (newest || !config().resume);
  std::filesystem::path moved;
  try {
    moved = workspace.open(going_on, going_on || services.weights_only ? std::filesystem::path() : from);
  } catch (const StateError&) {
    throw;  // another process runs there
  } catch (const Error& error) {
    if (!config().checkpoint.load_only) {
      throw;
    }
    services.logger.warning(concat(error.what(), "; with checkpoint.load_only the run goes on without files: no log, ",
                                   "metrics, results or metadata"));
    return;
  }
  if (config().log) {
    services.logger.open_file(workspace.log_file().string());
  }
  if (!moved.empty()) {
    services.logger.info(concat("workspace: moved an earlier attempt to ", moved.string()));
  }
  if (!config().seed) {
    services.logger.info(concat("seed: ", seed_));
  }
  if (!services.code.problem.empty()) {
    services.logger.note(concat("workspace: ", services.code.problem));
  }
  if (!from.empty() && !services.weights_only && !going_on) {
    // The numbers up to the checkpoint belong to this run too.
    auto run = from.parent_path();
    for (const auto& part : std::filesystem::path(config().checkpoint.dir_name)) {
      run = part.empty() ? run : run.parent_path();
    }
    run = inside || (!moved.empty() && !std::filesystem::exists(run, ignored)) ? moved : run;
    const auto copy = [&](const std::filesystem::path& source, const std::filesystem::path& target) {
      std::error_code error;
      if (std::filesystem::exists(source, error) && !std::filesystem::copy_file(source, target, error)) {
        services.logger.warning(concat("workspace: could not copy ", source.string(), ": ", error.message()));
      }
    };
    if (std::filesystem::exists(run / "metadata", ignored)) {
      copy(run / workspace.metrics_file().filename(), workspace.metrics_file());
      services.taken_from = run / config().checkpoint.dir_name;
    }
  }
  services.take_over = !from.empty() && !services.weights_only && !(going_on && newest);
  if (services.finished) {
    return;
  }
  services.metrics_log.emplace(workspace.metrics_file());
  if (services.restored_lines >= 0) {  // what was logged after the checkpoint is logged again
    detail::restore_metrics(services, services.restored_lines, services.restored_waiting);
  }
}

void BaseRunner::write_metadata() {
  auto& services = *services_;
  if (!services.workspace.is_open()) {
    return;
  }
  const ConfigTree full = to_tree(config());
  services.workspace.write_metadata(to_yaml(full), canonical(config()),
                                    to_yaml(changed(full, to_tree(config_.defaults()))), services.code);
}

}  // namespace danling::inline v0
