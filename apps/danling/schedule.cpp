// danling schedule: draws the learning rates of a config.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <sstream>

#include <ATen/ops/zeros.h>

#include <danling/config/config.hpp>
#include <danling/config/tree.hpp>
#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>
#include <danling/optim/build.hpp>
#include <danling/optim/schedule_summary.hpp>
#include <danling/runner/runner_config.hpp>
#include <danling/telemetry/plot.hpp>

#include "arguments.hpp"
#include "commands.hpp"

namespace danling_command {
namespace {

using danling::ConfigError;
using danling::ConfigTree;
using danling::detail::check;
using danling::detail::concat;
using danling::detail::quote;

constexpr std::string_view command_name = "danling schedule";

const std::initializer_list<Option> option_list = {
    {"--total_steps", "N", "steps to draw (default: sched.total_steps, steps or epochs of the config)"},
    {"--model", "NAME", "one of several models (default: all models of the config)"},
    {"--metrics", "LIST", "metrics for a schedule that needs one, one number per step, such as 1,0.8,0.8"},
    {"--log", "", "logarithmic axis of rates"},
    {"--width", "N", "characters per line (default: width of the terminal, or 80)"},
    {"--height", "N", "lines of the drawing (default: 16)"},
    {"--svg", "FILE", "write an SVG picture instead; with several models one per model: FILE-NAME"},
    {"--help", "", "print this text"}};

/// An optimizer with groups but no parameters, to compute rates.
class Groups final : public danling::optim::Optimizer {
 public:
  explicit Groups(const std::vector<double>& rates) {
    for (const double lr : rates) {
      groups_.push_back({.lr = lr});
    }
    momentums_.resize(rates.size(), 0.9);
  }
  std::string_view name() const override { return "optimizer"; }
  std::optional<double> momentum(std::size_t group) const override { return momentums_[group]; }
  void set_momentum(std::size_t group, double value) override { momentums_[group] = value; }
  danling::State state_dict() const override { return {}; }
  void load_state_dict(const danling::State&) override {}

