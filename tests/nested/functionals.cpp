// The functions of torch::nn::functional on nested tensors, where they read sizes: those of a batch of one element
// each.
#include <torch/nn.h>

#include <danling/core/error.hpp>

#include "nested/nested_tests.hpp"

namespace nested_functionals {
namespace {

namespace F = torch::nn::functional;
using danling::NestedTensor;
using nested_tests::check_same;
using nested_tests::random_elements;
using nested_tests::Sizes;
using torch::Tensor;

struct Functional {
  std::string name;
  std::vector<Sizes> shapes;
  std::function<Tensor(const Tensor&)> call;  ///< of a batch
};

const std::vector<Sizes> tokens = {{3, 6}, {5, 6}, {1, 6}}, signals = {{4, 6}, {4, 9}, {4, 7}},
                         images = {{4, 5, 6}, {4, 7, 4}, {4, 4, 8}}, volumes = {{2, 3, 4, 5}, {2, 4, 4, 3}};

std::vector<Functional> functionals() {
  return {
      {"normalize the features", tokens,
       [](const Tensor& x) { return F::normalize(x, F::NormalizeFuncOptions().dim(2)); }},
      {"normalize over the length", tokens, [](const Tensor& x) { return F::normalize(x); }},
      {"normalize, p = 1, [C, L]", signals,
       [](const Tensor& x) { return F::normalize(x, F::NormalizeFuncOptions().p(1).dim(-1)); }},
      {"local_response_norm of (C, L)", signals,
       [](const Tensor& x) { return F::local_response_norm(x, F::LocalResponseNormFuncOptions(3)); }},
      {"local_response_norm of (C, H, W)", images,
       [](const Tensor& x) { return F::local_response_norm(x, F::LocalResponseNormFuncOptions(2)); }},
      {"cosine_similarity of features", tokens,
       [](const Tensor& x) { return F::cosine_similarity(x, x.square(), F::CosineSimilarityFuncOptions().dim(2)); }},
      {"cosine_similarity over the length", tokens,
       [](const Tensor& x) { return F::cosine_similarity(x, x.square()); }},
      {"pairwise_distance", tokens, [](const Tensor& x) { return F::pairwise_distance(x, x.square()); }},
      {"pairwise_distance, keepdim", tokens,
       [](const Tensor& x) {
         return F::pairwise_distance(x, x.square(), F::PairwiseDistanceFuncOptions().keepdim(true).p(1));
       }},
      {"glu of features", tokens, [](const Tensor& x) { return F::glu(x); }},
      {"glu of channels", signals, [](const Tensor& x) { return F::glu(x, F::GLUFuncOptions(1)); }},
      {"softmin over the length", tokens, [](const Tensor& x) { return F::softmin(x, F::SoftminFuncOptions(1)); }},
      {"log_softmax over the length", signals,
       [](const Tensor& x) { return F::log_softmax(x, F::LogSoftmaxFuncOptions(2)); }},
      {"softsign", tokens, [](const Tensor& x) { return F::softsign(x); }},
      {"tanhshrink", tokens, [](const Tensor& x) { return F::tanhshrink(x); }},
      {"group_norm of (C, L)", signals, [](const Tensor& x) { return F::group_norm(x, F::GroupNormFuncOptions(2)); }},
      {"group_norm of (C, H, W)", images, [](const Tensor& x) { return F::group_norm(x, F::GroupNormFuncOptions(2)); }},
      {"instance_norm of (C, L)", signals, [](const Tensor& x) { return F::instance_norm(x); }},
      {"instance_norm of (C, H, W)", images, [](const Tensor& x) { return F::instance_norm(x); }},
      {"layer_norm", tokens, [](const Tensor& x) { return F::layer_norm(x, F::LayerNormFuncOptions({6})); }},
      {"interpolate by a scale", signals,
       [](const Tensor& x) {
         return F::interpolate(x,
                               F::InterpolateFuncOptions().scale_factor(std::vector<double>{2}).mode(torch::kNearest));
       }},
      {"interpolate to a size", signals,
       [](const Tensor& x) {
         return F::interpolate(x, F::InterpolateFuncOptions().size(Sizes{5}).mode(torch::kLinear).align_corners(false));
       }},
      {"interpolate images by a scale", images,
       [](const Tensor& x) {
         return F::interpolate(x, F::InterpolateFuncOptions()
                                      .scale_factor(std::vector<double>{2, 1.5})
                                      .mode(torch::kBilinear)
                                      .align_corners(false));
       }},
      {"interpolate images, antialias", images,
       [](const Tensor& x) {
         return F::interpolate(x, F::InterpolateFuncOptions()
                                      .scale_factor(std::vector<double>{0.5, 0.5})
                                      .mode(torch::kBilinear)
                                      .align_corners(false)
                                      .antialias(true));
       }},
      {"interpolate images, area, to a size", images,
       [](const Tensor& x) {
         return F::interpolate(x, F::InterpolateFuncOptions().size(Sizes{2, 3}).mode(torch::kArea));
       }},
      {"unfold", images, [](const Tensor& x) { return F::unfold(x, F::UnfoldFuncOptions({2, 2})); }},
      {"pixel_shuffle", images, [](const Tensor& x) { return F::pixel_shuffle(x, F::PixelShuffleFuncOptions(2)); }},
      {"pixel_unshuffle",
       {{2, 4, 6}, {2, 2, 8}},
       [](const Tensor& x) { return F::pixel_unshuffle(x, F::PixelUnshuffleFuncOptions(2)); }},
      {"channel_shuffle", images, [](const Tensor& x) { return torch::channel_shuffle(x, 2); }},
      {"channel_shuffle of (C, L)", signals, [](const Tensor& x) { return torch::channel_shuffle(x, 2); }},
      {"pad, reflect", signals,
       [](const Tensor& x) { return F::pad(x, F::PadFuncOptions({2, 1}).mode(torch::kReflect)); }},
      {"pad, circular", signals,
       [](const Tensor& x) { return F::pad(x, F::PadFuncOptions({2, 1}).mode(torch::kCircular)); }},
      {"pad, constant", tokens, [](const Tensor& x) { return F::pad(x, F::PadFuncOptions({0, 0, 1, 2}).value(3)); }},
      {"avg_pool1d", signals, [](const Tensor& x) { return F::avg_pool1d(x, F::AvgPool1dFuncOptions(2)); }},
      {"max_pool2d", images, [](const Tensor& x) { return F::max_pool2d(x, F::MaxPool2dFuncOptions(2)); }},
      {"lp_pool1d", signals,
       [](const Tensor& x) { return F::lp_pool1d(x.abs() + 1, F::LPPool1dFuncOptions(2, 3).stride(2)); }},
      {"lp_pool2d", images,
       [](const Tensor& x) { return F::lp_pool2d(x.abs() + 1, F::LPPool2dFuncOptions(2, 2).stride(2)); }},
      {"adaptive_avg_pool1d", signals,
       [](const Tensor& x) { return F::adaptive_avg_pool1d(x, F::AdaptiveAvgPool1dFuncOptions(3)); }},
      {"adaptive_avg_pool2d", images,
       [](const Tensor& x) { return F::adaptive_avg_pool2d(x, F::AdaptiveAvgPool2dFuncOptions({2, 3})); }},
      {"adaptive_max_pool2d", images,
       [](const Tensor& x) { return F::adaptive_max_pool2d(x, F::AdaptiveMaxPool2dFuncOptions({2, 2})); }},
      {"multilabel_soft_margin_loss", tokens,
       [](const Tensor& x) {
         return F::multilabel_soft_margin_loss(x, (x > 0).to(x.dtype()),
                                               F::MultilabelSoftMarginLossFuncOptions().reduction(torch::kNone));
       }},
      {"triplet_margin_with_distance_loss", tokens,
       [](const Tensor& x) {
         return F::triplet_margin_with_distance_loss(
             x, x * 2, x.square(), F::TripletMarginWithDistanceLossFuncOptions().reduction(torch::kNone));
       }},
      {"triplet_margin_loss", tokens,
       [](const Tensor& x) {
         return F::triplet_margin_loss(x, x * 2, x.square(), F::TripletMarginLossFuncOptions().reduction(torch::kNone));
       }},
      {"kl_div", tokens,
       [](const Tensor& x) { return F::kl_div(x.log_softmax(-1), x.softmax(-1), F::KLDivFuncOptions(torch::kNone)); }},
      {"smooth_l1", tokens,
       [](const Tensor& x) { return F::smooth_l1_loss(x, x.square(), F::SmoothL1LossFuncOptions(torch::kNone), 0.5); }},
      {"binary_cross_entropy with a weight", tokens,
       [](const Tensor& x) {
         return F::binary_cross_entropy(
             x.sigmoid(), x.square().sigmoid(),
             F::BinaryCrossEntropyFuncOptions().weight(torch::arange(6, torch::kDouble)).reduction(torch::kNone));
       }},
      {"conv_transpose1d", signals,
       [](const Tensor& x) { return F::conv_transpose1d(x, torch::ones({4, 2, 3}, torch::kDouble)); }},
      {"prelu", signals, [](const Tensor& x) { return F::prelu(x, torch::arange(4, torch::kDouble)); }},
  };
}

/// Functions without a kernel for different sizes, with the beginning of the message.
std::vector<Functional> refused_functionals() {
  return {
      {"[nested_tensor.view] expected elements whose ragged size is a multiple of", volumes,
       [](const Tensor& x) { return F::local_response_norm(x, F::LocalResponseNormFuncOptions(2)); }},
      {"[nested_tensor.pairwise_distance] expected elements of ragged dimensions and one static last one", signals,
       [](const Tensor& x) { return F::pairwise_distance(x, x.square()); }},
      {"[nested_tensor.max_unpool2d]",
       {{2, 4}, {2, 8}},
       [](const Tensor& x) {
         const auto [out, indices] = F::max_pool1d_with_indices(x, F::MaxPool1dFuncOptions(2));
         return F::max_unpool1d(out, indices, F::MaxUnpool1dFuncOptions(2));
       }},
      {"[nested_tensor.col2im]",
       {{8, 4}, {8, 4}},
       [](const Tensor& x) { return F::fold(x, F::FoldFuncOptions({3, 3}, {2, 2})); }},
      {"[nested_tensor.triplet_margin_loss] expected elements of ragged dimensions and one static last one", signals,
       [](const Tensor& x) {
         return F::triplet_margin_loss(x, x * 2, x.square(), F::TripletMarginLossFuncOptions().reduction(torch::kNone));
       }},
      {"[nested_tensor.grid_sampler]", images,
       [](const Tensor& x) {
         return F::grid_sample(x, torch::zeros({x.size(0), 2, 2, 2}, torch::kDouble),
                               F::GridSampleFuncOptions().align_corners(false));
       }},
      {"[nested_tensor.fractional_max_pool2d]", images,
       [](const Tensor& x) {
         return F::fractional_max_pool2d(x, F::FractionalMaxPool2dFuncOptions(2).output_size(2)._random_samples(
                                                torch::full({x.size(0), 4, 2}, 0.5, torch::kDouble)));
       }},
  };
}

TEST_CASE("NestedTensor: functions of torch::nn::functional see the sizes of each element", "[nested]") {
  for (const Functional& one : functionals()) {
    DYNAMIC_SECTION(one.name) {
      check_same(
          random_elements(one.shapes), {},
          [&](const NestedTensor& x) {
            const Tensor got = one.call(x);
            return NestedTensor::is_nested(got) ? NestedTensor(got).elements() : got.unbind(0);
          },
          [&](const std::vector<Tensor>& elements) {
            std::vector<Tensor> out;
            for (const Tensor& element : elements) {
              out.push_back(one.call(element.unsqueeze(0)).squeeze(0));
            }
            return out;
          },
          1e-9);
    }
  }
}

TEST_CASE("NestedTensor: other functions of torch::nn::functional are refused by name", "[nested]") {
  for (const Functional& one : refused_functionals()) {
    CHECK_THROWS_WITH(one.call(NestedTensor(random_elements(one.shapes))), ContainsSubstring(one.name));
  }
  const NestedTensor x(random_elements(tokens));
  CHECK_THROWS_WITH(torch::linalg_svd(x, false, std::nullopt),
                    ContainsSubstring("got aten::linalg_svd; call it on each of elements(), on concat() if tokens "
                                      "are independent, or on tensor(), the padded tensor"));
}

}  // namespace
}  // namespace nested_functionals
