// One operator after another: LibTorch has several forms of most, and a tape chooses among them.
#include <tape/steps.hpp>

namespace {
using namespace tape_test;
namespace F = torch::nn::functional;

using Function = std::function<at::Tensor(const at::Tensor& y, const at::Tensor& x)>;

/// Steps with the function of weight * batch and the batch.
void check_function(const char* name, const Function& function) {
  CAPTURE(name);
  torch::manual_seed(3);
  const Subject subject = small([function](const at::Tensor& weight, const at::Tensor& x) {
    const at::Tensor out = function(weight * x, x);
    return out.is_floating_point() && out.requires_grad() ? out.sum() + weight.sum() : weight.sum() + out.sum();
  });
  check_replays(subject, *make_tape(subject), 3);
}

TEST_CASE("Tape: losses and their reductions", "[tape]") {
  const auto target = [](const at::Tensor& x) { return x.argmax(1); };
  check_function("mse_loss", [](auto y, auto x) { return F::mse_loss(y, x); });
  check_function("l1_loss", [](auto y, auto x) { return F::l1_loss(y, x); });
  for (const std::int64_t reduction : {0, 1, 2}) {
    CAPTURE(reduction);
    check_function("smooth_l1_loss", [=](auto y, auto x) { return at::smooth_l1_loss(y, x, reduction); });
    check_function("huber_loss", [=](auto y, auto x) { return at::huber_loss(y, x, reduction, 0.5); });
    check_function("soft_margin_loss", [=](auto y, auto x) { return at::soft_margin_loss(y, x.sign(), reduction); });
    check_function("binary_cross_entropy",
                   [=](auto y, auto x) { return at::binary_cross_entropy(y.sigmoid(), x.sigmoid(), {}, reduction); });
    check_function("with_logits", [=](auto y, auto x) {
      return at::binary_cross_entropy_with_logits(y, x.sigmoid(), x.abs(), {}, reduction);
    });
    check_function("kl_div", [=](auto y, auto x) { return at::kl_div(y.log_softmax(1), x.softmax(1), reduction); });
    check_function("nll_loss", [=](auto y, auto x) { return at::nll_loss(y, target(x), {}, reduction); });
    check_function("nll_loss weights",
                   [=](auto y, auto x) { return at::nll_loss(y, target(x), x.select(0, 0).abs(), reduction, 1); });
    check_function("nll_loss2d", [=](auto y, auto x) {
      return at::nll_loss2d(y.view({3, 2, 2, 1}), (x.view({3, 4, 1}).slice(1, 0, 2) > 0).to(at::kLong), {}, reduction);
    });
    check_function("cross_entropy",
                   [=](auto y, auto x) { return at::cross_entropy_loss(y, target(x), {}, reduction, -100, 0.1); });
    check_function("cross_entropy of shares",
                   [=](auto y, auto x) { return at::cross_entropy_loss(y, x.softmax(1), {}, reduction); });
    check_function("multi_margin_loss",
                   [=](auto y, auto x) { return at::multi_margin_loss(y, target(x), 1, 1, {}, reduction); });
    check_function("multilabel_margin_loss", [=](auto y, auto x) {
      return at::multilabel_margin_loss(y, x.argsort(std::int64_t{1}), reduction);
    });
    check_function("hinge_embedding_loss",
                   [=](auto y, auto x) { return at::hinge_embedding_loss(y, x.sign(), 1.0, reduction); });
    check_function("margin_ranking_loss",
                   [=](auto y, auto x) { return at::margin_ranking_loss(y, x, x.sign(), 0.1, reduction); });
    check_function("triplet_margin_loss", [=](auto y, auto x) {
      return at::triplet_margin_loss(y, x, x.neg(), 1, 2, 1e-6, false, reduction);
    });
    check_function("cosine_embedding_loss", [=](auto y, auto x) {
      return at::cosine_embedding_loss(y, x, x.select(1, 0).sign(), 0.1, reduction);
    });
    check_function("poisson_nll_loss",
                   [=](auto y, auto x) { return at::poisson_nll_loss(y, x.abs(), true, false, 1e-8, reduction); });
  }
}

TEST_CASE("Tape: functions of one number", "[tape]") {
  using Unary = at::Tensor (*)(const at::Tensor&);
  const std::vector<std::pair<const char*, Unary>> functions = {
      {"abs", at::abs},
      {"asinh", at::asinh},
      {"atan", at::atan},
      {"ceil", at::ceil},
      {"cos", at::cos},
      {"cosh", at::cosh},
      {"digamma", at::digamma},
      {"erf", at::erf},
      {"erfc", at::erfc},
      {"exp", at::exp},
      {"exp2", at::exp2},
      {"expm1", at::expm1},
      {"floor", at::floor},
      {"frac", at::frac},
      {"lgamma", at::lgamma},
      {"neg", at::neg},
      {"relu", at::relu},
      {"reciprocal", at::reciprocal},
      {"round", at::round},
      {"sigmoid", at::sigmoid},
      {"sign", at::sign},
      {"sin", at::sin},
      {"sinc", at::sinc},
      {"sinh", at::sinh},
      {"square", at::square},
      {"tan", at::tan},
      {"tanh", at::tanh},
      {"trunc", at::trunc},
      {"silu", at::silu},
      {"mish", at::mish},
      {"selu", at::selu},
      {"hardswish", at::hardswish},
      {"hardsigmoid", at::hardsigmoid},
      {"log_sigmoid", at::log_sigmoid},
      {"isnan", at::isnan},
      {"logical_not", at::logical_not},
      {"celu", [](const at::Tensor& x) { return at::celu(x); }}};
  for (const auto& [name, function] : functions) {
    check_function(name, [function = function](auto y, auto) { return function(y); });
    check_function(name, [function = function](auto y, auto x) { return function(y + x) * function(x); });
  }
  const std::vector<std::pair<const char*, Unary>> between_0_and_1 = {
      {"acos", at::acos},   {"erfinv", at::erfinv}, {"log", at::log},     {"log10", at::log10},
      {"log1p", at::log1p}, {"log2", at::log2},     {"rsqrt", at::rsqrt}, {"sqrt", at::sqrt}};
  for (const auto& [name, function] : between_0_and_1) {
    check_function(name,
                   [function = function](auto y, auto x) { return function(y.sigmoid()) * function(x.sigmoid()); });
  }
}

TEST_CASE("Tape: functions of two numbers", "[tape]") {
  const std::vector<std::pair<const char*, Function>> functions = {
      {"add", [](auto y, auto x) { return at::add(y, x, 0.5); }},
      {"add column", [](auto y, auto x) { return y + x.narrow(1, 1, 1); }},
      {"add row", [](auto y, auto x) { return y + x[1]; }},
      {"sub", [](auto y, auto x) { return at::sub(x, y, 2); }},
      {"mul row", [](auto y, auto x) { return (y * x[0]) * y[1]; }},
      {"mul double", [](auto y, auto x) { return y * x.to(at::kDouble); }},
      {"mul long", [](auto y, auto x) { return y * x.to(at::kLong); }},
      {"mul zero dim", [](auto y, auto x) { return y * x.sum() * x.to(at::kDouble).sum(); }},
      {"mul numbers", [](auto y, auto x) { return y * 3 * 0.1 * true * x; }},
      {"div", [](auto y, auto x) { return y / x / 3 / 0.7; }},
      {"div floor", [](auto y, auto x) { return at::div(y, x, "floor"); }},
      {"number first", [](auto y, auto x) { return 1 - y + 2 / (x + 3) + 3 * y; }},
      {"atan2", [](auto y, auto x) { return at::atan2(y, x); }},
      {"pow", [](auto y, auto x) { return at::pow(y.abs() + 1, x) + at::pow(y, 3) + at::pow(2, y); }},
      {"maximum", [](auto y, auto x) { return at::maximum(y, x) + at::minimum(y, x) + at::fmax(y, x); }},
      {"remainder", [](auto y, auto x) { return at::remainder(y, x) + at::fmod(y, 2); }},
      {"lerp", [](auto y, auto x) { return at::lerp(y, x, 0.3) + at::lerp(y, x, x); }},
      {"addcmul", [](auto y, auto x) { return at::addcmul(y, x, x, 0.5) + at::addcdiv(y, x, x, 0.5); }},
      {"compare", [](auto y, auto x) { return (y > x).to(at::kFloat) + (y == x) + (x <= 0) + (x != 1); }},
      {"clamp", [](auto y, auto x) { return y.clamp(-0.5, 0.5) + y.clamp_min(x) + y.clamp_max(0.2); }},
      {"hypot", [](auto y, auto x) { return at::hypot(y, x) + at::logaddexp(y, x) + at::xlogy(x, y.abs()); }},
      {"copysign", [](auto y, auto x) { return at::copysign(y, x) + at::heaviside(x, x); }},
      {"bits", [](auto, auto x) {
         const at::Tensor n = (x * 100).to(at::kLong);
         return (n & 7) + (n | 3) + (n ^ 5) + at::bitwise_left_shift(n, 2) + at::bitwise_not(n) + n * 2 - n / 3;
       }}};
  for (const auto& [name, function] : functions) {
    check_function(name, function);
  }
}

TEST_CASE("Tape: sums and other reductions", "[tape]") {
  const std::vector<std::pair<const char*, Function>> functions = {
      {"sum", [](auto y,
                 auto x) { return y.sum(0) + y.sum(at::IntArrayRef{0, 1}, true) + x.sum() + at::sum(y, at::kDouble); }},
      {"sum of whole numbers", [](auto, auto x) { return x.to(at::kInt).sum(1) + (x > 0).sum(1); }},
      {"mean", [](auto y, auto x) { return y.mean(1) + x.mean() + y.mean(at::IntArrayRef{0, 1}); }},
      {"amax", [](auto y, auto) { return y.amax(1) + y.amin(1); }},
      {"max", [](auto y, auto x) { return std::get<0>(y.max(1)) + std::get<1>(x.min(1)); }},
      {"median", [](auto y, auto) { return std::get<0>(y.median(1)) + std::get<0>(y.kthvalue(2, 1)); }},
      {"std", [](auto y, auto x) { return y.std(1) + x.var() + std::get<0>(at::var_mean(y, 1)); }},
      {"norm", [](auto y, auto) { return y.norm() + y.norm(1, 1) + at::linalg_vector_norm(y, 3, 1); }},
      {"cumsum", [](auto y, auto x) { return y.cumsum(1) + x.cumprod(1) + std::get<0>(x.cummax(1)); }},
      {"logsumexp", [](auto y, auto) { return y.logsumexp(1) + y.log_softmax(0).sum(0).sum() + y.softmax(0).sum(); }},
      {"any", [](auto, auto x) { return (x > 1).any(1).to(at::kLong) + (x > -1).all(1) + x.argmin(1); }},
      {"count",
       [](auto, auto x) {
         return x.ne(0).sum(1) + at::bucketize(x.select(1, 0).contiguous(), std::get<0>(x[0].sort()));
       }},
      {"matrices",
       [](auto y, auto x) {
         return at::mm(y, x.t()).sum() + at::mv(y, x[0]).sum() + at::dot(y[0], x[0]) +
                at::addmm(y, x, x.t().mm(y), 0.5, 2).sum() + at::bmm(y.view({2, 2, 3}), x.view({2, 3, 2})).sum() +
                at::baddbmm(x.view({2, 3, 2}).sum({1}, true), y.view({2, 2, 3}), x.view({2, 3, 2})).sum() +
                at::outer(y[0], x[1]).sum() + at::linalg_matrix_exp(y.view({3, 2, 2})).sum() +
                at::addmv(y.select(1, 0), x, x[1]).sum();
       }},
      {"solve",
       [](auto y, auto) {
         const at::Tensor square = y.mm(y.t()) + torch::eye(3);
         return std::get<0>(at::linalg_inv_ex(square)).sum() + at::linalg_det(square) +
                std::get<0>(at::linalg_eigh(square)).sum();
       }},
      {"distances",
       [](auto y, auto x) { return at::pdist(y).sum() + at::cdist(y, x).sum() + at::cosine_similarity(y, x).sum(); }},
      {"images",
       [](auto y, auto x) {
         const at::Tensor a = y.view({1, 1, 3, 4});
         return at::upsample_nearest2d(a, {5, 6}).sum() + at::upsample_bilinear2d(a, {5, 6}, false).mul(2).sum() +
                at::avg_pool2d(a, 2).sum() + at::adaptive_avg_pool2d(a, {2, 2}).sum() +
                at::reflection_pad2d(a, {1, 1, 1, 1}).sum() + at::pixel_shuffle(y.view({1, 4, 1, 3}), 2).sum() +
                at::grid_sampler(a, x.view({1, 3, 2, 2}).tanh(), 0, 0, false).sum() +
                at::im2col(a, {2, 2}, {1, 1}, {0, 0}, {1, 1}).sum() +
                at::conv_transpose2d(a, x.view({1, 1, 3, 4})).sum() +
                at::conv1d(y.view({1, 3, 4}), x.view({1, 3, 4})).sum() + at::max_pool1d(y.view({1, 3, 4}), 2).sum() +
                at::conv3d(y.view({1, 1, 3, 2, 2}), x.view({1, 1, 3, 2, 2})).sum() + at::glu(y, 1).sum() +
                at::prelu(y, x[0][0].view({1})).sum();
       }},
      {"random", [](auto y, auto x) {
         return y + at::normal(0.0, 1.0, {3, 4}) + at::rand_like(x) + at::randint(5, {3, 4}) +
                at::multinomial(x.softmax(1), 2).sum() + at::poisson(x.abs()) + at::bernoulli(x.sigmoid()) +
                torch::randn({4}) + at::alpha_dropout(y, 0.3, true) + at::feature_dropout(y, 0.3, true) +
                torch::empty({3, 4}).uniform_(0, 2) + torch::empty({3, 4}).exponential_() +
                std::get<0>(at::native_dropout(y.detach(), 0.2, true));
       }}};
  for (const auto& [name, function] : functions) {
    check_function(name, function);
  }
}

}  // namespace
