// Pipeline schedules against those of PyTorch, and their time lines against closed forms.
#include <danling/parallel/pipeline_schedule.hpp>

#include <fstream>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>

#include <support/catch.hpp>
#include <support/error.hpp>

namespace pipeline_schedule_test {
namespace {

using danling::ConfigError;
using danling::parallel::PipelineAction;
using danling::parallel::PipelineCosts;
using danling::parallel::PipelinePlan;
using danling::parallel::PipelineTimeline;
using danling::parallel::PipelineWork;
using danling_test::error_of;
namespace parallel = danling::parallel;

nlohmann::json golden_orders() {
  std::ifstream file(std::string(DANLING_SOURCE_DIR) + "/tests/golden/pipeline_schedules.json");
  return nlohmann::json::parse(file);
}

TEST_CASE("pipeline_schedule: actions are those of PyTorch", "[parallel][pipeline]") {
  const auto expected = golden_orders();
  for (const auto& order : expected["orders"]) {
    const auto ranks = order["ranks"].get<std::int64_t>();
    const PipelinePlan plan = parallel::pipeline_schedule(order["name"].get<std::string>(), ranks,
                                                          order["stages_per_rank"], order["micro_batches"]);
    INFO(order["name"] << " " << ranks << " " << order["stages_per_rank"] << " " << order["micro_batches"]);
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      std::string text;
      for (const auto& action : plan.actions[static_cast<std::size_t>(rank)]) {
        text += (text.empty() ? "" : " ") + to_string(action);
      }
      CHECK(text == order["actions"][static_cast<std::size_t>(rank)].get<std::string>());
    }
  }
  for (const auto& order : expected["refused"]) {
    INFO(order.dump());
    CHECK_THROWS_AS(parallel::pipeline_schedule(order["name"].get<std::string>(), order["ranks"],
                                                order["stages_per_rank"], order["micro_batches"]),
                    ConfigError);
  }
}

TEST_CASE("pipeline_schedule: no schedule waits for ever, whatever its numbers", "[parallel][pipeline]") {
  int plans = 0;
  for (const auto& name : parallel::pipeline_schedule_names()) {
    for (std::int64_t ranks = 1; ranks <= 5; ++ranks) {
      for (std::int64_t local = 1; local <= 3; ++local) {
        for (std::int64_t micro_batches = 1; micro_batches <= 17; ++micro_batches) {
          PipelinePlan plan;
          try {
            plan = parallel::pipeline_schedule(name, ranks, local, micro_batches);
          } catch (const ConfigError&) {
            continue;
          }
          INFO(name << " " << ranks << " " << local << " " << micro_batches);
          CHECK_NOTHROW(check_plan(plan));
          ++plans;
        }
      }
    }
  }
  CHECK(plans > 700);
}

TEST_CASE("pipeline_schedule: bubbles of GPipe, 1F1B and interleaved are the closed forms", "[parallel][pipeline]") {
  for (const std::int64_t ranks : {1, 2, 4}) {
    for (const std::int64_t rounds : {1, 2, 5}) {
      const std::int64_t micro_batches = rounds * ranks;
      const auto bubble = [&](std::int64_t local) {
        return static_cast<double>(ranks - 1) / static_cast<double>(local * micro_batches + ranks - 1);
      };
      INFO(ranks << " ranks, " << micro_batches << " micro-batches");
      for (const char* const name : {"GPipe", "1F1B"}) {
        const auto timeline = simulate_pipeline(parallel::pipeline_schedule(name, ranks, 1, micro_batches));
        CHECK(timeline.bubble == Approx(bubble(1)).margin(1e-12));
        for (std::int64_t rank = 0; rank < ranks; ++rank) {
          const std::int64_t live =
              name == std::string("GPipe") ? micro_batches : std::min(micro_batches, ranks - rank);
          CHECK(timeline.live_activations[static_cast<std::size_t>(rank)] == live);
        }
      }
      for (const std::int64_t local : {1, 2, 3}) {
        const auto plan = parallel::pipeline_schedule("Interleaved1F1B", ranks, local, micro_batches);
        CHECK(simulate_pipeline(plan).bubble == Approx(bubble(local)).margin(1e-12));
      }
    }
  }
}

TEST_CASE("pipeline_schedule: zero-bubble schedules wait as little as their paper says", "[parallel][pipeline]") {
  // Qi et al. 2024, table 2 with F = B = W: 1F1B waits 3 (S - 1), ZB-H1 S - 1 units a rank; ZB-V S - 1 once.
  for (const std::int64_t ranks : {2, 3, 4}) {
    const std::int64_t micro_batches = 3 * ranks;
    const auto whole = 3.0 * static_cast<double>(micro_batches);
    const auto idle = static_cast<double>(ranks - 1);
    const auto plain = simulate_pipeline(parallel::pipeline_schedule("1F1B", ranks, 1, micro_batches));
    CHECK(plain.length == Approx(whole + 3 * idle));
    const auto h1 = simulate_pipeline(parallel::pipeline_schedule("InterleavedZeroBubble", ranks, 1, micro_batches));
    CHECK(h1.length == Approx(whole + idle));
    CHECK(h1.bubble == Approx(idle / (whole + idle)));
    const auto v = simulate_pipeline(parallel::pipeline_schedule("zbvzerobubble", ranks, 2, micro_batches));
    CHECK(v.length == Approx(2 * whole + idle));  // stages of half the size: S - 1 of their units
    CHECK(v.bubble < h1.bubble);
    for (const auto live : v.live_activations) {
      CHECK(live <= 2 * ranks);
    }
  }
}

TEST_CASE("pipeline_schedule: durations and messages shift the time line", "[parallel][pipeline]") {
  const auto plan = parallel::pipeline_schedule("1F1B", 2, 1, 1);
  const PipelineTimeline timeline = simulate_pipeline(plan, PipelineCosts{2, 3, 4, 0.5});
  // F, message, F and B of the second, message, B of the first.
  REQUIRE(timeline.spans[0].size() == 2);
  CHECK(timeline.spans[1][0].begin == 2.5);
  CHECK(timeline.spans[1][1].end == 11.5);
  CHECK(timeline.spans[0][1].begin == 12);
  CHECK(timeline.length == 19);
  CHECK(timeline.bubble == Approx(1 - 18.0 / 38));
  const auto messages = messages_of(plan, {PipelineWork::forward, 0, 0});
  CHECK_FALSE(messages.from);
  CHECK(messages.to == 1);
  CHECK(messages_of(plan, {PipelineWork::backward_input, 0, 0}).from == 1);
}

TEST_CASE("pipeline_schedule: errors name the schedules and the arithmetic", "[parallel][pipeline]") {
  const auto error = [](const char* name, std::int64_t ranks, std::int64_t local, std::int64_t micro_batches) {
    return error_of<ConfigError>([&] { parallel::pipeline_schedule(name, ranks, local, micro_batches); });
  };
  CHECK(error("2F2B", 2, 1, 4) ==
        "[pipeline.schedule] expected one of GPipe, 1F1B, LoopedBFS, Interleaved1F1B, InterleavedZeroBubble, "
        "ZBVZeroBubble, got \"2F2B\"");
  CHECK(error("1f1b", 2, 2, 4) ==
        "[pipeline.schedule] 1F1B: expected 1 stage per rank, got 2; Interleaved1F1B, LoopedBFS and "
        "InterleavedZeroBubble have several");
  CHECK(error("ZBVZeroBubble", 2, 1, 4) == "[pipeline.schedule] ZBVZeroBubble: expected 2 stages per rank, got 1");
  CHECK(error("Interleaved1F1B", 4, 2, 11) ==
        "[pipeline.schedule] Interleaved1F1B: expected a multiple of its rounds, max(1, micro-batches / ranks) = 2, "
        "got 11 micro-batches on 4 ranks; 10 or 12 fit");
  CHECK(error("GPipe", 2, 1, 0) == "[pipeline.schedule] expected at least one micro-batch, got 0");
  CHECK(error("GPipe", 0, 1, 1) == "[pipeline.schedule] expected at least one rank, got 0");
}

TEST_CASE("pipeline_schedule: plans of a program are checked", "[parallel][pipeline]") {
  PipelinePlan plan = parallel::pipeline_schedule("1F1B", 2, 1, 2);
  PipelinePlan crossed = plan;  // rank 0 waits for a gradient before it sends what that needs
  std::swap(crossed.actions[0][0], crossed.actions[0][2]);
  CHECK(error_of<ConfigError>([&] { check_plan(crossed); }) ==
        "[pipeline.plan] 1F1B: expected an order without deadlock, got rank 0 at 0B0, rank 1 at 1F0");
  PipelinePlan twice = plan;
  twice.actions[1][1] = twice.actions[1][0];
  CHECK(error_of<ConfigError>([&] { check_plan(twice); }) ==
        "[pipeline.plan] 1F1B: expected each action once, got 1F0 again");
  PipelinePlan part = plan;
  part.actions[1][1].work = PipelineWork::backward_input;
  CHECK(error_of<ConfigError>([&] { check_plan(part); }) ==
        "[pipeline.plan] 1F1B: expected a forward and a whole backward pass of micro-batch 0 in stage 1, got a part "
        "of them");
  PipelinePlan foreign = plan;
  foreign.actions[0][0].stage = 1;
  CHECK(error_of<ConfigError>([&] { check_plan(foreign); }) ==
        "[pipeline.plan] 1F1B: expected actions of the rank's stages and of 2 micro-batches, got 1F0 on rank 0");
}

TEST_CASE("draw_pipeline: one line per rank, with bubbles", "[parallel][pipeline]") {
  const auto plan = parallel::pipeline_schedule("1F1B", 2, 1, 3);
  const auto predicted = simulate_pipeline(plan);
  // Two characters a unit: the least at which every label fits with a space.
  CHECK(draw_pipeline(plan, predicted) ==
        "1F1B: 2 stages on 2 ranks, 3 micro-batches\n"
        "rank 0 |0 1 ....b0- 2 b1- ..b2- |\n"
        "rank 1 |..0 b0- 1 b1- 2 b2- ....|\n"
        "bubble 25.0 % predicted; live activations 2 1\n");
  const auto measured = simulate_pipeline(plan, PipelineCosts{1, 2, 2});
  const std::string both = draw_pipeline(plan, predicted, &measured);
  CHECK(both.find("\nmeasured\nrank 0 |") != both.npos);
  CHECK(both.ends_with("bubble 25.0 % predicted, 25.0 % measured; live activations 2 1\n"));

  const auto v = parallel::pipeline_schedule("ZBVZeroBubble", 1, 2, 1);
  CHECK(draw_pipeline(v, simulate_pipeline(v)) ==
        "ZBVZeroBubble: 2 stages on 1 ranks, 1 micro-batches\n"
        "rank 0 |0-- 0B- i0B w0B i0- w0- |\n"
        "bubble 0.0 % predicted; live activations 2\n");
}

}  // namespace
}  // namespace pipeline_schedule_test
