// Module types that stages by name support: a torch::nn::Module has no virtual forward.
#include <mutex>
#include <unordered_map>

#include <c10/util/Type.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/padding.h>
#include <torch/nn/modules/pixelshuffle.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/transformer.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/nn/modules/upsampling.h>

#include <danling/core/error.hpp>
#include <danling/parallel/pipeline_split.hpp>

namespace danling::inline v0::parallel {
namespace {

using namespace torch::nn;

struct StageTypes {
  std::mutex mutex;
  std::unordered_map<std::type_index, detail::CallForward> calls;
};

template <class... Types>
void add_types(StageTypes& types) {
  const auto add = [&]<class M>(std::type_identity<M>) {
    types.calls[typeid(M)] = [](Module& module, const std::vector<at::Tensor>& inputs) {
      return detail::call_forward(static_cast<M&>(module), inputs);
    };
  };
  (add(std::type_identity<Types>()), ...);
}

std::optional<std::vector<at::Tensor>> call_sequential(Module& module, const std::vector<at::Tensor>& in) {
  auto& modules = dynamic_cast<SequentialImpl&>(module);
  switch (in.size()) {
    case 1:
      return std::vector<at::Tensor>{modules.forward<at::Tensor>(in[0])};
    case 2:
      return std::vector<at::Tensor>{modules.forward<at::Tensor>(in[0], in[1])};
    case 3:
      return std::vector<at::Tensor>{modules.forward<at::Tensor>(in[0], in[1], in[2])};
    default:
      return std::nullopt;
  }
}

StageTypes& stage_types() {
  static StageTypes* const all = [] {
    auto* const types = new StageTypes;
    add_types<IdentityImpl, LinearImpl, FlattenImpl, UnflattenImpl, BilinearImpl, EmbeddingImpl>(*types);
    add_types<DropoutImpl, Dropout2dImpl, Dropout3dImpl, AlphaDropoutImpl, FeatureAlphaDropoutImpl>(*types);
    add_types<LayerNormImpl, GroupNormImpl, LocalResponseNormImpl, CrossMapLRN2dImpl, BatchNorm1dImpl, BatchNorm2dImpl,
              BatchNorm3dImpl, InstanceNorm1dImpl, InstanceNorm2dImpl, InstanceNorm3dImpl>(*types);
    add_types<Conv1dImpl, Conv2dImpl, Conv3dImpl, ConvTranspose1dImpl, ConvTranspose2dImpl, ConvTranspose3dImpl>(
        *types);
    add_types<ELUImpl, SELUImpl, CELUImpl, GELUImpl, GLUImpl, SiLUImpl, MishImpl, ReLUImpl, ReLU6Impl, RReLUImpl,
              PReLUImpl, LeakyReLUImpl, HardshrinkImpl, HardtanhImpl, LogSigmoidImpl, SigmoidImpl, SoftmaxImpl,
              SoftminImpl, LogSoftmaxImpl, Softmax2dImpl, SoftplusImpl, SoftshrinkImpl, SoftsignImpl, TanhImpl,
              TanhshrinkImpl, ThresholdImpl>(*types);
    add_types<AvgPool1dImpl, AvgPool2dImpl, AvgPool3dImpl, MaxPool1dImpl, MaxPool2dImpl, MaxPool3dImpl,
              AdaptiveAvgPool1dImpl, AdaptiveAvgPool2dImpl, AdaptiveAvgPool3dImpl, AdaptiveMaxPool1dImpl,
              AdaptiveMaxPool2dImpl, AdaptiveMaxPool3dImpl, LPPool1dImpl, LPPool2dImpl>(*types);
    add_types<ReflectionPad1dImpl, ReflectionPad2dImpl, ReflectionPad3dImpl, ReplicationPad1dImpl, ReplicationPad2dImpl,
              ReplicationPad3dImpl, ConstantPad1dImpl, ConstantPad2dImpl, ConstantPad3dImpl, ZeroPad1dImpl,
              ZeroPad2dImpl, ZeroPad3dImpl, PixelShuffleImpl, PixelUnshuffleImpl, UpsampleImpl>(*types);
    add_types<TransformerEncoderLayerImpl, TransformerEncoderImpl, TransformerDecoderLayerImpl, TransformerDecoderImpl,
              TransformerImpl, MultiheadAttentionImpl>(*types);
    types->calls[typeid(SequentialImpl)] = &call_sequential;
    return types;
  }();
  return *all;
}

}  // namespace

void detail::add_stage_type(std::type_index type, CallForward call) {
  StageTypes& types = stage_types();
  const std::lock_guard lock(types.mutex);
  types.calls.insert_or_assign(type, std::move(call));
}

PipelineStage::Forward stage_forward(const std::shared_ptr<torch::nn::Module>& module) {
  if (auto* const own = dynamic_cast<PipelineModule*>(module.get())) {
    return [module, own](const std::vector<at::Tensor>& inputs) { return own->forward_stage(inputs); };
  }
  const Module& called = *module;
  const std::string type = c10::demangle(typeid(called).name());
  StageTypes& types = stage_types();
  const std::lock_guard lock(types.mutex);
  const auto found = types.calls.find(typeid(called));
  check<ConfigError>(found != types.calls.end(), "pipeline.split", "expected a module type that a stage can run, got ",
                     type, "; call parallel::register_stage_type<", type,
                     ">() before, derive it from parallel::PipelineModule, or name the modules in it");
  return [module, type, call = found->second](const std::vector<at::Tensor>& inputs) {
    auto outputs = call(*module, inputs);
    check<ConfigError>(outputs.has_value(), "pipeline.forward", "expected as many tensors as forward() of ", type,
                       " takes, got ", inputs.size());
    return std::move(*outputs);
  };
}

}  // namespace danling::inline v0::parallel
