// dl::run(): command line, process settings, errors and exit codes.
#include <danling/runner/run.hpp>

#include <malloc.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <danling/core/signals.hpp>
#include <danling/distributed/group.hpp>
#include <danling/distributed/threads.hpp>
#include <danling/nn/summary.hpp>
#include <danling/runner/finders.hpp>
#include <danling/telemetry/logger.hpp>

#include <runner/agreed_error.hpp>
#include <runner/final_report.hpp>
#include <runner/process_config.hpp>

namespace danling::inline v0 {

namespace detail {
namespace {

// Applies settings of the process, which an embedded runner does not change. @return the choices, for the log
std::string apply_process_settings(const RunnerConfig& config) {
  std::string threads;
  if (config.num_threads) {
    at::set_num_threads(static_cast<int>(*config.num_threads));
  } else if (config.parallel.virtual_ranks) {
    at::set_num_threads(1);  // with another number of threads, kernels may add in another order
    threads = "threads: 1, with parallel.virtual_ranks, unless num_threads is set";
  } else if (const ProcessIdentity identity = read_process_identity(); identity.distributed()) {
    const ProcessThreads own = process_threads(identity);
    at::set_num_threads(own.threads);
    threads = concat("threads: ", own.reason);
  }
  if (config.flush_denormals) {
    at::globalContext().setFlushDenormal(true);
  }
#ifdef __GLIBC__
  if (config.allocator == "keep") {
    // By default glibc returns large freed blocks to the system and faults them in again at every step. Keeping them
    // reduces the time of a step of torch::optim::AdamW to two thirds.
    constexpr int largest_threshold = 32 * 1024 * 1024;  // glibc accepts no more
    mallopt(M_MMAP_THRESHOLD, largest_threshold);
    mallopt(M_TRIM_THRESHOLD, 2 * 1024 * 1024 * 1023);
  }
#endif
  return threads;
}

class IgnoredSignal {
 public:
  explicit IgnoredSignal(int number) : number_(number) {
    struct sigaction ignored = {};
    ignored.sa_handler = SIG_IGN;
    sigaction(number, &ignored, &before_);
  }
  ~IgnoredSignal() { sigaction(number_, &before_, nullptr); }
  IgnoredSignal(const IgnoredSignal&) = delete;
  IgnoredSignal& operator=(const IgnoredSignal&) = delete;

 private:
  int number_;
  struct sigaction before_ = {};
};

std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') {
      c = ' ';
    }
  }
  while (!text.empty() && text.back() == ' ') {
    text.pop_back();
  }
  return text;
}

std::string message_of(const std::exception& error) {
  if (const auto* torch_error = dynamic_cast<const c10::Error*>(&error)) {
    // Removes the backtrace from LibTorch's messages.
    const std::string text = torch_error->what_without_backtrace();
    return concat("[libtorch] ", text.substr(0, text.find('\n')));
  }
  return one_line(error.what());
}

// Runs a tool instead of training. Prints also with `console: false`, which is about training.
int run_tool(TorchRunnerBase& runner, const RunnerConfig& config) {
  std::string text;
  int code = exit_success;
  if (config.summary) {
    text = runner.summarize().text();
  } else if (config.find_lr.enabled) {
    text = concat(runner.find_lr().text(), "\n");
  } else {
    const BatchSizeReport report = runner.find_batch_size();
    text = concat(report.text(), "\n");
    code = report.largest > 0 ? exit_success : exit_failure;
  }
  if (runner.is_main_process()) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }
  return code;
}

int report(TorchRunnerBase* runner, const std::string& status, const std::string& message, int signal, int code) {
  // Prints to the terminal first, since the code below may fail too.
  std::fprintf(stderr, "%s%s\n", status == "stopped" ? "" : "error: ", message.c_str());
  if (runner != nullptr) {
    try {
      runner->write_summary(status, status == "crashed" ? message : "", signal, code);
      if (runner->phase() == BaseRunner::Phase::ready) {
        runner->logger().log_to_file(concat(status, ": ", message),
                                     status == "crashed" ? LogLevel::error : LogLevel::info);
        if (status == "stopped") {
          log_resume(*runner);
        }
      }
      runner->close();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "error: while closing: %s\n", one_line(error.what()).c_str());
    }
  }
  return code;
}

