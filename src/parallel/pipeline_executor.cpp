#include <parallel/pipeline_executor.hpp>

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/ScalarType.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::parallel {
namespace {

constexpr int first_tag = 1'000'000;  // above the tags of the program

bool is_backward(PipelineWork work) { return work == PipelineWork::backward || work == PipelineWork::backward_input; }

std::string text_of(const PipelineAction& action) {
  constexpr const char* works[] = {"forward", "backward", "backward_input", "backward_weight"};
  return concat("stage ", action.stage, ", ", works[static_cast<int>(action.work)], " of micro-batch ",
                action.micro_batch);
}

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

}  // namespace

PipelineSchedule::Impl::Impl(PipelinePlan plan_of_all, std::vector<PipelineStage> stages_of_rank, Group group_of_axis,
                             PipelineOptions options_of_rank)
    : plan(std::move(plan_of_all)),
      group(std::move(group_of_axis)),
      options(std::move(options_of_rank)),
      rank(group.rank()),
      pool_(!options.device.is_cpu()) {
  constexpr const char* where = "pipeline.schedule";
  check_plan(plan);
  check<ConfigError>(group.size() == plan.ranks, where, plan.name, ": expected a group of ", plan.ranks,
                     " ranks, as in the plan, got ", group.size());
  std::vector<std::int64_t> given;
  for (PipelineStage& stage : stages_of_rank) {
    check<ConfigError>(static_cast<bool>(stage.forward), where, "expected a forward function for stage ", stage.index,
                       ", got none");
    given.push_back(stage.index);
    stages.emplace(stage.index, std::move(stage));
  }
  std::sort(given.begin(), given.end());
  const auto list = [](const std::vector<std::int64_t>& numbers) {
    std::string out;
    for (const auto number : numbers) {
      out += concat(out.empty() ? "" : " ", number);
    }
    return out.empty() ? "none" : out;
  };
  check<ConfigError>(given == plan.stages_of_rank(rank), where, plan.name, ": expected the stages ",
                     list(plan.stages_of_rank(rank)), " on rank ", rank, ", got ", list(given));
  for (const auto& actions : plan.actions) {
    check<ConfigError>(!actions.empty() && actions.front().micro_batch == 0, where, plan.name,
                       ": expected each rank to begin with micro-batch 0, which announces the step, got ",
                       actions.empty() ? "nothing" : to_string(actions.front()));
    for (std::size_t place = 0; place < actions.size(); ++place) {
      places_[{actions[place].work, actions[place].stage, actions[place].micro_batch}] = place;
    }
  }
}

std::size_t PipelineSchedule::Impl::place_of(PipelineWork work, std::int64_t stage, std::int64_t micro_batch) const {
  if (is_backward(work)) {
    const auto whole = places_.find({PipelineWork::backward, stage, micro_batch});
    return whole != places_.end() ? whole->second : places_.at({PipelineWork::backward_input, stage, micro_batch});
  }
  return places_.at({work, stage, micro_batch});
}

detail::PipelineChannel& PipelineSchedule::Impl::channel(bool backward, std::int64_t sender, std::int64_t micro_batch,
                                                         std::int64_t peer) {
  const std::int64_t kind = (training_ ? 2 : 0) + (backward ? 1 : 0);
  const std::int64_t tag = first_tag + (kind * plan.stages + sender) * plan.micro_batches + micro_batch;
  return channels_
      .try_emplace({training_, backward, sender, micro_batch}, static_cast<int>(peer), static_cast<int>(tag))
      .first->second;
}

detail::PipelineChannel* PipelineSchedule::Impl::incoming(const PipelineAction& action) {
  const auto from = messages_of(plan, action).from;
  if (!from) {
    return nullptr;
  }
  const bool back = is_backward(action.work);
  return &channel(back, action.stage + (back ? 1 : -1), action.micro_batch, *from);
}

bool PipelineSchedule::Impl::waits_for_gradients(const Slot& slot) const {
  return std::find(slot.outputs_need.begin(), slot.outputs_need.end(), true) != slot.outputs_need.end();
}

PipelineSchedule::Result PipelineSchedule::Impl::run(bool training, const Inputs& inputs, const Loss& loss,
                                                     const std::vector<at::Tensor>& seeds) {
  training_ = training;
  inputs_ = &inputs;
  loss_ = &loss;
  seeds_ = &seeds;
  result_ = Result();
  spans.clear();
  begin_ = std::chrono::steady_clock::now();
  current_ = plan.actions[static_cast<std::size_t>(rank)].front();
  try {
    if (stages.contains(0)) {
      const auto count = static_cast<std::int64_t>(inputs.size());
      check<ConfigError>(count >= 1 && count <= plan.micro_batches, "pipeline.step", "expected 1 to ",
                         plan.micro_batches, " micro-batches, as many as the plan has, got ", count);
      micro_batches_ = count;
    }
    std::vector<PipelineAction> actions = plan.actions[static_cast<std::size_t>(rank)];
    if (!training) {
      std::erase_if(actions, [](const PipelineAction& action) { return action.work != PipelineWork::forward; });
    }
    run_actions(actions);
    finish_step();
  } catch (const std::exception& error) {
    abort_group(first_line(error.what()));  // no effect after a failure that the group has already reported
    forget_step();
    throw;
  } catch (...) {
    abort_group("an exception of an unknown type");
    forget_step();
    throw;
  }
  return std::move(result_);
}

void PipelineSchedule::Impl::finish_step() {
  result_.micro_batches = micro_batches_.value_or(0);
  release_sent(-1, 0);
  slots_.clear();
  left_.clear();
  micro_batches_.reset();
}

void PipelineSchedule::Impl::abort_group(std::string_view reason) const {
  if (!group.alone()) {  // before dropping messages in flight, which other ranks would see as a lost connection
    group.abort(concat("pipeline ", text_of(current_), ": ", reason));
  }
}

void PipelineSchedule::Impl::forget_step() {
  slots_.clear();
  outstanding_.clear();
  channels_.clear();
  left_.clear();
  micro_batches_.reset();
}

void PipelineSchedule::Impl::run_actions(const std::vector<PipelineAction>& actions) {
  for (std::size_t place = 0; place < actions.size(); ++place) {
    const PipelineAction& action = actions[place];
    if (micro_batches_ && action.micro_batch >= *micro_batches_) {
      continue;
    }
    current_ = action;
    Slot& at = slot(action.stage, action.micro_batch);
    Tensors received;
    if (incoming(action) != nullptr && (action.work == PipelineWork::forward || waits_for_gradients(at))) {
      received = receive(action, at);
    }
    start_next_receive(actions, place + 1);
    if (action.work == PipelineWork::forward) {
      forward(action, std::move(received));
    } else if (action.work == PipelineWork::backward_weight) {
      backward_weight(action);
    } else {
      backward(action, std::move(received));
    }
  }
}

void PipelineSchedule::Impl::start_next_receive(const std::vector<PipelineAction>& actions, std::size_t from) {
  for (std::size_t place = from; place < actions.size(); ++place) {
    const PipelineAction& action = actions[place];
    detail::PipelineChannel* const next = action.micro_batch < *micro_batches_ ? incoming(action) : nullptr;
    if (next == nullptr) {
      continue;
    }
    if (action.work != PipelineWork::forward) {
      const auto of = slots_.find({action.stage, action.micro_batch});
      if (of == slots_.end() || !of->second.ran) {
        return;  // the forward pass decides whether there will be a gradient
      }
      if (!waits_for_gradients(of->second)) {
        continue;
      }
    }
    next->start_receive(group, pool_);
    return;
  }
}

PipelineSchedule::Impl::Tensors PipelineSchedule::Impl::receive(const PipelineAction& action, Slot& into) {
  const bool back = is_backward(action.work);
  detail::PipelineChannel& from = *incoming(action);
  detail::PipelineChannel::Received message = from.receive(group, pool_, options.device);
  release_sent(from.peer(), place_of(action.work, action.stage + (back ? 1 : -1), action.micro_batch));
  Tensors out;
  if (back) {
    out.resize(into.outputs_need.size());
    for (const detail::SentTensor& sent : message.tensors) {
      out[static_cast<std::size_t>(sent.place)] = sent.tensor;
    }
    into.gradient_buffer = std::move(message.buffer);
  } else {
    micro_batches_ = message.micro_batches;
    into.inputs_need.clear();
    for (detail::SentTensor& sent : message.tensors) {
      out.push_back(std::move(sent.tensor));
      into.inputs_need.push_back(sent.needs_gradient);
    }
    into.buffer = std::move(message.buffer);
  }
  return out;
}

void PipelineSchedule::Impl::send(const PipelineAction& action, const std::vector<detail::SentTensor>& tensors) {
  const bool back = is_backward(action.work);
  const std::int64_t to = *messages_of(plan, action).to;
  detail::PipelineChannel& out = channel(back, action.stage, action.micro_batch, to);
  const std::size_t consumed = place_of(action.work, action.stage + (back ? -1 : 1), action.micro_batch);
  outstanding_.push_back({to, consumed, out.send(group, pool_, tensors, *micro_batches_)});
}

void PipelineSchedule::Impl::release_sent(std::int64_t peer, std::size_t consumed) {
  // A message of a later action of the peer proves that it received the messages of its earlier actions.
  std::erase_if(outstanding_, [&](Outstanding& sent) {
    if (peer >= 0 && (sent.peer != peer || sent.consumed_at > consumed)) {
      return false;
    }
    for (Work& work : sent.sending.works) {
      work.wait();
      work = Work();
    }
    for (at::Tensor& buffer : sent.sending.buffers) {
      pool_.put_back(std::move(buffer));
    }
    return true;
  });
}

void PipelineSchedule::Impl::compute(const PipelineAction& action, const std::function<void()>& work) {
  PipelineEvent event{action};
  std::int64_t& left = left_.try_emplace(action.stage, *micro_batches_).first->second;
  if (action.work == PipelineWork::backward || action.work == PipelineWork::backward_weight) {
    event.last = --left == 0;
  }
  event.first = action.work == PipelineWork::forward && stage_begins(action);
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); };
  PipelineSpan span{action, seconds(), 0};
  if (options.around) {
    options.around(event, work);
  } else {
    work();
  }
  span.end = seconds();
  spans.push_back(span);
}

