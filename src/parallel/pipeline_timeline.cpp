// Timelines of pipeline schedules: prediction, checks, and text diagrams.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>
#include <danling/parallel/pipeline_schedule.hpp>

namespace danling::inline v0::parallel {
namespace {

/// Whole backward passes and input parts are the same to the previous stage: both send its gradient.
using Step = std::tuple<int, std::int64_t, std::int64_t>;
Step step_of(PipelineWork work, std::int64_t stage, std::int64_t micro_batch) {
  return {work == PipelineWork::forward ? 0 : work == PipelineWork::backward_weight ? 2 : 1, stage, micro_batch};
}

/// Actions that must have ended before another begins.
std::vector<Step> needs_of(const PipelinePlan& plan, const PipelineAction& action) {
  const auto [work, stage, micro_batch] = action;
  std::vector<Step> needs;
  if (work == PipelineWork::forward && stage > 0) {
    needs.push_back(step_of(work, stage - 1, micro_batch));
  } else if (work == PipelineWork::backward_weight) {
    needs.push_back(step_of(PipelineWork::backward_input, stage, micro_batch));
  } else if (work != PipelineWork::forward) {
    needs.push_back(step_of(PipelineWork::forward, stage, micro_batch));
    if (stage + 1 < plan.stages) {
      needs.push_back(step_of(work, stage + 1, micro_batch));
    }
  }
  return needs;
}

[[noreturn]] void fail_waiting(const PipelinePlan& plan, const std::vector<std::size_t>& next) {
  std::string waits;
  for (std::size_t rank = 0; rank < next.size(); ++rank) {
    if (next[rank] < plan.actions[rank].size()) {
      waits += concat(waits.empty() ? "" : ", ", "rank ", rank, " at ", to_string(plan.actions[rank][next[rank]]));
    }
  }
  fail<ConfigError>("pipeline.plan", plan.name, ": expected an order without deadlock, got ", waits);
}

std::string label_of(const PipelinePlan& plan, const PipelineAction& action) {
  std::string out;
  switch (action.work) {
    case PipelineWork::forward:
      break;
    case PipelineWork::backward:
      out = "b";
      break;
    case PipelineWork::backward_input:
      out = "i";
      break;
    case PipelineWork::backward_weight:
      out = "w";
      break;
  }
  out += std::to_string(action.micro_batch);
  const auto local = plan.stages_of_rank(plan.rank_of_stage[static_cast<std::size_t>(action.stage)]);
  const auto place = std::find(local.begin(), local.end(), action.stage) - local.begin();
  return place == 0 ? out : out + static_cast<char>('A' + std::min<std::ptrdiff_t>(place, 25));
}

/// The rows of a picture: `scale` characters per unit of time.
std::string rows_of(const PipelinePlan& plan, const PipelineTimeline& timeline, double scale) {
  const auto place = [&](double time) { return static_cast<std::size_t>(std::llround(time * scale)); };
  std::string out;
  for (std::size_t rank = 0; rank < timeline.spans.size(); ++rank) {
    std::string row(place(timeline.length), '.');
    for (const auto& span : timeline.spans[rank]) {
      const std::size_t begin = place(span.begin);
      const std::size_t width = std::min(place(span.end), row.size()) - std::min(begin, row.size());
      std::string cell = label_of(plan, span.action).substr(0, width);
      if (cell.size() < width) {
        cell.append(width - cell.size() - 1, '-');
        cell += ' ';
      }
      row.replace(std::min(begin, row.size()), width, cell);
    }
    out += concat("rank ", rank, " |", row, "|\n");
  }
  return out;
}

double natural_scale(const PipelinePlan& plan, const PipelineTimeline& timeline, std::int64_t width) {
  double scale = 0;  // the smallest at which all labels and a space fit
  for (const auto& spans : timeline.spans) {
    for (const auto& span : spans) {
      if (span.end > span.begin) {
        scale =
            std::max(scale, (static_cast<double>(label_of(plan, span.action).size()) + 1) / (span.end - span.begin));
      }
    }
  }
  const double most = static_cast<double>(std::max<std::int64_t>(width, 20) - 9) / timeline.length;
  return timeline.length > 0 ? std::min(scale, most) : 0;
}

}  // namespace

std::string to_string(const PipelineAction& action) {
  constexpr char letters[] = {'F', 'B', 'I', 'W'};
  return concat(action.stage, letters[static_cast<int>(action.work)], action.micro_batch);
}

PipelineMessages messages_of(const PipelinePlan& plan, const PipelineAction& action) {
  const std::int64_t own = plan.rank_of_stage[static_cast<std::size_t>(action.stage)];
  const auto other = [&](std::int64_t stage) -> std::optional<std::int64_t> {
    if (stage < 0 || stage >= plan.stages || plan.rank_of_stage[static_cast<std::size_t>(stage)] == own) {
      return std::nullopt;
    }
    return plan.rank_of_stage[static_cast<std::size_t>(stage)];
  };
  switch (action.work) {
    case PipelineWork::forward:
      return {other(action.stage - 1), other(action.stage + 1)};
    case PipelineWork::backward_weight:
      return {};
    default:
      return {other(action.stage + 1), other(action.stage - 1)};
  }
}

double PipelineCosts::of(PipelineWork work) const {
  switch (work) {
    case PipelineWork::forward:
      return forward;
    case PipelineWork::backward_input:
      return backward_input;
    case PipelineWork::backward_weight:
      return backward_weight;
    default:
      return backward_input + backward_weight;
  }
}

PipelineTimeline pipeline_timeline(std::vector<std::vector<PipelineSpan>> spans) {
  PipelineTimeline out;
  out.spans = std::move(spans);
  double busy = 0;
  for (const auto& of_rank : out.spans) {
    std::int64_t live = 0;
    std::int64_t most = 0;
    for (const auto& span : of_rank) {
      busy += span.end - span.begin;
      out.length = std::max(out.length, span.end);
      live += span.action.work == PipelineWork::forward ? 1 : 0;
      most = std::max(most, live);
      live -= span.action.work == PipelineWork::backward || span.action.work == PipelineWork::backward_weight ? 1 : 0;
    }
    out.live_activations.push_back(most);
  }
  const double whole = out.length * static_cast<double>(out.spans.size());
  out.bubble = whole > 0 ? 1 - busy / whole : 0;
  return out;
}

PipelineTimeline simulate_pipeline(const PipelinePlan& plan, const PipelineCosts& costs) {
  return simulate_pipeline(plan, [&](const PipelineAction& action) { return costs.of(action.work); }, costs.message);
}

PipelineTimeline simulate_pipeline(const PipelinePlan& plan,
                                   const std::function<double(const PipelineAction& action)>& duration,
                                   double message) {
  std::map<Step, std::pair<double, std::size_t>> ended;  // end time and rank
  std::vector<std::vector<PipelineSpan>> spans(plan.actions.size());
  std::vector<std::size_t> next(plan.actions.size(), 0);
  for (bool left = true; left;) {
    bool moved = false;
    left = false;
    for (std::size_t rank = 0; rank < plan.actions.size(); ++rank) {
      while (next[rank] < plan.actions[rank].size()) {
        const PipelineAction& action = plan.actions[rank][next[rank]];
        double begin = spans[rank].empty() ? 0 : spans[rank].back().end;
        bool ready = true;
        for (const Step& need : needs_of(plan, action)) {
          const auto found = ended.find(need);
          ready = ready && found != ended.end();
          if (ready) {
            begin = std::max(begin, found->second.first + (found->second.second == rank ? 0 : message));
          }
        }
        if (!ready) {
          left = true;
          break;
        }
        spans[rank].push_back({action, begin, begin + duration(action)});
        ended[step_of(action.work, action.stage, action.micro_batch)] = {spans[rank].back().end, rank};
        ++next[rank];
        moved = true;
      }
    }
    if (left && !moved) {
      fail_waiting(plan, next);
    }
  }
  return pipeline_timeline(std::move(spans));
}

void check_plan(const PipelinePlan& plan) {
  constexpr const char* where = "pipeline.plan";
  check<ConfigError>(plan.ranks >= 1 && plan.micro_batches >= 1 && plan.stages >= 1 &&
                         plan.rank_of_stage.size() == static_cast<std::size_t>(plan.stages) &&
                         plan.actions.size() == static_cast<std::size_t>(plan.ranks),
                     where, plan.name, ": expected a list of actions for each of ", plan.ranks,
                     " ranks and a rank for each of ", plan.stages, " stages, got ", plan.actions.size(), " and ",
                     plan.rank_of_stage.size());
  std::map<Step, PipelineWork> seen;
  for (std::size_t rank = 0; rank < plan.actions.size(); ++rank) {
    for (const auto& action : plan.actions[rank]) {
      check<ConfigError>(
          action.stage >= 0 && action.stage < plan.stages && action.micro_batch >= 0 &&
              action.micro_batch < plan.micro_batches &&
              plan.rank_of_stage[static_cast<std::size_t>(action.stage)] == static_cast<std::int64_t>(rank),
          where, plan.name, ": expected actions of the rank's stages and of ", plan.micro_batches,
          " micro-batches, got ", to_string(action), " on rank ", rank);
      const bool first = seen.emplace(step_of(action.work, action.stage, action.micro_batch), action.work).second;
      check<ConfigError>(first, where, plan.name, ": expected each action once, got ", to_string(action), " again");
    }
  }
  for (std::int64_t stage = 0; stage < plan.stages; ++stage) {
    for (std::int64_t micro_batch = 0; micro_batch < plan.micro_batches; ++micro_batch) {
      const auto backward = seen.find(step_of(PipelineWork::backward, stage, micro_batch));
      const bool weight = seen.contains(step_of(PipelineWork::backward_weight, stage, micro_batch));
      check<ConfigError>(seen.contains(step_of(PipelineWork::forward, stage, micro_batch)) && backward != seen.end() &&
                             weight == (backward->second == PipelineWork::backward_input),
                         where, plan.name, ": expected a forward and a whole backward pass of micro-batch ",
                         micro_batch, " in stage ", stage, ", got a part of them");
    }
  }
  simulate_pipeline(plan);
}

std::string draw_pipeline(const PipelinePlan& plan, const PipelineTimeline& predicted, const PipelineTimeline* measured,
                          std::int64_t width) {
  std::string out = concat(plan.name, ": ", plan.stages, " stages on ", plan.ranks, " ranks, ", plan.micro_batches,
                           " micro-batches\n");
  out += rows_of(plan, predicted, natural_scale(plan, predicted, width));
  if (measured != nullptr) {
    out += "measured\n";
    // As wide as the prediction, for comparison by eye.
    const double columns = natural_scale(plan, predicted, width) * predicted.length;
    out += rows_of(plan, *measured, measured->length > 0 ? columns / measured->length : 0);
  }
  out += concat("bubble ", format_percent(predicted.bubble), " predicted");
  if (measured != nullptr) {
    out += concat(", ", format_percent(measured->bubble), " measured");
  }
  out += "; live activations";
  for (const auto live : predicted.live_activations) {
    out += concat(" ", live);
  }
  return out + "\n";
}

}  // namespace danling::inline v0::parallel
