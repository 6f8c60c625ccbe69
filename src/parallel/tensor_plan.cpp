#include <danling/parallel/tensor_plan.hpp>

#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <danling/core/error.hpp>
#include <danling/core/text_traits.hpp>
#include <danling/parallel/parallelizable.hpp>
#include <danling/parallel/slices.hpp>
#include <danling/parallel/tensor_functions.hpp>
#include <danling/parallel/tensor_layers.hpp>
#include <danling/parallel/topology.hpp>

#include <core/join_first.hpp>
#include <core/name_pattern.hpp>
#include <parallel/sharded_tensor.hpp>
#include <parallel/tensor_slices.hpp>
#include <parallel/tensor_style.hpp>

namespace danling::inline v0::parallel {
namespace {

using danling::detail::ColumnLinear;
using danling::detail::ParameterStyle;

constexpr std::string_view plan_name = "parallel.plan";

/// The axis over which the plan slices.
struct PlanAxis {
  Group group;
  std::string_view name;
};

/// A module of LibTorch, and the rule that applies to it.
struct PlannedModule {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;
  const TensorParallelRule& rule;

  std::string text() const {
    return concat(TextTraits<TensorStyle>::format(rule.style), " for ", quote(name), ", a ", module->name());
  }
};

void refuse_options(const PlannedModule& of, std::initializer_list<std::pair<bool, std::string_view>> given) {
  for (const auto& [is_given, option] : given) {
    check<ConfigError>(!is_given, plan_name, "expected options that the style has, got ", option, " with ", of.text());
  }
}

/// Adds a style to the parameter's styles: a tied parameter has several.
template <class Change>
void add_style(const at::Tensor& parameter, std::string_view name, const Group& group, const Change& change) {
  const auto* known = danling::detail::shard_meta(parameter);
  auto style = known != nullptr && known->style != nullptr ? std::make_shared<ParameterStyle>(*known->style)
                                                           : std::make_shared<ParameterStyle>();
  style->group = group;
  change(*style);
  danling::detail::register_parameter_kernels();
  danling::detail::mark_style(parameter, name, std::move(style));
}

std::vector<std::int64_t> checked_parts(const PlannedModule& of, std::string_view what, std::int64_t size,
                                        const PlanAxis& axis) {
  const std::int64_t unit = of.rule.unit;
  check<ConfigError>(unit > 0 && size % unit == 0, plan_name, "expected ", what, " of ", quote(of.name),
                     " in whole units, got ", size, " in units of ", unit);
  return part_sizes(size, axis.group.size(), unit);
}

void slice_linear(const PlannedModule& of, torch::nn::LinearImpl& linear, const PlanAxis& axis) {
  const TensorParallelRule& rule = of.rule;
  const bool by_column = rule.style == TensorStyle::colwise;
  refuse_options(of, {{by_column && !rule.input_is_parallel, "input_is_parallel: false"},
                      {!by_column && rule.gather_output, "gather_output"},
                      {!by_column && !rule.input_is_parallel && rule.sequence_parallel,
                       "sequence_parallel with input_is_parallel: false"}});
  const std::int64_t dim = by_column ? 0 : 1;
  const auto sizes = checked_parts(of, by_column ? "outputs" : "inputs",
                                   by_column ? linear.options.out_features() : linear.options.in_features(), axis);
  if (axis.group.alone()) {
    return;
  }
  const std::string weight = of.name + ".weight", bias = of.name + ".bias";
  danling::detail::slice_parameter(linear.weight, weight, axis.group, axis.name, dim, sizes);
  if (by_column) {
    if (linear.bias.defined() && !rule.gather_output) {
      danling::detail::slice_parameter(linear.bias, bias, axis.group, axis.name, 0, sizes);
    }
    add_style(linear.weight, weight, axis.group, [&](ParameterStyle& style) {
      style.column = {.gather_output = rule.gather_output,
                      .sequence_parallel = rule.sequence_parallel,
                      .sequence_dim = rule.sequence_dim};
    });
    return;
  }
  add_style(linear.weight, weight, axis.group, [&](ParameterStyle& style) {
    style.row = {.input_is_parallel = rule.input_is_parallel,
                 .sequence_parallel = rule.sequence_parallel,
                 .sequence_dim = rule.sequence_dim,
                 .input_sizes = sizes};
  });
  if (linear.bias.defined() && rule.sequence_parallel) {
    add_style(linear.bias, bias, axis.group, [](ParameterStyle& style) { style.sums_gradients = true; });
  }
}

void slice_embedding(const PlannedModule& of, torch::nn::EmbeddingImpl& embedding, const PlanAxis& axis) {
  const TensorParallelRule& rule = of.rule;
  const bool by_column = rule.style == TensorStyle::colwise;
  refuse_options(of, {{!rule.input_is_parallel, "input_is_parallel: false"},
                      {!by_column && rule.gather_output, "gather_output"},
                      {by_column && rule.sequence_parallel, "sequence_parallel"},
                      {!by_column && rule.unit != 1, "unit"},
                      {embedding.options.max_norm().has_value(), "max_norm of the embedding"},
                      {embedding.options.scale_grad_by_freq(), "scale_grad_by_freq of the embedding"},
                      {embedding.options.sparse(), "sparse of the embedding"}});
  const std::int64_t rows = embedding.options.num_embeddings();
  const auto sizes = by_column ? checked_parts(of, "columns", embedding.options.embedding_dim(), axis)
                               : part_sizes(rows, axis.group.size());
  if (axis.group.alone()) {
    return;
  }
  const std::string weight = of.name + ".weight";
  danling::detail::slice_parameter(embedding.weight, weight, axis.group, axis.name, by_column ? 1 : 0, sizes);
  add_style(embedding.weight, weight, axis.group, [&](ParameterStyle& style) {
    if (by_column) {
      style.embedding_columns = ColumnLinear{.gather_output = rule.gather_output};
    } else {
      style.vocab = {.sequence_parallel = rule.sequence_parallel,
                     .sequence_dim = rule.sequence_dim,
                     .begin = danling::detail::part_offset(sizes, axis.group.rank()),
                     .num_embeddings = rows,
                     .padding_idx = embedding.options.padding_idx()};
    }
  });
  if (!by_column) {
    embedding.options.padding_idx(std::nullopt);  // F::embedding would compare it with this rank's rows
  }
}

void follow_rule(const PlannedModule& of, const PlanAxis& axis) {
  const TensorParallelRule& rule = of.rule;
  if (rule.style == TensorStyle::sequence) {
    refuse_options(of, {{rule.gather_output, "gather_output"},
                        {!rule.input_is_parallel, "input_is_parallel: false"},
                        {rule.sequence_parallel, "sequence_parallel"},
                        {rule.unit != 1, "unit"}});
    check<ConfigError>(!of.module->parameters().empty(), plan_name, "expected a module with parameters, got ",
                       of.text(), "; dropout on a part of the sequences is a dl::parallel::ParallelDropout");
    sum_gradients(*of.module, axis.group);
    return;
  }
  if (auto* linear = of.module->as<torch::nn::LinearImpl>()) {
    slice_linear(of, *linear, axis);
  } else if (auto* embedding = of.module->as<torch::nn::EmbeddingImpl>()) {
    slice_embedding(of, *embedding, axis);
  } else {
    fail<ConfigError>(plan_name, "expected a torch::nn::Linear or Embedding, got ", of.text(),
                      dynamic_cast<const Parallelizable*>(of.module.get()) != nullptr
                          ? ", which slices itself"
                          : "; end the pattern with the layer's name and $");
  }
}

/// Names of the first eight layers that a rule can slice.
std::string names_of_layers(const torch::nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& entry : module.named_modules("", /*include_self=*/false)) {
    const torch::nn::Module& layer = *entry.value();
    if (layer.as<torch::nn::LinearImpl>() != nullptr || layer.as<torch::nn::EmbeddingImpl>() != nullptr) {
      names.push_back(entry.key());
    }
  }
  return names.empty() ? "it has no Linear or Embedding" : danling::detail::join_first(names, 8);
}

/// Finds the modules, each with the first rule that matches it.
std::vector<PlannedModule> match_rules(const torch::nn::Module& module, const TensorParallelPlan& plan) {
  std::vector<danling::detail::NamePattern> patterns;
  for (const TensorParallelRule& rule : plan) {
    patterns.emplace_back(rule.pattern, plan_name, "regular expressions");
  }
  std::vector<bool> found(plan.size());
  std::vector<PlannedModule> out;
  for (const auto& entry : module.named_modules("", /*include_self=*/false)) {
    bool is_planned = false;
    for (std::size_t at = 0; at < plan.size(); ++at) {
      if (patterns[at].is_in(entry.key())) {
        found[at] = true;
        if (!is_planned) {
          out.push_back({entry.key(), entry.value(), plan[at]});
        }
        is_planned = true;
      }
    }
  }
  for (std::size_t at = 0; at < found.size(); ++at) {
    check<ConfigError>(found[at], plan_name, "expected a pattern found in a module's name (", names_of_layers(module),
                       "), got ", quote(plan[at].pattern));
  }
  return out;
}

void parallelize_children(torch::nn::Module& module, const ParallelContext& context, std::string_view axis) {
  for (const auto& child : module.children()) {
    if (auto* layer = dynamic_cast<ParallelLayer*>(child.get())) {
      layer->parallelize(context, axis);
    } else if (auto* other = dynamic_cast<Parallelizable*>(child.get())) {
      other->parallelize(context);
    } else {
      parallelize_children(*child, context, axis);
    }
  }
}

}  // namespace

