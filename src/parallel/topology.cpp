#include <danling/parallel/topology.hpp>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include <danling/core/error.hpp>

namespace danling::inline v0 {
namespace {

constexpr std::string_view topology_where = "parallel.topology";

template <class Named>
std::string names_of(const std::vector<Named>& all) {
  std::vector<std::string> out;
  for (const Named& one : all) {
    out.push_back(one.name);
  }
  return join(out);
}

/// "replicate(2) * shard(4)".
std::string product_text(const std::vector<ParallelAxis>& axes) {
  std::string out;
  for (const ParallelAxis& axis : axes) {
    out += concat(out.empty() ? "" : " * ", axis.name, "(", axis.degree, ")");
  }
  return out;
}

template <class Named>
void check_names(const std::vector<Named>& all, std::string_view kind, std::string_view label) {
  std::set<std::string_view> names;
  for (const Named& one : all) {
    check<ConfigError>(!one.name.empty() && names.insert(one.name).second, topology_where, "expected ", kind,
                       " of different names in the ", label, ", got ", quote(one.name),
                       one.name.empty() ? "" : " twice");
  }
}

}  // namespace

ParallelTopology::ParallelTopology(std::int64_t world_size, std::int64_t rank, std::vector<ParallelAxis> axes,
                                   std::vector<ParallelDomain> domains, std::string_view label)
    : world_size_(world_size), rank_(rank), axes_(std::move(axes)) {
  check<ConfigError>(world_size >= 1, topology_where, "expected a world of 1 process or more for the ", label, ", got ",
                     world_size);
  check<ConfigError>(rank >= 0 && rank < world_size, topology_where, "expected a rank of 0 to ", world_size - 1,
                     " for the ", label, ", got ", rank);
  check<ConfigError>(!axes_.empty(), topology_where, "expected axes for the ", label, ", got none");
  check_names(axes_, "axes", label);
  std::optional<std::size_t> open;
  std::int64_t known = 1;
  for (std::size_t at = 0; at < axes_.size(); ++at) {
    const ParallelAxis& axis = axes_[at];
    if (axis.degree == -1) {
      check<ConfigError>(!open, topology_where, "expected one axis of the ", label, " to be -1, got ",
                         axes_[open.value_or(0)].name, " and ", axis.name);
      open = at;
      continue;
    }
    check<ConfigError>(axis.degree >= 1, topology_where, "expected a degree of 1 or more, or -1, for axis ",
                       quote(axis.name), " of the ", label, ", got ", axis.degree);
    // Limited just above the world size, which is an error already: the product could overflow.
    known = std::min(known * std::min(axis.degree, world_size + 1), world_size + 1);
  }
  if (open) {
    check<ConfigError>(known <= world_size && world_size % known == 0, topology_where, "expected the ", world_size,
                       " processes to be a multiple of the known axes of the ", label, ", got ", product_text(axes_));
    axes_[*open].degree = world_size / known;
  }
  check<ConfigError>(open || known == world_size, topology_where, "expected axes of the ", label,
                     " that multiply to the ", world_size, " processes, got ", product_text(axes_),
                     "; start as many processes, or set one axis to -1, for the remaining processes");
  for (const ParallelAxis& axis : axes_) {
    domains_.push_back({axis.name, {axis.name}});
  }
  check_names(domains, "domains", label);
  for (ParallelDomain& domain : domains) {
    check<ConfigError>(!domain.axes.empty(), topology_where, "expected axes in domain ", quote(domain.name), " of the ",
                       label, ", got none");
    for (const std::string& axis : domain.axes) {
      check<ConfigError>(std::count(domain.axes.begin(), domain.axes.end(), axis) == 1, topology_where,
                         "expected different axes in domain ", quote(domain.name), " of the ", label, ", got ",
                         quote(axis), " twice");
      axis_index(axis);
    }
    const auto same = std::find_if(domains_.begin(), domains_.end(),
                                   [&](const ParallelDomain& one) { return one.name == domain.name; });
    if (same == domains_.end()) {
      domains_.push_back(std::move(domain));
    } else {
      *same = std::move(domain);
    }
  }
}

std::size_t ParallelTopology::axis_index(std::string_view name) const {
  const auto found =
      std::find_if(axes_.begin(), axes_.end(), [&](const ParallelAxis& axis) { return axis.name == name; });
  check<ConfigError>(found != axes_.end(), topology_where, "expected an axis of ", names_of(axes_), ", got ",
                     quote(name));
  return static_cast<std::size_t>(found - axes_.begin());
}

const ParallelDomain& ParallelTopology::domain(std::string_view name) const {
  const auto found =
      std::find_if(domains_.begin(), domains_.end(), [&](const ParallelDomain& one) { return one.name == name; });
  check<ConfigError>(found != domains_.end(), topology_where, "expected a domain of ", names_of(domains_), ", got ",
                     quote(name));
  return *found;
}

std::map<std::string, std::int64_t> ParallelTopology::coordinates_of(std::int64_t rank) const {
  check<ConfigError>(rank >= 0 && rank < world_size_, topology_where, "expected a rank of 0 to ", world_size_ - 1,
                     ", got ", rank);
  std::map<std::string, std::int64_t> out;
  for (auto axis = axes_.rbegin(); axis != axes_.rend(); ++axis) {
    out[axis->name] = rank % axis->degree;
    rank /= axis->degree;
  }
  return out;
}

std::int64_t ParallelTopology::rank_from_coordinates(const std::map<std::string, std::int64_t>& coordinates) const {
  std::vector<std::int64_t> places(axes_.size(), 0);
  for (const auto& [axis, place] : coordinates) {
    const std::size_t at = axis_index(axis);
    check<ConfigError>(place >= 0 && place < axes_[at].degree, topology_where, "expected a coordinate of 0 to ",
                       axes_[at].degree - 1, " along axis ", quote(axis), ", got ", place);
    places[at] = place;
  }
  std::int64_t out = 0;
  for (std::size_t at = 0; at < axes_.size(); ++at) {
    out = out * axes_[at].degree + places[at];
  }
  return out;
}

std::vector<std::string> ParallelTopology::domains() const {
  std::vector<std::string> out;
  for (const ParallelDomain& domain : domains_) {
    out.push_back(domain.name);
  }
  return out;
}

std::int64_t ParallelTopology::axis_degree(std::string_view axis) const { return axes_[axis_index(axis)].degree; }

std::int64_t ParallelTopology::axis_rank(std::string_view axis) const {
  return coordinates().at(axes_[axis_index(axis)].name);
}

const std::vector<std::string>& ParallelTopology::domain_axes(std::string_view name) const { return domain(name).axes; }

std::int64_t ParallelTopology::domain_degree(std::string_view name) const {
  std::int64_t out = 1;
  for (const std::string& axis : domain_axes(name)) {
    out *= axis_degree(axis);
  }
  return out;
}

std::int64_t ParallelTopology::domain_rank(std::string_view name, std::int64_t rank) const {
  const auto coordinates = coordinates_of(rank);
  std::int64_t out = 0;
  for (const std::string& axis : domain_axes(name)) {
    out = out * axis_degree(axis) + coordinates.at(axis);
  }
  return out;
}

std::vector<std::int64_t> ParallelTopology::domain_members(std::string_view name, std::int64_t rank) const {
  auto coordinates = coordinates_of(rank);
  const std::vector<std::string>& axes = domain_axes(name);
  std::vector<std::int64_t> out;
  for (std::int64_t member = 0; member < domain_degree(name); ++member) {
    std::int64_t rest = member;
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      coordinates[*axis] = rest % axis_degree(*axis);
      rest /= axis_degree(*axis);
    }
    out.push_back(rank_from_coordinates(coordinates));
  }
  return out;
}

std::string ParallelTopology::to_string() const {
  std::string out;
  for (const ParallelAxis& axis : axes_) {
    if (axis.degree > 1) {
      out += concat(out.empty() ? "" : " x ", axis.name, " ", axis.degree);
    }
  }
  return out.empty() ? "one process" : out;
}

}  // namespace danling::inline v0
