// Bytes, messages and seconds of this library's communication, counted by the kernel and measured on this machine.
#pragma once

#include "scale_model.hpp"

namespace bench::scale {

/// Of one call; means over the ranks.
struct Counts {
  double bytes = 0.0;    ///< written to sockets
  double writes = 0.0;   ///< system calls that write
  double seconds = 0.0;  ///< duration, with all ranks on this machine
  double cpu = 0.0;      ///< seconds of CPU time
};

/// Ranks are threads that connect over the loopback address.
Counts count_agreement(int ranks, int calls);
Counts count_sum(int ranks, double bytes, int calls);
Counts count_requests_of_parts(int ranks, int calls);
/// All-gather of rows: `bytes` of each rank.
Counts count_rows(int ranks, double bytes, int calls);

struct Measured {
  double alpha = 0.0;      ///< seconds of a message of 512 bytes from one rank to another
  double bandwidth = 0.0;  ///< bytes per second
};
Measured measure_link(int times);

/// Requests per second that one TCPStore answers to `clients` threads.
double measure_store(int clients, double seconds);

/// Ranks as processes that join through a TCPStore; `split`: a second mesh, as for sums of gradients.
struct Joined {
  double seconds = 0.0;      ///< Group::connect of the slowest rank
  double store_bytes = 0.0;  ///< written by rank 0, whose process holds the store
  double split_bytes = 0.0;  ///< the same during the second mesh
  double split_reads = 0.0;  ///< its read calls during the second mesh: requests of the store's clients
  int sockets = 0;           ///< of rank 0, after both
  int others = 0;            ///< maximum over the other ranks
};
/// Forks: call it before this process has threads.
Joined count_join(int ranks, Mesh mesh);

double generator_state_bytes();

}  // namespace bench::scale
