#include <core/stack_traces.hpp>

#include <execinfo.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <thread>

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr int most_frames = 64;
constexpr int pending = -1;

/// The handler fills it in the interrupted thread.
struct Slot {
  pid_t thread = 0;
  std::array<void*, most_frames> frames = {};
  void* interrupted = nullptr;
  std::atomic<int> count{pending};
};

/// The slots of one capture. Never freed, since a handler may run late.
struct Slots {
  std::unique_ptr<Slot[]> all;
  std::size_t size = 0;
  Slots* before = nullptr;
};

std::atomic<Slots*> slots{nullptr};
static_assert(std::atomic<Slots*>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void* program_counter(const void* context) {
  const auto* const machine = &static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return reinterpret_cast<void*>(machine->gregs[REG_RIP]);  // NOLINT(performance-no-int-to-ptr): a register
#elif defined(__aarch64__)
  return reinterpret_cast<void*>(machine->pc);  // NOLINT(performance-no-int-to-ptr)
#else
  (void)machine;
  return nullptr;
#endif
}

// Stores only addresses. backtrace() allocates in its first call only, which prepare_stack_traces() has made.
extern "C" void danling_note_stack(int, siginfo_t*, void* context) {
  const int saved_errno = errno;
  const auto self = static_cast<pid_t>(syscall(SYS_gettid));
  if (Slots* const known = slots.load(std::memory_order_acquire)) {
    for (std::size_t i = 0; i < known->size; ++i) {
      Slot& slot = known->all[i];
      if (slot.thread == self && slot.count.load(std::memory_order_relaxed) == pending) {
        slot.interrupted = program_counter(context);
        slot.count.store(backtrace(slot.frames.data(), most_frames), std::memory_order_release);
      }
    }
  }
  errno = saved_errno;
}

/// Installs the handler on a real-time signal that has none. Returns the signal, or 0.
int free_signal() {
  for (int signal = SIGRTMAX - 1; signal > SIGRTMIN; --signal) {
    struct sigaction present{};
    if (sigaction(signal, nullptr, &present) == 0 && (present.sa_flags & SA_SIGINFO) == 0 &&
        present.sa_handler == SIG_DFL) {
      struct sigaction action{};
      action.sa_sigaction = danling_note_stack;
      action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
      sigfillset(&action.sa_mask);
      return sigaction(signal, &action, nullptr) == 0 ? signal : 0;
    }
  }
  return 0;
}

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Returns the value of `key` in /proc/self/task/<thread>/status.
std::string status_of(const std::string& folder, std::string_view key) {
  std::ifstream file(folder + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key) && line.size() > key.size() && line[key.size()] == ':') {
      const auto begin = line.find_first_not_of(" \t", key.size() + 1);
      return begin == std::string::npos ? std::string() : line.substr(begin);
    }
  }
  return {};
}

bool blocks(const std::string& folder, int signal) {
  const std::string text = status_of(folder, "SigBlk");
  std::uint64_t mask = 0;
  std::from_chars(text.data(), text.data() + text.size(), mask, 16);
  return ((mask >> (signal - 1)) & 1U) != 0;
}

std::vector<pid_t> other_threads() {
  std::vector<pid_t> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", error)) {
    const std::string text = entry.path().filename().string();
    pid_t id = 0;
    std::from_chars(text.data(), text.data() + text.size(), id);
    if (id > 0 && id != static_cast<pid_t>(syscall(SYS_gettid))) {
      out.push_back(id);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// Returns the addresses without the frames of the handler.
std::vector<void*> frames_of(const Slot& slot) {
  const auto* const end = slot.frames.begin() + std::max(slot.count.load(std::memory_order_acquire), 0);
  const auto* const begin = std::find(slot.frames.begin(), end, slot.interrupted);
  return {begin == end ? slot.frames.begin() : begin, end};
}

}  // namespace

void prepare_stack_traces() {
  std::array<void*, 2> frames;
  backtrace(frames.data(), static_cast<int>(frames.size()));
}

std::vector<ThreadTrace> capture_stack_traces(std::chrono::milliseconds limit) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  static const int signal = free_signal();
  prepare_stack_traces();
  const auto threads = other_threads();
  auto* const asked = new Slots{std::make_unique<Slot[]>(threads.size()), threads.size(), slots.load()};
  std::vector<ThreadTrace> out;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    const std::string folder = concat("/proc/self/task/", threads[i]);
    out.push_back({threads[i], read_line(folder + "/comm"), {}, {}});
    if (signal == 0 || blocks(folder, signal)) {
      out.back().problem = signal == 0 ? "the program handles all real-time signals" : "it blocks signals";
    } else {
      asked->all[i].thread = threads[i];
    }
  }
  slots.store(asked, std::memory_order_release);
  for (std::size_t i = 0; i < threads.size(); ++i) {
    if (asked->all[i].thread != 0) {
      syscall(SYS_tgkill, getpid(), threads[i], signal);
    }
  }
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    const Slot& slot = asked->all[i];
    while (slot.thread != 0 && slot.count.load(std::memory_order_acquire) == pending &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    out[i].frames = frames_of(slot);
    if (out[i].frames.empty() && out[i].problem.empty()) {
      const std::string folder = concat("/proc/self/task/", threads[i]);
      const std::string state = status_of(folder, "State");
      const std::string place = read_line(folder + "/wchan");
      out[i].problem = concat("it does not run: ", state.empty() ? "it has ended" : "state " + state,
                              place.empty() || place == "0" ? "" : ", in the kernel's " + place);
    }
  }
  return out;
}

std::string traces_text(const std::vector<ThreadTrace>& traces, pid_t first) {
  std::vector<std::vector<const ThreadTrace*>> groups;
  const auto add = [&](const ThreadTrace& trace) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return group.front()->frames == trace.frames && group.front()->problem == trace.problem &&
             group.front()->thread != first;
    });
    same == groups.end() ? groups.push_back({&trace}) : same->push_back(&trace);
  };
  for (const bool loop : {true, false}) {
    for (const ThreadTrace& trace : traces) {
      if ((trace.thread == first) == loop) {
        add(trace);
      }
    }
  }
  std::string out;
  for (const auto& group : groups) {
    std::vector<std::string> names;
    for (const ThreadTrace* trace : group) {
      names.push_back(concat(trace->thread, trace->thread == first ? ", the loop" : " (" + trace->name + ")"));
    }
    const ThreadTrace& trace = *group.front();
    out += concat(group.size() == 1 ? "thread " : "threads ", join(names), ":",
                  trace.problem.empty() ? "" : concat(" no stack, ", trace.problem), "\n");
    for (std::size_t i = 0; i < trace.frames.size(); ++i) {
      out += concat("  #", i, " ", symbol_text(trace.frames[i], /*returns=*/i > 0), "\n");
    }
  }
  return out;
}

}  // namespace danling::inline v0::detail