 private:
  void update(double) override {}
  std::vector<double> momentums_;
};

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  check<ConfigError>(file.good() || file.eof(), command_name, "expected a config to read, got ", quote(path));
  return text.str();
}

/// Returns the value of a key, or of its alias.
const ConfigTree* find(const ConfigTree& tree, std::string_view key, std::string_view alias) {
  const ConfigTree* found = tree.find(key);
  found = found != nullptr ? found : tree.find(alias);
  return found != nullptr && !found->is_null() ? found : nullptr;
}

std::optional<std::int64_t> integer(const ConfigTree& tree, std::string_view key, const std::string& path) {
  const ConfigTree* found = find(tree, key, key);
  check<ConfigError>(found == nullptr || found->is_integer(), command_name, "expected a whole number for ", quote(key),
                     " in ", quote(path), ", got ", found != nullptr ? found->kind() : "");
  return found != nullptr ? std::optional(found->integer()) : std::nullopt;
}

/// Returns the rates of an optimizer's groups: first the optimizer's rate, then each other rate of a group.
std::vector<double> rates_of(const danling::optim::OptimizerSpec& spec) {
  std::optional<double> lr = spec.lr;
  if (!lr && spec.type && danling::optim::optimizers().contains(*spec.type)) {
    const danling::optim::OptimizerSpec defaults(*spec.type);
    lr = danling::optim::build_optimizer(defaults, {{"weight", at::zeros({2, 2})}})->param_groups().front().lr;
  }
  check<ConfigError>(lr.has_value(), command_name, "expected ", spec.section, ".lr in the config, got none");
  std::vector<double> out = {*lr};
  for (const auto& group : spec.param_groups) {
    const double own = group.lr_multiplier ? *lr * *group.lr_multiplier : group.lr.value_or(*lr);
    if (std::find(out.begin(), out.end(), own) == out.end()) {
      out.push_back(own);
    }
  }
  return out;
}

/// The keys of the config on which a schedule depends; other keys may belong to the program.
struct Settings {
  danling::OptimConfig optim;
  danling::SchedConfig sched;
  std::optional<std::int64_t> steps, epochs;
};

/// Returns a section of `optim` or of one of its groups without the keys of a user-defined optimizer.
ConfigTree known_keys(const ConfigTree& tree) {
  static const std::set<std::string> keys = {"type", "lr", "pattern", "lr_multiplier"};
  ConfigTree out = ConfigTree::Map{};
  for (const auto& entry : tree.map()) {
    const std::string& key = entry.key.string();
    if (entry.value.is_map()) {
      out[key] = known_keys(entry.value);
    } else if (key == "param_groups" && entry.value.is_list()) {
      ConfigTree::List groups;
      for (const ConfigTree& group : entry.value.list()) {
        groups.push_back(group.is_map() ? known_keys(group) : group);
      }
      out[key] = std::move(groups);
    } else if (keys.contains(key)) {
      out[key] = entry.value;
    }
  }
  return out;
}

Settings read_settings(const std::string& path) {
  const ConfigTree tree = danling::from_yaml(read(path), path);
  check<ConfigError>(tree.is_map(), command_name, "expected a map of settings in ", quote(path), ", got ", tree.kind());
  Settings out;
  if (const ConfigTree* optim = find(tree, "optim", "optimizer"); optim != nullptr && optim->is_map()) {
    danling::from_tree(out.optim, known_keys(*optim), path);
  }
  if (const ConfigTree* sched = find(tree, "sched", "scheduler")) {
    danling::from_tree(out.sched, *sched, path);
  }
  out.steps = integer(tree, "steps", path);
  out.epochs = integer(tree, "epochs", path);
  return out;
}

struct Schedule {
  std::unique_ptr<Groups> groups;
  std::shared_ptr<danling::optim::Scheduler> scheduler;
  std::int64_t updates = 0;
  std::string unit;  ///< step or epoch
};

bool needs_metric(const danling::optim::SchedulerSpec& spec) {
  return spec.type_name() == "reduce_on_plateau" || spec.type_name() == "reducelronplateau";
}

Schedule make(const Settings& settings, const danling::optim::SchedulerSpec& spec,
              const danling::optim::OptimizerSpec& optim, std::optional<std::int64_t> total) {
  const bool by_epoch = spec.interval_name() == "epoch" || needs_metric(spec);
  total = total ? total : spec.total_steps ? spec.total_steps : by_epoch ? settings.epochs : settings.steps;
  check<ConfigError>(total || needs_metric(spec), command_name, "expected --total_steps N, since the config sets ",
                     settings.epochs ? "epochs, whose number of steps depends on the data" : "no number of steps",
                     ", got none");
  Schedule out{std::make_unique<Groups>(rates_of(optim)), nullptr, total.value_or(1), by_epoch ? "epoch" : "step"};
  out.scheduler = danling::optim::build_scheduler(spec, *out.groups, total);
  return out;
}

std::vector<double> read_numbers(const std::string& list) {
  std::vector<double> out;
  std::istringstream text(list);
  for (std::string word; std::getline(text, word, ',');) {
    double value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    check<ConfigError>(error == std::errc() && end == word.data() + word.size(), command_name,
                       "expected numbers with commas for --metrics, got ", quote(list));
    out.push_back(value);
  }
  return out;
}

std::size_t terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/// The curves of a schedule, one per group, and its title.
struct Drawing {
  std::string title, unit;
  std::int64_t updates = 0;
  std::vector<std::string> names;
  std::function<double(std::int64_t position, std::size_t group)> rate;

  /// Returns `points` points per group. A rate holds until the next update.
  std::vector<danling::PlotSeries> series(std::size_t points) const {
    std::vector<danling::PlotSeries> out;
    for (std::size_t g = 0; g < names.size(); ++g) {
      danling::PlotSeries curve{.name = names.size() > 1 ? names[g] : "", .x = {}, .y = {}};
      for (std::size_t i = 0; i < points; ++i) {
        const double part = points > 1 ? static_cast<double>(i) / static_cast<double>(points - 1) : 0.0;
        const double at = part * static_cast<double>(updates - 1);
        curve.x.push_back(1 + at);
        curve.y.push_back(rate(static_cast<std::int64_t>(at), g));
      }
      out.push_back(std::move(curve));
    }
    return out;
  }
};

Drawing drawing_of(const Schedule& schedule, const danling::optim::SchedulerSpec& spec, const std::string& model,
                   const std::vector<double>& metrics) {
  Drawing out;
  const auto& groups = schedule.groups->param_groups();
  for (const auto& group : groups) {
    out.names.push_back(concat("lr ", *group.initial_lr));
  }
  out.unit = schedule.unit;
  out.updates = schedule.updates;
  out.title = concat(model.empty() ? "" : model + ": ", spec.type_name(), " over ");
  const auto& scheduler = schedule.scheduler;
  if (!scheduler->requires_metric()) {
    out.title += concat(out.updates, " ", out.unit, "s: learning rate ",
                        danling::optim::summarize_schedule(*scheduler, out.updates)->text(out.unit));
    out.rate = [scheduler](std::int64_t position, std::size_t group) { return *scheduler->rate_at(position, group); };
    return out;
  }
  std::vector<std::vector<double>> rates = {scheduler->get_last_lr()};
  for (const double metric : metrics) {
    scheduler->step(metric);
    rates.push_back(scheduler->get_last_lr());
  }
  out.updates = static_cast<std::int64_t>(rates.size());
  out.title += concat(out.updates, " ", out.unit, "s: learning rate ", danling::optim::format_rate(rates.front()[0]),
                      " at first, ", danling::optim::format_rate(rates.back()[0]), " at last");
  out.rate = [rates = std::move(rates)](std::int64_t position, std::size_t group) {
    return rates[static_cast<std::size_t>(position)][group];
  };
  return out;
}

std::string picture_path(const std::string& path, const std::string& model) {
  const std::filesystem::path file = path;
  return model.empty()
             ? path
             : (file.parent_path() / (file.stem().string() + "-" + model + file.extension().string())).string();
}

}  // namespace