bool PipelineSchedule::Impl::stage_begins(const PipelineAction& action) const {
  return std::none_of(spans.begin(), spans.end(),
                      [&](const PipelineSpan& span) { return span.action.stage == action.stage; });
}

void PipelineSchedule::Impl::forward(const PipelineAction& action, Tensors received) {
  Slot& at = slot(action.stage, action.micro_batch);
  Tensors inputs = std::move(received);
  if (action.stage == 0) {
    inputs = (*inputs_)[static_cast<std::size_t>(action.micro_batch)];
    at.inputs_need.assign(inputs.size(), false);
  } else if (stages.contains(action.stage - 1)) {
    Slot& before = slot(action.stage - 1, action.micro_batch);
    inputs = std::exchange(before.outputs_here, {});
    at.inputs_need = before.outputs_need;
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (at.inputs_need[i]) {
      inputs[i] = inputs[i].detach().requires_grad_(true);
    }
  }

  Tensors outputs;
  at::Tensor loss;
  compute(action, [&] {
    outputs = stages.at(action.stage).forward(inputs);
    if (is_last(action.stage) && (training_ || *loss_)) {
      loss = compute_loss(action, outputs);
    }
  });
  if (is_last(action.stage)) {
    const auto place = static_cast<std::size_t>(action.micro_batch);  // a custom plan may have another order
    if (loss.defined()) {
      result_.losses.resize(static_cast<std::size_t>(*micro_batches_));
      result_.losses[place] = loss.detach();
    }
    result_.outputs.resize(static_cast<std::size_t>(*micro_batches_));
    for (const at::Tensor& output : outputs) {
      result_.outputs[place].push_back(output.detach());
    }
    if (training_) {
      at.gradients = {seeds_->empty() ? at::ones_like(loss) : (*seeds_)[static_cast<std::size_t>(action.micro_batch)]};
      at.graph = detail::StageGraph({loss}, std::move(inputs));
    }
  } else {
    pass_on(action, at, outputs);
    if (training_) {
      at.graph = detail::StageGraph(outputs, std::move(inputs));
    }
  }
  at.ran = true;
  if (!training_) {
    inputs.clear();
    outputs.clear();
    pool_.put_back(std::move(at.buffer));
    at.buffer = at::Tensor();
  }
}

