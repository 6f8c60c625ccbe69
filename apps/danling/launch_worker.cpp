#include "launch_worker.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <danling/core/format.hpp>

namespace danling_command {
namespace {

using danling::detail::concat;

constexpr auto where = "launch";

std::vector<std::string> variables_of(const WorkerPlace& place) {
  return {
      concat("RANK=", place.rank),
      concat("LOCAL_RANK=", place.rank),
      concat("WORLD_SIZE=", place.world_size),
      concat("LOCAL_WORLD_SIZE=", place.world_size),
      "GROUP_RANK=0",
      "MASTER_ADDR=127.0.0.1",
      concat("MASTER_PORT=", place.master_port),
      concat("TORCHELASTIC_RESTART_COUNT=", place.restart_count),
      concat("TORCHELASTIC_MAX_RESTARTS=", place.max_restarts),
      concat("TORCHELASTIC_RUN_ID=", place.run_id),
      "TORCHELASTIC_USE_AGENT_STORE=False",  // rank 0, not this process, listens on MASTER_PORT
  };
}

}  // namespace

Worker::Worker(const std::vector<std::string>& program, const WorkerPlace& place, const danling::SignalQueue& signals)
    : Worker(program, place, signals, Pipes{danling::Pipe(where), danling::Pipe(where)}) {}

Worker::Worker(const std::vector<std::string>& program, const WorkerPlace& place, const danling::SignalQueue& signals,
               Pipes&& pipes)
    : ChildProcess({.where = where,
                    .program = program,
                    .variables = variables_of(place),
                    .output = pipes.out.writer(),
                    .error = pipes.err.writer()},
                   signals),
      rank_(place.rank) {
  streams_[0].descriptor = pipes.out.take_reader();
  streams_[1].descriptor = pipes.err.take_reader();
  for (const auto& stream : streams_) {
    fcntl(stream.descriptor, F_SETFL, O_NONBLOCK);
  }
}

Worker::~Worker() { release(); }

void Worker::release() {
  ChildProcess::release();
  for (auto& stream : streams_) {
    if (stream.descriptor >= 0) {
      close(stream.descriptor);
      stream.descriptor = -1;
    }
  }
}

}  // namespace danling_command
