#include <danling/optim/lbfgs.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>

#include <optim/known_options.hpp>
#include <optim/line_search.hpp>
#include <optim/plan.hpp>
#include <optim/saved_state.hpp>

namespace danling::inline v0::optim {
namespace {

using detail::LinePoint;

constexpr std::string_view lbfgs_keys[] = {"max_iter",         "max_eval",     "tolerance_grad",
                                           "tolerance_change", "history_size", "line_search_fn"};
constexpr double least_curvature = 1e-10;

double number(const at::Tensor& tensor) { return tensor.item().toDouble(); }
double dot_product(const at::Tensor& a, const at::Tensor& b) { return number(a.dot(b)); }
double largest(const at::Tensor& vector) { return vector.numel() == 0 ? 0 : number(vector.abs().max()); }

/// A parameter or gradient viewed as real numbers.
at::Tensor as_real(const at::Tensor& tensor) { return tensor.is_complex() ? at::view_as_real(tensor) : tensor; }

OptimizerOptions validated_lbfgs(const OptimizerOptions& given) {
  OptimizerOptions options = detail::lbfgs_options().complete(given);
  detail::expect_not_negative("LBFGS", "lr", *options.lr);
  check<ConfigError>(!options.line_search_fn || *options.line_search_fn == "strong_wolfe", "LBFGS.options",
                     "expected line_search_fn strong_wolfe, or none for steps of lr, got ",
                     quote(options.line_search_fn.value_or("")));
  for (const auto& [key, value] : {std::pair("max_iter", *options.max_iter), {"history_size", *options.history_size}}) {
    check<ConfigError>(value >= 1, "LBFGS.options", "expected ", key, " to be 1 or more, got ", value);
  }
  if (!options.max_eval) {
    options.max_eval = *options.max_iter * 5 / 4;
  }
  return options;
}

}  // namespace

const detail::KnownOptions& detail::lbfgs_options() {
  static const KnownOptions known{"LBFGS", LBFGS::defaults(), {"max_eval", "line_search_fn"}};
  return known;
}

const OptimizerOptions& LBFGS::defaults() {
  // Unset: line_search_fn, and max_eval, which follows max_iter.
  static const OptimizerOptions defaults{
      .lr = 1.0, .max_iter = 20, .tolerance_grad = 1e-7, .tolerance_change = 1e-9, .history_size = 100};
  return defaults;
}

struct LBFGS::Impl {
  OptimizerOptions options = validated_lbfgs({});
  at::ScalarType dtype = at::kFloat;

  // The state under torch's names. Scalars are rounded to the parameters' dtype, in which they are saved.
  std::int64_t func_evals = 0, n_iter = 0;
  at::Tensor d, prev_flat_grad;
  double t = 0, H_diag = 1, prev_loss = 0;
  std::vector<at::Tensor> old_dirs, old_stps;
  std::vector<double> ro;

  at::Tensor scalar(double value) const {
    return at::scalar_tensor(value, at::TensorOptions().dtype(at::kDouble)).to(dtype);
  }
  double rounded(double value) const { return dtype == at::kDouble ? value : number(scalar(value)); }

  static at::Tensor gather(const std::vector<at::Tensor>& params) {
    std::vector<at::Tensor> parts;
    for (const auto& param : params) {
      const at::Tensor& grad = param.grad();
      parts.push_back(grad.defined() ? as_real(grad.to(param.scalar_type())).reshape({-1})
                                     : at::zeros({as_real(param).numel()}, as_real(param).options()));
    }
    return at::cat(parts);
  }

  static void move(const std::vector<at::Tensor>& params, double step, const at::Tensor& direction) {
    std::int64_t offset = 0;
    for (const auto& param : params) {
      const at::Tensor values = as_real(param);
      values.add_(direction.narrow(0, offset, values.numel()).view_as(values), step);
      offset += values.numel();
    }
  }

