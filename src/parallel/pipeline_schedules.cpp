// The actions of pipeline schedules.
#include <algorithm>
#include <cctype>
#include <map>

#include <danling/core/error.hpp>
#include <danling/parallel/pipeline_schedule.hpp>

namespace danling::inline v0::parallel {
namespace {

using Actions = std::vector<PipelineAction>;

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return out;
}

/// The name in PyTorch's spelling.
const std::string& schedule_name(std::string_view name) {
  const auto& names = pipeline_schedule_names();
  const auto found = std::find_if(names.begin(), names.end(),
                                  [&](const auto& known) { return lower_case(known) == lower_case(name); });
  if (found == names.end()) {
    std::string all;
    for (const auto& known : names) {
      all += (all.empty() ? "" : ", ") + known;
    }
    fail<ConfigError>("pipeline.schedule", "expected one of ", all, ", got \"", name, "\"");
  }
  return *found;
}

void check_count(std::int64_t count, const char* what) {
  check<ConfigError>(count >= 1, "pipeline.schedule", "expected at least one ", what, ", got ", count);
}

void check_stages_per_rank(const std::string& name, std::int64_t stages_per_rank) {
  const std::int64_t expected = name == "GPipe" || name == "1F1B" ? 1 : name == "ZBVZeroBubble" ? 2 : stages_per_rank;
  check<ConfigError>(stages_per_rank == expected, "pipeline.schedule", name, ": expected ", expected,
                     expected == 1 ? " stage" : " stages", " per rank, got ", stages_per_rank,
                     expected == 1 ? "; Interleaved1F1B, LoopedBFS and InterleavedZeroBubble have several" : "");
}

Actions gpipe(const PipelinePlan& plan, std::int64_t rank) {
  Actions out;
  for (const PipelineWork work : {PipelineWork::forward, PipelineWork::backward}) {
    for (std::int64_t micro_batch = 0; micro_batch < plan.micro_batches; ++micro_batch) {
      out.push_back({work, rank, micro_batch});
    }
  }
  return out;
}

Actions one_forward_one_backward(const PipelinePlan& plan, std::int64_t rank) {
  Actions out;
  const std::int64_t ahead = std::min(plan.micro_batches, plan.ranks - 1 - rank);
  for (std::int64_t step = 0; step < plan.micro_batches + ahead; ++step) {
    if (step < plan.micro_batches) {
      out.push_back({PipelineWork::forward, rank, step});
    }
    if (step >= ahead) {
      out.push_back({PipelineWork::backward, rank, step - ahead});
    }
  }
  return out;
}

Actions looped_breadth_first(const PipelinePlan& plan, std::int64_t rank) {
  Actions out;
  const auto stages = plan.stages_of_rank(rank);
  for (const std::int64_t stage : stages) {
    for (std::int64_t micro_batch = 0; micro_batch < plan.micro_batches; ++micro_batch) {
      out.push_back({PipelineWork::forward, stage, micro_batch});
    }
  }
  for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
    for (std::int64_t micro_batch = plan.micro_batches - 1; micro_batch >= 0; --micro_batch) {
      out.push_back({PipelineWork::backward, *stage, micro_batch});
    }
  }
  return out;
}

/// Numbers the micro-batches of each stage in the order of its turns.
class Turns {
 public:
  void add(Actions& to, PipelineWork work, std::int64_t stage) { to.push_back({work, stage, next_[{work, stage}]++}); }

 private:
  std::map<std::pair<PipelineWork, std::int64_t>, std::int64_t> next_;
};

/// Rounds in which `per_round` micro-batches pass one of the rank's stages, then the next. With `zero_bubble`, backward
/// passes have two parts; those of the weights come `rank` backward passes later, where the rank would wait.
Actions interleaved(const PipelinePlan& plan, std::int64_t rank, bool zero_bubble) {
  const std::int64_t local = plan.stages / plan.ranks;
  const std::int64_t rounds = std::max<std::int64_t>(1, plan.micro_batches / plan.ranks);
  const std::int64_t per_round = plan.micro_batches / rounds;
  const std::int64_t all = local * plan.micro_batches;
  const std::int64_t hops = plan.ranks - 1 - rank;
  const std::int64_t warmup = std::min(all, (local - 1) * per_round + (zero_bubble ? 1 : 2) * hops);
  const auto forward_stage = [&](std::int64_t step) { return (step / per_round) % local * plan.ranks + rank; };
  const auto backward_stage = [&](std::int64_t step) {
    return (local - 1 - (step / per_round) % local) * plan.ranks + rank;
  };

  Actions out;
  Turns turns;
  std::int64_t weights = 0;
  for (std::int64_t step = 0; step < all + warmup; ++step) {
    if (step < all) {
      turns.add(out, PipelineWork::forward, forward_stage(step));
    }
    if (step >= warmup) {
      const std::int64_t done = step - warmup;
      turns.add(out, zero_bubble ? PipelineWork::backward_input : PipelineWork::backward, backward_stage(done));
      if (zero_bubble && done >= rank) {
        turns.add(out, PipelineWork::backward_weight, backward_stage(weights++));
      }
    }
  }
  while (zero_bubble && weights < all) {
    turns.add(out, PipelineWork::backward_weight, backward_stage(weights++));
  }
  return out;
}

