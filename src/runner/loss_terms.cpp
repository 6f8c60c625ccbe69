#include <runner/loss_terms.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <utility>

#include <danling/checkpoint/pretrained.hpp>
#include <danling/core/detail/suggest.hpp>
#include <danling/metrics/losses.hpp>
#include <danling/nn/distillation.hpp>
#include <danling/nn/losses.hpp>
#include <danling/optim/curves.hpp>
#include <danling/telemetry/logger.hpp>

#include <config/field_spec.hpp>
#include <runner/schedules.hpp>

namespace danling::inline v0 {
namespace {

constexpr auto build_losses_at = "runner.losses";
constexpr auto distill_at = "runner.distill";

/// A criterion without a name, next to the distillation loss.
class CriterionTerm final : public Loss<PredictionBatch> {
 public:
  explicit CriterionTerm(CriterionHandle criterion) : criterion_(std::move(criterion)) {}
  MetricValue compute(const PredictionBatch& batch) override { return criterion_(batch.prediction, batch.target); }
  std::shared_ptr<torch::nn::Module> module() const override { return criterion_.module(); }
  std::optional<std::int64_t> normalizer(const at::Tensor& target) const override {
    return criterion_.loss_normalizer(target);
  }
  std::optional<std::int64_t> ignore_index() const override { return criterion_.ignore_index(); }

 private:
  CriterionHandle criterion_;
};

class DistillationTerm final : public Loss<PredictionBatch> {
 public:
  DistillationTerm(double temperature, std::optional<std::int64_t> ignore_index, double weight,
                   std::shared_ptr<detail::TeacherLogits> teacher_logits)
      : loss_(temperature, ignore_index),
        ignore_index_(ignore_index),
        weight_(weight),
        teacher_logits_(std::move(teacher_logits)) {}
  double weight() const override { return weight_; }
  MetricValue compute(const PredictionBatch& batch) override {
    const at::Tensor logits =
        teacher_logits_->left_out ? batch.prediction.detach() : std::exchange(teacher_logits_->value, at::Tensor());
    check<StateError>(
        logits.defined(), distill_at,
        "expected the teacher's logits for this batch, got none; call compute_teacher_logits(batch) in your "
        "train_step and evaluate_step, before the criterion");
    auto [sum, count] = loss_.sum_and_count(batch.prediction, logits, batch.target);
    return MetricValue::sum(std::move(sum), std::move(count));
  }
  std::optional<std::int64_t> normalizer(const at::Tensor& target) const override {
    if (!target.defined() || target.is_floating_point()) {
      return std::nullopt;
    }
    return ignore_index_ ? detail::count_targets(target, *ignore_index_) : target.numel();
  }

