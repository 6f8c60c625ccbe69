// Processes as a grid of named axes: coordinates of a rank, and groups along one axis or several.
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
  std::int64_t degree = 1;  ///< -1, for one axis only: the remaining processes
};

/// Axes over which values are combined.
struct ParallelDomain {
  std::string name;
  std::vector<std::string> axes;
};

/// A rank's coordinates in an ordered grid of axes. The last axis varies fastest: neighbouring ranks differ there.
/// (DanLing: ParallelTopology)
class ParallelTopology {
 public:
  /// One process, without axes.
  ParallelTopology() = default;
  /// Every axis is also a domain, which a domain of the same name replaces.
  /// @param label  names the topology in messages
  /// @throws ConfigError, with the arithmetic, unless the degrees multiply to the world size; for a second -1, a degree
  ///         below 1, axes or domains of equal names, and a domain of no or unknown axes
  ParallelTopology(std::int64_t world_size, std::int64_t rank, std::vector<ParallelAxis> axes,
                   std::vector<ParallelDomain> domains = {}, std::string_view label = "parallel topology");

  std::int64_t world_size() const { return world_size_; }
  std::int64_t rank() const { return rank_; }
  /// The axes with their degrees, in order.
  const std::vector<ParallelAxis>& axes() const { return axes_; }
  /// Coordinates of this rank, by axis.
  std::map<std::string, std::int64_t> coordinates() const { return coordinates_of(rank_); }
  std::map<std::string, std::int64_t> coordinates_of(std::int64_t rank) const;
  /// The rank at the coordinates; 0 along axes that are missing. @throws ConfigError for an unknown axis and a
  /// coordinate outside its range.
  std::int64_t rank_from_coordinates(const std::map<std::string, std::int64_t>& coordinates) const;

  /// Number of processes along an axis, and this rank's position there. @throws ConfigError that lists the axes.
  std::int64_t axis_degree(std::string_view axis) const;
  std::int64_t axis_rank(std::string_view axis) const;

  /// Names of all domains, those of the axes first.
  std::vector<std::string> domains() const;
  /// Axes, size and position of a domain; the last of its axes varies fastest. @throws ConfigError that lists the
  /// domains.
  const std::vector<std::string>& domain_axes(std::string_view domain) const;
  std::int64_t domain_degree(std::string_view domain) const;
  std::int64_t domain_rank(std::string_view domain) const { return domain_rank(domain, rank_); }
  /// The position of another rank in a domain.
  std::int64_t domain_rank(std::string_view domain, std::int64_t rank) const;
  /// Ranks that differ from `rank` only along the domain's axes, including `rank`, ordered by domain_rank.
  std::vector<std::int64_t> domain_members(std::string_view domain, std::int64_t rank) const;
  std::vector<std::int64_t> domain_members(std::string_view domain) const { return domain_members(domain, rank_); }

  /// "replicate 2 x shard 4"; omits axes of degree 1; "one process" if none remain.
  std::string to_string() const;

 private:
  const ParallelDomain& domain(std::string_view name) const;
  std::size_t axis_index(std::string_view name) const;

  std::int64_t world_size_ = 1;
  std::int64_t rank_ = 0;
  std::vector<ParallelAxis> axes_;
  std::vector<ParallelDomain> domains_;
};

/// The groups of a topology: one per axis and domain with more than one process. A value: copies share the connections.
/// (DanLing: ParallelContext)
class ParallelContext {
 public:
  /// One process, without axes.
  ParallelContext() = default;
  /// Splits `world`, whose ranks are those of the topology. Every rank must call it. Domains with the same members
  /// share a group. @throws DistributedError when `world` has another size, or the ranks' topologies differ.
  ParallelContext(ParallelTopology topology, const Group& world);

  const ParallelTopology& topology() const { return topology_; }
  /// Group of an axis or a domain; only this process if its degree is 1. @throws ConfigError that lists the names.
  const Group& group(std::string_view domain) const;
  /// Combines `tensor` over a domain in place: one sum over its members, not one per axis.
  void all_reduce(at::Tensor& tensor, std::string_view domain = "data", ReduceOp op = ReduceOp::sum) const;

 private:
  ParallelTopology topology_;
  std::map<std::string, Group, std::less<>> groups_;
};

}  // namespace danling::inline v0
