// NestedTensor compared with padded tensors and hand-written packed code: ./dev bench nested [--rounds N] [--quick].
//
// 64 sequences of 8 to 512 tokens, 54 % of their padded tensor. In every round each contestant works once; each round
// starts with another contestant, and a ratio is the median of the ratios per round. The control runs danling's code a
// second time. Python runs bench/peers/nested.py in the interpreter of DANLING_PYTHON. --quick: small sizes, one round.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/nn/functional.h>
#include <torch/nn/modules.h>
#include <torch/utils.h>

#include <danling/checkpoint/file.hpp>
#include <danling/tensors/nested_tensor.hpp>

#include "peers.hpp"
#include "tables.hpp"

namespace {

namespace dl = danling;
namespace fs = std::filesystem;
namespace F = torch::nn::functional;
using at::Tensor;
using bench::Contestant;
using bench::give_up;
using bench::seconds_of;
using bench::Table;

struct Sizes {
  std::int64_t batch = 64, longest = 512, width = 256, heads = 8, hidden = 1024;
};

/// The same tokens in each form.
struct Data {
  explicit Data(const Sizes& chosen) : sizes(chosen) {
    at::manual_seed(0);
    // Evenly spaced lengths in mixed order; lengths from 8 to 512 fill 51 %, these 54 %.
    for (std::int64_t i = 0; i < sizes.batch; ++i) {
      const std::int64_t place = i * 37 % sizes.batch;
      const double share = std::pow(static_cast<double>(place) / static_cast<double>(sizes.batch - 1), 0.9);
      lengths.push_back(8 + static_cast<std::int64_t>(share * static_cast<double>(sizes.longest - 8)));
    }
    std::vector<Tensor> elements;
    for (const std::int64_t length : lengths) {
      elements.push_back(at::randn({length, sizes.width}));
    }
    nested = dl::NestedTensor(elements, {.batch_first = false});
    batch_first = dl::NestedTensor(elements);
    packed = batch_first.concat();
    padded = nested.tensor();
    padding = batch_first.mask().logical_not();
    mask = batch_first.mask().t();  // (longest, batch)
    weights = at::randn_like(packed);
    padded_weights =
        dl::NestedTensor::from_concatenated(weights, nested.shapes(), {.batch_first = false}).tensor().contiguous();
  }
  double occupancy() const {
    return static_cast<double>(packed.size(0)) / static_cast<double>(sizes.batch * sizes.longest);
  }

  Sizes sizes;
  std::vector<std::int64_t> lengths;
  dl::NestedTensor nested, batch_first;
  Tensor packed, padded, padding, mask;
  Tensor weights, padded_weights;  ///< weights of the loss
};

/// Attention of hand-written code for packed values: one call per sequence.
Tensor attend_packed(const Tensor& x, torch::nn::MultiheadAttentionImpl& attention, const Data& data) {
  const std::int64_t heads = data.sizes.heads, size = data.sizes.width / heads;
  const Tensor projected = F::linear(x, attention.in_proj_weight, attention.in_proj_bias);
  std::vector<Tensor> out;
  for (const Tensor& one : projected.split_with_sizes(data.lengths)) {
    const auto parts = one.view({-1, 3, heads, size}).permute({1, 2, 0, 3}).unbind(0);
    const Tensor scores = at::bmm(parts[0] * (1 / std::sqrt(static_cast<double>(size))), parts[1].transpose(1, 2));
    out.push_back(at::bmm(at::softmax(scores, -1), parts[2]).transpose(0, 1).reshape({-1, data.sizes.width}));
  }
  return F::linear(at::cat(out), attention.out_proj->weight, attention.out_proj->bias);
}

Tensor encode_packed(torch::nn::TransformerEncoderLayerImpl& layer, const Tensor& x, const Data& data) {
  const Tensor first = layer.norm1(x + attend_packed(x, *layer.self_attn, data));
  return layer.norm2(first + layer.linear2(at::relu(layer.linear1(first))));
}

struct Encoder {
  explicit Encoder(const Data& from)
      : data(from),
        layer(torch::nn::TransformerEncoderLayerOptions(from.sizes.width, from.sizes.heads)
                  .dim_feedforward(from.sizes.hidden)
                  .dropout(0.0)) {}

  Tensor nested() { return dl::NestedTensor(layer->forward(data.nested)).concat(); }
  Tensor padded() { return layer->forward(data.padded, {}, data.padding); }
  Tensor packed() { return encode_packed(*layer, data.packed, data); }

