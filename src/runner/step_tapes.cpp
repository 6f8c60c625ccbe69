#include "runner/step_tapes.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include <ATen/autocast_mode.h>
#include <torch/nn/module.h>

#include <danling/runner/batch_tensors.hpp>
#include <danling/telemetry/logger.hpp>
#include <tape/checker.hpp>

namespace danling::inline v0 {
namespace {

using Clock = std::chrono::steady_clock;
using tape::Tensors;

constexpr std::int64_t warm_steps = 3;
constexpr std::int64_t trial_steps = 10;  // half of them replayed
constexpr std::int64_t explained_steps = 20;
constexpr std::int64_t many_kinds = 64;  // of which none came twice

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Sets a pointer for its lifetime.
class Observing {
 public:
  Observing(tape::StepObserver*& place, tape::StepObserver* observer) : place_(place) { place_ = observer; }
  ~Observing() { place_ = nullptr; }
  Observing(const Observing&) = delete;
  Observing& operator=(const Observing&) = delete;

 private:
  tape::StepObserver*& place_;
};

}  // namespace

TorchRunnerBase::StepTapes::StepTapes(TorchRunnerBase& runner) : runner_(runner), config_(runner.config().compile) {}
TorchRunnerBase::StepTapes::~StepTapes() = default;

std::shared_ptr<TorchRunnerBase::StepTapes> TorchRunnerBase::StepTapes::build(TorchRunnerBase& runner) {
  return runner.config().compile.enable ? std::make_shared<StepTapes>(runner) : nullptr;
}

const CompileReport& TorchRunnerBase::StepTapes::report() const { return report_; }

// ---- what a step works on -------------------------------------------------------------------------------------------

void TorchRunnerBase::StepTapes::list_tensors() {
  held_.clear();
  buffers_.clear();
  names_.clear();
  modules_.clear();
  owners_.clear();
  const auto add_module = [this](const std::shared_ptr<torch::nn::Module>& module) {
    if (module != nullptr) {
      owners_.push_back(module);
      for (const auto& part : module->modules()) {
        modules_.push_back(part.get());
      }
    }
  };
  const auto add = [&](const ModelHandle& handle, const std::string& prefix) {
    if (!handle) {
      return;
    }
    std::set<const void*> parameters;
    for (const auto& [name, tensor] : handle.named_parameters()) {
      parameters.insert(tensor.unsafeGetTensorImpl());
      held_.push_back(tensor);
      names_.push_back(prefix + name);
    }
    for (const auto& [name, tensor] : handle.named_state()) {
      if (tensor.defined() && !parameters.contains(tensor.unsafeGetTensorImpl())) {
        held_.push_back(tensor);
        names_.push_back(prefix + name);
        buffers_.push_back(tensor);
      }
    }
    add_module(handle.module());
  };
  add(runner_.model, "");
  for (const auto& [name, handle] : runner_.models) {
    add(handle, name + ".");
  }
  add(runner_.ema, "ema.");
  add(runner_.teacher, "teacher.");
  std::vector<std::shared_ptr<torch::nn::Module>> losses{runner_.criterion.module()};
  if (runner_.criterion.losses() != nullptr) {
    losses = runner_.criterion.losses()->modules();
  }
  for (const auto& module : losses) {
    if (module == nullptr) {
      continue;
    }
    for (const auto& item : module->named_parameters()) {
      held_.push_back(item.value());
      names_.push_back("criterion." + item.key());
    }
    for (const auto& item : module->named_buffers()) {
      held_.push_back(item.value());
      names_.push_back("criterion." + item.key());
      buffers_.push_back(item.value());
    }
    add_module(module);
  }
}

/// Changes when anything that tapes refer to is another object.
std::uint64_t TorchRunnerBase::StepTapes::identity() const {
  std::uint64_t out = runner_.criterion.version();
  const auto add = [&](const void* address) { out = out * 1099511628211U + reinterpret_cast<std::uintptr_t>(address); };
  for (const at::Tensor& tensor : held_) {
    add(tensor.unsafeGetTensorImpl());
  }
  for (const Learner& learner : runner_.learners_) {
    add(&learner);
    add(learner.optimizer.get());
  }
  return out;
}

void TorchRunnerBase::StepTapes::begin_loop() {
  list_tensors();
  const std::uint64_t now = identity();
  if (now != identity_) {
    identity_ = now;
    kinds_.clear();
  }
  loop_begins_ = true;
}

tape::Surroundings TorchRunnerBase::StepTapes::surroundings(const Tensors& batch) const {
  tape::Surroundings out{.inputs = batch, .live = {}, .held = held_, .names = names_};
  for (const Learner& learner : runner_.learners_) {
    out.live.push_back(&learner.seed);
  }
  return out;
}

void TorchRunnerBase::StepTapes::write_key(RunnerMode mode, const detail::BatchParts& batch) {
  key_.clear();
  const auto add = [this](std::int64_t number) { key_.push_back(number); };
  add(static_cast<std::int64_t>(mode));
  add(runner_.step_variant());
  add(runner_.criterion.losses() != nullptr ? static_cast<std::int64_t>(runner_.criterion.losses()->weights_key()) : 0);
  add((runner_.active_metrics_ != nullptr ? 1 : 0) + (runner_.distills_ ? 2 : 0));
  for (const std::int64_t other : batch.others) {
    add(other);
  }
  for (const at::Tensor& tensor : batch.tensors) {
    if (!tensor.defined()) {
      add(-1);
      continue;
    }
    add(tensor.dim());
    add(static_cast<std::int64_t>(tensor.scalar_type()) * 1024 + static_cast<std::int64_t>(tensor.device().type()));
    for (const std::int64_t size : tensor.sizes()) {
      add(size);
    }
    for (const std::int64_t stride : tensor.strides()) {
      add(stride);
    }
  }
  std::int64_t bits = 0;
  int used = 0;
  const auto add_bit = [&](bool bit) {
    bits = bits * 2 + (bit ? 1 : 0);
    if (++used == 62) {
      add(bits);
      bits = 0;
      used = 0;
    }
  };
  for (const at::Tensor& tensor : held_) {
    add_bit(tensor.requires_grad());
    add_bit(tensor.grad().defined());
  }
  for (const torch::nn::Module* module : modules_) {
    add_bit(module->is_training());
  }
  add(bits);
}

TorchRunnerBase::StepTapes::Kind& TorchRunnerBase::StepTapes::find(RunnerMode mode) {
  for (const auto& kind : kinds_) {
    if (kind->key == key_) {
      unknown_ = 0;
      return *kind;
    }
  }
  make_room();
  kinds_.push_back(std::make_unique<Kind>());
  kinds_.back()->key = key_;
  kinds_.back()->mode = mode;
  if (++unknown_ == many_kinds && said_.insert("kinds").second) {
    const std::string text = concat("no two of ", many_kinds, " steps are of one kind (shapes, numbers of the loss)");
    report_.refusals.push_back(text);
    runner_.logger().warning(concat("compile: steps are not replayed: ", text));
  }
  return *kinds_.back();
}

/// Those without a tape go first, then the least recently used.
void TorchRunnerBase::StepTapes::make_room() {
  while (kinds_.size() >= static_cast<std::size_t>(config_.cache_size)) {
    const auto first = std::min_element(kinds_.begin(), kinds_.end(), [](const auto& a, const auto& b) {
      return std::pair(a->tape != nullptr, a->used) < std::pair(b->tape != nullptr, b->used);
    });
    kinds_.erase(first);
  }
}

bool TorchRunnerBase::StepTapes::is_recordable(RunnerMode mode) {
  std::string why;
  if (mode == RunnerMode::train) {
    if (runner_.learner_->repeats_step) {
      why = concat(runner_.learner_->optimizer->name(), " evaluates the loss several times in a step");
    } else if (!runner_.is_single_process_ && runner_.parallelism().sums_in_backward()) {
      why = "processes sum gradients while the backward pass runs (ddp); set parallel.virtual_ranks";
    }
  }
  if (!why.empty()) {
    if (config_.fullgraph.value_or(false)) {
      fail<StateError>("compile", "expected a step that can be recorded (compile.fullgraph), got one in which ", why);
    }
    if (said_.insert(why).second) {
      report_.refusals.push_back(why);
      runner_.logger().warning(concat("compile: training steps are not recorded: ", why));
    }
  }
  return why.empty();
}

// ---- a step ---------------------------------------------------------------------------------------------------------

at::Tensor TorchRunnerBase::StepTapes::run(RunnerMode mode, const detail::BatchParts& parts,
                                           const std::function<at::Tensor()>& eager) {
  ++steps_;
  const OpenStep* const step = runner_.open_step_;
  if (observing_ != nullptr || !is_recordable(mode) ||
      (mode == RunnerMode::train && step != nullptr && step->normalizer && *step->normalizer <= 0)) {
    ++report_.eager;
    return eager();
  }
  const Tensors& batch = parts.tensors;
  write_key(mode, parts);
  Kind& kind = find(mode);
  kind.used = steps_;
  switch (kind.phase) {
    case Phase::warm: {
      const auto start = Clock::now();
      at::Tensor loss = run_eager(kind, eager);
      const double seconds = seconds_since(start);
      kind.eager_seconds = kind.count <= 1 ? seconds : std::min(kind.eager_seconds, seconds);
      if (++kind.count == warm_steps) {
        kind.phase = Phase::record;
        kind.count = 0;
      }
      return loss;
    }
    case Phase::record:
      return record(kind, batch, eager);
    case Phase::check:
      return check_replay(kind, batch, eager);
    case Phase::trial:
      return try_replay(kind, batch, eager);
    case Phase::replay:
      if (config_.verify > 0 && (kind.replays >= kind.next_check || (loop_begins_ && kind.unchecked >= 50))) {
        kind.next_check = kind.replays >= kind.next_check ? kind.next_check * 10 : kind.next_check;
        return check_replay(kind, batch, eager);
      }
      return replay(kind, batch, eager);
    case Phase::eager:
      break;
  }
  return run_eager(kind, eager);
}

at::Tensor TorchRunnerBase::StepTapes::run_eager(Kind& kind, const std::function<at::Tensor()>& eager) {
  if (kind.phase != Phase::trial) {
    arena_->release();  // the step needs as much
  }
  ++report_.eager;
  return eager();
}

at::Tensor TorchRunnerBase::StepTapes::record(Kind& kind, const Tensors& batch,
                                              const std::function<at::Tensor()>& eager) {
  arena_->release();
  ++report_.recorded;
  at::Tensor loss;
  tape::Recording recording;
  {
    tape::Recorder recorder(surroundings(batch));
    const Observing scope(observing_, &recorder);
    loss = eager();
    recording = recorder.finish({loss});
  }
  if (!recording.refusal.empty()) {
    leave_eager(kind, recording.refusal, /*warn=*/true);
  } else if (!kind.first) {
    kind.first = std::move(recording);
  } else {
    const std::string why = merge(*kind.first, recording);
    kind.first.reset();
    if (why.empty()) {
      build_tape(kind, std::move(recording));
    } else {
      leave_eager(kind, why, /*warn=*/true);
    }
  }
  return loss;
}

void TorchRunnerBase::StepTapes::build_tape(Kind& kind, tape::Recording recording) {
  kind.tape = std::make_unique<tape::Tape>(std::move(recording), arena_);
  kind.phase = config_.verify > 0 ? Phase::check : Phase::trial;
  kind.count = 0;
  ++report_.tapes;
}

at::Tensor TorchRunnerBase::StepTapes::check_replay(Kind& kind, const Tensors& batch,
                                                    const std::function<at::Tensor()>& eager) {
  arena_->release();
  ++report_.checked;
  kind.unchecked = 0;
  loop_begins_ = false;
  at::Tensor loss;
  std::string difference;
  {
    tape::Checker checker(*kind.tape, batch, buffers_);
    const Observing scope(observing_, &checker);
    loss = eager();
    difference = checker.finish({loss});
  }
  if (!difference.empty()) {
    const std::string since =
        kind.phase == Phase::replay
            ? concat(" after ", kind.replays, " replays; steps before this one may differ from an eager run too")
            : "";
    leave_eager(kind, concat("its replay is not the step", since, ": ", difference), /*warn=*/true);
  } else if (kind.phase == Phase::check && ++kind.count >= config_.verify) {
    kind.phase = Phase::trial;
    kind.count = 0;
  }
  return loss;
}

/// Replays and eager steps in turn: a tape must be faster.
at::Tensor TorchRunnerBase::StepTapes::try_replay(Kind& kind, const Tensors& batch,
                                                  const std::function<at::Tensor()>& eager) {
  const bool replays = kind.count % 2 == 1;
  const auto start = Clock::now();
  at::Tensor loss = replays ? replay(kind, batch, eager) : run_eager(kind, eager);
  const double seconds = seconds_since(start);
  double& least = replays ? kind.replay_seconds : kind.eager_seconds;
  least = kind.count < 2 ? seconds : std::min(least, seconds);
  if (kind.phase == Phase::trial && ++kind.count == trial_steps) {
    if (kind.replay_seconds > kind.eager_seconds) {
      leave_eager(kind,
                  concat("a replay takes ", to_fixed(kind.replay_seconds * 1e6, 1), " microseconds, the step ",
                         to_fixed(kind.eager_seconds * 1e6, 1)),
                  /*warn=*/false);
    } else {
      kind.phase = Phase::replay;
      kind.count = 0;
    }
  }
  return loss;
}

at::Tensor TorchRunnerBase::StepTapes::replay(Kind& kind, const Tensors& batch,
                                              const std::function<at::Tensor()>& eager) {
  std::optional<tape::GeneratorStates> random;
  std::optional<tape::KeptTensors> kept;
  if (kind.tape->has_guards()) {
    random.emplace(kind.tape->generators());
    kept.emplace(kind.tape->changed(batch, buffers_));
  }
  if (config_.explain) [[unlikely]] {
    explain(kind);
  }
  ++kind.replays;
  ++kind.unchecked;
  Tensors results = kind.tape->replay(batch);
  if (kind.tape->left_early()) [[unlikely]] {
    random->restore();
    kept->restore();
    return run_eager(kind, eager);
  }
  ++report_.replayed;
  return std::move(results.front());
}

// ---- words ----------------------------------------------------------------------------------------------------------

std::string TorchRunnerBase::StepTapes::name_of(const Kind& kind) const {
  return concat(kind.mode == RunnerMode::train      ? "training"
                : kind.mode == RunnerMode::evaluate ? "evaluation"
                                                    : "inference",
                " steps of split ", quote(runner_.split()));
}

void TorchRunnerBase::StepTapes::leave_eager(Kind& kind, const std::string& why, bool warn) {
  check<StateError>(!config_.fullgraph.value_or(false) || !warn, "compile",
                    "expected a step that can be recorded (compile.fullgraph), got one of the ", name_of(kind), ": ",
                    why);
  report_.tapes -= kind.tape != nullptr ? 1 : 0;
  kind.tape.reset();
  kind.first.reset();
  kind.phase = Phase::eager;
  report_.refusals.push_back(why);
  if (said_.insert(concat(static_cast<int>(kind.mode), why)).second) {
    const std::string text = concat("compile: ", name_of(kind), " run as they are: ", why);
    warn ? runner_.logger().warning(text) : runner_.logger().info(text);
  }
}

void TorchRunnerBase::StepTapes::explain(Kind& kind) {
  if (kind.phase != Phase::replay) {
    return;
  }
  if (kind.count == 0) {
    kind.tape->measure(true);
  }
  if (kind.count++ == explained_steps) {
    kind.tape->measure(false);
    runner_.logger().info(concat("compile: ", name_of(kind), ", batch of ", kind.tape->batch_text(),
                                 "; an eager step takes ", to_fixed(kind.eager_seconds * 1e6, 1), " us, a replay ",
                                 to_fixed(kind.replay_seconds * 1e6, 1), "; microseconds by call:\n",
                                 kind.tape->text()));
  }
}

}  // namespace danling::inline v0