  /// Computes the direction: the gradient times the approximate inverse Hessian.
  void find_direction(const at::Tensor& flat_grad) {
    if (n_iter == 1) {
      d = flat_grad.neg();
      old_dirs.clear();
      old_stps.clear();
      ro.clear();
      H_diag = 1;
      return;
    }
    const at::Tensor y = flat_grad.sub(prev_flat_grad);
    const at::Tensor s = d.mul(t);
    const double ys = dot_product(y, s);
    if (ys > least_curvature) {
      if (static_cast<std::int64_t>(old_dirs.size()) == *options.history_size) {
        old_dirs.erase(old_dirs.begin());
        old_stps.erase(old_stps.begin());
        ro.erase(ro.begin());
      }
      old_dirs.push_back(y);
      old_stps.push_back(s);
      ro.push_back(rounded(1.0 / ys));
      H_diag = rounded(ys / dot_product(y, y));
    }
    std::vector<double> al(old_dirs.size());
    at::Tensor q = flat_grad.neg();
    for (std::size_t i = old_dirs.size(); i-- > 0;) {
      al[i] = rounded(dot_product(old_stps[i], q) * ro[i]);
      q.add_(old_dirs[i], -al[i]);
    }
    q.mul_(H_diag);
    for (std::size_t i = 0; i < old_dirs.size(); ++i) {
      q.add_(old_stps[i], al[i] - rounded(dot_product(old_dirs[i], q) * ro[i]));
    }
    d = q;
  }

  at::Tensor update(const std::vector<at::Tensor>& params, double lr, const Closure& closure) {
    const auto evaluate = [&] {
      const at::AutoGradMode with_grad(true);
      const at::Tensor loss = closure();
      check<StateError>(
          loss.defined() && loss.numel() == 1, "LBFGS.step", "expected a closure that returns the loss, got ",
          loss.defined() ? concat("a tensor of shape ", detail::shape_text(loss)) : "an undefined tensor");
      return loss.detach();
    };
    const at::Tensor first = evaluate();
    double loss = number(first);
    std::int64_t evaluations = 1;
    ++func_evals;
    at::Tensor flat_grad = gather(params);
    bool optimal = largest(flat_grad) <= *options.tolerance_grad;
    for (std::int64_t iteration = 1; !optimal && iteration <= *options.max_iter; ++iteration) {
      ++n_iter;
      find_direction(flat_grad);
      prev_flat_grad = flat_grad.clone();
      prev_loss = loss;
      t = n_iter == 1 ? rounded(std::min(1.0, 1.0 / number(flat_grad.abs().sum())) * lr) : lr;
      const double slope = dot_product(flat_grad, d);
      if (slope > -*options.tolerance_change) {
        break;
      }
      std::int64_t used = 0;
      if (options.line_search_fn) {
        const LinePoint found = search(params, {0, loss, flat_grad, slope}, evaluations, evaluate, used);
        t = found.step;
        loss = found.loss;
        flat_grad = found.grad;
        move(params, t, d);
      } else {
        move(params, t, d);
        if (iteration < *options.max_iter) {
          loss = number(evaluate());
          flat_grad = gather(params);
          used = 1;
        }
      }
      optimal = largest(flat_grad) <= *options.tolerance_grad;
      evaluations += used;
      func_evals += used;
      if (evaluations >= *options.max_eval || largest(d.mul(t)) <= *options.tolerance_change ||
          std::abs(loss - prev_loss) < *options.tolerance_change) {
        break;
      }
    }
    return first;
  }

