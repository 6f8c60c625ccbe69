// danling pipeline: compares and draws the schedules of a pipeline.
#include <cstdio>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <danling/core/error.hpp>
#include <danling/parallel/pipeline_schedule.hpp>
#include <danling/telemetry/text.hpp>

#include "arguments.hpp"
#include "commands.hpp"

namespace danling_command {
namespace {

namespace parallel = danling::parallel;

constexpr std::string_view command_name = "danling pipeline";

const std::initializer_list<Option> pipeline_options = {
    {"--ranks", "N", "processes along parallel.axes.pipeline; default 4"},
    {"--micro_batches", "N", "micro-batches per batch; default 8"},
    {"--stages", "N", "stages per rank; default 1, or 2 if a schedule needs them"},
    {"--schedule", "NAME", "draw this schedule"},
    {"--forward", "TIME", "time of a forward pass of a stage; default 1"},
    {"--backward", "TIME", "time of a backward pass, half of it for the input; default 2"},
    {"--message", "TIME", "time of a message to the next rank; default 0"},
    {"--width", "N", "characters per line; default 110"},
    {"--help", "", "print this text"}};

struct PipelineSetting {
  std::int64_t ranks, micro_batches;
  std::optional<std::int64_t> stages;
  parallel::PipelineCosts costs;

  /// Makes the plan; by default with one stage per rank, or two if the schedule needs them.
  parallel::PipelinePlan plan(std::string_view name) const {
    if (!stages) {
      try {
        return parallel::pipeline_schedule(name, ranks, 1, micro_batches);
      } catch (const danling::ConfigError&) {
        return parallel::pipeline_schedule(name, ranks, 2, micro_batches);
      }
    }
    return parallel::pipeline_schedule(name, ranks, *stages, micro_batches);
  }
};

/// Prints a line per schedule: length of a step, bubble, live activations, or why the schedule refuses the numbers.
void compare(const PipelineSetting& setting) {
  std::vector<std::vector<std::string>> rows = {
      {"schedule", "stages", "length", "bubble", "live activations of the ranks"}};
  for (const std::string& name : parallel::pipeline_schedule_names()) {
    try {
      const auto plan = setting.plan(name);
      const auto time = parallel::simulate_pipeline(plan, setting.costs);
      rows.push_back({name, danling::to_text(plan.stages), danling::to_significant(time.length, 4),
                      danling::format_percent(time.bubble), danling::detail::join(time.live_activations, " ")});
    } catch (const danling::ConfigError& error) {
      const std::string text = error.what();
      rows.push_back({name, "-", "-", "-", text.substr(text.find("] ") + 2)});
    }
  }
  std::puts(danling::align_columns(rows, {false, true, true, true}).c_str());
}

}  // namespace

int pipeline(std::span<const std::string> words) {
  const Arguments arguments(command_name, words, pipeline_options);
  if (arguments.has("--help")) {
    std::printf(
        "Usage: danling pipeline [options]\n\nCompares the schedules of a pipeline (parallel.pipeline_schedule), or "
        "draws one: %s.\n\n%s\n",
        danling::detail::join(parallel::pipeline_schedule_names()).c_str(), describe(pipeline_options).c_str());
    return 0;
  }
  arguments.expect(0, "no arguments besides options");
  const double backward = arguments.number("--backward").value_or(2);
  PipelineSetting setting{.ranks = arguments.integer("--ranks", 1).value_or(4),
                          .micro_batches = arguments.integer("--micro_batches", 1).value_or(8),
                          .stages = arguments.integer("--stages", 1),
                          .costs = {.forward = arguments.number("--forward").value_or(1),
                                    .backward_input = backward / 2,
                                    .backward_weight = backward / 2,
                                    .message = arguments.number("--message").value_or(0)}};
  const auto name = arguments.value("--schedule");
  if (!name) {
    compare(setting);
    return 0;
  }
  const auto plan = setting.plan(*name);
  std::fputs(parallel::draw_pipeline(plan, parallel::simulate_pipeline(plan, setting.costs), nullptr,
                                     arguments.integer("--width", 20).value_or(110))
                 .c_str(),
             stdout);
  return 0;
}

}  // namespace danling_command
