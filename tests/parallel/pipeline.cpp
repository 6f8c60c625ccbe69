// Pipelines in threads and processes against the whole model on one.
#include <danling/parallel/pipeline.hpp>

#include <chrono>
#include <map>
#include <mutex>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>

#include <parallel/pipeline_models.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

namespace pipeline_test {
namespace {

using danling::ConfigError;
using danling::DistributedError;
using danling::Group;
using danling::detail::concat;
using danling::parallel::PipelineEvent;
using danling::parallel::PipelineOptions;
using danling::parallel::PipelinePlan;
using danling::parallel::PipelineSchedule;
using danling::parallel::PipelineStage;
using danling::parallel::PipelineWork;
using danling_test::check_ranks;
using danling_test::error_of;
using danling_test::expect;
using danling_test::run_ranks;
namespace parallel = danling::parallel;

using Make = std::function<Layers(std::int64_t)>;

/// Runs `body` on each of `size` ranks; one rank needs no group.
void on_ranks(std::int64_t size, const std::function<void(const Group&)>& body) {
  if (size == 1) {
    body(Group());
    return;
  }
  Group::run_threads(static_cast<int>(size), [&](Group& group) { body(group); },
                     {.timeout = std::chrono::seconds(60), .host = {}});
}

/// Checks that a step of the rank equals the whole model's. Throws, since Catch2's assertions are for one thread.
void expect_step(const Group& group, const PipelinePlan& plan, const Make& make, const std::vector<Tensors>& inputs,
                 const Tensors& targets, int steps = 1, const Expected* known = nullptr) {
  const Expected expected = known != nullptr ? *known : whole(make, plan.stages, inputs, targets);
  const Layers layers = make(plan.stages);
  PipelineSchedule schedule(plan, stages_of(layers, plan, group.rank()), group);
  for (int step = 1; step <= steps; ++step) {
    const auto result = schedule.step(schedule.has_first_stage() ? inputs : std::vector<Tensors>(),
                                      [&](const Tensors& outputs, std::int64_t micro_batch) {
                                        return layers.loss(outputs, targets[static_cast<std::size_t>(micro_batch)]);
                                      });
    const std::string where = concat(plan.name, ", rank ", group.rank(), " of ", plan.ranks, ", step ", step, ": ");
    expect(result.micro_batches == static_cast<std::int64_t>(inputs.size()), where + "the number of micro-batches");
    expect(result.losses.size() == (schedule.has_last_stage() ? inputs.size() : 0), where + "losses on the last stage");
    for (std::size_t i = 0; i < result.losses.size(); ++i) {
      expect(near(result.losses[i], expected.losses[i]), where + "the losses of one process");
    }
    for (const auto stage : plan.stages_of_rank(group.rank())) {
      const auto parameters = layers.modules[static_cast<std::size_t>(stage)]->parameters();
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const at::Tensor& gradient = expected.gradients[static_cast<std::size_t>(stage)][i];
        expect(near(parameters[i].grad(), gradient.defined() ? gradient * step : gradient),
               where + concat("the gradient of parameter ", i, " of stage ", stage));
      }
    }
  }
}

std::vector<Tensors> rows(std::vector<std::int64_t> counts, std::int64_t seed = 100) {
  std::vector<Tensors> out;
  for (const auto count : counts) {
    out.push_back({normal({count, 6}, seed++)});
  }
  return out;
}

Tensors first_of(const std::vector<Tensors>& all) {
  Tensors out;
  for (const auto& tensors : all) {
    out.push_back(tensors[0]);
  }
  return out;
}

std::vector<PipelinePlan> plans(std::int64_t ranks, std::int64_t micro_batches) {
  std::vector<PipelinePlan> out;
  for (const auto& name : parallel::pipeline_schedule_names()) {
    for (const std::int64_t local : {1, 2, 3}) {
      try {
        out.push_back(parallel::pipeline_schedule(name, ranks, local, micro_batches));
      } catch (const ConfigError&) {
      }
    }
  }
  return out;
}

TEST_CASE("PipelineSchedule: losses and gradients of all schedules are those of the whole model",
          "[parallel][pipeline]") {
  // With three and four ranks, a number of micro-batches that all schedules accept.
  const std::map<std::int64_t, std::vector<std::int64_t>> numbers = {
      {1, {1, 4, 6}}, {2, {1, 4, 6}}, {3, {6}}, {4, {4}}};
  for (const auto& [ranks, of_ranks] : numbers) {
    for (const std::int64_t micro_batches : of_ranks) {
      std::vector<std::int64_t> counts(static_cast<std::size_t>(micro_batches), 3);
      counts.back() = 2;  // the last one is smaller
      const auto inputs = rows(counts);
      const auto targets = first_of(rows(counts, 200));
      const auto all = plans(ranks, micro_batches);
      std::map<std::int64_t, Expected> expected;
      for (const auto& plan : all) {
        if (!expected.contains(plan.stages)) {
          expected[plan.stages] = whole(mlp, plan.stages, inputs, targets);
        }
      }
      on_ranks(ranks, [&](const Group& group) {
        for (const auto& plan : all) {
          expect_step(group, plan, mlp, inputs, targets, 2, &expected.at(plan.stages));
        }
      });
    }
  }
}

TEST_CASE("PipelineSchedule: a transformer hands masks and values without gradients along", "[parallel][pipeline]") {
  std::vector<Tensors> inputs;
  Tensors targets;
  for (std::int64_t i = 0; i < 4; ++i) {
    const std::int64_t batch = i == 3 ? 1 : 2;  // tokens [length, batch], mask of padding alike
    const at::Tensor tokens = (normal({5, batch}, 300 + i) * 100).to(at::kLong).remainder(11);
    at::Tensor mask = at::zeros({5, batch}, at::kBool);
    mask[4][0] = true;
    inputs.push_back({tokens, mask});
    targets.push_back((tokens + 1).remainder(11));
  }
  on_ranks(2, [&](const Group& group) {
    for (const auto& plan : plans(2, 4)) {
      expect_step(group, plan, transformer, inputs, targets);
    }
  });
}

TEST_CASE("PipelineSchedule: steps may have fewer micro-batches, and other shapes", "[parallel][pipeline]") {
  on_ranks(2, [&](const Group& group) {
    for (const auto& plan : plans(2, 4)) {
      const Layers layers = mlp(plan.stages);
      PipelineSchedule schedule(plan, stages_of(layers, plan, group.rank()), group);
      std::vector<Tensors> sums(static_cast<std::size_t>(plan.stages));
      for (const std::vector<std::int64_t>& counts :
           std::vector<std::vector<std::int64_t>>{{3, 3, 3, 3}, {3, 2}, {1}, {3, 3, 3, 0}, {5, 4, 3, 2}}) {
        const auto inputs = rows(counts);
        const auto targets = first_of(rows(counts, 200));
        const Expected expected = whole(mlp, plan.stages, inputs, targets);
        for (const auto& module : layers.modules) {
          module->zero_grad();
        }
        const auto result = schedule.step(inputs, [&](const Tensors& outputs, std::int64_t micro_batch) {
          return layers.loss(outputs, targets[static_cast<std::size_t>(micro_batch)]);
        });
        expect(result.micro_batches == static_cast<std::int64_t>(counts.size()), "the number of the step");
        for (const auto stage : plan.stages_of_rank(group.rank())) {
          const auto parameters = layers.modules[static_cast<std::size_t>(stage)]->parameters();
          for (std::size_t i = 0; i < parameters.size(); ++i) {
            expect(near(parameters[i].grad(), expected.gradients[static_cast<std::size_t>(stage)][i]),
                   concat(plan.name, ": gradients of a step of ", counts.size(), " micro-batches"));
          }
        }
      }
    }
  });
}

TEST_CASE("PipelineSchedule: evaluation has the outputs and losses of the whole model, between steps",
          "[parallel][pipeline]") {
  const auto inputs = rows({3, 3, 2});
  const auto targets = first_of(rows({3, 3, 2}, 200));
  on_ranks(2, [&](const Group& group) {
    for (const auto& plan : plans(2, 3)) {
      const Expected expected = whole(mlp, plan.stages, inputs, targets);
      const Layers layers = mlp(plan.stages);
      PipelineSchedule schedule(plan, stages_of(layers, plan, group.rank()), group);
      const auto loss = [&](const Tensors& outputs, std::int64_t micro_batch) {
        return layers.loss(outputs, targets[static_cast<std::size_t>(micro_batch)]);
      };
      schedule.step(inputs, loss);
      for (const bool inference : {false, true}) {
        const c10::InferenceMode mode(inference);
        const auto result = schedule.eval(inputs, loss);
        expect(result.outputs.size() == (schedule.has_last_stage() ? 3 : 0), "outputs on the last stage");
        for (std::size_t i = 0; i < result.losses.size(); ++i) {
          expect(near(result.losses[i], expected.losses[i]), "losses of the whole model");
          expect(!result.outputs[i][0].requires_grad(), "no graph");
          expect(near((result.outputs[i][0] - targets[i]).square().sum(), expected.losses[i]), "outputs");
        }
        expect(schedule.eval(inputs).losses.empty(), "no losses without a loss");
      }
      schedule.step(inputs, loss);
      for (const auto stage : plan.stages_of_rank(group.rank())) {
        const auto parameters = layers.modules[static_cast<std::size_t>(stage)]->parameters();
        for (std::size_t i = 0; i < parameters.size(); ++i) {
          expect(near(parameters[i].grad(), expected.gradients[static_cast<std::size_t>(stage)][i] * 2),
                 "the gradients of two steps");
        }
      }
    }
  });
}

/// y = x w in each stage, and the additions of a case.
struct Product {
  at::Tensor weight;
  std::vector<PipelineStage> stages(
      const PipelinePlan& plan, std::int64_t rank,
      const std::function<Tensors(std::int64_t stage, const at::Tensor& w, const Tensors& inputs)>& forward) {
    std::vector<PipelineStage> out;
    for (const auto stage : plan.stages_of_rank(rank)) {
      out.push_back({stage, [=, w = weight](const Tensors& inputs) { return forward(stage, w, inputs); }});
    }
    return out;
  }
};

TEST_CASE("PipelineSchedule: unused activations, frozen stages and low precision pass", "[parallel][pipeline]") {
  const std::vector<Tensors> inputs = {{at::full({2, 2}, 3.0, at::kDouble)}, {at::full({1, 2}, 5.0, at::kDouble)}};
  on_ranks(2, [&](const Group& group) {
    for (const auto& plan : plans(2, 2)) {
      if (plan.stages != 2) {
        continue;
      }
      // Stage 0 returns three tensors: used, unused with a gradient, bf16. If frozen, none needs a gradient.
      for (const bool frozen : {false, true}) {
        Product product{at::full({}, 2.0, at::kDouble).set_requires_grad(!(frozen && group.rank() == 0))};
        PipelineSchedule schedule(
            plan,
            product.stages(plan, group.rank(),
                           [](std::int64_t stage, const at::Tensor& w, const Tensors& in) -> Tensors {
                             if (stage == 0) {
                               return {in[0] * w, in[0].sin() * w, (in[0] * w).to(at::kBFloat16), in[0].t()};
                             }
                             return {in[0] * w + in[2].to(at::kDouble) + in[3].t()};
                           }),
            group);
        const auto result = schedule.step(inputs, [](const Tensors& outputs, std::int64_t) { return outputs[0].sum(); },
                                          {at::full({}, 10.0, at::kDouble), at::full({}, 1.0, at::kDouble)});
        // y = 2 x w + x w + x: 15 + ... for x = 3: 12 + 6 + 3 = 21, four values; for x = 5: 20 + 10 + 5 = 35, two.
        if (group.rank() == 1) {
          expect(near(result.losses[0], at::full({}, 84.0, at::kDouble)), "loss 84");
          expect(near(result.losses[1], at::full({}, 70.0, at::kDouble)), "loss 70");
          expect(near(product.weight.grad(), at::full({}, 10 * 24.0 + 20, at::kDouble)), "x w, by seed");
        } else if (frozen) {
          expect(!product.weight.grad().defined(), "no gradient of a frozen stage");
        } else {
          expect(near(product.weight.grad(), at::full({}, 10 * 36.0 + 30, at::kDouble)), "3 x, by seed");
        }
      }
    }
  });
}

TEST_CASE("PipelineSchedule: an output that the loss does not use leaves the stages before without gradients",
          "[parallel][pipeline]") {
  on_ranks(2, [&](const Group& group) {
    for (const auto& plan : plans(2, 2)) {
      if (plan.stages != 2) {
        continue;
      }
      Product product{at::full({}, 2.0, at::kDouble).set_requires_grad(true)};
      PipelineSchedule schedule(plan,
                                product.stages(plan, group.rank(),
                                               [](std::int64_t stage, const at::Tensor& w, const Tensors& in) {
                                                 return Tensors{stage == 0 ? in[0] * w : in[0].detach() * w};
                                               }),
                                group);
      schedule.step({{at::ones({1})}, {at::ones({1})}},
                    [](const Tensors& outputs, std::int64_t) { return outputs[0].sum(); });
      expect(product.weight.grad().defined() == (group.rank() == 1), "a gradient in the last stage alone");
    }
  });
}

TEST_CASE("PipelineSchedule: events name a stage's first and last pass, and are timed", "[parallel][pipeline]") {
  on_ranks(2, [&](const Group& group) {
    for (const auto& plan : plans(2, 4)) {
      for (const std::size_t count : {4, 2}) {
        const Layers layers = mlp(plan.stages);
        std::map<std::int64_t, std::vector<PipelineEvent>> events;
        PipelineOptions options;
        options.around = [&](const PipelineEvent& event, const std::function<void()>& run) {
          events[event.action.stage].push_back(event);
          run();
        };
        PipelineSchedule schedule(plan, stages_of(layers, plan, group.rank()), group, options);
        const auto inputs = rows(std::vector<std::int64_t>(count, 3));
        schedule.step(inputs, [&](const Tensors& outputs, std::int64_t) { return outputs[0].sum(); });
        std::size_t all = 0;
        for (const auto& [stage, of_stage] : events) {
          all += of_stage.size();
          for (std::size_t i = 0; i < of_stage.size(); ++i) {
            expect(of_stage[i].first == (i == 0), "the first pass first");
            expect(of_stage[i].last == (i + 1 == of_stage.size()), concat(plan.name, ": the last pass last"));
          }
        }
        expect(schedule.spans().size() == all, "a span for each event");
        const auto measured = schedule.measured();
        expect(measured.spans.size() == 2 && measured.bubble >= 0 && measured.bubble < 1 && measured.length > 0,
               "a time line of both ranks");
        if (count == 4) {
          expect(measured.live_activations == simulate_pipeline(plan).live_activations, "as many live activations");
        }
      }
    }
  });
}

TEST_CASE("PipelineSchedule: a stage that throws ends the others with its words", "[parallel][pipeline]") {
  std::mutex mutex;
  std::vector<std::string> texts(3);
  const auto begin = std::chrono::steady_clock::now();
  CHECK_THROWS(Group::run_threads(3, [&](Group& group) {
    const auto plan = parallel::pipeline_schedule("1F1B", 3, 1, 6);
    Layers layers = mlp(3);
    int calls = 0;
    const auto forward = layers.forward[1];
    layers.forward[1] = [&, forward](const Tensors& inputs) {
      return ++calls == 3 ? throw std::runtime_error("no such token\nat line 5") : forward(inputs);
    };
    PipelineSchedule schedule(plan, stages_of(layers, plan, group.rank()), group);
    try {
      schedule.step(rows({3, 3, 3, 3, 3, 3}), [](const Tensors& outputs, std::int64_t) { return outputs[0].sum(); });
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      texts[static_cast<std::size_t>(group.rank())] = error.what();
      throw;
    }
  }));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
  CHECK(texts[1] == "no such token\nat line 5");
  for (const std::size_t other : {0, 2}) {
    INFO("rank " << other << ": " << texts[other]);
    // The abort ends a wait; between two messages, the next message finds the group ended. Both texts name the error.
    CHECK(texts[other].find("rank 1: pipeline stage 1, forward of micro-batch 2: no such token") != std::string::npos);
  }
}

TEST_CASE("PipelineSchedule: what does not fit is refused", "[parallel][pipeline]") {
  const auto plan = parallel::pipeline_schedule("LoopedBFS", 1, 2, 2);
  const auto refused = [&](std::vector<PipelineStage> stages, const PipelinePlan& of) {
    return error_of<ConfigError>([&] { PipelineSchedule(of, std::move(stages), Group()); });
  };
  const auto same = [](const Tensors& inputs) { return inputs; };
  CHECK(refused({{0, same}}, plan) == "[pipeline.schedule] LoopedBFS: expected the stages 0 1 on rank 0, got 0");
  CHECK(refused({{0, same}, {1, nullptr}}, plan) ==
        "[pipeline.schedule] expected a forward function for stage 1, got none");
  CHECK(refused({{0, same}}, parallel::pipeline_schedule("1F1B", 2, 1, 2)) ==
        "[pipeline.schedule] 1F1B: expected a group of 2 ranks, as in the plan, got 1");
  auto late = plan;
  std::swap(late.actions[0][0], late.actions[0][1]);
  CHECK(refused({{0, same}, {1, same}}, late) ==
        "[pipeline.schedule] LoopedBFS: expected each rank to begin with micro-batch 0, which announces the step, "
        "got 0F1");

  PipelineSchedule schedule(plan, {{0, same}, {1, same}}, Group());
  const auto sum = [](const Tensors& outputs, std::int64_t) { return outputs[0].sum(); };
  const auto x = [](bool gradient) { return std::vector<Tensors>{{at::ones({2}).set_requires_grad(gradient)}}; };
  CHECK(error_of<ConfigError>([&] { schedule.step({}, sum); }) ==
        "[pipeline.step] expected 1 to 2 micro-batches, as many as the plan has, got 0");
  CHECK(error_of<ConfigError>([&] { schedule.step(x(false), sum); }) ==
        "[pipeline.loss] expected a loss that requires gradients, got one without: no stage has a parameter that does, "
        "or the graph is cut");
  CHECK(error_of<ConfigError>([&] { schedule.step(x(true), nullptr); }) ==
        "[pipeline.loss] expected a loss function on the last stage's rank, got none");
  CHECK(error_of<ConfigError>([&] {
          schedule.step(x(true), [](const Tensors& outputs, std::int64_t) { return outputs[0]; });
        }) == "[pipeline.loss] expected a loss of one value, got 2 values");
  CHECK_NOTHROW(schedule.step(x(true), sum));  // an error leaves a schedule of one process usable

  // Results are by micro-batch, whatever the order of the plan.
  auto own = parallel::pipeline_schedule("GPipe", 1, 1, 3);
  std::swap(own.actions[0][1], own.actions[0][2]);
  std::vector<Tensors> inputs;
  for (const double value : {1.0, 2.0, 3.0}) {
    inputs.push_back({at::full({2}, value).set_requires_grad(true)});
  }
  const auto result = PipelineSchedule(own, {{0, same}}, Group()).step(inputs, sum);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(result.losses.at(i).item<double>() == 2.0 * static_cast<double>(i + 1));
    CHECK(at::equal(result.outputs.at(i).at(0), inputs[i][0].detach()));
  }
}

TEST_CASE("PipelineSchedule: real processes", "[parallel][pipeline]") {
  check_ranks(run_ranks(2,
                        [](const Group& group) -> std::string {
                          for (const char* const name : {"1F1B", "Interleaved1F1B", "ZBVZeroBubble"}) {
                            const auto plan =
                                parallel::pipeline_schedule(name, 2, name == std::string("1F1B") ? 1 : 2, 4);
                            // Messages of 1.5 MB, more than sockets buffer.
                            std::vector<std::int64_t> counts = {32'000, 32'000, 32'000, 100};
                            expect_step(group, plan, mlp, rows(counts), first_of(rows(counts, 200)), 2);
                          }
                          return "equal";
                        }),
              "equal");
}

}  // namespace
}  // namespace pipeline_test
