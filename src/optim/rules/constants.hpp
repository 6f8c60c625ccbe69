// Constants of an update, from a group's options and its number of updates: on the host or on a device.
#pragma once

#include <danling/optim/options.hpp>

#include <optim/rules/lists.hpp>
#include <optim/rules/rules.hpp>

namespace danling::inline v0::optim::rules {

/// Rounds to float32, in which torch.optim stores these numbers.
inline double in_float(double x) { return static_cast<float>(x); }
inline Number in_float(const Number& x) {
  return x.on_host() ? Number(in_float(x.host())) : Number(x.tensor().to(at::kFloat).to(at::kDouble));
}

template <class Rule>
struct Of {};  // selects an overload

/// `count`: number of updates, including this one. `scalars`: a parameter's state besides its buffers; these functions
/// advance them. Each returns Rule::Constants<S>. Options are complete.
template <class S>
class MakeConstants {
 public:
  MakeConstants(const OptimizerOptions& options, S count, S* scalars)
      : o_(options), count_(std::move(count)), scalars_(scalars) {}

  PlainSgd::Constants<S> operator()(Of<PlainSgd>) const { return {sign(), decay(), *o_.lr}; }
  MomentumSgd::Constants<S> operator()(Of<MomentumSgd>) const {
    return {sign(), decay(), *o_.lr, *o_.momentum, undampened()};
  }
  NesterovSgd::Constants<S> operator()(Of<NesterovSgd>) const {
    return {sign(), decay(), *o_.lr, *o_.momentum, undampened(), *o_.momentum};
  }

  Asgd::Constants<S> operator()(Of<Asgd>) const {
    S& eta = scalars_[0];
    S& mu = scalars_[1];
    const Asgd::Constants<S> out{sign(), decay(), S(1) - eta * S(*o_.lambd), eta, mu};
    eta = in_float(S(*o_.lr) / pow(count_ * S(*o_.lambd * *o_.lr) + S(1), S(*o_.alpha)));
    mu = in_float(S(1) / maximum(count_ - S(*o_.t0), S(1)));
    return out;
  }

  Rprop::Constants<S> operator()(Of<Rprop>) const {
    return {sign(), o_.etas->first, o_.etas->second, o_.step_sizes->first, o_.step_sizes->second, 0, 1};
  }
  Lion::Constants<S> operator()(Of<Lion>) const {
    return {sign(), keep(true), *o_.lr, 1 - o_.betas->first, 1 - o_.betas->second};
  }
  Adadelta::Constants<S> operator()(Of<Adadelta>) const {
    return {sign(), decay(), *o_.lr, *o_.rho, 1 - *o_.rho, *o_.eps};
  }
  Adagrad::Constants<S> operator()(Of<Adagrad>) const {
    const S lr = *o_.lr_decay == 0 ? S(*o_.lr) : S(*o_.lr) / ((count_ - S(1)) * S(*o_.lr_decay) + S(1));
    return {sign(), decay(), lr, *o_.eps};
  }
  template <bool momentum, bool centered>
  typename RmsProp<momentum, centered>::template Constants<S> operator()(Of<RmsProp<momentum, centered>>) const {
    return {sign(), decay(), *o_.lr, *o_.alpha, 1 - *o_.alpha, *o_.eps, *o_.momentum};
  }

  template <bool amsgrad>
  typename Adam<amsgrad>::template Constants<S> operator()(Of<Adam<amsgrad>>) const {
    return {sign(),
            *o_.decoupled_weight_decay ? S(0) : decay(),
            keep(*o_.decoupled_weight_decay),
            1 - o_.betas->first,
            o_.betas->second,
            1 - o_.betas->second,
            *o_.eps,
            S(*o_.lr) / bias(o_.betas->first),
            sqrt(bias(o_.betas->second))};
  }

  Adamax::Constants<S> operator()(Of<Adamax>) const {
    return {sign(), decay(), 1 - o_.betas->first, o_.betas->second, *o_.eps, S(*o_.lr) / bias(o_.betas->first)};
  }

  NAdam::Constants<S> operator()(Of<NAdam>) const {
    const auto momentum = [&](const S& count) {
      return (S(1) - pow(S(0.96), count * S(*o_.momentum_decay)) * S(0.5)) * S(o_.betas->first);
    };
    const S mu = momentum(count_);
    const S next = momentum(count_ + S(1));
    S& product = scalars_[0];
    product = in_float(product * in_float(mu));
    const S lr(*o_.lr);
    return {sign(),
            *o_.decoupled_weight_decay ? S(0) : decay(),
            keep(*o_.decoupled_weight_decay),
            1 - o_.betas->first,
            o_.betas->second,
            1 - o_.betas->second,
            *o_.eps,
            bias(o_.betas->second),
            lr * (S(1) - mu) / (S(1) - product),
            lr * next / (S(1) - product * next)};
  }

  RAdam::Constants<S> operator()(Of<RAdam>) const {
    const double beta2 = o_.betas->second;
    const double limit = 2 / (1 - beta2) - 1;
    const S bias2 = bias(beta2);
    const S length = S(limit) - count_ * S(2) * pow(S(beta2), count_) / bias2;
    const S rectified = above(length, S(5));
    const S tractable = select(rectified, length, S(limit));  // keeps the root real
    const S rectification =
        sqrt((tractable - S(4)) * (tractable - S(2)) * S(limit) / (tractable * S((limit - 4) * (limit - 2))));
    return {sign(),
            *o_.decoupled_weight_decay ? S(0) : decay(),
            keep(*o_.decoupled_weight_decay),
            1 - o_.betas->first,
            beta2,
            1 - beta2,
            *o_.eps,
            S(*o_.lr) / bias(o_.betas->first),
            rectified,
            sqrt(bias2) * rectification};
  }

 private:
  S sign() const { return *o_.maximize ? -1 : 1; }
  S decay() const { return *o_.weight_decay; }
  S keep(bool decoupled) const { return decoupled ? 1 - *o_.lr * *o_.weight_decay : 1.0; }
  S bias(double beta) const { return S(1) - pow(S(beta), count_); }
  /// The first momentum is the whole gradient.
  S undampened() const { return *o_.dampening == 0 ? S(1) : select(above(count_, S(1)), S(1 - *o_.dampening), S(1)); }

  const OptimizerOptions& o_;
  S count_;
  S* scalars_;
};

}  // namespace danling::inline v0::optim::rules
