// Topologies against those of PyPI's danling, and the groups of their domains in real processes.
#include <danling/parallel/topology.hpp>

#include <fstream>

#include <nlohmann/json.hpp>

#include <ATen/ops/full.h>

#include <danling/core/error.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

namespace topology_test {
namespace {

using danling::ConfigError;
using danling::DistributedError;
using danling::ParallelAxis;
using danling::ParallelContext;
using danling::ParallelDomain;
using danling::ParallelTopology;
using danling_test::check_ranks;
using danling_test::error_of;
using danling_test::run_ranks;

nlohmann::json golden() {
  std::ifstream file(std::string(DANLING_SOURCE_DIR) + "/tests/golden/topology.json");
  return nlohmann::json::parse(file);
}

std::vector<ParallelAxis> axes_of(const nlohmann::json& names, const nlohmann::json& degrees) {
  std::vector<ParallelAxis> out;
  for (std::size_t at = 0; at < names.size(); ++at) {
    out.push_back({names[at].get<std::string>(), degrees[at].get<std::int64_t>()});
  }
  return out;
}

TEST_CASE("ParallelTopology: coordinates and domains are those of DanLing", "[parallel]") {
  const auto expected = golden();
  std::vector<ParallelDomain> domains;
  for (const auto& [name, axes] : expected["domains"].items()) {
    domains.push_back({name, axes.get<std::vector<std::string>>()});
  }
  for (const auto& layout : expected["layouts"]) {
    INFO(layout["axes"].dump());
    const auto size = layout["world_size"].get<std::int64_t>();
    std::int64_t rank = 0;
    for (const auto& of_rank : layout["ranks"]) {
      const ParallelTopology topology(size, rank, axes_of(expected["names"], layout["axes"]), domains);
      const auto coordinates = of_rank["coordinates"].get<std::map<std::string, std::int64_t>>();
      CHECK(topology.coordinates() == coordinates);
      CHECK(topology.rank_from_coordinates(coordinates) == rank);
      for (std::size_t at = 0; at < topology.axes().size(); ++at) {
        const std::string& axis = topology.axes()[at].name;
        CHECK(topology.axis_degree(axis) == layout["degrees"][at].get<std::int64_t>());
        CHECK(topology.axis_rank(axis) == coordinates.at(axis));
      }
      for (const auto& [domain, place] : of_rank["domains"].items()) {
        CHECK(topology.domain_rank(domain) == place.get<std::int64_t>());
        CHECK(topology.domain_degree(domain) == layout["domain_degrees"][domain].get<std::int64_t>());
        const auto members = topology.domain_members(domain);
        REQUIRE(members.size() == static_cast<std::size_t>(topology.domain_degree(domain)));
        CHECK(members[static_cast<std::size_t>(topology.domain_rank(domain))] == rank);
        for (std::size_t at = 0; at < members.size(); ++at) {
          CHECK(topology.domain_rank(domain, members[at]) == static_cast<std::int64_t>(at));
        }
      }
      ++rank;
    }
    CHECK(rank == size);
  }
}

TEST_CASE("ParallelTopology: what does not fit the world is refused with the arithmetic", "[parallel]") {
  const auto expected = golden();
  for (const auto& layout : expected["refused"]) {
    INFO(layout.dump());
    CHECK_THROWS_AS(
        ParallelTopology(layout["world_size"].get<std::int64_t>(), 0, axes_of(expected["names"], layout["axes"])),
        ConfigError);
  }
  const auto message = [](std::int64_t size, std::vector<ParallelAxis> axes, std::vector<ParallelDomain> domains = {}) {
    return error_of<ConfigError>([&] { ParallelTopology(size, 0, axes, domains); });
  };
  CHECK(message(4, {{"replicate", 3}, {"shard", 1}}) ==
        "[parallel.topology] expected axes of the parallel topology that multiply to the 4 processes, got replicate(3) "
        "* shard(1); start as many processes, or set one axis to -1, for the remaining processes");
  CHECK(message(4, {{"replicate", 3}, {"shard", -1}}) ==
        "[parallel.topology] expected the 4 processes to be a multiple of the known axes of the parallel topology, got "
        "replicate(3) * shard(-1)");
  CHECK(message(4, {{"replicate", -1}, {"shard", -1}}) ==
        "[parallel.topology] expected one axis of the parallel topology to be -1, got replicate and shard");
  CHECK(message(4, {{"shard", 0}}) ==
        "[parallel.topology] expected a degree of 1 or more, or -1, for axis 'shard' of the parallel topology, got 0");
  CHECK(message(1, {{"shard", 1}, {"shard", 1}}) ==
        "[parallel.topology] expected axes of different names in the parallel topology, got 'shard' twice");
  CHECK(message(1, {{"shard", 1}}, {{"data", {"replicate"}}}) ==
        "[parallel.topology] expected an axis of shard, got 'replicate'");
  CHECK(message(1, {{"shard", 1}}, {{"data", {}}}) ==
        "[parallel.topology] expected axes in domain 'data' of the parallel topology, got none");
  CHECK(message(1, {{"shard", 1}}, {{"data", {"shard", "shard"}}}) ==
        "[parallel.topology] expected different axes in domain 'data' of the parallel topology, got 'shard' twice");
  CHECK(message(1, {}) == "[parallel.topology] expected axes for the parallel topology, got none");
  // The product does not wrap around.
  const std::int64_t large = std::int64_t{1} << 32;
  CHECK(message(4, {{"replicate", large}, {"shard", large}, {"tensor", 4}}).find("that multiply to the 4") !=
        std::string::npos);
  const ParallelTopology topology(6, 4, {{"replicate", 2}, {"shard", -1}});
  CHECK(topology.to_string() == "replicate 2 x shard 3");
  CHECK(ParallelTopology(1, 0, {{"shard", 1}}).to_string() == "one process");
  CHECK(error_of<ConfigError>([&] { topology.domain_degree("data"); }) ==
        "[parallel.topology] expected a domain of replicate, shard, got 'data'");
  CHECK(error_of<ConfigError>([&] { topology.rank_from_coordinates({{"shard", 3}}); }) ==
        "[parallel.topology] expected a coordinate of 0 to 2 along axis 'shard', got 3");
  CHECK(error_of<ConfigError>([&] { topology.coordinates_of(6); }) ==
        "[parallel.topology] expected a rank of 0 to 5, got 6");
}

ParallelTopology grid(const danling::Group& world) {
  return ParallelTopology(world.size(), world.rank(), {{"replicate", 2}, {"shard", 2}, {"tensor", 1}},
                          {{"data", {"replicate", "shard"}}, {"turned", {"shard", "replicate"}}});
}

TEST_CASE("ParallelContext: the groups of axes and domains combine their members alone", "[parallel]") {
  const auto texts = run_ranks(4, [](const danling::Group& world) {
    const ParallelContext context(grid(world), world);
    std::string out;
    for (const char* domain : {"replicate", "shard", "tensor", "data", "turned"}) {
      at::Tensor sum = at::full({1}, 1 << (4 * world.rank()));
      context.all_reduce(sum, domain);
      const danling::Group& group = context.group(domain);
      danling_test::expect(group.size() == context.topology().domain_degree(domain), "the degree of a domain");
      danling_test::expect(group.rank() == context.topology().domain_rank(domain), "the place in a domain");
      std::int64_t expected = 0;
      for (const std::int64_t member : context.topology().domain_members(domain)) {
        expected += 1 << (4 * member);
      }
      danling_test::expect(sum.item<std::int64_t>() == expected, "the sum over a domain");
    }
    return std::string("done");
  });
  check_ranks(texts, "done");
}

TEST_CASE("ParallelContext: one process has groups of its own, and unknown names are refused", "[parallel]") {
  const ParallelContext context(ParallelTopology(1, 0, {{"shard", 1}}), danling::Group());
  CHECK(context.group("shard").alone());
  CHECK(error_of<ConfigError>([&] { context.group("data"); }) ==
        "[parallel.topology] expected a domain of shard, got 'data'");
}

TEST_CASE("ParallelContext: ranks of different topologies are refused on all ranks", "[parallel]") {
  const auto texts = run_ranks(2, [](const danling::Group& world) {
    const std::string axis = world.rank() == 0 ? "shard" : "replicate";
    return error_of<DistributedError>([&] { ParallelContext(ParallelTopology(2, world.rank(), {{axis, 2}}), world); });
  });
  check_ranks(texts,
              "[parallel.context] expected one topology on all ranks, got (shard 2; shard: shard) on rank 0 and "
              "(replicate 2; replicate: replicate) on rank 1");
  CHECK(error_of<DistributedError>([] { ParallelContext(ParallelTopology(2, 1, {{"shard", 2}}), danling::Group()); }) ==
        "[parallel.context] expected rank 1 of 2 processes, as in the topology, got rank 0 of 1");
}

}  // namespace
}  // namespace topology_test