void PipelineSchedule::Impl::pass_on(const PipelineAction& action, Slot& at, const Tensors& outputs) {
  std::vector<detail::SentTensor> sent;
  at.outputs_need.clear();
  for (const at::Tensor& output : outputs) {
    const auto place = static_cast<std::int64_t>(sent.size());
    check<ConfigError>(output.defined(), "pipeline.forward",
                       "expected tensors for the next stage, got an undefined one as output ", place, " of stage ",
                       action.stage);
    const bool need = training_ && output.requires_grad();
    at.outputs_need.push_back(need);
    sent.push_back({output.detach(), place, need});
  }
  if (messages_of(plan, action).to) {
    send(action, sent);
    return;
  }
  at.outputs_here.clear();
  for (detail::SentTensor& tensor : sent) {
    at.outputs_here.push_back(std::move(tensor.tensor));
  }
}

at::Tensor PipelineSchedule::Impl::compute_loss(const PipelineAction& action, const Tensors& outputs) const {
  constexpr const char* where = "pipeline.loss";
  check<ConfigError>(static_cast<bool>(*loss_), where, "expected a loss function on the last stage's rank, got none");
  at::Tensor loss = (*loss_)(outputs, action.micro_batch);
  check<ConfigError>(loss.defined() && loss.numel() == 1, where, "expected a loss of one value, got ",
                     loss.defined() ? concat(loss.numel(), " values") : "an undefined tensor");
  if (training_) {
    check<ConfigError>(loss.requires_grad(), where,
                       "expected a loss that requires gradients, got one without: no stage has a parameter that does, "
                       "or the graph is cut");
    check<ConfigError>(seeds_->empty() || static_cast<std::int64_t>(seeds_->size()) >= *micro_batches_, where,
                       "expected a seed for each of ", *micro_batches_, " micro-batches, got ", seeds_->size());
  }
  return loss;
}

