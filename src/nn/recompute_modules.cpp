// Activation recompute for modules by name.
#include <algorithm>

#include <torch/nn/modules/container/sequential.h>

#include <danling/core/error.hpp>
#include <danling/nn/recompute.hpp>

#include <core/join_first.hpp>
#include <core/name_pattern.hpp>

namespace danling::inline v0::nn {
namespace {

constexpr auto recompute_where = "nn.recompute_modules";

/// Replaces a module in a Sequential; the module stays registered.
class RecomputedEntry final : public torch::nn::Module {
 public:
  explicit RecomputedEntry(torch::nn::AnyModule entry) : entry_(std::move(entry)) {}

  at::Tensor forward(at::Tensor input) {
    if (!c10::GradMode::is_enabled()) {
      return entry_.forward(std::move(input));
    }
    return detail::recompute(
        entry_.ptr(), [entry = entry_](const at::Tensor& x) mutable { return entry.forward(x); }, std::move(input));
  }
  std::shared_ptr<torch::nn::Module> clone(const std::optional<at::Device>& = std::nullopt) const override {
    fail<StateError>(recompute_where,
                     "expected clone() before recompute_modules(), got a Sequential with recomputed entries");
  }
  std::shared_ptr<torch::nn::Module> entry() const { return entry_.ptr(); }

 private:
  torch::nn::AnyModule entry_;
};

class Selection {
 public:
  explicit Selection(const std::vector<std::string>& patterns) : found_(patterns.size()) {
    for (const std::string& pattern : patterns) {
      patterns_.emplace_back(pattern, recompute_where, "regular expressions");
    }
  }

  void visit(torch::nn::Module& parent, const std::string& prefix) {
    for (const auto& child : parent.named_children()) {
      const std::string name = prefix + child.key();
      known_.push_back(name);
      bool matches = false;
      for (std::size_t i = 0; i < patterns_.size(); ++i) {
        if (patterns_[i].is_in(name)) {
          found_[i] = matches = true;
        }
      }
      if (matches) {
        select(parent, child.value(), name);
      } else {
        visit(*child.value(), name + ".");
      }
    }
  }

  std::vector<std::string> finish(const std::vector<std::string>& patterns) {
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      if (!found_[i]) {
        fail<ConfigError>(recompute_where, "expected a pattern found in a module's name (",
                          danling::detail::join_first(known_, 8), "), got ", quote(patterns[i]));
      }
    }
    return std::move(names_);
  }

 private:
  void select(torch::nn::Module& parent, const std::shared_ptr<torch::nn::Module>& module, const std::string& name) {
    names_.push_back(name);
    if (auto* own = dynamic_cast<Recomputable*>(module.get())) {
      own->set_recompute(true);
      return;
    }
    auto* sequential = dynamic_cast<torch::nn::SequentialImpl*>(&parent);
    bool entered = false;
    for (auto entry = sequential == nullptr ? torch::nn::SequentialImpl::Iterator() : sequential->begin();
         sequential != nullptr && entry != sequential->end(); ++entry) {
      const auto held = entry->ptr();
      if (held == module) {
        *entry = torch::nn::AnyModule(std::make_shared<RecomputedEntry>(*entry));
        entered = true;
      } else if (const auto* again = dynamic_cast<RecomputedEntry*>(held.get())) {
        entered = entered || again->entry() == module;
      }
    }
    check<ConfigError>(entered, recompute_where,
                       "expected entries of a Sequential, or modules that are nn::Recomputable, got ", quote(name),
                       ", a ", module->name(),
                       "; LibTorch has no hook around its forward: derive it from nn::Recomputable");
  }

  std::vector<danling::detail::NamePattern> patterns_;
  std::vector<bool> found_;
  std::vector<std::string> names_, known_;
};

}  // namespace

std::vector<std::string> recompute_modules(const std::vector<std::pair<std::string, torch::nn::Module*>>& models,
                                           const std::vector<std::string>& patterns) {
  Selection selection(patterns);
  for (const auto& [name, model] : models) {
    selection.visit(*model, name.empty() ? "" : concat(name, "."));
  }
  return selection.finish(patterns);
}

std::vector<std::string> recompute_modules(torch::nn::Module& model, const std::vector<std::string>& patterns) {
  return recompute_modules({{"", &model}}, patterns);
}

}  // namespace danling::inline v0::nn
