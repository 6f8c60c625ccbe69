// The processes of one contestant of the data parallel benchmark, which train in step on command.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "ddp_work.hpp"
#include "peers.hpp"

namespace bench {

/// A port of the loopback address without a listener.
inline int free_port() {
  const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (bind(probe, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      getsockname(probe, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    give_up("expected a free port of 127.0.0.1, got none");
  }
  close(probe);
  return ntohs(address.sin_port);
}

/// Starts all ranks. With `joined` they get the variables of torchrun and form a group; otherwise each runs alone.
class Ranks {
 public:
  Ranks(int count, bool joined, const std::vector<std::string>& command) {
    const int port = joined ? free_port() : 0;
    for (int rank = 0; rank < count; ++rank) {
      std::vector<std::string> environment = {"OMP_NUM_THREADS=1"};
      if (joined) {
        const std::string place = std::to_string(rank), size = std::to_string(count);
        environment.insert(environment.end(),
                           {"RANK=" + place, "LOCAL_RANK=" + place, "WORLD_SIZE=" + size, "LOCAL_WORLD_SIZE=" + size,
                            "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(port), "GLOO_SOCKET_IFNAME=lo"});
      }
      start(command, environment);
    }
  }
  ~Ranks() {
    for (Rank& rank : ranks_) {
      kill(rank.id, SIGKILL);  // it has nothing to save, and may wait for a failed rank
      std::fclose(rank.to);
      std::fclose(rank.from);
    }
    for (const Rank& rank : ranks_) {
      waitpid(rank.id, nullptr, 0);
    }
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  /// Waits until all are ready to train.
  void await_ready() {
    for (Rank& rank : ranks_) {
      answer_of(rank);
    }
  }

  /// Trains `steps` steps on all ranks. Returns the seconds of the slowest and the means of the other numbers.
  Block train(int steps) {
    for (Rank& rank : ranks_) {
      std::fprintf(rank.to, "%d\n", steps);
      std::fflush(rank.to);
    }
    Block all;
    const auto count = static_cast<double>(ranks_.size());
    for (Rank& rank : ranks_) {
      Block one;
      const std::string answer = answer_of(rank);
      if (std::sscanf(answer.c_str(), "ok %lf %lf %lf %lf %lf", &one.seconds, &one.cpu_seconds, &one.written,
                      &one.sleeps, &one.loss) != 5) {
        give_up("expected five numbers of a rank, got " + answer);
      }
      all.seconds = std::max(all.seconds, one.seconds);
      all.cpu_seconds += one.cpu_seconds / count;
      all.written += one.written / count;
      all.sleeps += one.sleeps / count;
      all.loss += one.loss / count;
    }
    return all;
  }

 private:
  struct Rank {
    pid_t id = -1;
    std::FILE* to = nullptr;
    std::FILE* from = nullptr;
  };

  // Replaces variables that a launcher of this benchmark may have set.
  static std::vector<std::string> environment_with(const std::vector<std::string>& ours) {
    std::vector<std::string> out = ours;
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string text = *variable;
      const bool replaced = std::any_of(ours.begin(), ours.end(), [&](const std::string& one) {
        return text.starts_with(one.substr(0, one.find('=') + 1));
      });
      bool launcher = false;
      for (const char* prefix :
           {"RANK=", "LOCAL_", "WORLD_SIZE=", "MASTER_", "SLURM_", "OMPI_", "PMI", "TORCHELASTIC_"}) {
        launcher = launcher || text.starts_with(prefix);
      }
      if (!replaced && !launcher) {
        out.push_back(text);
      }
    }
    return out;
  }

  void start(std::vector<std::string> command, const std::vector<std::string>& ours) {
    int to[2];
    int from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) {
      give_up("expected two pipes, got none");
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    std::vector<std::string> environment = environment_with(ours);
    std::vector<char*> argv, envp;
    for (std::string& word : command) {
      argv.push_back(word.data());
    }
    for (std::string& variable : environment) {
      envp.push_back(variable.data());
    }
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    Rank rank;
    const int failed = posix_spawnp(&rank.id, argv.front(), &actions, nullptr, argv.data(), envp.data());
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    rank.to = fdopen(to[1], "w");
    rank.from = fdopen(from[0], "r");
    if (failed != 0) {
      give_up("expected to start " + command.front());
    }
    ranks_.push_back(rank);
  }

  static std::string answer_of(const Rank& rank) {
    char line[512];
    if (std::fgets(line, sizeof line, rank.from) == nullptr) {
      give_up("expected an answer of a rank, got none; its error is above");
    }
    return line;
  }

  std::vector<Rank> ranks_;
};

}  // namespace bench