 private:
  nn::DistillationLoss loss_;
  std::optional<std::int64_t> ignore_index_;
  double weight_;
  std::shared_ptr<detail::TeacherLogits> teacher_logits_;
};

/// Builds the term `name` from the registry's entry; its errors name the term.
template <class Registry, class... Args>
auto build_named(const Registry& registry, const std::string& key, const std::string& name, const Args&... args) {
  const auto known = registry.names();
  check<ConfigError>(registry.contains(name), build_losses_at, "expected one of ", join(known), " in '", key, "', got ",
                     quote(name), did_you_mean(name, known));
  try {
    return registry.at(name)(args...);
  } catch (const ConfigError& error) {
    const std::string_view text = error.what();
    fail<ConfigError>(build_losses_at, text.substr(text.find("expected")), " in '", key.substr(0, key.rfind('.')), "'");
  }
}

/// The weight as a function of the number of updates.
std::function<double(std::int64_t)> scheduled_weight(const std::string& name, const LossConfig& term,
                                                     double final_weight, std::int64_t length) {
  const optim::SchedulerSpec options{.total_steps = length, .warmup_steps = 0, .cooldown_steps = 0};
  const auto curve = build_named(optim::curves(), concat("losses.", name, ".schedule"), *term.schedule, options);
  check<ConfigError>(curve.fraction(0.3, options) != 0.0 || curve.fraction(1.0, options) != 0.0, build_losses_at,
                     "expected 'losses.", name, ".schedule' as a curve that reaches the weight, got ", *term.schedule,
                     ", which stays at 'from'; remove the key for a constant weight");
  const double from = detail::finite_weight(name, term.from.value_or(0.0));
  const bool by_factors = curve.defaults.scaling == "percentile";
  check<ConfigError>(!by_factors || from * final_weight > 0, build_losses_at, "expected 'losses.", name,
                     ".from' and its weight above 0 for ", *term.schedule, ", got ", from, " and ", final_weight);
  return [=, begin = term.begin.value_or(0)](std::int64_t updates) {
    const double progress = static_cast<double>(updates - begin) / static_cast<double>(length);
    if (progress <= 0.0) {
      return from;
    }
    const double share = curve.fraction(std::min(progress, 1.0), options);
    return by_factors ? from * std::pow(final_weight / from, share) : from + (final_weight - from) * share;
  };
}

}  // namespace

void TorchRunnerBase::set_teacher_logits(at::Tensor logits) const {
  loss_terms_->set_teacher_logits(std::move(logits));
}

std::shared_ptr<TorchRunnerBase::Internals::LossTerms> TorchRunnerBase::Internals::LossTerms::build(
    TorchRunnerBase& runner) {
  const RunnerConfig& config = runner.config();
  const auto distill_keys = assigned_keys(config.distill);
  check<ConfigError>(runner.teacher || distill_keys.empty(), distill_at, "expected a teacher for 'distill.",
                     distill_keys.empty() ? "" : distill_keys.front(),
                     "', got none; assign `teacher` in the constructor of your runner");
  if (config.losses.terms.empty() && !runner.teacher) {
    return nullptr;
  }
  auto terms = std::make_shared<LossTerms>();
  terms->build_losses(runner);
  if (runner.teacher) {
    terms->build_distillation(runner);
  }
  terms->losses_ = runner.criterion.losses();
  terms->build_weights(runner);
  return terms;
}

void TorchRunnerBase::Internals::LossTerms::build_losses(TorchRunnerBase& runner) {
  std::vector<Losses::Entry> entries;
  for (const auto& [name, term] : runner.config().losses.terms) {
    if (term.type) {
      entries.emplace_back(name, build_named(nn::losses(), concat("losses.", name, ".type"), *term.type, term),
                           term.weight.value_or(1.0));
    } else if (const auto keys = assigned_keys(static_cast<const nn::LossOptions&>(term)); !keys.empty()) {
      fail<ConfigError>(build_losses_at, "expected 'losses.", name, ".type' with 'losses.", name, ".", keys.front(),
                        "', got none");
    }
  }
  const std::size_t untyped = runner.config().losses.terms.size() - entries.size();
  const bool of_teacher = runner.teacher && runner.config().losses.terms.contains("distill");
  check<ConfigError>(entries.empty() || untyped == (of_teacher ? 1U : 0U), build_losses_at,
                     "expected a type for each of 'losses', or for none, got some without");
  if (!entries.empty()) {
    runner.criterion = Losses(std::move(entries));
  }
}

void TorchRunnerBase::Internals::LossTerms::build_distillation(TorchRunnerBase& runner) {
  const DistillConfig& config = runner.config().distill;
  runner.teacher.to(runner.device());
  runner.teacher.train(false);
  for (const auto& [name, parameter] : runner.teacher.named_parameters()) {
    at::Tensor(parameter).requires_grad_(false);
  }
  if (config.checkpoint) {
    check<ConfigError>(std::filesystem::exists(*config.checkpoint), distill_at,
                       "expected a file for 'distill.checkpoint', got none at ", quote(*config.checkpoint));
    const std::string origin = concat("file ", quote(*config.checkpoint));
    const State own = runner.teacher.state_dict();
    const WeightMatch match = match_weights(own, runner.read_checkpoint(*config.checkpoint),
                                            {.strict = config.strict.value_or(true)}, origin);
    copy_weights(own, match.weights);
    runner.logger().info(concat("loaded the weights of the teacher from ", *config.checkpoint, ": ",
                                match.loaded.size(), " of ", own.map().size(), " entries"));
    for (const auto& line : match.lines()) {
      runner.logger().warning(concat(distill_at, ": ", line));
    }
  }

  CriterionHandle& criterion = runner.criterion;
  auto* losses = dynamic_cast<Losses*>(criterion.losses().get());
  check<ConfigError>(!criterion || losses != nullptr || criterion.takes_tensors(), distill_at,
                     "expected a criterion of (prediction, target), tensors, with a teacher, got another; add "
                     "nn::DistillationLoss to your losses instead");
  teacher_logits_ = std::make_shared<detail::TeacherLogits>();
  const auto ignored = losses != nullptr ? losses->ignore_index() : criterion.ignore_index();
  const auto distillation = std::make_shared<DistillationTerm>(config.temperature.value_or(2.0), ignored,
                                                               config.weight.value_or(1.0), teacher_logits_);
  if (losses != nullptr) {
    losses->add("distill", distillation);
    return;
  }
  std::vector<Losses::Entry> entries;
  if (criterion) {
    entries.emplace_back("target", std::make_shared<CriterionTerm>(criterion));
  }
  entries.emplace_back("distill", distillation);
  criterion = Losses(std::move(entries));
}

void TorchRunnerBase::Internals::LossTerms::build_weights(TorchRunnerBase& runner) {
  const auto steps = Schedules(runner).length_in_steps("");
  for (const auto& [name, term] : runner.config().losses.terms) {
    check<ConfigError>(losses_ != nullptr, build_losses_at, "expected losses with names as criterion for 'losses.",
                       name, "', got one loss; assign Losses, or set 'losses.", name, ".type'");
    const auto known = losses_->names();
    check<ConfigError>(std::find(known.begin(), known.end(), name) != known.end(), build_losses_at, "expected one of ",
                       join(known), " in 'losses', got ", quote(name), did_you_mean(name, known));
    check<ConfigError>(name != "distill" || !term.weight || !runner.config().distill.weight, build_losses_at,
                       "expected one of 'losses.distill.weight' and 'distill.weight', got both");
    const double final_weight = detail::finite_weight(name, term.weight.value_or(losses_->weight(name)));
    if (!term.schedule) {
      const char* key = term.from ? "from" : term.begin ? "begin" : term.length ? "length" : nullptr;
      check<ConfigError>(key == nullptr, build_losses_at, "expected 'losses.", name, ".schedule' with 'losses.", name,
                         ".", key == nullptr ? "" : key, "', got none");
      losses_->set_weight(name, final_weight);
      continue;
    }
    check<ConfigError>(term.length || steps, build_losses_at, "expected 'losses.", name,
                       ".length' in a run without an end, got none");
    const std::int64_t begin = term.begin.value_or(0);
    const std::int64_t length = term.length ? *term.length : std::max<std::int64_t>(*steps - begin, 1);
    scheduled_.push_back({name, scheduled_weight(name, term, final_weight, length)});
    if (steps && begin > 0 && begin + 1 >= *steps) {
      runner.logger().warning(concat("losses.", name, ".begin ", begin, " is not before the last step of the run (",
                                     *steps, " steps): the weight stays ", scheduled_.back().weight(0)));
    }
  }
  const auto names = losses_ != nullptr ? losses_->names() : std::vector<std::string>();
  const auto is_idle = [this](const std::string& name) {
    return losses_->weight(name) == 0.0 && std::none_of(scheduled_.begin(), scheduled_.end(),
                                                        [&](const auto& scheduled) { return scheduled.name == name; });
  };
  if (!runner.config().losses.terms.empty() && std::all_of(names.begin(), names.end(), is_idle)) {
    runner.logger().warning(concat("losses: the weights of all terms (", join(names), ") are 0: nothing is learnt"));
  }
}

}  // namespace danling::inline v0
