#include "verify_resume_faults.hpp"

#include <signal.h>

#include <algorithm>
#include <iterator>

#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>

#include "verify_resume_names.hpp"

namespace danling_command {
namespace {

using danling::detail::concat;

// Replaces the parts of a name that differ between saves by `*`: epochs, steps, and suffixes of temporary files.
std::string glob_of(const std::string& path) {
  std::string name = path.substr(path.find_last_of('/') + 1);
  if (is_save_name(name)) {
    name = name.substr(0, name.rfind("-g")) + "-g*";
  }
  const auto mark = name.find(".tmp-");
  if (mark != std::string::npos && !name.ends_with("-link")) {
    name = name.substr(0, mark + 5) + "*";
  }
  for (const std::string_view start : {"ckpt-e", "ckpt-s"}) {
    const auto at = name.find(start);
    if (at != std::string::npos) {
      const auto from = at + start.size();
      const auto to = name.find_first_not_of("0123456789", from);
      name.replace(from, (to == std::string::npos ? name.size() : to) - from, "*");
    }
  }
  return "*" + name;
}

}  // namespace

const std::vector<FaultName>& fault_names() {
  static const std::vector<FaultName> names = {
      {FaultKind::kill, "kill", "SIGKILL at a random moment", 4},
      {FaultKind::save, "save", "SIGKILL at a file call of a save", 9},
      {FaultKind::term, "term", "SIGTERM", 3},
      {FaultKind::interrupt, "int", "SIGINT", 2},
      {FaultKind::size, "size", "file size limit (RLIMIT_FSIZE)", 2},
      {FaultKind::full, "full", "full disk (ENOSPC)", 3},
      {FaultKind::io, "io", "I/O error (EIO)", 5},
      {FaultKind::readonly, "readonly", "read-only file system (EROFS)", 1},
      {FaultKind::quota, "quota", "used up quota (EDQUOT)", 1},
      {FaultKind::brief, "short", "short writes, then SIGKILL", 2},
  };
  return names;
}

std::vector<FaultKind> parse_faults(std::string_view text) {
  std::vector<std::string> known;
  for (const auto& name : fault_names()) {
    known.emplace_back(name.name);
  }
  std::vector<FaultKind> out;
  while (!text.empty()) {
    const auto comma = text.find(',');
    const auto word = text.substr(0, comma);
    const auto found = std::find(known.begin(), known.end(), word);
    danling::detail::check<danling::ConfigError>(found != known.end(), "verify-resume", "expected faults among ",
                                                 danling::detail::join(known), ", got ", danling::detail::quote(word),
                                                 danling::detail::did_you_mean(word, known));
    out.push_back(fault_names()[static_cast<std::size_t>(found - known.begin())].kind);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  danling::detail::check<danling::ConfigError>(!out.empty(), "verify-resume", "expected faults among ",
                                               danling::detail::join(known), ", got none");
  return out;
}

bool Fault::is_error() const {
  return kind == FaultKind::size || kind == FaultKind::full || kind == FaultKind::io || kind == FaultKind::readonly ||
         kind == FaultKind::quota;
}

FaultPlan::FaultPlan(std::vector<FaultKind> kinds, std::uint64_t seed, const std::vector<FileCall>& reference,
                     ReferenceTimes times, const std::string& checkpoint_dir)
    : kinds_(std::move(kinds)), random_(seed), times_(times), checkpoint_dir_(checkpoint_dir) {
  for (const auto& call : reference) {
    ++calls_;
    writes_ += call.call == "write" ? 1 : 0;
    if (call.path.empty()) {
      continue;
    }
    const Window window = window_of(call);
    const auto known = std::find(windows_.begin(), windows_.end(), window);
    auto& entry = known == windows_.end() ? windows_.emplace_back(window) : *known;
    ++entry.calls;
  }
}

Window FaultPlan::window_of(const FileCall& call) const {
  const bool checkpoint =
      call.path.find("/" + checkpoint_dir_ + "/") != std::string::npos || call.path.ends_with("/" + checkpoint_dir_);
  const bool of_rank = !save_of(call.path).empty() && !is_save_name(name_of(call.path));
  return {.call = call.call,
          .glob = glob_of(call.path),
          .checkpoint = checkpoint,
          .rank = of_rank ? rank_of_file(name_of(call.path)) : -1};
}

FaultKind FaultPlan::draw_kind() {
  if (deck_.empty()) {
    for (const auto& name : fault_names()) {
      if (std::find(kinds_.begin(), kinds_.end(), name.kind) != kinds_.end()) {
        deck_.insert(deck_.end(), static_cast<std::size_t>(name.weight), name.kind);
      }
    }
    // Does not use std::shuffle, whose result differs between libraries: a seed must give the same result everywhere.
    for (std::size_t i = deck_.size(); i > 1; --i) {
      std::swap(deck_[i - 1], deck_[static_cast<std::size_t>(random_() % i)]);
    }
  }
  const auto kind = deck_.back();
  deck_.pop_back();
  return kind;
}

void FaultPlan::strike_at_random(Fault& fault, int signal) {
  const double length = std::max(times_.seconds - times_.began, 0.001);
  fault.blow.signal = signal;
  if (random_() % 5 == 0) {  // sometimes during the set-up
    fault.blow.after_begin = false;
    fault.blow.seconds = uniform(0, times_.seconds);
    fault.text = concat(" at ", danling::to_fixed(fault.blow.seconds, 3), " s");
  } else if (random_() % 3 == 0) {
    fault.blow.saves = whole(1, 3);
    fault.text = concat(" as save ", fault.blow.saves, " begins");
  } else {
    fault.blow.seconds = uniform(0, length);
    fault.text = concat(" ", danling::to_fixed(fault.blow.seconds, 3), " s after the set-up");
  }
}

void FaultPlan::aim(Fault& fault, std::string_view what, const std::vector<std::string_view>& calls, int processes) {
  // Chooses the window that was hit least, checkpoints first; at random among equal windows.
  std::vector<Window*> best;
  const auto rank = [](const Window& window) { return window.hits + (window.checkpoint ? 0 : 2); };
  for (auto& window : windows_) {
    if (window.rank >= std::max(processes, 1)) {
      continue;  // the window of a rank that this start lacks
    }
    if (!calls.empty() && std::find(calls.begin(), calls.end(), window.call) == calls.end()) {
      continue;
    }
    if (!best.empty() && rank(window) < rank(*best.front())) {
      best.clear();
    }
    if (best.empty() || rank(window) == rank(*best.front())) {
      best.push_back(&window);
    }
  }
  if (best.empty()) {
    strike_at_random(fault, SIGKILL);
    return;
  }
  const Window& window = *best[static_cast<std::size_t>(random_() % best.size())];
  const std::int64_t number = whole(1, window.checkpoint ? std::min<std::int64_t>(window.calls, 3) : window.calls);
  const std::string target = concat(window.call, "@", window.glob, ":", number);
  if (what == "kill" && window.call == "write" && random_() % 2 == 0) {
    what = "torn";
  }
  if (what == "ENOSPC" || what == "EDQUOT") {
    // A full disk stays full, but accepts bytes that still fit.
    fault.rules += window.call == "write" ? concat(target, ":short;") : "";
    fault.rules += concat(target, "+:", what);
  } else {
    fault.rules += concat(target, ":", what);
  }
  fault.text =
      concat(" at ", window.call, " ", number, " of ", window.glob.substr(1), what == "torn" ? ", half done" : "");
}

Fault FaultPlan::next(bool must_advance, int processes) {
  Fault fault = draw(must_advance, processes);
  if (processes > 0 && fault.blow.signal != 0) {
    if (whole(1, 4) > 1) {
      fault.blow.rank = static_cast<int>(whole(0, processes - 1));
      // Not during the set-up: before all ranks are connected, a process cannot detect the death of another one.
      const bool met = fault.blow.after_begin || fault.blow.saves > 0;
      fault.blow.unannounced = fault.blow.signal == SIGKILL && processes > 1 && whole(1, 2) == 1 && met;
    }
    fault.text = concat(" to ", fault.blow.rank ? concat("rank ", *fault.blow.rank) : "all ranks", fault.text,
                        fault.blow.unannounced ? ", unnoticed by the launcher" : "");
  }
  return fault;
}

std::optional<std::size_t> FaultPlan::draw_layout(std::size_t count, std::optional<std::size_t> last) {
  std::vector<std::size_t> from;
  for (std::size_t i = 0; i < count; ++i) {
    if (count == 1 || i != last) {
      from.push_back(i);
    }
  }
  return from.empty() ? std::nullopt : std::optional(from[static_cast<std::size_t>(random_() % from.size())]);
}

Fault FaultPlan::draw(bool must_advance, int processes) {
  Fault fault;
  if (must_advance) {
    fault.kind = FaultKind::kill;
    fault.blow = {.signal = SIGKILL, .saves = 2};
    fault.text = " as save 2 begins (earlier starts made no progress)";
    return fault;
  }
  fault.kind = draw_kind();
  switch (fault.kind) {
    case FaultKind::kill:
      strike_at_random(fault, SIGKILL);
      break;
    case FaultKind::term:
      strike_at_random(fault, SIGTERM);
      break;
    case FaultKind::interrupt:
      strike_at_random(fault, SIGINT);
      break;
    case FaultKind::save:
      aim(fault, "kill", {}, processes);
      break;
    case FaultKind::brief:
      aim(fault, "kill", {}, processes);
      fault.rules += fault.rules.empty() ? "write:*:short" : ";write:*:short";
      break;
    case FaultKind::io:
      aim(fault, "EIO", {}, processes);
      break;
    case FaultKind::quota:
      aim(fault, "EDQUOT", {"open", "write", "link", "mkdir", "fsync", "clone"}, processes);
      break;
    case FaultKind::full:
      if (random_() % 2 == 0 && writes_ > 0) {
        const auto number = whole(1, writes_);
        fault.rules = concat("write:", number, ":short;write:", number, "+:ENOSPC");
        fault.text = concat(" from write ", number, " on");
      } else {
        aim(fault, "ENOSPC", {"open", "write", "link", "mkdir", "fsync", "clone"}, processes);
      }
      break;
    case FaultKind::readonly: {
      const auto number = whole(1, std::max<std::int64_t>(calls_, 1));
      fault.rules = concat("any:", number, "+:EROFS");
      fault.text = concat(" from file call ", number, " on");
      break;
    }
    case FaultKind::size: {
      // Any limit below the largest file, or a limit just below a checkpoint: the metrics of a small program are larger
      // than its checkpoints, so most random limits would not affect saves.
      const bool any = random_() % 2 == 0;
      const auto top =
          std::max<std::int64_t>(static_cast<std::int64_t>(any ? times_.largest_file : times_.checkpoint), 2);
      fault.size = static_cast<std::uint64_t>(whole(any ? 1 : std::max<std::int64_t>(top / 2, 1), top - 1));
      fault.text = concat(" of ", *fault.size, " bytes");
      break;
    }
  }
  return fault;
}

void FaultPlan::note(const std::vector<FileCall>& calls) {
  for (const auto& call : calls) {
    if (call.injected() && call.outcome != "short") {
      const auto known = std::find(windows_.begin(), windows_.end(), window_of(call));
      if (known != windows_.end()) {
        ++known->hits;
        return;  // later calls fail by the same full disk
      }
    }
  }
}

std::vector<Window> FaultPlan::checkpoint_windows() const {
  std::vector<Window> out;
  std::copy_if(windows_.begin(), windows_.end(), std::back_inserter(out),
               [](const Window& window) { return window.checkpoint; });
  return out;
}

}  // namespace danling_command
