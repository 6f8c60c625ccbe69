#include <danling/optim/torch_adapter.hpp>

#include <ATen/ops/_foreach_div.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <danling/core/error.hpp>

#include <optim/torch_kinds.hpp>

namespace danling::inline v0::optim {
namespace {

/// A number that both sides may change: ours wins if both changed it.
struct Shared {
  double seen = 0;
  double agreed(double ours, double theirs) const { return ours != seen ? ours : theirs; }
};

class TorchAdapter final : public Optimizer {
 public:
  explicit TorchAdapter(std::shared_ptr<torch::optim::Optimizer> optimizer)
      : torch_(std::move(optimizer)), kind_(detail::torch_kind(*torch_)) {
    for (const auto& group : torch_->param_groups()) {
      const double lr = group.options().get_lr();
      const double weight_decay = kind_ == nullptr ? 0 : kind_->weight_decay(group.options());
      lrs_.push_back({lr});
      weight_decays_.push_back({weight_decay});
      add_group({group.params(), {}, lr, std::nullopt, weight_decay});
    }
  }

  std::string_view name() const override { return kind_ == nullptr ? "torch::optim" : kind_->name; }

  State state_dict() const override {
    const auto& kind = known("state_dict");
    check_groups("state_dict");
    State::Map per_param;
    std::int64_t number = 0;
    for (const auto& group : groups_) {
      for (const auto& param : group.params) {
        const auto found = torch_->state().find(param.unsafeGetTensorImpl());
        if (found != torch_->state().end()) {
          State::Map entry = kind.state(*found->second);
          if (!entry.empty()) {
            per_param.set(number, std::move(entry));
          }
        }
        ++number;
      }
    }
    return detail::write_state(groups_, std::move(per_param), [&](std::size_t g) {
      const auto& options = torch_->param_groups()[g].options();
      State::Map out = kind.options(options);
      out.set("lr", lrs_[g].agreed(groups_[g].lr, options.get_lr()));
      out.set("weight_decay", weight_decays_[g].agreed(groups_[g].weight_decay, kind.weight_decay(options)));
      return out;
    });
  }

  void load_state_dict(const State& state) override {
    const auto& kind = known("load_state_dict");
    check_groups("load_state_dict");
    const detail::Target target{concat(name(), ".load_state_dict"), groups_,
                                [this](std::size_t g, std::size_t i) { return describe(g, i); }};
    const auto saved = detail::read_state(target, state, kind.option_keys);
    std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> options;
    std::vector<std::unique_ptr<torch::optim::OptimizerParamState>> states;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      options.push_back(kind.read_options(target, saved.groups[g], torch_->param_groups()[g].options()));
      for (std::size_t i = 0; i < groups_[g].params.size(); ++i) {
        const State::Map* entry = saved.params[states.size()];
        states.push_back(entry == nullptr
                             ? nullptr
                             : kind.read_state(target, describe(g, i), *entry, groups_[g].params[i], *options.back()));
      }
    }
    std::size_t number = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      auto& group = groups_[g];
      group.lr = lrs_[g].seen = saved.groups[g].lr;
      group.weight_decay = weight_decays_[g].seen = saved.groups[g].weight_decay;
      group.initial_lr = saved.groups[g].initial_lr;
      torch_->param_groups()[g].set_options(std::move(options[g]));
      for (const auto& param : group.params) {
        if (states[number] == nullptr) {
          torch_->state().erase(param.unsafeGetTensorImpl());
        } else {
          torch_->state()[param.unsafeGetTensorImpl()] = std::move(states[number]);
        }
        ++number;
      }
    }
  }

 private:
  const detail::TorchKind& known(const char* operation) const {
    check<StateError>(kind_ != nullptr, concat(name(), ".", operation),
                      "expected one of SGD, Adam, AdamW, RMSprop, Adagrad, got a type whose state layout is "
                      "unknown; derive from danling::optim::Optimizer");
    return *kind_;
  }

  void check_groups(const char* operation) const {
    bool same = torch_->param_groups().size() == groups_.size();
    for (std::size_t g = 0; same && g < groups_.size(); ++g) {
      const auto& theirs = torch_->param_groups()[g].params();
      same = theirs.size() == groups_[g].params.size();
      for (std::size_t i = 0; same && i < theirs.size(); ++i) {
        same = theirs[i].is_same(groups_[g].params[i]);
      }
    }
    check<StateError>(same, concat(name(), ".", operation),
                      "expected the parameter groups that were adapted, got others; adapt the optimizer again");
  }

  void update(double grad_divisor) override {
    check_groups("step");
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      auto& options = torch_->param_groups()[g].options();
      const double lr = lrs_[g].agreed(groups_[g].lr, options.get_lr());
      options.set_lr(lr);
      groups_[g].lr = lrs_[g].seen = lr;
      if (kind_ == nullptr) {
        check<StateError>(
            groups_[g].weight_decay == 0, concat(name(), ".step"),
            "expected weight_decay to be set on the torch optimizer, whose type the adapter does not know, got ",
            groups_[g].weight_decay, " on the adapter");
        continue;
      }
      const double decay = weight_decays_[g].agreed(groups_[g].weight_decay, kind_->weight_decay(options));
      kind_->set_weight_decay(options, decay);
      groups_[g].weight_decay = weight_decays_[g].seen = decay;
    }
    if (grad_divisor != 1.0) {
      grads_ = gradients(*this);
      if (!grads_.empty()) {
        at::_foreach_div_(grads_, grad_divisor);
      }
      grads_.clear();
    }
    torch_->step();
  }

  std::shared_ptr<torch::optim::Optimizer> torch_;
  const detail::TorchKind* kind_;
  std::vector<Shared> lrs_;
  std::vector<Shared> weight_decays_;
  std::vector<at::Tensor> grads_;
};

}  // namespace

std::shared_ptr<Optimizer> adapt_torch_optimizer(std::shared_ptr<torch::optim::Optimizer> optimizer) {
  check<ConfigError>(optimizer != nullptr, "optim.adapt_torch_optimizer", "expected an optimizer, got a null pointer");
  check<ConfigError>(dynamic_cast<torch::optim::LBFGS*>(optimizer.get()) == nullptr, "optim.adapt_torch_optimizer",
                     "expected an optimizer that steps without a closure, got LBFGS");
  return std::make_shared<TorchAdapter>(std::move(optimizer));
}

}  // namespace danling::inline v0::optim