  double step(const std::function<Tensor()>& forward) {
    for (Tensor& parameter : parameters) {
      parameter.mutable_grad() = Tensor();
    }
    return seconds_of([&] {
      const Tensor out = forward();
      (out * (out.dim() == 3 ? data.padded_weights : data.weights)).sum().backward();
    });
  }
  /// Fails unless all forms yield the same values and gradients, up to rounding: relu may pass another token.
  void compare() {
    std::vector<Tensor> expected;
    for (Tensor (Encoder::*form)() : {&Encoder::nested, &Encoder::padded, &Encoder::packed}) {
      for (Tensor& parameter : parameters) {
        parameter.mutable_grad() = Tensor();
      }
      Tensor out = (this->*form)();
      if (out.dim() == 3) {  // (longest, batch, width): ignores padding
        out = out.transpose(0, 1).flatten(0, 1).index_select(0, data.mask.t().flatten().nonzero().flatten());
      }
      (out * data.weights).sum().backward();
      std::vector<Tensor> got = {out.detach()};
      for (const Tensor& parameter : parameters) {
        got.push_back(parameter.grad());
      }
      expected = expected.empty() ? got : expected;
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (!got[i].isfinite().all().item<bool>() ||
            !at::allclose(got[i], expected[i], 1e-3, 1e-2 * expected[i].abs().max().item<double>())) {
          give_up("encoder layer: expected the same values and gradients of all forms, got others of " +
                  std::to_string(i));
        }
      }
    }
  }

  const Data& data;
  torch::nn::TransformerEncoderLayer layer;
  std::vector<Tensor> parameters = layer->parameters();
};

/// Peak bytes that this thread allocates during its lifetime.
class PeakBytes final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, std::int64_t size, std::size_t, std::size_t, c10::Device) override {
    now_ += size;
    peak_ = std::max(peak_, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t peak() const { return peak_; }

 private:
  std::int64_t now_ = 0, peak_ = 0;
};

std::int64_t peak_of(const std::function<void()>& work) {
  const auto peak = std::make_shared<PeakBytes>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, peak);
  work();
  return peak->peak();
}

Table encoder_table(Encoder& encoder) {
  encoder.compare();
  const auto contestant = [&](const char* name, Tensor (Encoder::*form)()) {
    return Contestant{.name = name,
                      .time = [&encoder, form] { return encoder.step([&] { return (encoder.*form)(); }); }};
  };
  Table table{.title = "encoder layer, forward and backward",
              .contestants = {contestant("NestedTensor", &Encoder::nested),
                              contestant("NestedTensor again (control)", &Encoder::nested),
                              contestant("padded, with key_padding_mask", &Encoder::padded),
                              contestant("hand-packed, one attention per sequence", &Encoder::packed)}};
  table.targets = {{0, {2}, 1 / 0.55}, {0, {3}}};
  table.control = 1;
  return table;
}

/// Forward of a module that works per token, repeated.
Table per_token_table(const std::string& title, const std::function<Tensor(const Tensor&)>& module, const Data& data,
                      const std::vector<bench::Contestant>& peers) {
  const auto timed = [module](Tensor input) {
    return [module, input] {
      const at::NoGradGuard no_grad;
      return seconds_of([&] {
        for (int call = 0; call < 5; ++call) {
          bench::keep(module(input).unsafeGetTensorImpl());
        }
      });
    };
  };
  Table table{.title = title + ", forward, 5 calls",
              .contestants = {{.name = "NestedTensor", .time = timed(data.batch_first)},
                              {.name = "NestedTensor again (control)", .time = timed(data.batch_first)},
                              {.name = "hand-packed", .time = timed(data.packed)},
                              {.name = "padded", .time = timed(data.batch_first.tensor())}},
              .targets = {{0, {2}, 1 / 1.1}, {0, {3}}, {0, {4}}, {0, {5}}},
              .control = 1};
  table.contestants.insert(table.contestants.end(), peers.begin(), peers.end());
  return table;
}

Table dispatch_table(bool requires_grad) {
  constexpr int calls = 20'000;
  const dl::NestedTensor nested({at::randn({3}), at::randn({1})}, {.requires_grad = requires_grad});
  const Tensor plain = at::randn({4}).requires_grad_(requires_grad);
  // The output of an operator, as inside a model.
  const Tensor inner = requires_grad ? at::relu(nested) : Tensor(nested);
  const auto timed = [](Tensor input) {
    return [input] {
      return seconds_of([&] {
               for (int call = 0; call < calls; ++call) {
                 bench::keep(at::relu(input).unsafeGetTensorImpl());
               }
             }) /
             calls;
    };
  };
  return {.title = requires_grad ? "relu of 4 values, with gradients" : "relu of 4 values",
          .contestants = {{.name = "NestedTensor", .time = timed(inner)},
                          {.name = "NestedTensor again (control)", .time = timed(inner)},
                          {.name = "plain tensor", .time = timed(plain)}},
          .targets = {{0, {2}}},
          .control = 1};
}

Table padding_table(const Data& data) {
  const std::vector<Tensor> offsets = {data.batch_first.offsets()};
  const std::int64_t longest = data.batch_first.size(1);
  const auto ours = [&] { return seconds_of([&] { bench::keep(data.batch_first.tensor().const_data_ptr()); }); };
  return {.title = "to a padded tensor",
          .contestants = {{.name = "NestedTensor::tensor()", .time = ours},
                          {.name = "NestedTensor::tensor() again (control)", .time = ours},
                          {.name = "torch.nested jagged's kernel",
                           .time =
                               [&data, offsets, longest] {
                                 return seconds_of([&] {
                                   bench::keep(at::_jagged_to_padded_dense_forward(data.packed, offsets, {longest}, 0.0)
                                                   .const_data_ptr());
                                 });
                               }}},
          .targets = {{0, {2}, 1.0}, {0, {3}}, {0, {4}}},
          .control = 1};
}

