#include <danling/distributed/group.hpp>

#include <filesystem>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>
#include <support/temp_dir.hpp>

namespace group_test {

using danling::DistributedError;
using danling::Group;
using danling::detail::concat;
using danling_test::check_ranks;
using danling_test::error_of;
using danling_test::expect;
using danling_test::free_port;
using danling_test::identity_of_rank;
using danling_test::run_processes;
using danling_test::run_ranks;
using namespace std::chrono_literals;

at::Tensor full(std::vector<std::int64_t> shape, double value, at::ScalarType type = at::kFloat) {
  return at::full(shape, value, at::TensorOptions().dtype(type));
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const DistributedError& error) {
    return error.what();
  }
  return "no error";
}

TEST_CASE("Group: a process alone needs no others", "[distributed]") {
  const Group group = Group::connect({});
  CHECK(group.alone());
  CHECK(group.rank() == 0);
  CHECK(group.size() == 1);
  at::Tensor tensor = at::ones({2});
  group.all_reduce(tensor);
  CHECK(at::equal(tensor, at::ones({2})));
  CHECK(group.all_gather("x") == std::vector<std::string>{"x"});
  CHECK(group.all_gather(tensor).front().is_same(tensor));
  group.barrier();
  CHECK(Group::connect(identity_of_rank(0, 1, 1)).alone());
}

TEST_CASE("Group: sums of every dtype, layout and size are the same on all ranks", "[distributed]") {
  for (const int size : {2, 4}) {
    const auto texts = run_ranks(size, [](const Group& group) {
      const double mine = group.rank() + 1;
      const double total = group.size() * (group.size() + 1) / 2;
      for (const auto type :
           {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort, at::kChar, at::kByte}) {
        for (const std::int64_t length : {0, 1, 7, 4096}) {
          at::Tensor tensor = full({length}, mine, type);
          group.all_reduce(tensor);
          expect(at::equal(tensor, full({length}, total, type)), concat("the sum of ", c10::toString(type)));
        }
      }
      at::Tensor scalar = full({}, mine);
      group.all_reduce(scalar);
      expect(scalar.item().toDouble() == total, "the sum of a scalar");
      at::Tensor whole = at::zeros({3, 4});
      at::Tensor columns = whole.t();
      columns.fill_(mine);
      group.all_reduce(columns);
      expect(at::equal(whole, full({3, 4}, total)), "the sum of a transposed tensor in place");
      at::Tensor flags = at::zeros({2}, at::kBool);
      flags[0].fill_(group.rank() == 1);
      group.all_reduce(flags);
      expect(flags[0].item().toBool() && !flags[1].item().toBool(), "bools to be true where any is");
      at::Tensor parameter = full({2}, mine).requires_grad_();
      group.all_reduce(parameter);
      expect(parameter.requires_grad() && parameter[0].item().toDouble() == total, "a parameter to be summed");
      group.barrier();
      return std::string("done");
    });
    check_ranks(texts, "done");
  }
}

TEST_CASE("Group: bytes of unequal length are gathered, with none and above one packet", "[distributed]") {
  const auto texts = run_ranks(4, [](const Group& group) {
    const auto part = [](int rank, std::size_t unit) {
      return std::string(static_cast<std::size_t>(rank) * unit, static_cast<char>('a' + rank));
    };
    for (const std::size_t unit : {0, 1, 336, 337, 1008, 5000}) {
      const auto gathered = group.all_gather(part(group.rank(), unit));
      expect(gathered.size() == 4, "four parts");
      for (int rank = 0; rank < 4; ++rank) {
        expect(gathered[static_cast<std::size_t>(rank)] == part(rank, unit), "the part of each rank");
      }
    }
    return std::string("done");
  });
  check_ranks(texts, "done");
}