void apply_plan(torch::nn::Module& module, const ParallelContext& context, const TensorParallelPlan& plan) {
  const PlanAxis over{context.group("tensor"), "tensor"};
  for (const PlannedModule& of : match_rules(module, plan)) {
    follow_rule(of, over);
  }
}

void parallelize_module(torch::nn::Module& module, const ParallelContext& context, const TensorParallelPlan& plan,
                        std::string_view axis) {
  const PlanAxis over{context.group(axis), axis};
  const auto planned = match_rules(module, plan);
  broadcast_module(module, over.group, axis);
  parallelize_children(module, context, axis);
  for (const PlannedModule& of : planned) {
    follow_rule(of, over);
  }
}

void sum_gradients(const torch::nn::Module& module, const Group& group) {
  if (group.alone()) {
    return;
  }
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& parameter = item.value();
    const auto* known = danling::detail::shard_meta(parameter);
    check<StateError>(!danling::detail::is_sharded(parameter), "parallel.sum_gradients",
                      "expected parameters that no ShardedModel has, got ", quote(item.key()));
    check<StateError>(known == nullptr || known->style == nullptr || !known->style->is_sliced(),
                      "parallel.sum_gradients", "expected parameters that are whole, got ", quote(item.key()),
                      ", a slice");
    add_style(parameter, item.key(), group, [](ParameterStyle& style) { style.sums_gradients = true; });
  }
}

}  // namespace danling::inline v0::parallel
