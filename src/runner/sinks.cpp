// Sinks of a runner: adds them, and sends records of the program.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/clamp.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <danling/formats/image.hpp>
#include <danling/runner/base_runner.hpp>
#include <danling/telemetry/csv_sink.hpp>
#include <danling/telemetry/mlflow.hpp>
#include <danling/telemetry/openmetrics.hpp>
#include <danling/telemetry/tensorboard_sink.hpp>
#include <danling/telemetry/wandb.hpp>
#include <danling/workspace/workspace.hpp>

#include <runner/histograms.hpp>
#include <runner/services.hpp>
#include <runner/setup.hpp>
#include <runner/sink_feed.hpp>
#include <tensors/raw.hpp>

namespace danling::inline v0 {
namespace {

/// A copy for the thread of a sink, ordered with the device's work. Making it does not synchronize.
class LateCopy {
 public:
  explicit LateCopy(const at::Tensor& tensor) {
    const at::NoGradGuard no_grad;
    copy_ = tensor.detach().clone();
    if (copy_.is_cuda()) {
      ready_ = std::make_shared<c10::Event>(copy_.device().type());
      ready_->record(c10::impl::VirtualGuardImpl(copy_.device().type()).getStream(copy_.device()));
    }
  }

  /// Waits for the copy on a separate stream: training may use any stream, and its next steps do not wait.
  at::Tensor on_host() const {
    if (ready_ == nullptr) {
      return copy_;
    }
    const c10::impl::VirtualGuardImpl devices(copy_.device().type());
    const c10::StreamGuard guard(devices.getStreamFromGlobalPool(copy_.device()));
    ready_->block(guard.current_stream());
    return copy_.to(at::kCPU);
  }