/// Section 6 of Qi et al. 2024: the first half of the stages goes down the ranks, the second half comes back.
Actions zero_bubble_v(const PipelinePlan& plan, std::int64_t rank) {
  const std::int64_t ranks = plan.ranks;
  const std::int64_t down = rank;
  const std::int64_t up = plan.stages - 1 - rank;
  // The pattern needs this many to fill the pipeline; additional ones are removed afterwards.
  const std::int64_t micro_batches = std::max(2 * ranks - 1, plan.micro_batches);
  Actions out;
  Turns turns;
  std::int64_t begun = 0;
  std::int64_t returned = 0;
  const auto forward = [&](std::int64_t stage) {
    turns.add(out, PipelineWork::forward, stage);
    ++(stage == down ? begun : returned);
  };
  const auto backward = [&](std::int64_t stage) {
    turns.add(out, PipelineWork::backward_input, stage);
    turns.add(out, PipelineWork::backward_weight, stage);
  };
  for (std::int64_t step = 0; step < 2 * (ranks - rank) - 1; ++step) {
    forward(down);
  }
  for (std::int64_t step = 0; step < rank; ++step) {
    forward(up);
    forward(down);
  }
  for (std::int64_t step = 0; step < ranks - rank; ++step) {
    forward(up);
    backward(up);
  }
  while (returned < begun || begun < micro_batches) {
    if (begun < micro_batches) {
      forward(down);
    }
    backward(down);
    forward(up);
    backward(up);
  }
  for (std::int64_t step = 0; step < rank; ++step) {
    turns.add(out, PipelineWork::backward_input, down);
    turns.add(out, PipelineWork::backward_input, up);
  }
  for (std::int64_t step = 0; step < ranks - rank; ++step) {
    backward(down);
  }
  for (std::int64_t step = 0; step < rank; ++step) {
    turns.add(out, PipelineWork::backward_weight, up);
  }
  for (std::int64_t step = 0; step < rank; ++step) {
    turns.add(out, PipelineWork::backward_weight, down);
  }
  std::erase_if(out, [&](const PipelineAction& action) { return action.micro_batch >= plan.micro_batches; });
  return out;
}

}  // namespace

const std::vector<std::string>& pipeline_schedule_names() {
  static const std::vector<std::string> names = {
      "GPipe", "1F1B", "LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble"};
  return names;
}

std::vector<std::int64_t> pipeline_rank_of_stage(std::string_view name, std::int64_t ranks,
                                                 std::int64_t stages_per_rank) {
  const std::string& known = schedule_name(name);
  check_count(ranks, "rank");
  check_count(stages_per_rank, "stage per rank");
  check_stages_per_rank(known, stages_per_rank);
  std::vector<std::int64_t> out;
  for (std::int64_t stage = 0; stage < ranks * stages_per_rank; ++stage) {
    const bool back = known == "ZBVZeroBubble" && stage >= ranks;
    out.push_back(back ? 2 * ranks - 1 - stage : stage % ranks);
  }
  return out;
}

std::vector<std::int64_t> PipelinePlan::stages_of_rank(std::int64_t rank) const {
  std::vector<std::int64_t> out;
  for (std::size_t stage = 0; stage < rank_of_stage.size(); ++stage) {
    if (rank_of_stage[stage] == rank) {
      out.push_back(static_cast<std::int64_t>(stage));
    }
  }
  return out;
}

PipelinePlan pipeline_schedule(std::string_view name, std::int64_t ranks, std::int64_t stages_per_rank,
                               std::int64_t micro_batches) {
  PipelinePlan plan;
  plan.rank_of_stage = pipeline_rank_of_stage(name, ranks, stages_per_rank);
  plan.name = schedule_name(name);
  plan.ranks = ranks;
  plan.stages = ranks * stages_per_rank;
  plan.micro_batches = micro_batches;
  check_count(micro_batches, "micro-batch");
  if (plan.name.starts_with("Interleaved")) {
    const std::int64_t rounds = std::max<std::int64_t>(1, micro_batches / ranks);
    check<ConfigError>(micro_batches % rounds == 0, "pipeline.schedule", plan.name,
                       ": expected a multiple of its rounds, max(1, micro-batches / ranks) = ", rounds, ", got ",
                       micro_batches, " micro-batches on ", ranks, " ranks; ", micro_batches / rounds * rounds, " or ",
                       micro_batches / ranks * ranks + ranks, " fit");
  }
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    plan.actions.push_back(plan.name == "GPipe"             ? gpipe(plan, rank)
                           : plan.name == "1F1B"            ? one_forward_one_backward(plan, rank)
                           : plan.name == "LoopedBFS"       ? looped_breadth_first(plan, rank)
                           : plan.name == "Interleaved1F1B" ? interleaved(plan, rank, false)
                           : plan.name == "ZBVZeroBubble"   ? zero_bubble_v(plan, rank)
                                                            : interleaved(plan, rank, true));
  }
  return plan;
}

}  // namespace danling::inline v0::parallel
