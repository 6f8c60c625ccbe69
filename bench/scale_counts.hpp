// Bytes, messages and seconds of this library's communications, counted by the kernel and measured on this machine.
#pragma once

#include "scale_model.hpp"

namespace bench::scale {

/// Of one call, as the mean over the ranks.
struct Counts {
  double bytes = 0.0;    ///< written to sockets
  double writes = 0.0;   ///< system calls that write
  double seconds = 0.0;  ///< between begin and end, all ranks on this machine
  double cpu = 0.0;      ///< seconds
};

/// Ranks as threads that connect over the loopback address.
Counts count_agreement(int ranks, int calls);
Counts count_sum(int ranks, double bytes, int calls);
Counts count_requests_of_parts(int ranks, int calls);
/// All-gather of rows: `bytes` of each rank.
Counts count_rows(int ranks, double bytes, int calls);

struct Measured {
  double alpha = 0.0;      ///< seconds from one rank to another: 512 bytes
  double bandwidth = 0.0;  ///< bytes per second
};
Measured measure_link(int times);

/// Requests per second that one TCPStore answers to `clients` threads.
double measure_store(int clients, double seconds);

/// Ranks as processes that join over TCPStore; `split` makes a second mesh, as the sums of gradients do.
struct Joined {
  double seconds = 0.0;      ///< Group::connect, of the slowest
  double store_bytes = 0.0;  ///< written by rank 0, whose process holds the store
  double split_bytes = 0.0;  ///< the same while the second mesh is made
  double split_reads = 0.0;  ///< system calls of the same that read: requests of the store's clients
  int sockets = 0;           ///< of rank 0, after both
  int others = 0;            ///< most of another rank
};
/// Forks: called before this process has threads.
Joined count_join(int ranks, Mesh mesh);

double generator_state_bytes();

}  // namespace bench::scale