 private:
  at::Tensor copy_;
  std::shared_ptr<c10::Event> ready_;  // for a device
};

Histogram histogram_of(const LateCopy& copy) {
  const at::NoGradGuard no_grad;
  const at::Tensor host = copy.on_host();
  const bool wide = host.scalar_type() == at::kDouble || at::isIntegralType(host.scalar_type(), /*includeBool=*/false);
  const at::Tensor numbers = tensors::raw(host.to(wide ? at::kDouble : at::kFloat));
  const auto count = static_cast<std::size_t>(numbers.numel());
  return wide ? make_histogram(std::span(numbers.const_data_ptr<double>(), count))
              : make_histogram(std::span(numbers.const_data_ptr<float>(), count));
}

}  // namespace

void BaseRunner::add_sink(std::shared_ptr<Sink> sink) {
  const bool histograms = sink != nullptr && sink->wants_histograms();
  sinks_->add(std::move(sink));
  if (histograms && config().histogram_interval > 0 && !std::exchange(makes_histograms_, true)) {
    callbacks_.add_own(std::make_shared<detail::Histograms>(config().histogram_interval), {.gradients = true});
  }
}

void BaseRunner::init_tensorboard() { add_sink(std::make_shared<TensorBoardSink>()); }

void BaseRunner::init_wandb() {
  const WandbConfig& wandb = config().wandb;
  const CodeIdentity& code = this->code();
  add_sink(std::make_shared<WandbSink>(WandbOptions{.project = wandb.project.value_or(""),
                                                    .entity = wandb.entity.value_or(""),
                                                    .group = wandb.group.value_or(""),
                                                    .name = wandb.name.value_or(""),
                                                    .job_type = wandb.job_type.value_or(""),
                                                    .tags = wandb.tags,
                                                    .dir = wandb.dir.value_or(""),
                                                    .mode = wandb.mode.value_or(""),
                                                    .git_commit = code.commit}));
}

// Sinks that write into the run's directory are skipped if it has none.
void BaseRunner::Internals::Setup::add_sinks() {
  const RunnerConfig& config = runner_.config();
  if (config.openmetrics.port || config.openmetrics.file) {
    OpenMetricsOptions options;
    if (config.openmetrics.port) {
      options.port = static_cast<std::uint16_t>(*config.openmetrics.port);
    }
    options.file = config.openmetrics.file.value_or("");
    options.listens = [&logger = runner_.logger()](const std::string& address) {
      logger.info(concat("openmetrics: ", address));
    };
    runner_.add_sink(std::make_shared<OpenMetricsSink>(std::move(options)));
  }
  if (!config.record) {
    return;
  }
  if (config.csv) {
    runner_.add_sink(std::make_shared<CsvSink>(runner_.workspace().dir() / "metrics.csv"));
  }
  if (config.tensorboard) {
    runner_.init_tensorboard();
  }
  if (config.wandb.enabled) {
    runner_.init_wandb();
  }
  if (config.mlflow.enabled) {
    const MlflowConfig& mlflow = config.mlflow;
    const auto store = std::filesystem::path(config.workspace_root) / "mlruns";
    runner_.add_sink(std::make_shared<MlflowSink>(MlflowOptions{.directory = mlflow.directory.value_or(store.string()),
                                                                .experiment = mlflow.experiment.value_or(""),
                                                                .name = mlflow.name.value_or(""),
                                                                .git_commit = runner_.code().commit}));
  }
}

void BaseRunner::write_score(const std::string& name, double score, const std::string& split,
                             std::optional<std::int64_t> step) {
  Result values;
  values.set(name, score);
  const Result telemetry = detail::time_stamp();
  const std::int64_t at = step.value_or(state_.train.global_step);
  if (services_ != nullptr && services_->recorder != nullptr) {
    services_->recorder->append({.split = split,
                                 .mode = to_string(mode_),
                                 .epoch = state_.train.epoch,
                                 .global_step = at,
                                 .iteration = {},
                                 .metrics = values,
                                 .telemetry = telemetry});
  }
  sinks_->post_line(*this, {.split = split,
                            .mode = std::string(to_string(mode_)),
                            .epoch = state_.train.epoch,
                            .global_step = at,
                            .iteration = {},
                            .values = values,
                            .telemetry = telemetry});
}

void BaseRunner::write_text(const std::string& name, const std::string& text) {
  sinks_->post(*this, TextRecord{.name = name, .text = text});
}

void BaseRunner::write_histogram(const std::string& name, const at::Tensor& values) {
  check<ConfigError>(values.defined() && !values.is_complex() && values.layout() == at::kStrided,
                     "runner.write_histogram", "expected a dense tensor of real numbers for ", quote(name), ", got ",
                     !values.defined()     ? "an undefined one"
                     : values.is_complex() ? "complex ones"
                                           : "a sparse one");
  if (sinks_->is_active()) {
    sinks_->post_late(*this, values.nbytes(), /*histogram=*/true, [name, copy = LateCopy(values)] {
      return HistogramRecord{.name = name, .histogram = histogram_of(copy)};
    });
  }
}

void BaseRunner::write_image(const std::string& name, const at::Tensor& image) {
  const bool grey = image.defined() && image.dim() == 2;
  const bool planes = image.defined() && image.dim() == 3 && (image.size(0) == 1 || image.size(0) == 3);
  check<ConfigError>((grey || planes) && image.numel() > 0 && !image.is_complex(), "runner.write_image",
                     "expected a real picture [3, height, width], [1, height, width] or [height, width] for ",
                     quote(name), ", got ",
                     image.defined() ? concat("[", join(image.sizes().vec()), "]") : "an undefined one");
  if (!sinks_->is_active()) {
    return;
  }
  sinks_->post_late(*this, image.nbytes(), /*histogram=*/false,
                    [name, copy = LateCopy(grey ? image.unsqueeze(0) : image)] {
                      const at::NoGradGuard no_grad;
                      at::Tensor pixels = copy.on_host();
                      if (pixels.scalar_type() == at::kBool) {
                        pixels = pixels.to(at::kFloat);
                      }
                      if (pixels.is_floating_point()) {
                        pixels = at::clamp(pixels.to(at::kFloat).nan_to_num(), 0, 1).mul(255).round();
                      }
                      pixels = at::clamp(pixels, 0, 255).to(at::kByte).permute({1, 2, 0}).contiguous();
                      const auto* bytes = reinterpret_cast<const std::byte*>(pixels.const_data_ptr<std::uint8_t>());
                      return ImageRecord{.name = name,
                                         .width = pixels.size(1),
                                         .height = pixels.size(0),
                                         .channels = pixels.size(2),
                                         .png = formats::encode_png({bytes, static_cast<std::size_t>(pixels.numel())},
                                                                    pixels.size(1), pixels.size(0), pixels.size(2))};
                    });
}

}  // namespace danling::inline v0
