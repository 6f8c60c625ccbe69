// Evaluates test splits with the weights of the last step or of the best result.
#include <utility>

#include <danling/checkpoint/manager.hpp>
#include <danling/runner/torch_runner_base.hpp>

#include <runner/averages.hpp>
#include <runner/learners.hpp>
#include <runner/saver.hpp>
#include <runner/services.hpp>

namespace danling::inline v0 {

Result TorchRunnerBase::test() {
  initialize();
  const auto splits = test_splits();
  auto best = config().test_with == "best" && !splits.empty() ? Internals::Saver(*this).best_weights("test_with: best")
                                                              : std::nullopt;
  if (!best && !splits.empty()) {
    Internals::Averages(*this).estimate_statistics();
  }
  tested_weights_ = Internals::Saver(*this).weights_name();
  const State last = best ? clone(model_state_dict()) : State();
  const detail::ModelAverages::Disabled disabled(best ? averages_.get()
                                                      : nullptr);  // the best weights are already those to test
  Result result;
  try {
    if (best) {
      Internals::Learners(*this).load_weights(averages_ ? Internals::Averages::instead_of_models(best->first)
                                                        : best->first);
      tested_weights_ = best->second;
      best.reset();
    }
    for (const auto& split : splits) {
      result.set(split, evaluate_epoch(split));
    }
  } catch (...) {
    if (last.is_map()) {
      Internals::Learners(*this).load_weights(last);
    }
    throw;
  }
  if (last.is_map()) {
    Internals::Learners(*this).load_weights(last);
  }
  test_result_ = result;
  return result;
}

std::string TorchRunnerBase::exported_weights() { return services().exported_weights; }

}  // namespace danling::inline v0