TEST_CASE("Group: rows of unequal number are gathered, a rank without any included", "[distributed]") {
  for (const int size : {2, 4}) {
    const auto texts = run_ranks(size, [](const Group& group) {
      // Above 1 MiB rows travel otherwise.
      for (const std::int64_t unit : {1, 3, 200'000}) {
        for (const auto type : {at::kFloat, at::kBool, at::kHalf, at::kLong}) {
          const auto part = [&](int rank) { return full({rank * unit, 2}, rank % 2, type); };
          const auto gathered = group.all_gather(group.rank() == 0 ? at::Tensor() : part(group.rank()));
          expect(gathered.size() == static_cast<std::size_t>(group.size()), "one tensor per rank");
          for (int rank = 0; rank < group.size(); ++rank) {
            const at::Tensor& theirs = gathered[static_cast<std::size_t>(rank)];
            expect(theirs.scalar_type() == type && at::equal(theirs, part(rank)), "the rows of each rank");
          }
        }
      }
      for (const at::Tensor& nothing : group.all_gather(at::Tensor())) {
        expect(!nothing.defined(), "nothing where no rank has any");
      }
      const at::Tensor columns = at::arange(6).view({2, 3}).t();
      for (const at::Tensor& theirs : group.all_gather(columns)) {
        expect(at::equal(theirs, columns), "transposed rows");
      }
      return std::string("done");
    });
    check_ranks(texts, "done");
  }
}

TEST_CASE("Group: what does not fit together is the same error on all ranks, and the group works on", "[distributed]") {
  const auto texts = run_ranks(4, [](const Group& group) {
    const bool odd = group.rank() == 2;
    std::string out = refusal([&] { group.all_gather(full({3, odd ? 5 : 2}, 1)); }) + "\n";
    out += refusal([&] { group.all_gather(full({3}, 1, odd ? at::kLong : at::kFloat)); }) + "\n";
    out += refusal([&] { group.all_gather(full({}, 1)); }) + "\n";
    at::Tensor sum = full({odd ? 5 : 2}, 1);
    out += refusal([&] { group.all_reduce(sum); }) + "\n";
    out += refusal([&] { odd ? group.barrier() : void(group.all_gather("")); }) + "\n";
    sum = full({2}, 1);
    group.all_reduce(sum);
    return out + danling::to_text(sum[0].item().toDouble());
  });
  check_ranks(
      texts,
      "[group.all_gather] expected matching rows on all ranks, got Float rows of shape [2] on rank 0 and Float "
      "rows of shape [5] on rank 2\n"
      "[group.all_gather] expected matching rows on all ranks, got Float rows of shape [] on rank 0 and Long rows "
      "of shape [] on rank 2\n"
      "[group.all_gather] expected at least one dimension, got scalars\n"
      "[group.all_reduce] expected matching tensors on all ranks, got Float [2] on rank 0 and Float [5] on rank "
      "2\n"
      "[group.collective] expected the same collective on all ranks, got all_gather of bytes on rank 0 and "
      "barrier on rank 2\n"
      "4.0");
}

TEST_CASE("Group: a peer that dies is an error before the timeout, which stays", "[distributed]") {
  const auto texts = run_ranks(2, [](const Group& group) {
    group.barrier();
    if (group.rank() == 1) {
      kill(getpid(), SIGKILL);
    }
    const std::string first = refusal([&] { group.barrier(); });
    const std::string second = refusal([&] { group.all_gather("x"); });
    return first + "\n" + second;
  });
  CHECK(texts[1] == "ended by 9");
  CHECK_THAT(texts[0], !ContainsSubstring("imed out"));
  CHECK_THAT(texts[0], ContainsSubstring("[group.collective] expected all 2 ranks at 127.0.0.1:"));
  CHECK_THAT(texts[0], ContainsSubstring(" to join barrier, got on rank 0: "));
  CHECK_THAT(texts[0], ContainsSubstring("; a process has ended or waits elsewhere: see the logs of the others"));
  CHECK_THAT(texts[0], ContainsSubstring("\n[group.collective] expected a usable group, got one that failed before ("));
}

TEST_CASE("Group: its threads get an error, and the process no signal, when they write to a peer that died",
          "[distributed]") {
  const auto texts = run_ranks(2, [](const Group& group) {
    group.barrier();
    const auto blocks_pipe_signals = [](const std::string& thread) {
      const std::string status = danling_test::read_file("/proc/self/task/" + thread + "/status");
      return (std::stoull(status.substr(status.find("SigBlk:") + 7), nullptr, 16) >> (SIGPIPE - 1) & 1) == 1;
    };
    int others = 0;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
      const std::string name = thread.path().filename().string();
      const bool own = name == std::to_string(getpid());
      expect(blocks_pipe_signals(name) != own, "SIGPIPE to be blocked in the threads of the group alone");
      others += own ? 0 : 1;
    }
    expect(others > 0, "threads of the group");
    group.barrier();
    return std::string("done");
  });
  check_ranks(texts, "done");
}

