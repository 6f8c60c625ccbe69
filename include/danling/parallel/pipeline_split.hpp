// Splits a model into pipeline stages: by module names, or by the model.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeindex>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/parallel/pipeline.hpp>
#include <danling/parallel/topology.hpp>

namespace torch::nn {
class Module;
}

namespace danling::inline v0::parallel {

/// A module that takes and returns the tensors of a stage.
class PipelineModule {
 public:
  virtual ~PipelineModule() = default;
  /// Takes the outputs of the previous stage and returns those of this stage, for one micro-batch.
  virtual std::vector<at::Tensor> forward_stage(const std::vector<at::Tensor>& inputs) = 0;
};

/// A model that builds its parts. (DanLing: `model.build_pipeline_model_part`)
class PipelineModel {
 public:
  virtual ~PipelineModel() = default;
  /// Called once for each stage of this rank.
  /// @param names  module names from the configuration for this stage; empty without any
  /// @return a module that `stage_forward` can run; null for the whole model
  virtual std::shared_ptr<torch::nn::Module> build_pipeline_model_part(std::int64_t stage_index,
                                                                       std::int64_t num_stages,
                                                                       const std::vector<std::string>& names,
                                                                       const ParallelContext& parallel) = 0;
};

/// The part of a model in one stage, as the functions that split a model return it. A PipelineStage has only its
/// position and forward function; a StagePart is the one that a ParallelRunner holds.
struct PipelinePart {
  std::shared_ptr<torch::nn::Module> module;
  PipelineStage::Forward forward;
  /// Maps the names of the part's parameters and buffers to their names in the whole model, under which checkpoints
  /// store them.
  std::map<std::string, std::string> full_names;
};

/// Returns a function that runs a module: a PipelineModule, a torch::nn type that computes one tensor, or a type of
/// `register_stage_type`. The stage must have as many tensors as its `forward` takes.
/// @throws ConfigError naming another type
PipelineStage::Forward stage_forward(const std::shared_ptr<torch::nn::Module>& module);

/// Returns one part per list, which runs the named modules of `model` in sequence; a single module is the part itself.
/// Shares the modules with the model.
/// @throws ConfigError for no names, the root's (empty) name, unknown and repeated names, types that cannot run, and a
/// parameter of two stages
std::vector<PipelinePart> split_by_names(const std::shared_ptr<torch::nn::Module>& model,
                                         const std::vector<std::vector<std::string>>& names_of_stages);
/// Returns the part that a PipelineModel builds; for other models the part of the names, or without names the model.
/// (DanLing: `build_pipeline_model_part`)
PipelinePart build_part(const std::shared_ptr<torch::nn::Module>& model, std::int64_t stage_index,
                        std::int64_t num_stages, const std::vector<std::string>& names,
                        const ParallelContext& parallel);
/// Names of the model's parameters that are in no list of names: they are not trained.
std::vector<std::string> parameters_without_stage(const torch::nn::Module& model,
                                                  const std::vector<std::vector<std::string>>& names_of_stages);

namespace detail {

template <class M, class... Inputs>
concept TakesTensors = requires(M& module, Inputs... inputs) { module.forward(inputs...); };

inline std::vector<at::Tensor> as_tensors(at::Tensor output) { return {std::move(output)}; }
inline std::vector<at::Tensor> as_tensors(std::vector<at::Tensor> outputs) { return outputs; }
template <class... Ts>
std::vector<at::Tensor> as_tensors(std::tuple<Ts...> outputs) {
  return std::apply([](auto&... output) { return std::vector<at::Tensor>{std::move(output)...}; }, outputs);
}

/// Empty if `forward` takes another number of tensors.
template <class M>
std::optional<std::vector<at::Tensor>> call_forward(M& module, const std::vector<at::Tensor>& in) {
  using T = const at::Tensor&;
  if constexpr (TakesTensors<M, const std::vector<at::Tensor>&>) {
    return as_tensors(module.forward(in));
  }
  if constexpr (TakesTensors<M, T>) {
    if (in.size() == 1) {
      return as_tensors(module.forward(in[0]));
    }
  }
  if constexpr (TakesTensors<M, T, T>) {
    if (in.size() == 2) {
      return as_tensors(module.forward(in[0], in[1]));
    }
  }
  if constexpr (TakesTensors<M, T, T, T>) {
    if (in.size() == 3) {
      return as_tensors(module.forward(in[0], in[1], in[2]));
    }
  }
  return std::nullopt;
}

using CallForward =
    std::function<std::optional<std::vector<at::Tensor>>(torch::nn::Module&, const std::vector<at::Tensor>&)>;
void add_stage_type(std::type_index type, CallForward call);

}  // namespace detail

/// Allows modules of type `M` (`MyBlockImpl`, not its holder) in stages by name. Its `forward` takes one to three
/// tensors, or a vector of tensors, and returns a tensor, a tuple or a vector. Thread-safe.
template <class M>
void register_stage_type() {
  static_assert(std::is_base_of_v<torch::nn::Module, M>,
                "register_stage_type: expected a module type, such as LinearImpl");
  using T = const at::Tensor&;
  static_assert(detail::TakesTensors<M, const std::vector<at::Tensor>&> || detail::TakesTensors<M, T> ||
                    detail::TakesTensors<M, T, T> || detail::TakesTensors<M, T, T, T>,
                "register_stage_type: expected a forward() of one to three tensors, or of a vector of tensors");
  detail::add_stage_type(typeid(M), [](torch::nn::Module& module, const std::vector<at::Tensor>& inputs) {
    return detail::call_forward(dynamic_cast<M&>(module), inputs);
  });
}

}  // namespace danling::inline v0::parallel