void measure_memory(Encoder& encoder) {
  const auto peak = [&](Tensor (Encoder::*form)()) {
    return static_cast<double>(peak_of([&] { encoder.step([&] { return (encoder.*form)(); }); })) / (1 << 20);
  };
  const double ours = peak(&Encoder::nested), padded = peak(&Encoder::padded), packed = peak(&Encoder::packed);
  if (!(ours > 0) || !(padded > 0)) {
    bench::gaps().push_back("peak memory");
  }
  bench::record({.name = "peak memory of the encoder layer: NestedTensor to padded",
                 .of = bench::median_interval({ours / padded}),
                 .better = bench::Better::lower});
  std::printf(
      "\npeak memory of the encoder layer, forward and backward: NestedTensor %.0f MiB, padded %.0f MiB (%.2f of "
      "it; tokens fill %.2f), hand-packed %.0f MiB\n",
      ours, padded, ours / padded, encoder.data.occupancy(), packed);
}

/// Starts the peers, which read the elements from a file.
std::unique_ptr<bench::Peers> start_peers(const Data& data) {
  const std::string python = bench::python_of_peers(DANLING_PYTHON);
  if (python.empty()) {
    return nullptr;
  }
  std::string folder = (fs::temp_directory_path() / "danling-bench-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {
    give_up("expected to create a directory in " + fs::temp_directory_path().string());
  }
  const std::string file = folder + "/data.pth";
  dl::save_file(dl::State::Map{{"packed", data.packed}, {"lengths", at::tensor(data.lengths)}}, file);
  auto out = std::make_unique<bench::Peers>(python, DANLING_SOURCE_DIR "/bench/peers/nested.py",
                                            std::vector<std::string>{file, std::to_string(at::get_num_threads())});
  fs::remove_all(folder);  // Python has already read the file
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  bench::begin_results("nested", argc, argv);
  try {
    int rounds = 7;
    bool quick = false;
    std::set<std::string> only;
    for (int i = 1; i < argc; ++i) {
      const std::string name = argv[i];
      if (name == "--quick") {
        quick = true;
        rounds = 1;
      } else if (name == "--rounds" && i + 1 < argc) {
        rounds = std::max(std::stoi(argv[++i]), 1);
      } else if (name == "--only" && i + 1 < argc) {
        only.insert(argv[++i]);
      } else {
        give_up("usage: bench_nested [--rounds N] [--quick] [--only encoder|tokens|dispatch|padding|memory]...");
      }
    }
    const auto wanted = [&](const char* name) { return only.empty() || only.count(name) > 0; };
    const char* arena = std::getenv("MALLOC_MMAP_THRESHOLD_");
    std::printf("%d threads; MALLOC_MMAP_THRESHOLD_ %s\n", at::get_num_threads(), arena == nullptr ? "not set" : arena);
    Sizes sizes;
    if (quick) {
      sizes = {.batch = 16, .longest = 64, .width = 64, .heads = 4, .hidden = 128};
    }
    const Data data(sizes);
    std::printf("%lld sequences of 8 to %lld tokens of %lld values: %.0f %% of the padded tensor\n",
                static_cast<long long>(sizes.batch), static_cast<long long>(sizes.longest),
                static_cast<long long>(sizes.width), 100 * data.occupancy());
    const auto peers = start_peers(data);
    const auto peer = [&](const char* name, const std::string& command) -> Contestant {
      return {.name = name,
              .time = [&peers, command] { return peers->ask(command); },
              .failure = peers ? "" : bench::no_python};
    };
    const auto of_peers = [&](const std::string& command) {
      return std::vector<Contestant>{peer("torch.nested jagged (Python)", command + " jagged"),
                                     peer("PyPI's danling (Python)", command + " danling")};
    };
    Encoder encoder(data);
    if (wanted("dispatch")) {
      bench::run(dispatch_table(false), rounds);
      bench::run(dispatch_table(true), rounds);
    }
    if (wanted("tokens")) {
      torch::nn::Linear linear(sizes.width, sizes.hidden);
      torch::nn::LayerNorm norm(torch::nn::LayerNormOptions({sizes.width}));
      bench::run(per_token_table(
                     "linear", [&](const Tensor& x) { return linear(x); }, data,
                     of_peers("linear " + std::to_string(sizes.hidden))),
                 rounds);
      bench::run(
          per_token_table("layer_norm", [&](const Tensor& x) { return norm(x); }, data, of_peers("norm 0")), rounds);
    }
    if (wanted("padding")) {
      Table table = padding_table(data);
      for (Contestant& one : of_peers("pad 0")) {
        table.contestants.push_back(std::move(one));
      }
      bench::run(table, rounds);
    }
    if (wanted("encoder")) {
      bench::run(encoder_table(encoder), rounds);
    }
    if (wanted("memory")) {
      measure_memory(encoder);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return bench::finish();
}