int schedule(std::span<const std::string> words) {
  const Arguments arguments(command_name, words, option_list);
  if (arguments.has("--help")) {
    std::printf(
        "Usage: danling schedule CONFIG [options]\n\nDraws the learning rates of a config of any program: `sched` with "
        "the rates of `optim`.\n\n%s\n",
        describe(option_list).c_str());
    return 0;
  }
  arguments.expect(1, "a config");
  const Settings settings = read_settings(arguments.positional()[0]);
  std::vector<std::string> models;
  if (!settings.sched.type_name().empty()) {
    models.emplace_back();
  }
  for (const auto& entry : settings.sched.models) {
    models.push_back(entry.first);
  }
  if (const auto model = arguments.value("--model")) {
    check<ConfigError>(settings.sched.models.contains(*model) || settings.optim.models.contains(*model), command_name,
                       "expected a model that has a section in sched or optim, got ", quote(*model),
                       danling::detail::did_you_mean(*model, models));
    models = {*model};
  }
  const auto total = arguments.integer("--total_steps", 1);
  const auto metrics = read_numbers(arguments.value("--metrics").value_or(""));
  bool drawn = false;
  for (const auto& model : models) {
    const danling::optim::SchedulerSpec spec =
        model.empty() ? danling::optim::SchedulerSpec(settings.sched) : settings.sched.for_name(model);
    const danling::optim::OptimizerSpec optim =
        model.empty() ? danling::optim::OptimizerSpec(settings.optim) : settings.optim.for_name(model);
    if (spec.type_name().empty()) {
      continue;
    }
    drawn = true;
    const Schedule made = make(settings, spec, optim, total);
    if (made.scheduler->requires_metric() && metrics.empty()) {
      std::printf("%s%s: learning rate %s at first, then by a metric; --metrics LIST draws it\n",
                  model.empty() ? "" : (model + ": ").c_str(), spec.type_name().c_str(),
                  danling::optim::format_rate(made.scheduler->get_last_lr()[0]).c_str());
      continue;
    }
    const Drawing drawing = drawing_of(made, spec, model, metrics);
    danling::PlotOptions options{.title = drawing.title, .x_label = drawing.unit, .log_y = arguments.has("--log")};
    // Always shows a rate of 0.
    const danling::PlotSeries zero{.name = "", .x = {1.0}, .y = {0.0}, .faint = true};
    if (const auto path = arguments.value("--svg")) {
      const std::string name = picture_path(*path, models.size() > 1 ? model : "");
      std::ofstream file(name, std::ios::binary);
      auto series = drawing.series(501);
      series.push_back(zero);
      file << danling::plot_svg(series, options);
      check<ConfigError>(static_cast<bool>(file.flush()), command_name, "expected to write ", quote(name),
                         ", got an error");
      continue;
    }
    const auto width = arguments.integer("--width", 20).value_or(static_cast<std::int64_t>(terminal_width()));
    options.columns = static_cast<std::size_t>(width) - 12;  // 12 columns for the axis
    options.rows = static_cast<std::size_t>(arguments.integer("--height", 4).value_or(16));
    auto series = drawing.series(std::max<std::size_t>(8 * options.columns, 2000));
    series.push_back(zero);
    std::puts(danling::plot_text(series, options).c_str());
  }
  check<ConfigError>(drawn, command_name, "expected sched.type in ", quote(arguments.positional()[0]), ", got none");
  return 0;
}

}  // namespace danling_command
