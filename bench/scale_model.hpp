// Models the time of this library's communication over links, in closed form or message by message.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace bench::scale {

/// A message of `b` bytes takes `alpha + b / bandwidth` seconds.
struct Link {
  std::string name;
  double alpha = 0.0;      ///< seconds
  double bandwidth = 1.0;  ///< bytes per second, in each direction

  double of(double bytes) const { return alpha + bytes / bandwidth; }
};

// From src/distributed/group_call.cpp: the packet at the start of a collective, and the part of it that is data.
constexpr double packet_bytes = 1024;
constexpr double payload_bytes = packet_bytes - 16;
// From src/distributed/shapes.cpp: a tensor of one dimension in a request.
constexpr double shape_bytes = 40;
// From src/distributed/gathers.cpp: longer rows are broadcast, one rank after another.
constexpr double padded_bytes = 1 << 20;

inline double rounds(double n) { return std::ceil(std::log2(n)); }

/// Gloo's all-gather: a ring with n - 1 messages of `bytes`.
inline double ring_gather(const Link& link, double n, double bytes) { return (n - 1) * link.of(bytes); }

/// Bytes that a rank sends in Group::all_gather of `body` bytes per rank: a second gather carries data beyond the
/// packet.
inline double exchange_bytes(double n, double body) {
  return (n - 1) * (packet_bytes + std::max(0.0, body - payload_bytes));
}
inline double exchange(const Link& link, double n, double body) {
  return ring_gather(link, n, packet_bytes) + (body > payload_bytes ? ring_gather(link, n, body - payload_bytes) : 0.0);
}

/// Gloo's all-reduce: a ring of n chunks, one pass to add and one to share.
inline double ring_sum_bytes(double n, double bytes) { return 2 * (n - 1) * bytes / n; }
inline double ring_sum(const Link& link, double n, double bytes) { return 2 * (n - 1) * link.of(bytes / n); }

inline double all_to_all(const Link& link, double n, double bytes) { return link.of(bytes * (n - 1) / n); }

/// Simulates each message in a ring. A hop takes `link.of(bytes)`, or a random time with this mean: half fixed, half
/// exponential. Rank r has its s-th packet once it has the previous one and its neighbour has the s-1-th.
inline double simulate_ring_gather(const Link& link, std::int64_t n, double bytes, bool random) {
  std::mt19937_64 engine(1);
  std::exponential_distribution<double> late(1.0);
  const double hop = link.of(bytes);
  std::vector<double> before(static_cast<std::size_t>(n), 0.0), now = before;
  for (std::int64_t step = 1; step < n; ++step) {
    for (std::size_t rank = 0; rank < now.size(); ++rank) {
      const double left = before[rank == 0 ? now.size() - 1 : rank - 1];
      now[rank] = std::max(before[rank], left) + (random ? 0.5 * hop * (1.0 + late(engine)) : hop);
    }
    std::swap(before, now);
  }
  return *std::max_element(before.begin(), before.end());
}

/// Simulates each message: every rank in turn broadcasts `bytes` along Gloo's binomial tree. A rank begins the next
/// broadcast when it has received this one and sent its messages.
inline double simulate_broadcasts(const Link& link, std::int64_t n, double bytes) {
  const auto size = static_cast<std::size_t>(n);
  const double leaves = bytes / link.bandwidth;
  std::vector<double> clock(size, 0.0), arrived(size, 0.0);
  for (std::size_t root = 0; root < size; ++root) {
    arrived[0] = clock[root];
    for (std::size_t at = 0; at < size; ++at) {  // a parent's number, counted from the root, is below its children's
      double& own = clock[(at + root) % size];
      own = std::max(own, arrived[at]);
      for (std::size_t bit = std::bit_ceil(at + 1); at + bit < size; bit *= 2) {
        own += leaves;
        arrived[at + bit] = own + link.alpha;
      }
    }
  }
  return *std::max_element(clock.begin(), clock.end());
}

/// Sum along the tree of virtual ranks between machines (src/distributed/bucket_exchange.cpp): all-to-all of the parts,
/// then all-gather of the sums.
struct TreeTimes {
  double requests = 0.0;  ///< shapes of all parts, sent from each rank to each
  double parts = 0.0;
  double sums = 0.0;
  double total() const { return requests + parts + sums; }
};
inline TreeTimes tree_sum(const Link& link, std::int64_t ranks, double bytes) {
  const auto n = static_cast<double>(ranks);
  TreeTimes out;
  out.requests = exchange(link, n, 8 + shape_bytes * n) + exchange(link, n, shape_bytes);
  out.parts = all_to_all(link, n, bytes);
  out.sums = bytes > padded_bytes ? simulate_broadcasts(link, ranks, bytes / n) : ring_gather(link, n, bytes / n);
  return out;
}

