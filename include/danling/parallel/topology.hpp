// Processes as a grid of named axes: coordinates of a rank, and the groups along an axis or several.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/distributed/group.hpp>

namespace danling::inline v0 {

/// Number of processes along an axis.
struct ParallelAxis {
  std::string name;
  std::int64_t degree = 1;  ///< -1: what the other axes leave; of one axis only
};

/// Axes over which something is combined.
struct ParallelDomain {
  std::string name;
  std::vector<std::string> axes;
};

/// A rank's coordinates in an ordered grid of axes, of which the last one varies fastest: neighbouring ranks differ
/// there. (DanLing: ParallelTopology)
class ParallelTopology {
 public:
  /// One process, without axes.
  ParallelTopology() = default;
  /// Every axis is also a domain of its own.
  /// @param label  names the topology in messages
  /// @throws ConfigError, with the arithmetic, unless the degrees multiply to the world size; for a second -1, a degree
  ///         below 1, axes or domains of equal names, and a domain of no or unknown axes
  ParallelTopology(std::int64_t world_size, std::int64_t rank, std::vector<ParallelAxis> axes,
                   std::vector<ParallelDomain> domains = {}, std::string_view label = "parallel topology");

  std::int64_t world_size() const { return world_size_; }
  std::int64_t rank() const { return rank_; }
  /// With their degrees, in order.
  const std::vector<ParallelAxis>& axes() const { return axes_; }
  /// Of this rank, by axis.
  std::map<std::string, std::int64_t> coordinates() const { return coordinates_of(rank_); }
  std::map<std::string, std::int64_t> coordinates_of(std::int64_t rank) const;
  /// Of the process at the coordinates; 0 along axes that are not named. @throws ConfigError for an unknown axis and a
  /// coordinate outside of it.
  std::int64_t rank_from_coordinates(const std::map<std::string, std::int64_t>& coordinates) const;

  /// Number of processes along an axis, and the place of this rank there. @throws ConfigError that lists the axes.
  std::int64_t axis_degree(std::string_view axis) const;
  std::int64_t axis_rank(std::string_view axis) const;

  /// Names of all domains, the axes' first.
  std::vector<std::string> domains() const;
  /// The same for a domain; the last of its axes varies fastest. @throws ConfigError that lists the domains.
  const std::vector<std::string>& domain_axes(std::string_view domain) const;
  std::int64_t domain_degree(std::string_view domain) const;
  std::int64_t domain_rank(std::string_view domain) const { return domain_rank(domain, rank_); }
  /// Of another rank.
  std::int64_t domain_rank(std::string_view domain, std::int64_t rank) const;
  /// Ranks that differ from `rank` along the domain's axes alone, with it, by domain_rank.
  std::vector<std::int64_t> domain_members(std::string_view domain, std::int64_t rank) const;
  std::vector<std::int64_t> domain_members(std::string_view domain) const { return domain_members(domain, rank_); }

  /// "replicate 2 x shard 4": axes of degree 1 are left out; "one process" without others.
  std::string to_string() const;

 private:
  const ParallelDomain& domain(std::string_view name) const;
  std::size_t axis_index(std::string_view name) const;

  std::int64_t world_size_ = 1;
  std::int64_t rank_ = 0;
  std::vector<ParallelAxis> axes_;
  std::vector<ParallelDomain> domains_;
};

/// The groups of a topology: one per axis and per domain in which this rank is not alone. A value: copies share the
/// connections. (DanLing: ParallelContext)
class ParallelContext {
 public:
  /// One process, without axes.
  ParallelContext() = default;
  /// Splits `world`, whose ranks are those of the topology. Called by all ranks. Domains of the same members share a
  /// group. @throws DistributedError when `world` has another size, or ranks have different topologies.
  ParallelContext(ParallelTopology topology, const Group& world);

  const ParallelTopology& topology() const { return topology_; }
  /// Of an axis or a domain; this process alone where its degree is 1. @throws ConfigError that lists the names.
  const Group& group(std::string_view domain) const;
  /// Combines `tensor` over a domain in place: one sum over its members, not one per axis.
  void all_reduce(at::Tensor& tensor, std::string_view domain = "data", ReduceOp op = ReduceOp::sum) const;

 private:
  ParallelTopology topology_;
  std::map<std::string, Group, std::less<>> groups_;
};

}  // namespace danling::inline v0
