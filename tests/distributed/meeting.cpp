// How processes meet, and what each says when they do not: one line, and nothing on stderr.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include <danling/core/error.hpp>
#include <danling/distributed/group.hpp>

#include <distributed/sockets.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>
#include <support/temp_dir.hpp>

namespace meeting_test {

using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using danling::Group;
using danling::ProcessIdentity;
using danling::detail::concat;
using danling_test::free_port;
using danling_test::identity_of_rank;
using danling_test::run_processes;
using namespace std::chrono_literals;

/// Returns the outcome of `Group::connect` in this process, "joined" or the error, then LibTorch's text on stderr.
std::string joining(const ProcessIdentity& identity, std::chrono::milliseconds timeout) {
  const danling_test::TempDir folder;
  const std::string log = (folder / "stderr").string();
  const int saved = dup(STDERR_FILENO);
  const int file = open(log.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  dup2(file, STDERR_FILENO);
  std::string text = "joined";
  try {
    Group::connect(identity, {.timeout = timeout, .host = {}}).barrier();
  } catch (const danling::DistributedError& error) {
    text = error.what();
  }
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(file);
  return text + danling_test::read_file(log);
}

/// Processes of one machine without an address, as mpirun starts them.
ProcessIdentity rank_of_job(int rank, int size, const std::string& job) {
  ProcessIdentity identity;
  identity.rank = identity.local_rank = rank;
  identity.world_size = identity.local_world_size = size;
  identity.launcher = "openmpi";
  identity.job = job;
  return identity;
}

/// A name that no other test of this machine uses.
std::string unique_job() {
  static int count = 0;
  return concat("job ", getpid(), " ", ++count);
}

/// The same error of several processes, whose numbers differ from run to run, as `process N on H`.
std::string without_processes(std::string text) {
  for (std::size_t at = 0; (at = text.find("process ", at)) != std::string::npos; ++at) {
    const std::size_t number = at + 8;
    const std::size_t end = text.find_first_not_of("0123456789", number);
    if (end != number && text.compare(end, 4, " on ") == 0) {
      text.replace(number, text.find_first_of(" ;", end + 4) - number, "N on H");
    }
  }
  return text;
}

TEST_CASE("Group: ranks of one machine find each other by the name of their job", "[distributed]") {
  const std::string job = unique_job();
  const std::string other = unique_job();
  // Two jobs at once: ranks 0 to 2 of the one, 3 and 4 of the other.
  const auto texts = run_processes(5, [&](int process) {
    const bool first = process < 3;
    const auto identity = first ? rank_of_job(process, 3, job) : rank_of_job(process - 3, 2, other);
    const Group group = Group::connect(identity, {.timeout = 60s, .host = {}});
    return danling::detail::join(group.all_gather(first ? "a" : "b"), "");
  });
  CHECK(texts == std::vector<std::string>{"aaa", "aaa", "aaa", "bb", "bb"});
}

TEST_CASE("Group: a job that died leaves nothing behind for the next of the same name", "[distributed]") {
  const std::string job = unique_job();
  const auto dead = run_processes(2, [&](int rank) {
    if (rank == 0) {
      std::thread([] {
        std::this_thread::sleep_for(300ms);
        kill(getpid(), SIGKILL);
      }).detach();
    }
    return joining(rank_of_job(rank, 3, job), rank == 0 ? 60s : 2s);
  });
  CHECK(dead[0] == "ended by 9");
  CHECK_THAT(dead[1], StartsWith("[group.connect] expected "));
  const auto texts = run_processes(2, [&](int rank) { return joining(rank_of_job(rank, 2, job), 60s); });
  danling_test::check_ranks(texts, "joined");
}

TEST_CASE("Group: a rank 0 that dies while the others wait ends them at once, in one line", "[distributed]") {
  const int port = free_port();
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const auto texts = run_processes(2, [&](int rank) {
    if (rank == 0) {
      std::thread([&] {
        char byte = 0;
        // Rank 1 has said that it will connect; it does so within a second, or finds nobody.
        (void)!read(ends[0], &byte, 1);
        std::this_thread::sleep_for(1s);
        kill(getpid(), SIGKILL);
      }).detach();
    } else {
      danling_test::expect(write(ends[1], "x", 1) == 1, "a pipe");
    }
    return joining(identity_of_rank(rank, 3, port), rank == 0 ? 60s : 4s);
  });
  close(ends[0]);
  close(ends[1]);
  CHECK(texts[0] == "ended by 9");
  const std::string ended = concat("[group.connect] expected 3 processes at 127.0.0.1:", port,
                                   " within 4 s, got on rank 1: rank 0 has ended; see the log of rank 0, and start "
                                   "all again");
  const std::string late = concat("[group.connect] expected rank 1 to reach rank 0 at 127.0.0.1:", port,
                                  " within 4 s, got: Connection refused; see whether rank 0 runs, and MASTER_ADDR "
                                  "and MASTER_PORT");
  INFO(texts[1]);
  // LibTorch has the last word where rank 0 dies in the middle of an answer.
  CHECK((texts[1].starts_with(ended) || texts[1].starts_with(late) ||
         texts[1].find(" got on rank 1: ") != std::string::npos));
}

TEST_CASE("Group: the timeout names the missing ranks on all others", "[distributed]") {
  const int port = free_port();
  const std::string job = unique_job();
  const auto texts = run_processes(3, [&](int process) {
    const int rank = process == 1 ? 3 : process;
    return joining(identity_of_rank(rank, 5, port), 8s) + "\n" + joining(rank_of_job(rank, 5, job), 8s);
  });
  for (const auto& text : {texts[0], texts[2]}) {
    CHECK_THAT(text, StartsWith(concat("[group.connect] expected 5 processes at 127.0.0.1:", port,
                                       " within 8 s, got none of rank 1, 4; see the logs of those processes, and "
                                       "start all again\n[group.connect] expected 5 processes at 127.0.0.1:")));
    CHECK_THAT(text, EndsWith(" within 8 s, got none of rank 1, 4; see the logs of those processes, and start all "
                              "again"));
  }
}

TEST_CASE("Group: a rank 0 that does not come is named", "[distributed]") {
  const int port = free_port();
  const std::string job = unique_job();
  const auto texts = run_processes(2, [&](int process) {
    return joining(identity_of_rank(process + 1, 3, port), 1s) + "\n" + joining(rank_of_job(process + 1, 3, job), 1s);
  });
  for (int process = 0; process < 2; ++process) {
    CHECK(texts[static_cast<std::size_t>(process)] ==
          concat("[group.connect] expected rank ", process + 1, " to reach rank 0 at 127.0.0.1:", port,
                 " within 1 s, got: Connection refused; see whether rank 0 runs, and MASTER_ADDR and MASTER_PORT\n",
                 "[group.connect] expected rank 0 of this job on this machine within 1 s, got none (seen from rank ",
                 process + 1, "); see the log of rank 0, or set MASTER_ADDR=127.0.0.1 and MASTER_PORT to a free port"));
  }
}

TEST_CASE("Group: a rank that declines ends the others with its words, whoever comes first", "[distributed]") {
  for (const int declining : {0, 2}) {
    for (const bool by_name : {false, true}) {
      for (const bool first : {false, true}) {
        const int port = free_port();
        const std::string job = unique_job();
        const auto texts = run_processes(3, [&](int rank) -> std::string {
          const auto identity = by_name ? rank_of_job(rank, 3, job) : identity_of_rank(rank, 3, port);
          if ((rank == declining) != first) {
            std::this_thread::sleep_for(500ms);
          }
          if (rank == declining) {
            danling::Group::abort_connect(identity, "[data] no file", 30s);
            return "declined";
          }
          return joining(identity, 60s);
        });
        for (int rank = 0; rank < 3; ++rank) {
          CHECK(texts[static_cast<std::size_t>(rank)] ==
                (rank == declining ? "declined"
                                   : concat("[group.connect] expected all ranks to start, got an error on rank ",
                                            declining, ": [data] no file")));
        }
      }
    }
  }
}

TEST_CASE("Group: a rank that declines where nobody comes, or after a meeting, disturbs nobody", "[distributed]") {
  const int port = free_port();
  const auto texts = run_processes(2, [&](int rank) -> std::string {
    const auto identity = identity_of_rank(rank, 2, port);
    const auto alone = identity_of_rank(rank, 3, free_port());
    if (rank == 1) {
      danling::Group::abort_connect(alone, "[data] no file", 100ms);
    }
    const danling::Group group = danling::Group::connect(identity);
    danling::Group::abort_connect(identity, "[data] no file", 30s);
    return concat(group.all_gather(concat(rank)).size());
  });
  danling_test::check_ranks(texts, "2");
}

TEST_CASE("Group: a rank that was started twice is an error on every rank before the timeout", "[distributed]") {
  // Ranks 0, 1, 1 of 3, by port and by name; then 0, 0, 1 of 3. All at once: rank 0 waits a while for the one that has
  // not come.
  const int ports[] = {free_port(), free_port()};
  const std::string jobs[] = {unique_job(), unique_job()};
  const auto texts = run_processes(12, [&](int process) {
    const int rank = process < 6 ? std::min(process % 3, 1) : std::max(process % 3 - 1, 0);
    auto identity =
        process / 3 % 2 == 1 ? rank_of_job(rank, 3, jobs[process / 6]) : identity_of_rank(rank, 3, ports[process / 6]);
    return without_processes(joining(identity, 60s));
  });
  for (int process = 0; process < 12; ++process) {
    const std::string& text = texts[static_cast<std::size_t>(process)];
    const int doubled = process < 6 ? 1 : 0;
    INFO("rank " << doubled << (process / 3 % 2 == 1 ? " by name" : " by port"));
    CHECK_THAT(text, StartsWith(concat("[group.connect] expected one process of rank ", doubled, " at 127.0.0.1:")));
    CHECK_THAT(text, EndsWith("got two: process N on H and process N on H; start each rank once, and each run at a "
                              "MASTER_PORT that no other uses"));
  }
}

TEST_CASE("Group: worlds of different sizes are an error on every rank before the timeout", "[distributed]") {
  const int port = free_port();
  const auto texts =
      run_processes(3, [&](int rank) { return joining(identity_of_rank(rank, rank == 2 ? 4 : 3, port), 60s); });
  danling_test::check_ranks(texts,
                            "[group.connect] expected the same world size on all ranks, got 3 on rank 0 and 4 on rank "
                            "2; start all ranks with the same WORLD_SIZE");
}

TEST_CASE("Group: two jobs at one port do not mix, and the second is told", "[distributed]") {
  const int port = free_port();
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const auto texts = run_processes(3, [&](int process) {
    auto identity = identity_of_rank(process == 2 ? 1 : process, 2, port);
    identity.job = process == 2 ? "job b" : "job a";
    char byte = 0;
    if (process == 1) {  // joins when the stranger has been refused
      danling_test::expect(read(ends[0], &byte, 1) == 1, "a word of the stranger");
    }
    const std::string text = joining(identity, 60s);
    if (process == 2) {
      danling_test::expect(write(ends[1], &byte, 1) == 1, "a pipe");
    }
    return without_processes(text);
  });
  close(ends[0]);
  close(ends[1]);
  CHECK(texts[0] == "joined");
  CHECK(texts[1] == "joined");
  CHECK(texts[2] ==
        concat("[group.connect] expected rank 1 to meet its job at 127.0.0.1:", port,
               ", got the ranks of another job (process N on H is its rank 0); choose another MASTER_PORT"));
}

TEST_CASE("Group: a port that another program uses is named by rank 0", "[distributed]") {
  const danling::detail::Socket stranger = danling::detail::listen_at("127.0.0.1", 0);
  const int port = danling::detail::port_of(stranger);
  const auto texts =
      run_processes(2, [&](int rank) { return joining(identity_of_rank(rank, 2, port), rank == 0 ? 60s : 2s); });
  CHECK(texts[0] == concat("[group.connect] expected rank 0 to listen at 127.0.0.1:", port, ", got port ", port,
                           " in use by another program; end that program, or choose another MASTER_PORT"));
  CHECK(texts[1] == concat("[group.connect] expected rank 1 to reach rank 0 at 127.0.0.1:", port,
                           " within 2 s, got: what listens there does not answer: another program, or a rank 0 that is "
                           "stopped or may open no more files; see whether rank 0 runs, and MASTER_ADDR and "
                           "MASTER_PORT"));
}

TEST_CASE("Group: rank 0 takes a port that a connection has just had, as soon as it is free", "[distributed]") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const danling::detail::Socket listening = danling::detail::listen_at("127.0.0.1", 0);
  const auto texts = run_processes(3, [&](int process) -> std::string {
    int port = 0;
    if (process < 2) {
      danling_test::expect(read(ends[0], &port, sizeof port) == sizeof port, "a port");
      return joining(identity_of_rank(process, 2, port), 60s);
    }
    const danling::detail::Socket connected(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    danling_test::expect(bind(connected.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "a port");
    port = danling::detail::port_of(connected);
    address.sin_port = htons(static_cast<std::uint16_t>(danling::detail::port_of(listening)));
    danling_test::expect(connect(connected.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
                         "a connection");
    for (int rank = 0; rank < 2; ++rank) {
      danling_test::expect(write(ends[1], &port, sizeof port) == sizeof port, "a pipe");
    }
    std::this_thread::sleep_for(1s);
    const linger at_once = {1, 0};  // the system keeps the port of other connections for a minute
    setsockopt(connected.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    return "joined";
  });
  close(ends[0]);
  close(ends[1]);
  danling_test::check_ranks(texts, "joined");
}

TEST_CASE("Group: a rank 0 that is stopped while the others wait ends them at the timeout", "[distributed]") {
  const int port = free_port();
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const auto texts = run_processes(2, [&](int rank) {
    pid_t process = getpid();
    if (rank == 0) {
      danling_test::expect(write(ends[1], &process, sizeof process) == sizeof process, "a pipe");
      return joining(identity_of_rank(0, 3, port), 60s);
    }
    danling_test::expect(read(ends[0], &process, sizeof process) == sizeof process, "the process of rank 0");
    std::thread stopper([process] {
      std::this_thread::sleep_for(1s);
      kill(process, SIGSTOP);
    });
    std::string text = joining(identity_of_rank(1, 3, port), 4s);
    stopper.join();
    kill(process, SIGKILL);
    return text;
  });
  close(ends[0]);
  close(ends[1]);
  CHECK(texts[0] == "ended by 9");
  CHECK_THAT(texts[1], StartsWith("[group.connect] expected "));
  CHECK_THAT(texts[1], ContainsSubstring(" does not answer"));
}

TEST_CASE("Group: an address that is no host's is an error", "[distributed]") {
  const int port = free_port();
  const auto texts = run_processes(2, [&](int rank) {
    auto identity = identity_of_rank(rank, 2, port);
    identity.master_address = "no-such-host.invalid";
    return joining(identity, 1s);
  });
  CHECK_THAT(texts[0],
             StartsWith(concat("[group.connect] expected MASTER_ADDR to lead to rank 0, which listens at port ", port,
                               " of its machine, got at no-such-host.invalid:", port,
                               ": the address of host 'no-such-host.invalid' is unknown (")));
  CHECK_THAT(texts[0], EndsWith("); set MASTER_ADDR to the host of rank 0"));
  CHECK_THAT(texts[1], StartsWith(concat("[group.connect] expected rank 1 to reach rank 0 at no-such-host.invalid:",
                                         port, " within 1 s, got: the address of host 'no-such-host.invalid' is")));
}

TEST_CASE("Group: processes on several machines without an address are an error", "[distributed]") {
  auto identity = rank_of_job(1, 4, "job");
  identity.local_world_size = 2;
  CHECK(danling_test::error_of<danling::DistributedError>([&] { Group::connect(identity); }) ==
        "[group.connect] expected MASTER_ADDR and MASTER_PORT for a world of 4, got no MASTER_ADDR and no "
        "MASTER_PORT; set both on every "
        "rank: the host of rank 0, and a free port there");
  identity.local_world_size = 4;
  identity.master_port = 29500;
  CHECK(danling_test::error_of<danling::DistributedError>([&] { Group::connect(identity); }) ==
        "[group.connect] expected MASTER_ADDR and MASTER_PORT for a world of 4, got no MASTER_ADDR; set both on every "
        "rank: the host of rank 0, and a free port there");
}

TEST_CASE("Group: listens on loopback only for an address on loopback", "[distributed]") {
  const auto listens_at_all = [](const std::string& host) {
    const auto socket = danling::detail::listen_at(host, 0);
    // 127.0.0.2 is another address of this machine.
    try {
      danling::detail::reach("127.0.0.2", danling::detail::port_of(socket), std::chrono::steady_clock::now() + 200ms);
      return true;
    } catch (const std::runtime_error&) {
      return false;
    }
  };
  CHECK_FALSE(listens_at_all("127.0.0.1"));
  CHECK_FALSE(listens_at_all("localhost"));
  CHECK(listens_at_all("node0.example"));
}

}  // namespace meeting_test
