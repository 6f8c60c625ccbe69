#include "launch_options.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>

#include <danling/core/error.hpp>

#include "arguments.hpp"

namespace danling_command {
namespace {

using danling::ConfigError;
using danling::detail::check;
using danling::detail::quote;

constexpr auto where = "launch";
constexpr int most_workers = 1024;
constexpr int longest_grace = 1'000'000;
constexpr int lowest_port = 10000;  ///< many services have ports below

const std::initializer_list<Option> option_list = {
    {"--workers", "N", "processes to start; -n N is the same"},
    {"--max-restarts", "R", "restart all workers after a failure, up to R times (0)"},
    {"--min-workers", "M", "use one worker fewer at each restart, but at least M (N: always N)"},
    {"--grace-seconds", "S", "seconds between SIGTERM or a forwarded signal and SIGKILL (30)"},
    {"--master-port", "PORT", "MASTER_PORT (a new free port for each attempt)"},
    {"--no-prefix", "", "do not prefix lines of output with [rank]"},
    {"--help", "", "print this text"},
};

void print_help() {
  std::printf(
      "Usage: danling launch -n N [options] -- PROGRAM [arguments]\n\n"
      "Starts N processes of PROGRAM on this machine with the variables of torchrun: RANK, LOCAL_RANK, WORLD_SIZE,\n"
      "LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RESTART_COUNT,\n"
      "TORCHELASTIC_MAX_RESTARTS and TORCHELASTIC_RUN_ID. The workers read nothing from stdin.\n\n"
      "%s\n"
      "If a worker fails, the others get SIGTERM. If a worker ends with code 0 or 75 (time limit), the others\n"
      "continue. Exit codes 2 (an error of the config) and 75 cause no restart.\n"
      "Forwards SIGINT, SIGTERM, SIGHUP and SIGQUIT and ends without a restart; at a second SIGINT or SIGTERM kills\n"
      "the workers by SIGKILL. Forwards SIGUSR1 and SIGUSR2. If this command dies, the workers die too.\n\n"
      "Exit code: 0; the code of the first worker that failed, or 128 + signal; 75 after a time limit;\n"
      "126 or 127 if PROGRAM cannot be started; 2 for wrong options.\n",
      describe(option_list).c_str());
}

/// Converts `-n N` and `-nN` to the long form, since `Arguments` accepts only names with two dashes.
std::vector<std::string> long_names(std::span<const std::string> options) {
  std::vector<std::string> out;
  for (const auto& word : options) {
    if (word == "-n") {
      out.emplace_back("--workers");
    } else if (word.starts_with("-n")) {
      out.push_back("--workers=" + word.substr(2));
    } else {
      out.push_back(word);
    }
  }
  return out;
}

int whole_number(const Arguments& arguments, std::string_view option, int low, int high, int otherwise) {
  const std::int64_t value = arguments.integer(option, low).value_or(otherwise);
  check<ConfigError>(value <= high, where, "expected ", option, " with a whole number of at most ", high, ", got ",
                     value);
  return static_cast<int>(value);
}

/// Binds a socket of 127.0.0.1 to `port`, or to one that the system assigns and that is then returned in it, and closes
/// the socket. Returns errno of a failure, or 0.
int bind_once(int& port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  check<danling::StateError>(listener >= 0, where, "expected a socket, got ", std::strerror(errno));
  // As a server would do: a port whose old connections are still closing is free.
  const int yes = port != 0 ? 1 : 0;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  socklen_t size = sizeof address;
  auto* const place = reinterpret_cast<sockaddr*>(&address);
  const bool bound = bind(listener, place, size) == 0 && getsockname(listener, place, &size) == 0;
  const int reason = bound ? 0 : errno;
  close(listener);
  port = ntohs(address.sin_port);
  return reason;
}

}  // namespace

std::optional<LaunchOptions> read_launch_options(std::span<const std::string> words) {
  const auto program = std::find(words.begin(), words.end(), "--");
  check<ConfigError>(program != words.end() || std::find(words.begin(), words.end(), "--help") != words.end(), where,
                     "expected -- between the options and the program, as in danling launch -n 2 -- ./train, got none");
  const Arguments arguments(where, long_names({words.begin(), program}), option_list);
  if (arguments.has("--help")) {
    print_help();
    return std::nullopt;
  }
  const auto& strangers = arguments.positional();
  check<ConfigError>(strangers.empty(), where, "expected only options before --, and the program after it, got ",
                     strangers.empty() ? "" : quote(strangers.front()), "; --help lists them");
  check<ConfigError>(program + 1 != words.end(), where, "expected a program after --, got none");
  check<ConfigError>(arguments.has("--workers"), where, "expected -n N, the number of workers, got none");
  LaunchOptions out;
  out.program.assign(program + 1, words.end());
  out.workers = whole_number(arguments, "--workers", 1, most_workers, 1);
  out.min_workers = whole_number(arguments, "--min-workers", 1, most_workers, out.workers);
  check<ConfigError>(out.min_workers <= out.workers, where, "expected --min-workers of at most ", out.workers,
                     " (the workers), got ", out.min_workers);
  out.max_restarts = whole_number(arguments, "--max-restarts", 0, 1 << 20, 0);
  check<ConfigError>(out.max_restarts > 0 || !arguments.has("--min-workers"), where,
                     "expected --max-restarts with --min-workers, which only restarts read, got none");
  if (arguments.has("--master-port")) {
    out.master_port = free_port(whole_number(arguments, "--master-port", 1, 65535, 0));
  }
  const double grace = arguments.number("--grace-seconds").value_or(30);
  check<ConfigError>(grace <= longest_grace, where, "expected --grace-seconds of at most ", longest_grace, ", got ",
                     grace);
  out.grace = std::chrono::milliseconds(std::llround(grace * 1000));
  out.prefix = !arguments.has("--no-prefix");
  return out;
}

int free_port(int port) {
  if (port != 0) {
    const int reason = bind_once(port);
    check<ConfigError>(reason == 0, where, "expected --master-port with a free port, got ", port, " (",
                       std::strerror(reason), ")");
    return port;
  }
  // Below the ports that the system assigns: a connection of any program could get one of those before rank 0 listens.
  int assigned = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> assigned;
  std::random_device random;
  for (int tries = 0; tries < 64 && assigned > lowest_port; ++tries) {
    int chosen = std::uniform_int_distribution<int>(lowest_port, assigned - 1)(random);
    if (bind_once(chosen) == 0) {
      return chosen;
    }
  }
  const int reason = bind_once(port);
  check<danling::StateError>(reason == 0, where, "expected a free port on 127.0.0.1, got ", std::strerror(reason));
  return port;
}

}  // namespace danling_command
