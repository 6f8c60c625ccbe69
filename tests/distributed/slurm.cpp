#include <distributed/slurm.hpp>

#include <support/catch.hpp>

namespace slurm_test {

using danling::detail::first_slurm_host;
using danling::detail::slurm_port;
using danling::detail::slurm_tasks_on_node;

TEST_CASE("first_slurm_host: the first name of a list of nodes", "[distributed]") {
  CHECK(first_slurm_host("node7") == "node7");
  CHECK(first_slurm_host("node7,gpu3") == "node7");
  CHECK(first_slurm_host("node[01-03,7],gpu3") == "node01");
  CHECK(first_slurm_host("node[7,01-03]") == "node7");
  CHECK(first_slurm_host("gpu3,node[01-03,7]") == "gpu3");
  CHECK(first_slurm_host("node[0009-0100]") == "node0009");
  CHECK(first_slurm_host("rack[2-3]node[05,07-09],login") == "rack2node05");
  CHECK(first_slurm_host("cn[1-2]-ib") == "cn1-ib");
  CHECK(first_slurm_host("a.example.org") == "a.example.org");
  for (const char* const wrong : {"", ",node1", "node[", "node[]", "node[1", "node[1-]", "node[-3]", "node[a-b]",
                                  "node[1,]", "node1]", "node[1-3"}) {
    INFO(wrong);
    CHECK_FALSE(first_slurm_host(wrong));
  }
}

TEST_CASE("slurm_tasks_on_node: counts with repetitions", "[distributed]") {
  CHECK(slurm_tasks_on_node("2", 0) == 2);
  for (const auto& [node, tasks] : {std::pair{0, 2}, {1, 2}, {2, 2}, {3, 1}, {4, 16}, {5, 16}}) {
    CHECK(slurm_tasks_on_node("2(x3),1,16(x2)", node) == tasks);
  }
  CHECK_FALSE(slurm_tasks_on_node("2(x3),1,16(x2)", 6));
  for (const char* const wrong : {"", "x", "2(", "2(3)", "2(x)", "2(x3", "2;1", ",2"}) {
    INFO(wrong);
    CHECK_FALSE(slurm_tasks_on_node(wrong, 1));
  }
}

TEST_CASE("slurm_port: the last digits of the job, apart for its steps", "[distributed]") {
  CHECK(slurm_port(1234567, 0) == 19567);
  CHECK(slurm_port(42, 0) == 15042);
  CHECK(slurm_port(42, 1) == 16051);
  CHECK(slurm_port(9999, 1) == 16008);
  // Slurm's largest numbers, which name batch scripts and interactive steps.
  CHECK(slurm_port(4294967295, 4294967290) >= 15000);
  CHECK(slurm_port(4294967295, 4294967290) < 25000);
}

}  // namespace slurm_test