// Reports an error after the ranks have joined, for example of the program itself; they already know an error of
// train().
void report_to_group(const TorchRunnerBase* runner, std::string_view reason) noexcept {
  try {
    if (runner != nullptr && runner->parallelism().group().abort_reaches_others()) {
      runner->parallelism().group().abort(reason);
    }
  } catch (const std::exception&) {  // the others see that this process has left
  }
}

// Reports an error before the ranks have joined, so that the others do not wait: a wrong command line on this rank, or
// a constructor that has thrown, for example because of a missing file.
void decline_to_join(const RunnerConfig& config, std::string_view message, std::chrono::seconds limit) noexcept {
  try {
    if (!config.ft.enabled) {
      Group::abort_connect(apply_init_method(read_process_identity(), config), message, limit);
    }
  } catch (const std::exception&) {  // the error is already on stderr
  }
}

// Searches a command line that may not parse for init_method, to reach the other processes.
std::optional<std::string> init_method_of(int argc, char** argv) {
  constexpr std::string_view name = "--init_method";
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == name && i + 1 < argc) {
      return argv[i + 1];
    }
    if (word.starts_with(name) && word.substr(name.size()).starts_with('=')) {
      return std::string(word.substr(name.size() + 1));
    }
  }
  return std::nullopt;
}

}  // namespace

int run(int argc, char** argv, RunnerConfig& config, const std::function<std::unique_ptr<TorchRunnerBase>()>& make,
        const std::function<void(TorchRunnerBase&)>& work) {
  // A full disk quota or a closed pipe becomes a write error with a message, instead of a fatal signal.
  const IgnoredSignal quota(SIGXFSZ), pipe(SIGPIPE);
  std::unique_ptr<TorchRunnerBase> runner;
  std::chrono::seconds report_timeout(5);  // short, for users who correct a command line by hand
  const auto crashed = [&](const std::string& message, const std::string& reason, int code) {
    report_to_group(runner.get(), reason);
    report(runner.get(), "crashed", message, 0, code);
    if (runner == nullptr || runner->parallelism().group().alone()) {
      decline_to_join(config, reason, report_timeout);
    }
    return code;
  };
  try {
    try {
      if (parse(config, argc, argv)) {
        return exit_success;
      }
    } catch (...) {
      config.init_method = config.init_method ? config.init_method : init_method_of(argc, argv);
      throw;
    }
    const std::string threads = apply_process_settings(config);
    const SignalGuard signals;
    try {
      report_timeout = std::chrono::seconds(30);
      runner = make();
      if (!threads.empty()) {
        runner->logger().info(threads);
      }
      if (config.summary || config.find_lr.enabled || config.find_batch_size.enabled) {
        const int code = run_tool(*runner, config);
        runner->close();
        return code;
      }
      if (work) {
        work(*runner);
      } else {
        runner->train();
        runner->test();
      }
      if (runner->has_trained()) {
        log_results(*runner);
      }
      runner->write_summary("finished");
      if (!runner->close()) {
        return report(runner.get(), "crashed", "[run.close] checkpoints were not written in time", 0, exit_failure);
      }
      runner.reset();
      return exit_success;
    } catch (const Stopped& stopped) {
      const int code = stopped.signal() == 0 ? exit_time_limit : 128 + stopped.signal();
      return report(runner.get(), "stopped", stopped.what(), stopped.signal(), code);
    } catch (const DistributedError& error) {
      const int signal = v0::stop_signal();
      const bool met = runner != nullptr && !runner->parallelism().group().alone();
      if (met || signal == 0) {
        throw;
      }
      return report(runner.get(), "stopped", message_of(error), signal, 128 + signal);
    }
  } catch (const std::exception& error) {
    const std::string message =
        dynamic_cast<const ConfigError*>(&error) != nullptr ? one_line(error.what()) : message_of(error);
    const int code = is_by_config(error) ? exit_config : exit_failure;
    if (runner != nullptr && is_known_to_all(error)) {
      return report(runner.get(), "crashed", message, 0, code);
    }
    return crashed(message, abort_reason(error, message), code);
  } catch (...) {
    return crashed(unknown_error, unknown_error, exit_failure);
  }
}

}  // namespace detail
}  // namespace danling::inline v0