TEST_CASE("Group: a peer that does not come to a collective is an error after the timeout", "[distributed]") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  // Enough of a timeout for two busy processes to find each other.
  const auto texts = run_ranks(
      2,
      [&](const Group& group) {
        char byte = 0;
        if (group.rank() == 1) {
          expect(read(ends[0], &byte, 1) == 1, "the other rank's word that it has waited");
          return std::string("late");
        }
        const std::string text = refusal([&] { group.barrier(); });
        expect(write(ends[1], &byte, 1) == 1, "a pipe that can be written");
        return text;
      },
      4s);
  close(ends[0]);
  close(ends[1]);
  CHECK(texts[1] == "late");
  CHECK_THAT(texts[0], ContainsSubstring("got on rank 0: "));
  CHECK_THAT(texts[0], ContainsSubstring("imed out"));
}

TEST_CASE("Group: a rank that does not join is named, on the others, after the timeout", "[distributed]") {
  const int port = free_port();
  const auto texts = run_processes(3, [&](int rank) {
    if (rank == 1) {
      return std::string("stays away");
    }
    return refusal([&] { Group::connect(identity_of_rank(rank, 3, port), {.timeout = 4s, .host = {}}); });
  });
  CHECK_THAT(texts[0], ContainsSubstring("[group.connect] expected 3 processes at 127.0.0.1:" + std::to_string(port) +
                                         " within 4 s, got none of rank 1; see the logs"));
  CHECK_THAT(texts[2], ContainsSubstring("[group.connect] expected 3 processes at 127.0.0.1:"));
}

TEST_CASE("Group: without rank 0 the others say where they looked", "[distributed]") {
  const int port = free_port();
  const auto texts = run_processes(1, [&](int) {
    return refusal([&] { Group::connect(identity_of_rank(1, 2, port), {.timeout = 1s, .host = {}}); });
  });
  CHECK_THAT(texts[0], ContainsSubstring("[group.connect] expected rank 1 to reach rank 0 at 127.0.0.1:" +
                                         std::to_string(port) + " within 1 s, got: "));
}

TEST_CASE("Group: a process may join several groups, and a copy shares its source's connections", "[distributed]") {
  const int port = free_port();
  const auto texts = run_processes(2, [&](int rank) {
    const Group first = Group::connect(identity_of_rank(rank, 2, port), {.timeout = 30s, .host = {}});
    const Group second = Group::connect(identity_of_rank(rank, 2, port), {.timeout = 30s, .host = "localhost"});
    const Group copy = second;
    return first.all_gather(std::to_string(rank))[1] + copy.all_gather(std::to_string(rank))[0];
  });
  check_ranks(texts, "10");
}

TEST_CASE("Group: a world without a master's address is refused", "[distributed]") {
  auto identity = identity_of_rank(1, 2, 1);
  identity.master_address.clear();
  CHECK(error_of<DistributedError>([&] { Group::connect(identity); }) ==
        "[group.connect] expected MASTER_ADDR and MASTER_PORT for a world of 2, got no MASTER_ADDR; set both on "
        "every rank: the host of rank 0, and a free port there");
  CHECK(error_of<DistributedError>([&] { Group::connect(identity_of_rank(1, 2, 1), {.timeout = 0s, .host = {}}); }) ==
        "[group.connect] expected a timeout above 0, got 0 ms");
}

}  // namespace group_test