  template <class Evaluate>
  LinePoint search(const std::vector<at::Tensor>& params, const LinePoint& start, std::int64_t evaluations,
                   const Evaluate& evaluate, std::int64_t& used) const {
    std::vector<at::Tensor> origin;
    for (const auto& param : params) {
      origin.push_back(param.detach().clone());
    }
    const auto result = detail::strong_wolfe(
        [&](double step) {
          move(params, step, d);
          LinePoint point{step, number(evaluate()), gather(params)};
          point.slope = dot_product(point.grad, d);
          for (std::size_t i = 0; i < params.size(); ++i) {
            params[i].detach().copy_(origin[i]);
          }
          return point;
        },
        start, t, largest(d), *options.tolerance_change, *options.max_eval - evaluations);
    used = result.evaluations;
    return result.point;
  }
};

LBFGS::LBFGS(std::vector<at::Tensor> params, const OptimizerOptions& options, std::vector<std::string> names)
    : impl_(std::make_unique<Impl>()) {
  if (!params.empty() || !names.empty()) {
    add_param_group(std::move(params), options, std::move(names));
  }
}

LBFGS::~LBFGS() = default;

void LBFGS::add_param_group(std::vector<at::Tensor> params, const OptimizerOptions& given,
                            std::vector<std::string> names) {
  constexpr const char* where = "LBFGS.add_param_group";
  OptimizerOptions options = validated_lbfgs(given);
  check<ConfigError>(groups_.empty(), where, "expected one group of parameters, got another");
  for (const auto& param : params) {
    if (!param.defined() || !params[0].defined()) {
      break;  // add_group throws for it
    }
    const bool same = param.scalar_type() == params[0].scalar_type() && param.device() == params[0].device();
    check<ConfigError>(same, where, "expected parameters of one dtype and device, got ",
                       c10::toString(params[0].scalar_type()), " on ", params[0].device().str(), " and ",
                       c10::toString(param.scalar_type()), " on ", param.device().str());
  }
  add_group({std::move(params), std::move(names), *options.lr});
  impl_->dtype = c10::toRealValueType(groups_[0].params[0].scalar_type());
  impl_->options = std::move(options);
}

OptimizerOptions LBFGS::options(std::size_t group) const {
  OptimizerOptions out = impl_->options;
  out.lr = groups_.at(group).lr;
  return out;
}

void LBFGS::set_options(std::size_t group, const OptimizerOptions& given) {
  OptimizerOptions options = validated_lbfgs(given);
  groups_.at(group).lr = *options.lr;
  impl_->options = std::move(options);
}

void LBFGS::update(double) {
  fail<StateError>("LBFGS.step", "expected a closure that computes the loss and its gradients, got none; call ",
                   "step(closure)");
}

at::Tensor LBFGS::update_with_closure(const Closure& closure) {
  check<StateError>(!groups_.empty(), "LBFGS.step", "expected parameters, got none");
  return impl_->update(groups_[0].params, groups_[0].lr, closure);
}

State LBFGS::state_dict() const {
  const Impl& impl = *impl_;
  State::Map per_param;
  if (impl.func_evals > 0) {
    // As in torch, under the first parameter.
    State::Map entry{{"func_evals", impl.func_evals}, {"n_iter", impl.n_iter}};
    if (impl.d.defined()) {
      State::List ro;
      for (const double value : impl.ro) {
        ro.emplace_back(impl.scalar(value));
      }
      entry.set("d", impl.d);
      entry.set("t", impl.t);
      entry.set("old_dirs", State::List(impl.old_dirs.begin(), impl.old_dirs.end()));
      entry.set("old_stps", State::List(impl.old_stps.begin(), impl.old_stps.end()));
      entry.set("ro", std::move(ro));
      entry.set("H_diag", impl.scalar(impl.H_diag));
      entry.set("prev_flat_grad", impl.prev_flat_grad);
      entry.set("prev_loss", impl.prev_loss);
    }
    per_param.set(std::int64_t{0}, std::move(entry));
  }
  return detail::write_state(groups_, std::move(per_param), [&](std::size_t g) {
    const OptimizerOptions options = this->options(g);
    return State::Map{{"lr", *options.lr},
                      {"max_iter", *options.max_iter},
                      {"max_eval", *options.max_eval},
                      {"tolerance_grad", *options.tolerance_grad},
                      {"tolerance_change", *options.tolerance_change},
                      {"history_size", *options.history_size},
                      {"line_search_fn", options.line_search_fn ? State(*options.line_search_fn) : State()}};
  });
}

namespace {

/// Reads the history of a saved state.
struct HistoryReader {
  const detail::Target& target;
  const State::Map& entry;
  const at::Tensor& like;  // a vector of all parameters

