// LAMB: Adam with a step proportional to each parameter's norm.
#include <cmath>
#include <vector>

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/where.h>

#include <danling/optim/layerwise.hpp>

#include <optim/layers.hpp>

namespace danling::inline v0::optim {
namespace {

using detail::Layer;
using detail::LayerUpdate;

class LambRule final : public detail::LayerRule {
 public:
  const detail::KnownOptions& options() const override {
    static const detail::KnownOptions known{"LAMB", LAMB::defaults(), {}};
    return known;
  }
  void validate(const OptimizerOptions& options) const override {
    detail::expect_not_negative("LAMB", "eps", *options.eps);
    detail::expect_betas("LAMB", "betas", *options.betas);
  }
  std::vector<detail::NamedState> layout(const at::Tensor& param) const override {
    return {{"exp_avg", param.sizes().vec()}, {"exp_avg_sq", param.sizes().vec()}};
  }

  // The second moment of float16 gradients underflows in float16, and a bfloat16 moment ignores small steps.
  bool has_wide_state() const override { return true; }

  void update(const OptimizerOptions& options, const LayerUpdate& item, bool parallel) const override {
    const bool wide = item.param_type() == rules::Type::float64;
    wide ? update_as<double>(options, item, parallel) : update_as<float>(options, item, parallel);
  }

  void update(const OptimizerOptions& options, detail::LayerTensors& layer, at::ScalarType) const override {
    const auto [beta1, beta2] = *options.betas;
    const at::Tensor grad = *options.maximize ? layer.grad.neg() : layer.grad;
    layer.state[0] = layer.state[0].lerp(grad, 1 - beta1);
    layer.state[1] = layer.state[1].mul(beta2).addcmul_(grad, grad, 1 - beta2);
    const at::Tensor below =
        layer.state[1].sqrt().div_(detail::bias_correction(beta2, layer.count).sqrt_()).add_(*options.eps);
    const at::Tensor move = layer.state[0]
                                .div(detail::bias_correction(beta1, layer.count))
                                .div_(below)
                                .add_(layer.param, *options.weight_decay);
    const at::Tensor size = at::linalg_vector_norm(layer.param);
    const at::Tensor length = at::linalg_vector_norm(move);
    const at::Tensor trust = at::where(size.gt(0).logical_and_(length.gt(0)), size.div(length), 1.0);
    layer.param = layer.param.sub(move.mul(trust), *options.lr);
  }

  State::Map write(const OptimizerOptions& options) const override {
    return {{"lr", *options.lr},
            {"betas", State::Tuple{{options.betas->first, options.betas->second}}},
            {"eps", *options.eps},
            {"weight_decay", *options.weight_decay},
            {"maximize", *options.maximize}};
  }
  std::vector<std::string_view> saved_keys() const override { return {"betas", "eps", "maximize"}; }
  void read(const detail::Target& target, const detail::SavedGroup& group, OptimizerOptions& options) const override {
    options.betas = detail::read_pair(target, group, "betas");
    options.eps = detail::read_number(target, group, "eps", *options.eps);
    options.maximize = detail::read_flag(target, group, "maximize", false);
  }

 private:
  template <class T>
  static void update_as(const OptimizerOptions& options, const LayerUpdate& item, bool parallel) {
    Layer& layer = *item.layer;
    const auto& kernels = rules::layerwise().of<T>();
    const auto [beta1, beta2] = *options.betas;
    double constants[] = {(*options.maximize ? -1.0 : 1.0) / item.divisor,
                          1 - beta1,
                          beta2,
                          1 - beta2,
                          *options.eps,
                          1 / (1 - std::pow(beta1, layer.count)),
                          1 / std::sqrt(1 - std::pow(beta2, layer.count)),
                          *options.weight_decay,
                          0};
    const std::int64_t count = layer.param.numel();
    const rules::Span whole{.param = layer.param.mutable_data_ptr(),
                            .grad = item.grad.const_data_ptr(),
                            .state = {layer.state[0].mutable_data_ptr(), layer.state[1].mutable_data_ptr(), nullptr},
                            .master = item.master(),
                            .count = count,
                            .first = 0,
                            .constants = constants,
                            .rounding = item.rounding,
                            .param_type = item.param_type(),
                            .grad_type = item.grad_type(),
                            .state_type = item.state_type()};
    const std::int64_t parts = (count + detail::part_size - 1) / detail::part_size;
    const auto part = [&](std::int64_t i) {
      const std::int64_t begin = i * detail::part_size;
      return whole.part(begin, std::min(detail::part_size, count - begin));
    };
    struct Squares {
      double of[2] = {};
    };
    std::vector<Squares> partial(static_cast<std::size_t>(parts));
    detail::for_parts(parts, parallel,
                      [&](std::int64_t i) { kernels.lamb_moments(part(i), partial[static_cast<std::size_t>(i)].of); });
    double squares[2] = {};
    for (const auto& sums : partial) {
      squares[0] += sums.of[0];
      squares[1] += sums.of[1];
    }
    const bool scaled = squares[0] > 0 && squares[1] > 0;
    constants[8] = *options.lr * (scaled ? std::sqrt(squares[0] / squares[1]) : 1.0);
    detail::for_parts(parts, parallel, [&](std::int64_t i) { kernels.lamb_step(part(i)); });
  }
};

}  // namespace

const OptimizerOptions& LAMB::defaults() {
  static const OptimizerOptions defaults{.lr = 1e-3,
                                         .betas = std::pair(0.9, 0.999),
                                         .eps = 1e-6,
                                         .weight_decay = 1e-2,
                                         .maximize = false,
                                         .fused = true,
                                         .master_weights = false,
                                         .stochastic_rounding = false};
  return defaults;
}

const detail::LayerRule& detail::lamb_rule() {
  static const LambRule rule;
  return rule;
}

}  // namespace danling::inline v0::optim
