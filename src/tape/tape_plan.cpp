// Placement of a tape's results in memory, and the times at which outside memory is bound.
#include <algorithm>

#include <tape/tape.hpp>

namespace danling::inline v0::tape {

Tape::Touches Tape::touches() const {
  Touches out(recording_.storages.size());
  for (std::size_t s = 0; s < steps_.size(); ++s) {
    const Call& call = recording_.calls[steps_[s].call];
    for (const auto* list : {&call.arguments, &call.results}) {
      for (const Argument& argument : *list) {
        for (const int value : argument.values) {
          if (value >= 0) {
            at_index(out, at_index(recording_.values, value).storage).push_back(s);
          }
        }
      }
    }
  }
  return out;
}

/// Places each result over an argument with no later reader, if the call allows it, else in memory that is free during
/// its lifetime.
void Tape::plan(const std::vector<bool>& escapes) {
  const Touches touched = touches();
  const std::vector<std::vector<int>> made_at = allot(touched, escapes);
  std::vector<Lifetime> lifetimes;
  const std::vector<int> group_of = group(made_at, touched, lifetimes);
  const Places places = place(lifetimes);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (group_of[i] >= 0) {
      slots_[i].offset = at_index(places.offsets, group_of[i]);
      planned_.push_back(static_cast<int>(i));
    }
  }
  report_.arena_bytes = static_cast<std::int64_t>(places.bytes);
  list_sources();
}

/// Decides how results get memory: from the arena, an allocation before their first step, or the step itself.
/// @return arena storages, by the step that creates them
std::vector<std::vector<int>> Tape::allot(const Touches& touches, const std::vector<bool>& escapes) {
  std::vector<std::vector<int>> made_at(steps_.size());
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    const Storage& storage = recording_.storages[i];
    if (storage.origin != Origin::made || slot.memory == Memory::constant || touches[i].empty()) {
      continue;
    }
    if (slot.memory == Memory::bound) {  // created without content
      slot.memory = escapes[i] ? Memory::output : Memory::planned;
    }
    Step& first = steps_[touches[i].front()];
    if (slot.memory == Memory::planned) {
      made_at[touches[i].front()].push_back(static_cast<int>(i));
      report_.sum_bytes += storage.bytes;
    } else if (slot.memory == Memory::adopted) {
      steps_[touches[i].back()].frees.push_back(static_cast<int>(i));
    } else if (std::none_of(first.adopts.begin(), first.adopts.end(), [&](int value) {
                 return value >= 0 && at_index(recording_.values, value).storage == static_cast<int>(i);
               })) {
      first.allocates.push_back(static_cast<int>(i));
    }
  }
  return made_at;
}

/// Groups storages that share one place, one after another.
/// @return group per storage; -1: none
std::vector<int> Tape::group(const std::vector<std::vector<int>>& made_at, const Touches& touches,
                             std::vector<Lifetime>& lifetimes) {
  std::vector<int> out(slots_.size(), -1);
  for (std::size_t s = 0; s < steps_.size(); ++s) {
    for (const int storage : made_at[s]) {
      const std::size_t last = at_index(touches, storage).back();
      int& group = at_index(out, storage);
      group = replaceable(s, out, touches, lifetimes);
      if (group >= 0) {
        at_index(lifetimes, group).last = last;
        ++report_.in_place;
      } else {
        group = static_cast<int>(lifetimes.size());
        lifetimes.push_back({static_cast<std::size_t>(at_index(recording_.storages, storage).bytes), s, last});
      }
    }
  }
  return out;
}

/// Returns the group of an argument that an elementwise step may overwrite; -1: none.
int Tape::replaceable(std::size_t step, const std::vector<int>& group_of, const Touches& touches,
                      const std::vector<Lifetime>& lifetimes) const {
  const Call& call = recording_.calls[steps_[step].call];
  int out = -1;
  if (!is_elementwise(call) || !steps_[step].adopts.empty() || call.results.size() != 1) {
    return out;
  }
  const Layout& result = at_index(recording_.values, call.results.front().values.front()).layout;
  for (const Argument& argument : call.arguments) {
    const int value = argument.kind == Argument::Kind::tensor ? argument.values.front() : -1;
    const int storage = value < 0 ? -1 : at_index(recording_.values, value).storage;
    const int group = storage < 0 ? -1 : at_index(group_of, storage);
    if (group >= 0 && at_index(touches, storage).back() == step && at_index(lifetimes, group).last == step &&
        at_index(recording_.values, value).layout == result && is_read_once(call, value)) {
      out = group;
    }
  }
  return out;
}

/// True if no argument views the value's storage in another layout.
bool Tape::is_read_once(const Call& call, int value) const {
  return std::all_of(call.arguments.begin(), call.arguments.end(), [&](const Argument& argument) {
    return std::all_of(argument.values.begin(), argument.values.end(), [&](int other) {
      return other < 0 || other == value ||
             at_index(recording_.values, other).storage != at_index(recording_.values, value).storage;
    });
  });
}

/// Lists when outside tensors are bound. Parameters and the batch keep their address during a step. Host calls set
/// variables of the runner and gradients, so these are bound again after each host call.
void Tape::list_sources() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Origin origin = recording_.storages[i].origin;
    if (origin == Origin::live || origin == Origin::gradient) {
      each_piece_.push_back(static_cast<int>(i));
    } else if (origin == Origin::input || origin == Origin::held) {
      once_.push_back(static_cast<int>(i));
    }
  }
}

}  // namespace danling::inline v0::tape
