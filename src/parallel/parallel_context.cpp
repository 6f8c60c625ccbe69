// Creates the groups of a topology.
#include <algorithm>
#include <utility>

#include <danling/core/error.hpp>
#include <danling/parallel/topology.hpp>

namespace danling::inline v0 {
namespace {

/// The layout that all ranks must share before the split: "replicate 2, shard 2; data: replicate, shard; ...".
std::string layout_text(const ParallelTopology& topology, const std::vector<std::string>& domains) {
  std::string out;
  for (const ParallelAxis& axis : topology.axes()) {
    out += concat(out.empty() ? "" : ", ", axis.name, " ", axis.degree);
  }
  for (const std::string& domain : domains) {
    out += concat("; ", domain, ": ", join(topology.domain_axes(domain)));
  }
  return out;
}

}  // namespace

ParallelContext::ParallelContext(ParallelTopology topology, const Group& world) : topology_(std::move(topology)) {
  static constexpr std::string_view where = "parallel.context";
  check<DistributedError>(world.size() == topology_.world_size() && world.rank() == topology_.rank(), where,
                          "expected rank ", topology_.rank(), " of ", topology_.world_size(),
                          " processes, as in the topology, got rank ", world.rank(), " of ", world.size());
  const std::vector<std::string> domains = topology_.domains();
  const std::string mine = layout_text(topology_, domains);
  const auto layouts = world.all_gather(mine);
  const auto other =
      std::find_if(layouts.begin(), layouts.end(), [&](const auto& theirs) { return theirs != layouts[0]; });
  check<DistributedError>(other == layouts.end(), where, "expected one topology on all ranks, got (", layouts[0],
                          ") on rank 0 and (", other == layouts.end() ? mine : *other, ") on rank ",
                          other - layouts.begin());
  std::map<std::vector<std::int64_t>, Group> known;
  for (const std::string& domain : domains) {
    if (topology_.domain_degree(domain) == 1) {
      groups_[domain] = Group();
      continue;
    }
    // Keyed by the members of rank 0's domain, which all ranks compute equally: all ranks split, or none does.
    auto [same, is_new] = known.try_emplace(topology_.domain_members(domain, 0));
    if (is_new) {
      const auto members = topology_.domain_members(domain);
      same->second =
          members.size() == static_cast<std::size_t>(world.size()) && std::is_sorted(members.begin(), members.end())
              ? world
              : world.split(static_cast<int>(*std::min_element(members.begin(), members.end())),
                            static_cast<int>(topology_.domain_rank(domain)));
    }
    groups_[domain] = same->second;
  }
}

const Group& ParallelContext::group(std::string_view domain) const {
  const auto found = groups_.find(domain);
  if (found == groups_.end()) {
    topology_.domain_axes(domain);  // throws, with the names
  }
  return found->second;
}

void ParallelContext::all_reduce(at::Tensor& tensor, std::string_view domain, ReduceOp op) const {
  group(domain).all_reduce(tensor, op);
}

}  // namespace danling::inline v0
