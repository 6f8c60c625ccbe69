// A small GPT on grids of processes, for tests.
#pragma once

#include <danling/runner/parallel_runner.hpp>

#include "../../examples/language_model_parallel/gpt.hpp"
#include "checkpoint/state_archive.hpp"
#include "rank_runner.hpp"
#include "runner/sharded_parallel.hpp"

namespace runner_test {

/// Of a pass of eight: two passes and a half.
constexpr std::int64_t gpt_updates = 20;

struct GptTestConfig : dl::RunnerConfig {
  GptTestConfig() {
    stack = "parallel";
    seed = 7;
    steps = gpt_updates;
    console = false;
    dataloader.batch_size = 8;
    optim.type = "adamw";
    optim.lr = 3e-3;
    optim.eps = 1e-4;  // small differences of small gradients stay small
    max_grad_norm = 0.5;
    precision = "fp64";
    parallel.pipeline_microbatch_size = 2;
    record = false;
  }
  std::int64_t records = 62;  // the last batch is short
};

/// Sequences in which each token follows from the two before it.
struct Sequences {
  std::int64_t count, first;
  std::int64_t size() const { return count; }
  dl::data::Sample get(std::int64_t index) const {
    std::vector<std::int64_t> tokens{(first + index) % 11, (first + 3 * index) % 11};
    for (int i = 2; i < 9; ++i) {
      tokens.push_back((tokens[tokens.size() - 1] + 2 * tokens[tokens.size() - 2] + i) % 11);
    }
    const auto all = torch::tensor(tokens);
    return {.input = all.narrow(0, 0, 8), .target = all.narrow(0, 1, 8)};
  }
  bool train() const { return first == 0; }
};

class GptTestRunner : public dl::ParallelRunner {
 public:
  GptTestRunner(const GptTestConfig& config, const dl::Group& group) : ParallelRunner(config), group_(group) {
    datasets["train"] = Sequences{config.records, 0};
    datasets["val"] = Sequences{13, 500};
    model =
        gpt::Gpt(gpt::GptOptions{.vocabulary = 11, .width = 16, .heads = 4, .layers = 4, .length = 8, .dropout = 0});
    criterion = torch::nn::CrossEntropyLoss();
    dl::parallel::register_stage_type<gpt::EmbeddingImpl>();
    dl::parallel::register_stage_type<gpt::BlockImpl>();
    dl::parallel::register_stage_type<gpt::HeadImpl>();
  }
  ~GptTestRunner() override { close(); }

  /// Results, and this rank's slices of the parameters, as bytes.
  std::string outcome() {
    dl::State out;
    const auto exposed = gather_full_state(/*writes=*/false);
    for (const auto& [name, tensor] : model.named_state()) {
      dl::State part;
      part["values"] = tensor.detach().clone();
      for (const auto& slice : dl::parallel::slices_of(tensor)) {
        part["slices"][slice.axis] = dl::State::List{slice.dim, slice.size, slice.offset};
      }
      out["parameters"][name] = std::move(part);
    }
    const dl::Result& last = results().latest()->result;
    for (const char* split : {"train", "val"}) {
      out["results"][split] = *std::get<dl::Result>(*last.find(split)).number("loss");
    }
    out["step"] = state().train.global_step;
    return dl::pack_state(out);
  }

 protected:
  std::unique_ptr<dl::Parallelism> build_parallelism(const dl::ProcessIdentity&) override {
    if (group_.alone()) {
      return std::make_unique<dl::Parallelism>(dl::ProcessIdentity());
    }
    return std::make_unique<dl::detail::ShardedParallel>(
        group_, dl::detail::topology_of(config(), group_.size(), group_.rank()), config().fsdp);
  }

 private:
  dl::Group group_;
};

inline std::string train_gpt(const GptTestConfig& config, const dl::Group& group) {
  const Folder folder;
  GptTestConfig own = config;
  own.workspace_root = folder.path().string();
  GptTestRunner runner(own, group);
  runner.train();
  return runner.outcome();
}

/// Puts the slices of all ranks together.
inline std::map<std::string, at::Tensor> gather_parameters(const std::vector<dl::State>& ranks) {
  std::map<std::string, at::Tensor> out;
  for (const dl::State& rank : ranks) {
    for (const auto& entry : rank.at("parameters").map()) {
      const at::Tensor values = entry.value.at("values").tensor();
      std::vector<std::int64_t> sizes = values.sizes().vec(), offsets(sizes.size(), 0);
      if (const dl::State* slices = entry.value.find("slices")) {
        for (const auto& slice : slices->map()) {
          const auto dim = static_cast<std::size_t>(slice.value.list()[0].integer());
          sizes[dim] = slice.value.list()[1].integer();
          offsets[dim] = slice.value.list()[2].integer();
        }
      }
      at::Tensor& whole = out[entry.key.string()];
      whole = whole.defined() ? whole : torch::full(sizes, NAN, values.options());
      at::Tensor part = whole;
      for (std::size_t dim = 0; dim < sizes.size(); ++dim) {
        part = part.narrow(static_cast<std::int64_t>(dim), offsets[dim], values.size(static_cast<std::int64_t>(dim)));
      }
      part.copy_(values);
    }
  }
  return out;
}

struct Layout {
  std::string name;
  int processes;
  std::function<void(GptTestConfig&)> set;
  std::int64_t data = 1;  ///< ranks with other samples
};

inline const dl::State& one_process(std::int64_t updates = gpt_updates) {
  static std::map<std::int64_t, dl::State> states;
  if (!states.contains(updates)) {
    GptTestConfig config;
    config.steps = updates;
    states[updates] = dl::unpack_state(train_gpt(config, dl::Group()));
  }
  return states[updates];
}

inline void compare_layout(const Layout& layout, std::int64_t updates = gpt_updates) {
  INFO(layout.name);
  GptTestConfig config;
  layout.set(config);
  config.steps = updates;
  config.dataloader.batch_size = 8 / layout.data;
  std::vector<dl::State> ranks;
  for (const auto& bytes :
       danling_test::run_ranks(layout.processes, [&](const dl::Group& group) { return train_gpt(config, group); })) {
    INFO((bytes.starts_with("error") ? bytes : ""));
    REQUIRE_FALSE(bytes.starts_with("error"));
    ranks.push_back(dl::unpack_state(bytes));
  }
  const auto expected = gather_parameters({one_process(updates)});
  const auto got = gather_parameters(ranks);
  REQUIRE(got.size() == expected.size());
  for (const auto& [name, tensor] : expected) {
    INFO(name);
    CHECK(torch::allclose(got.at(name), tensor, 1e-5, 1e-7));
  }
  for (const dl::State& rank : ranks) {
    CHECK(rank.at("step").integer() == updates);
    for (const char* split : {"train", "val"}) {
      INFO(split);
      CHECK(rank.at("results").at(split).number() ==
            Approx(one_process(updates).at("results").at(split).number()).epsilon(1e-6));
    }
  }
}

inline std::vector<std::string> stages_of_two() {
  return {"embedding, blocks.0, blocks.1", "blocks.2, blocks.3, head"};
}

/// A grid, with stages where it has two ranks of a pipeline.
inline std::function<void(GptTestConfig&)> grid(dl::ParallelAxesConfig axes, std::vector<std::string> units = {}) {
  return [=](GptTestConfig& config) {
    config.parallel.axes = axes;
    config.fsdp.units = units;
    if (axes.pipeline == 2) {
      config.parallel.module_fqns_per_model_part = stages_of_two();
    }
  };
}

}  // namespace runner_test
