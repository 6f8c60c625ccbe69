#include <danling/runner/callback.hpp>

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <typeinfo>

#include <c10/util/Exception.h>

#include <danling/core/error.hpp>
#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {
namespace {

// The class name without its scope, which ends at the last `::` outside brackets.
std::string unqualified(const std::string& name) {
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<' || name[i] == '(' || name[i] == '{' ? 1 : 0;
    depth -= name[i] == '>' || name[i] == ')' || name[i] == '}' ? 1 : 0;
    if (depth == 0 && name.compare(i, 2, "::") == 0) {
      begin = i + 2;
    }
  }
  return name.substr(begin);
}

}  // namespace

Callback::~Callback() = default;

std::vector<std::pair<std::string, at::Tensor>> GradientsEvent::parameters() const {
  auto& trained = static_cast<TorchRunnerBase&>(runner);  // only a TorchRunnerBase sends this event
  // The module's own parameters would be gathered here, which needs all ranks, and have no gradients.
  return trained.parallelism().trained_parameters(model.empty() ? trained.model : trained.models.at(model));
}

std::string Callback::name() const {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(typeid(*this).name(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? unqualified(text.get()) : typeid(*this).name();
}

void CallbackList::insert(std::vector<Entry>& list, const Entry& entry) {
  const auto place =
      entry.own ? std::find_if(list.begin(), list.end(), [](const Entry& other) { return !other.own; }) : list.end();
  list.insert(place, entry);
}

void CallbackList::insert(const Entry& entry, detail::Listens listens) {
  if (listens.steps) {
    insert(step_listeners_, entry);
  }
  if (listens.gradients) {
    insert(gradient_listeners_, entry);
  }
  insert(all_, entry);
}

void CallbackList::add_own(std::shared_ptr<Callback> callback, detail::Listens listens) {
  insert({std::move(callback), true}, listens);
}

void CallbackList::add_own_first(std::shared_ptr<Callback> callback) {
  all_.insert(all_.begin(), {std::move(callback), true});
}

void CallbackList::add(std::shared_ptr<Callback> callback, detail::Listens listens) {
  check<ConfigError>(callback != nullptr, "runner.add", "expected a callback, got null");
  const std::string name = callback->name();
  for (const Entry& other : all_) {
    check<ConfigError>(other.own || other.callback->name() != name, "runner.add",
                       "expected callbacks of different names, got two ", quote(name), "; override name()");
  }
  insert({std::move(callback), false}, listens);
}

void CallbackList::end_steps(const Callback& callback) {
  std::erase_if(step_listeners_, [&](const Entry& entry) { return entry.callback.get() == &callback; });
}

State CallbackList::state_dict() const {
  State::Map map;
  for (const Entry& entry : all_) {
    State state;
    guarded(entry, [&] { state = entry.own ? State() : entry.callback->state_dict(); }, "return its state");
    if (!state.is_null()) {
      map.set(entry.callback->name(), std::move(state));
    }
  }
  return map;
}

std::vector<std::string> CallbackList::load_state_dict(const State& state) const {
  std::vector<std::string> unknown;
  for (const auto& saved : state.map()) {
    const auto found = std::find_if(all_.begin(), all_.end(), [&](const Entry& entry) {
      return !entry.own && entry.callback->name() == saved.key.string();
    });
    if (found == all_.end()) {
      unknown.push_back(saved.key.string());
    } else {
      guarded(*found, [&] { found->callback->load_state_dict(saved.value); }, "load the state of the checkpoint");
    }
  }
  return unknown;
}

void CallbackList::rethrow(const Entry& entry, std::string_view expected, std::string_view function) {
  if (entry.own) {
    throw;
  }
  const auto fail_with = [&](std::string_view text) {
    fail<Error>("runner.callback", "expected ", quote(entry.callback->name()), " to ", expected, function,
                ", got an exception: ", text);
  };
  try {
    throw;
  } catch (const Stopped&) {
    throw;
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    fail_with(text.substr(0, text.find('\n')));
  } catch (const std::exception& error) {
    fail_with(error.what());
  } catch (...) {
    fail_with("not a std::exception");
  }
  std::abort();  // not reached: fail() throws
}

}  // namespace danling::inline v0