  const State& at(const char* key) const {
    const State* found = entry.find(key);
    check<StateError>(found != nullptr, target.where, "expected ", quote(key), " in the state, got none");
    return *found;
  }
  at::Tensor vector(const State& value, const char* key) const {
    const bool fits = value.is_tensor() && value.tensor().sizes() == like.sizes();
    check<StateError>(fits, target.where, "expected a tensor of shape ", detail::shape_text(like), " for ", key,
                      ", got ", value.is_tensor() ? detail::shape_text(value.tensor()) : std::string(value.kind()));
    return at::empty_like(like).copy_(value.tensor());
  }
  std::vector<at::Tensor> vectors(const char* key) const {
    std::vector<at::Tensor> out;
    for (const State& item : at(key).items()) {
      out.push_back(vector(item, key));
    }
    return out;
  }
  double number_of(const State& value, const char* key) const {
    if (value.is_tensor() && value.tensor().numel() == 1) {
      return number(value.tensor());
    }
    check<StateError>(value.is_double() || value.is_integer(), target.where, "expected a number for ", key, ", got ",
                      value.kind());
    return value.number();
  }
};

}  // namespace

void LBFGS::load_state_dict(const State& state) {
  const at::NoGradGuard no_grad;
  const detail::Target target{"LBFGS.load_state_dict", groups_,
                              [this](std::size_t g, std::size_t i) { return describe(g, i); }};
  const auto saved = detail::read_state(target, state, lbfgs_keys);
  Impl loaded;
  loaded.dtype = impl_->dtype;
  if (saved.groups.empty()) {
    return;
  }
  const auto& group = saved.groups[0];
  const auto count = [&](const char* key) {
    return static_cast<std::int64_t>(detail::read_number(target, group, key, 0));
  };
  OptimizerOptions options{.lr = group.lr,
                           .max_iter = count("max_iter"),
                           .max_eval = count("max_eval"),
                           .tolerance_grad = detail::read_number(target, group, "tolerance_grad", 0),
                           .tolerance_change = detail::read_number(target, group, "tolerance_change", 0),
                           .history_size = count("history_size")};
  if (const State& search = *group.options->find("line_search_fn"); search.is_string()) {
    options.line_search_fn = search.string();
  }
  try {
    loaded.options = validated_lbfgs(options);
  } catch (const ConfigError& error) {
    fail<StateError>(target.where, "expected the options of LBFGS, got others: ", error.what());
  }
  if (!saved.params.empty() && saved.params[0] != nullptr) {
    const State::Map& entry = *saved.params[0];
    detail::expect_keys(target, describe(0, 0), entry,
                        {"func_evals", "n_iter", "al", "d", "t", "old_dirs", "old_stps", "ro", "H_diag",
                         "prev_flat_grad", "prev_loss"});
    const HistoryReader reader{target, entry, Impl::gather(groups_[0].params)};
    loaded.func_evals = reader.at("func_evals").integer();
    loaded.n_iter = reader.at("n_iter").integer();
    if (entry.find("d") != nullptr) {
      loaded.d = reader.vector(reader.at("d"), "d");
      loaded.t = reader.number_of(reader.at("t"), "t");
      loaded.old_dirs = reader.vectors("old_dirs");
      loaded.old_stps = reader.vectors("old_stps");
      for (const State& item : reader.at("ro").items()) {
        loaded.ro.push_back(reader.number_of(item, "ro"));
      }
      check<StateError>(loaded.old_stps.size() == loaded.old_dirs.size() && loaded.ro.size() == loaded.old_dirs.size(),
                        target.where, "expected as many old_stps and ro as old_dirs, ", loaded.old_dirs.size(),
                        ", got ", loaded.old_stps.size(), " and ", loaded.ro.size());
      loaded.H_diag = reader.number_of(reader.at("H_diag"), "H_diag");
      loaded.prev_flat_grad = reader.vector(reader.at("prev_flat_grad"), "prev_flat_grad");
      loaded.prev_loss = reader.number_of(reader.at("prev_loss"), "prev_loss");
    }
  }
  groups_[0].lr = *loaded.options.lr;
  groups_[0].initial_lr = group.initial_lr;
  *impl_ = std::move(loaded);
}

}  // namespace danling::inline v0::optim