void PipelineSchedule::Impl::backward(const PipelineAction& action, Tensors received) {
  Slot& at = slot(action.stage, action.micro_batch);
  const bool whole = action.work == PipelineWork::backward;
  Tensors gradients = at.gradients.empty() ? std::move(received) : std::exchange(at.gradients, {});
  if (gradients.empty()) {
    gradients.resize(at.outputs_need.size());
  }
  Tensors of_inputs;
  compute(action, [&] { of_inputs = whole ? at.graph.backward(gradients) : at.graph.backward_input(gradients); });
  gradients.clear();
  pool_.put_back(std::exchange(at.gradient_buffer, at::Tensor()));
  if (messages_of(plan, action).to) {
    std::vector<detail::SentTensor> sent;
    bool awaited = false;
    for (std::size_t i = 0; i < of_inputs.size(); ++i) {
      awaited = awaited || at.inputs_need[i];
      if (at.inputs_need[i] && of_inputs[i].defined()) {
        sent.push_back({of_inputs[i], static_cast<std::int64_t>(i), false});
      }
    }
    if (awaited) {
      send(action, sent);
    }
  } else if (action.stage > 0) {
    slot(action.stage - 1, action.micro_batch).gradients = std::move(of_inputs);
  }
  if (whole) {
    release(action);
  }
}

void PipelineSchedule::Impl::backward_weight(const PipelineAction& action) {
  Slot& at = slot(action.stage, action.micro_batch);
  compute(action, [&] { at.graph.backward_weight(); });
  release(action);
}

void PipelineSchedule::Impl::release(const PipelineAction& action) {
  Slot& at = slot(action.stage, action.micro_batch);
  at::Tensor buffer = std::move(at.buffer);
  slots_.erase({action.stage, action.micro_batch});
  pool_.put_back(std::move(buffer));
}

}  // namespace danling::inline v0::parallel
