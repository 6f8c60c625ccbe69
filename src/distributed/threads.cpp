#include <danling/distributed/threads.hpp>

#include <algorithm>
#include <charconv>

#include <danling/core/format.hpp>

#include <distributed/ancestors.hpp>
#include <distributed/cores.hpp>

namespace danling::inline v0 {
namespace {

std::string count_of(int number, const char* thing) { return concat(number, " ", thing, number == 1 ? "" : "s"); }

/// Returns the first number of a variable: OMP_NUM_THREADS may be a list, one number per nesting level. Returns nullopt
/// without a number above 0, which OpenMP ignores too.
std::optional<int> leading_number(const Environment& environment, const char* name) {
  const std::string text = environment(name).value_or("");
  int value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool ends = stop == text.data() + text.size() || *stop == ',';
  return error == std::errc() && ends && value > 0 ? std::optional(value) : std::nullopt;
}

}  // namespace

ProcessThreads process_threads(const ProcessIdentity& identity, const Environment& environment) {
  for (const char* const name : {"MKL_NUM_THREADS", "OMP_NUM_THREADS"}) {
    if (const auto threads = leading_number(environment, name)) {
      return {*threads, concat(count_of(*threads, "thread"), ": ", name, "=", *threads)};
    }
  }
  const std::vector<int> cpus = detail::allowed_cpus(0);
  const int logical = std::max(1, static_cast<int>(cpus.size()));
  detail::CoreShares shares;
  shares.allowed = std::max(1, detail::count_cores(cpus));
  shares.quota = detail::cpu_quota();
  shares.whole = shares.allowed;
  if (identity.launcher == "slurm") {
    if (const auto cpus_per_task = leading_number(environment, "SLURM_CPUS_PER_TASK")) {
      const int threads = std::min(shares.allowed, *cpus_per_task);
      return {threads, concat(count_of(threads, "thread"), ": SLURM_CPUS_PER_TASK=", *cpus_per_task, " and ",
                              count_of(shares.allowed, "core"))};
    }
    // Slurm's daemon may use more CPUs than the step; the step's CPUs are logical.
    const int step = leading_number(environment, "SLURM_CPUS_ON_NODE").value_or(logical);
    shares.whole = std::max(shares.allowed, shares.allowed * step / logical);
  } else if (identity.distributed()) {
    shares.whole =
        std::max(shares.allowed, detail::count_cores(detail::allowed_cpus(detail::launcher_process(identity))));
  }
  const int processes = identity.local_world_size > 0 ? identity.local_world_size : identity.world_size;
  const int threads = detail::share_cores(shares, processes);

  const bool limited = shares.quota && *shares.quota < shares.whole;
  const double whole = limited ? *shares.quota : shares.whole;
  const bool bound = shares.allowed < shares.whole && shares.allowed <= whole / processes;
  const std::string users = processes == 1 ? "this process" : concat(processes, " processes");
  std::string reason;
  if (bound) {
    reason = concat("the launcher has bound this process to ", count_of(shares.allowed, "core"));
  } else if (limited) {
    reason = concat("a CPU quota of ", to_fixed(whole, 1), " cores for ", users);
  } else {
    reason = concat(count_of(shares.whole, "core"), " for ", users);
  }
  return {threads, concat(count_of(threads, "thread"), ": ", reason)};
}

}  // namespace danling::inline v0