/// float32 parameters in the order of the model.
struct Model {
  std::string name;
  std::vector<double> numels;

  double count() const {
    double sum = 0.0;
    for (const double numel : numels) {
      sum += numel;
    }
    return sum;
  }
  double bytes() const { return 4 * count(); }
  /// Buckets as Reducer fills them, from the last parameter on: 1 MiB for the first, 25 MiB for the others.
  std::vector<double> buckets() const {
    std::vector<double> out;
    for (std::size_t left = numels.size(); left > 0; --left) {
      const double bytes = std::ceil(numels[left - 1] / 16) * 64;
      const double limit = (out.size() == 1 ? 1.0 : 25.0) * (1 << 20);
      if (out.empty() || out.back() + bytes > limit) {
        out.push_back(0.0);
      }
      out.back() += bytes;
    }
    return out;
  }
};

/// Linear layers with biases, of the given widths.
inline Model layers(std::string name, const std::vector<double>& widths) {
  Model out{std::move(name), {}};
  for (std::size_t i = 1; i < widths.size(); ++i) {
    out.numels.push_back(widths[i - 1] * widths[i]);
    out.numels.push_back(widths[i]);
  }
  return out;
}

inline double ring_sum_of(const Link& link, double n, const Model& model) {
  double seconds = 0.0;
  for (const double bytes : model.buckets()) {
    seconds += ring_sum(link, n, bytes);
  }
  return seconds;
}

// A Gloo message has a header; two more messages with a header announce the sender and the receiver of each data
// message.
constexpr double header_bytes = 48;
constexpr double writes_per_message = 3;
/// Bytes that a rank writes to sockets for `messages` with `bytes` of data in total.
inline double on_sockets(double bytes, double messages) { return bytes + header_bytes * writes_per_message * messages; }

/// How Gloo's ranks exchange addresses through the store.
enum class Mesh {
  plain,
  numbered,  ///< GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER=1: connections are numbered by rank
  batched    ///< also GLOO_ENABLE_STORE_V2_API=1: 128 entries per request
};

/// Sockets of rank 0: two meshes, its listeners, and two connections of each process to its store.
inline double sockets_of_first(double n) { return 2 * (n - 1) + 2 * n + 5; }
inline double sockets_of_others(double n) { return 2 * (n - 1) + 4; }

/// Bytes that rank 0, which has the store, writes while all n ranks connect to each other: every rank reads an entry of
/// every rank, which holds a host and an address (`entry` bytes, including the protocol), and 8 bytes per rank if
/// connections have separate numbers. Then the barrier of Group::split.
inline double mesh_bytes(double n, double entry, Mesh mesh) {
  return n * n * (entry + (mesh == Mesh::plain ? 8 * n : 0.0)) + on_sockets((n - 1) * packet_bytes, 2 * (n - 1));
}
/// Requests to the store for the same: each rank sets its entry; then for each entry it waits twice and gets once, or
/// for each 128 entries it waits once and gets once.
inline double mesh_requests(double n, Mesh mesh) {
  return n + (mesh == Mesh::batched ? 2 * n * std::ceil(n / 128) : 3 * n * n);
}

/// NCCL's model of an all-reduce over machines of eight GPUs: src/graph/tuning.cc at 01afd20, protocol Simple, the
/// faster of ring and tree. `network`: bytes per second per machine; NVLink limited as that file does for an A100.
inline double nccl_sum(double n, double bytes, double network) {
  constexpr double us = 1e-6, local = 8, nvlink = 235e9;
  const double machines = std::ceil(n / local), steps = 2 * (n - 1), far = machines > 1 ? 2 * (machines - 1) : 0;
  const double bandwidth = machines > 1 ? network : nvlink;
  const double ring = 8.4 * us + (steps - far) * 3.4 * us + far * 9.6 * us + bytes * steps / n / bandwidth;
  const double tree = 2 * ((std::min(n, local) - 1) * 28 * us + std::floor(std::log2(machines)) * 50 * us) +
                      bytes / (0.5 * 0.9 * bandwidth);
  return std::min(ring, tree);
}

}  // namespace bench::scale
