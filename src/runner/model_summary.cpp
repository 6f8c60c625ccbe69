// Summary of a run's models, for --summary and for the run's metadata.
#include <danling/nn/lora.hpp>
#include <danling/nn/summary.hpp>
#include <danling/runner/torch_runner_base.hpp>

#include <runner/adapters.hpp>
#include <runner/evaluator.hpp>
#include <runner/loss_terms.hpp>
#include <runner/services.hpp>
#include <runner/without_gradients.hpp>

namespace danling::inline v0 {
namespace {

std::vector<nn::ModuleTensors> modules_of(const ModelHandle& model, const std::map<std::string, ModelHandle>& models) {
  std::vector<nn::ModuleTensors> out = model.modules();
  for (const auto& [name, handle] : models) {
    for (nn::ModuleTensors module : handle.modules()) {
      module.name = concat(name, module.name.empty() ? "" : ".", module.name);
      out.push_back(std::move(module));
    }
  }
  return out;
}

}  // namespace

nn::ModelSummary TorchRunnerBase::summarize(std::string_view split) {
  initialize();
  services().called_tools.insert("summary");
  const auto modules = modules_of(model, models);
  const auto training = train_splits();
  const std::string name = !split.empty() ? std::string(split) : training.empty() ? std::string() : training.front();
  if (name.empty()) {
    nn::ModelSummary out = nn::summarize(modules);
    out.problem = "expected a split that trains, got none";
    return out;
  }
  std::string problem;
  std::int64_t samples = 0;
  nn::ModelSummary out;
  try {
    data::LoaderBase& source = loader(name);
    enter(RunnerMode::infer, name);  // without metrics
    data::LoaderVisit batches = Internals::Evaluator(*this).visit(name);
    check<DataError>(batches.next(), "runner.summarize", "expected a batch in split ", quote(name), ", got none");
    data::BatchRef batch = current_batch(source);
    Internals::Adapters(*this).use_present();
    const Internals::LossTerms::WithoutTeacher alone(*this);  // excludes the teacher
    out = nn::summarize(modules, [&] {
      const detail::WithoutGradients guard(any_script());
      run_evaluate_step(batch);
    });
    samples = source.batch_size();
    batches.end();
  } catch (const Error& error) {
    problem = error.what();
    out = nn::summarize(modules);
  }
  out.batch_size = samples;
  out.problem = problem.substr(0, problem.find('\n'));
  return out;
}

std::string TorchRunnerBase::model_metadata() const {
  const nn::ModelSummary all = nn::summarize(modules_of(model, models));
  const auto lines = [](const nn::ModelSummary& summary, const std::string& indent) {
    return concat(indent, "parameters: ", summary.parameters, "\n", indent, "trainable: ", summary.trainable, "\n",
                  indent, "parameter_bytes: ", summary.parameter_bytes, "\n", indent,
                  "buffer_bytes: ", summary.buffer_bytes, "\n");
  };
  std::string out = lines(all, "");
  if (!models.empty()) {
    out += "models:\n";
    for (const auto& [name, handle] : models) {
      out += concat("  ", name, ":\n", lines(nn::summarize(handle.modules()), "    "));
    }
  }
  return out;
}

}  // namespace danling::inline v0
