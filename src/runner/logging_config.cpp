// Fields of RunnerConfig for logging, metrics and sinks.
#include <runner/logging_config.hpp>

#include <danling/core/error.hpp>

#include <runner/reserved_keys.hpp>

namespace danling::inline v0 {

void PerformanceConfig::fields(Fields& f) {
  f("model_flops_per_sample", model_flops_per_sample,
    "floating-point operations of training with one sample, forward and backward; unset: counted in the first step")
      .above(0);
  f("model_flops_per_token", model_flops_per_token, "the same for one token, where the batch counts tokens").above(0);
  f("hardware_flops_per_sample", hardware_flops_per_sample,
    "the same with the operations that recompute repeats; unset: not reported")
      .above(0);
  f("hardware_flops_per_token", hardware_flops_per_token, "the same for one token").above(0);
  f("peak_flops", peak_flops,
    "peak operations per second of the devices of all processes together; unset: no utilization is reported")
      .above(0);
}

void WandbConfig::fields(Fields& f) {
  f("enabled", enabled, "write an offline run, which `wandb sync` uploads");
  f("project", project, "unset: the lineage");
  f("entity", entity, "user or team; unset: that of the uploader");
  f("group", group, "unset: the experiment");
  f("name", name, "unset: the run's id");
  f("job_type", job_type, "such as train");
  f("tags", tags, "of the run");
  f("dir", dir, "directory that holds wandb/offline-run-...; unset: the run's");
  f("mode", mode, "offline, or disabled to write nothing; unset: offline")
      .choices({"offline", "disabled"})
      .refuse("online", "a client of the server; write offline and upload by `wandb sync`");
}

void MlflowConfig::fields(Fields& f) {
  f("enabled", enabled, "write the run to a file store, which `mlflow ui` shows");
  f("directory", directory, "the store; unset: mlruns in workspace_root");
  f("experiment", experiment, "unset: the lineage");
  f("name", name, "of the run; unset: its id");
}

void OpenMetricsConfig::fields(Fields& f) {
  f("port", port, "serve http://127.0.0.1:<port>/metrics; 0: a free port, which is logged; unset: none")
      .range(0, 65535);
  f("file", file, "replaced every second, for a collector of text files (*.prom); unset: none");
}

void detail::add_logging_fields(Fields& f, RunnerConfig& config) {
  f.group("Logging");
  f("record", config.record,
    "write the run to disk: its directory with log, metrics, results and checkpoints; false writes nothing at all")
      .non_semantic();
  f("log", config.log, "write a log file").non_semantic();
  f("log_level", config.log_level, "the lowest level of lines on the console and in the log file").non_semantic();
  f("log_pattern", config.log_pattern, "the lines of the log file, in spdlog's syntax").non_semantic();
  f("log_max_size", config.log_max_size,
    "size of the log file before it is rotated, such as 10MiB: <name>.log becomes <name>.1.log, and so on; unset: no "
    "rotation")
      .non_semantic();
  f("log_max_files", config.log_max_files, "rotated log files to keep; unset: 5").at_least(1).non_semantic();
  f("log_interval", config.log_interval,
    "micro-batches between log lines (with `steps`: updates); 0: none; unset: 1/100 of the number of updates, 1024 if "
    "it is unknown")
      .at_least(0)
      .non_semantic();
  f("log_grad_norm", config.log_grad_norm, "log the norm of the gradients, before clipping").non_semantic();
  f("log_noise_scale", config.log_noise_scale,
    "log the gradient noise scale: the batch size beyond which more samples help little")
      .non_semantic();
  f("performance", config.performance, "floating-point operations per second, and the utilization of the devices")
      .non_semantic();
  f("tensorboard", config.tensorboard, "write TensorBoard's files to <run>/tensorboard").non_semantic();
  f("wandb", config.wandb, "an offline run of Weights & Biases").non_semantic();
  f("mlflow", config.mlflow, "a run in MLflow's file store").non_semantic();
  f("openmetrics", config.openmetrics, "latest numbers for Prometheus").non_semantic();
  f("csv", config.csv, "write metrics.csv, a table of the lines of metrics.jsonl").non_semantic();
  f("histogram_interval", config.histogram_interval,
    "updates between histograms of weights and gradients, for sinks that show them (TensorBoard); 0: none")
      .at_least(0)
      .non_semantic();
  f("console", config.console, "report on the console; false: print only the error that ends the run").non_semantic();
  f("quiet", config.quiet, "print only warnings and errors on the console").non_semantic();
  f("summary", config.summary, "print the layers, shapes, parameters, memory and FLOPs of the model, and exit")
      .non_semantic();
  f("heartbeat", config.heartbeat, "files with the current activity of each process").non_semantic();
  f("profiling", config.profiling, "traces of some steps").non_semantic();
}

void detail::check_logging(const RunnerConfig& config) {
  static constexpr std::string_view where = "config.validate";
  check_log_pattern(config.log_pattern);
  check<ConfigError>(!config.log_max_size || config.log_max_size->bytes > 0, where,
                     "expected 'log_max_size' above 0, got ", config.log_max_size.value_or(MemorySize()).bytes);
  check<ConfigError>(!config.log_max_files || config.log_max_size, where,
                     "expected 'log_max_size' beside 'log_max_files', got none");
}

LoggerOptions detail::logger_options(const RunnerConfig& config) {
  return {.quiet = config.quiet,
          .keep = std::size_t{1} << 16,
          .level = config.log_level,
          .pattern = config.log_pattern,
          .max_file_size = static_cast<std::uint64_t>(config.log_max_size.value_or(MemorySize()).bytes),
          .max_files = static_cast<std::size_t>(config.log_max_files.value_or(5))};
}

}  // namespace danling::inline v0
