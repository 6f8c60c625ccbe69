// Interface of a model that slices its layers.
#pragma once

namespace danling::inline v0 {
class ParallelContext;
}

namespace danling::inline v0::parallel {

/// Base of modules that can reduce themselves to slices:
///
///     struct GptImpl : torch::nn::Module, dl::parallel::Parallelizable {
///       void parallelize(const dl::ParallelContext& context) override {
///         dl::parallel::parallelize_module(*this, context);
///       }
///     };
class Parallelizable {
 public:
  virtual ~Parallelizable();
  /// Keeps this rank's slices of the parameters. Every rank must call it once, before an optimizer is created:
  /// parameters keep their addresses and change their sizes. (DanLing: model.parallelize)
  virtual void parallelize(const ParallelContext& context) = 0;
};

}  // namespace danling::inline v0::parallel
