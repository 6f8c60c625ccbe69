// Every collective over real processes, against values in closed form.
#include <limits>
#include <numeric>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>
#include <danling/distributed/group.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

namespace collectives_test {

using danling::DistributedError;
using danling::Group;
using danling::ReduceOp;
using danling::detail::concat;
using danling_test::check_ranks;
using danling_test::error_of;
using danling_test::expect;
using danling_test::run_ranks;
using namespace std::chrono_literals;

at::Tensor full(std::vector<std::int64_t> shape, double value, at::ScalarType type = at::kFloat) {
  return at::full(shape, value, at::TensorOptions().dtype(type));
}

std::string thrown(const std::function<void()>& call) {
  try {
    call();
  } catch (const DistributedError& error) {
    return error.what();
  }
  return "no error";
}

TEST_CASE("Collectives: a process alone gets its own data back", "[distributed]") {
  const Group group;
  at::Tensor tensor = full({4}, 3);
  group.all_reduce(tensor, ReduceOp::mean);
  group.reduce(tensor, 0, ReduceOp::max);
  group.broadcast(tensor, 0);
  danling::Work work = group.start_all_reduce(tensor);
  CHECK(work.done());
  work.wait();
  CHECK(at::equal(tensor, full({4}, 3)));
  CHECK(group.gather(tensor, 0).front().is_same(tensor));
  at::Tensor integers = full({2}, 3, at::kLong);
  const std::string mean = "expected floating numbers for mean, got Long; sum them, or convert them first";
  CHECK(thrown([&] { group.all_reduce(integers, ReduceOp::mean); }) == "[group.all_reduce] " + mean);
  CHECK(thrown([&] { group.start_all_reduce(integers, ReduceOp::mean); }) == "[group.start_all_reduce] " + mean);
  CHECK(thrown([&] { group.reduce(integers, 0, ReduceOp::mean); }) == "[group.reduce] " + mean);
  CHECK(thrown([&] { group.reduce_scatter(integers, ReduceOp::mean); }) == "[group.reduce_scatter] " + mean);
  CHECK(group.scatter({tensor}, 0).is_same(tensor));
  CHECK(group.reduce_scatter(tensor).is_same(tensor));
  CHECK(group.all_to_all({tensor}).front().is_same(tensor));
  CHECK(group.all_to_all_single(tensor).is_same(tensor));
  CHECK(group.broadcast("x", 0) == "x");
  CHECK(group.gather("x", 0) == std::vector<std::string>{"x"});
  CHECK(group.split(0).alone());
  CHECK(group.subgroup({0}).alone());
  group.barrier(1s);
  group.set_timeout(1s);
  group.abort("nobody hears it");
  group.barrier();
  CHECK(error_of<DistributedError>([&] { group.send(tensor, 1); }) ==
        "[group.send] expected another rank of 0 to 0, got 1 on rank 0");
  CHECK(error_of<DistributedError>([&] { group.subgroup({0, 1}); }) ==
        "[group.subgroup] expected different ranks of a group of 1, got 0, 1");
}

TEST_CASE("Collectives: every operation of a reduction over every dtype", "[distributed]") {
  const auto texts = run_ranks(3, [](const Group& group) {
    // The ranks have 5, 6 and 3.
    const double mine = std::vector<double>{5, 6, 3}[static_cast<std::size_t>(group.rank())];
    const auto reduced = [&](ReduceOp op, at::ScalarType type, bool rooted) {
      at::Tensor tensor = full({2, 5}, mine, type);
      rooted ? group.reduce(tensor, 1, op) : group.all_reduce(tensor, op);
      return tensor;
    };
    const std::vector<std::pair<ReduceOp, double>> numbers = {
        {ReduceOp::sum, 14}, {ReduceOp::product, 90}, {ReduceOp::min, 3}, {ReduceOp::max, 6}};
    const std::vector<std::pair<ReduceOp, double>> bits = {
        {ReduceOp::bit_and, 5 & 6 & 3}, {ReduceOp::bit_or, 5 | 6 | 3}, {ReduceOp::bit_xor, 5 ^ 6 ^ 3}};
    for (const bool rooted : {false, true}) {
      const auto check = [&](ReduceOp op, at::ScalarType type, double expected) {
        const double here = !rooted || group.rank() == 1 ? expected : mine;
        expect(at::equal(reduced(op, type, rooted), full({2, 5}, here, type)),
               concat(name_of(op), " of ", c10::toString(type)));
      };
      const auto floats = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
      const auto integers = {at::kLong, at::kInt, at::kShort, at::kChar, at::kByte};
      for (const auto& [op, expected] : numbers) {
        for (const auto type : floats) {
          check(op, type, expected);
        }
        for (const auto type : integers) {
          check(op, type, expected);
        }
      }
      for (const auto& [op, expected] : bits) {
        for (const auto type : integers) {
          check(op, type, expected);
        }
      }
      for (const auto type : floats) {
        // 14 / 3, rounded once
        const at::Tensor mean = reduced(ReduceOp::mean, type, rooted);
        const at::Tensor exact = at::full({2, 5}, 14.0, at::kDouble).div_(3).to(at::kFloat).to(type);
        if (!rooted || group.rank() == 1) {
          expect(mean.sub(exact).abs().max().item().toDouble() <= (type == at::kDouble ? 3e-7 : 0.0), "the mean");
        }
      }
    }
    // A mean that fits where the sum does not.
    at::Tensor large = full({3}, 60000, at::kHalf);
    group.all_reduce(large, ReduceOp::mean);
    expect(at::equal(large, full({3}, 60000, at::kHalf)), "the mean of large halves");
    const auto flag = [&](ReduceOp op, bool value) {
      at::Tensor tensor = at::full({1}, value, at::kBool);
      group.all_reduce(tensor, op);
      return tensor.item().toBool();
    };
    const bool first = group.rank() == 0;
    expect(flag(ReduceOp::sum, first) && flag(ReduceOp::max, first), "bools to be true where any is");
    expect(!flag(ReduceOp::product, first) && !flag(ReduceOp::min, first) && flag(ReduceOp::min, true),
           "bools to be true where all are");
    expect(!flag(ReduceOp::bit_xor, group.rank() > 0) && flag(ReduceOp::bit_or, first), "bits of bools");
    return std::string("done");
  });
  check_ranks(texts, "done");
}

TEST_CASE("Collectives: all ranks read the same bits of a floating sum", "[distributed]") {
  const auto texts = run_ranks(4, [](const Group& group) {
    // Numbers whose sum depends on the order.
    at::Tensor tensor = at::arange(100'000, at::kFloat).add_(1).reciprocal_().mul_(group.rank() == 2 ? -3e7 : 1.1);
    group.all_reduce(tensor);
    const auto all = group.all_gather(tensor);
    for (const at::Tensor& theirs : all) {
      expect(at::equal(theirs, tensor), "the same bits on all ranks");
    }
    return std::string("done");
  });
  check_ranks(texts, "done");
}

TEST_CASE("Collectives: the root's tensor and bytes reach all, of any dtype, layout and size", "[distributed]") {
  const auto texts = run_ranks(3, [](const Group& group) {
    for (int root = 0; root < 3; ++root) {
      for (const auto type : {at::kFloat, at::kBFloat16, at::kBool, at::kLong, at::kComplexFloat}) {
        at::Tensor whole = at::zeros({3, 4}, type);
        at::Tensor columns = whole.t();
        columns.fill_(group.rank() == root ? 1 : 0);
        group.broadcast(columns, root);
        expect(at::equal(whole, at::ones({3, 4}, type)), concat("a broadcast of ", c10::toString(type)));
      }
      for (const std::size_t length : {0, 5, 1000, 2'000'000}) {
        const std::string sent(length, static_cast<char>('a' + root));
        expect(group.broadcast(group.rank() == root ? sent : "other", root) == sent, "the bytes of the root");
      }
    }
    at::Tensor empty = at::zeros({0, 3});
    group.broadcast(empty, 1);
    return std::string("done");
  });
  check_ranks(texts, "done");
}

TEST_CASE("Collectives: rows and bytes are gathered on the root alone", "[distributed]") {
  const auto texts = run_ranks(3, [](const Group& group) {
    for (int root = 0; root < 3; ++root) {
      for (const std::int64_t unit : {1, 200'000}) {
        const auto part = [&](int rank) { return full({rank * unit, 2}, rank + 0.5, at::kDouble); };
        const auto gathered = group.gather(group.rank() == 0 ? at::Tensor() : part(group.rank()), root);
        expect(gathered.size() == (group.rank() == root ? 3U : 0U), "rows on the root alone");
        for (std::size_t rank = 0; rank < gathered.size(); ++rank) {
          expect(at::equal(gathered[rank], part(static_cast<int>(rank))), "the rows of each rank");
        }
      }
      const auto bytes = [](int rank) { return std::string(static_cast<std::size_t>(rank) * 3000, 'x') + "y"; };
      const auto gathered = group.gather(bytes(group.rank()), root);
      expect(gathered.size() == (group.rank() == root ? 3U : 0U), "bytes on the root alone");
      for (std::size_t rank = 0; rank < gathered.size(); ++rank) {
        expect(gathered[rank] == bytes(static_cast<int>(rank)), "the bytes of each rank");
      }
    }
    expect(group.gather(at::Tensor(), 0).size() == (group.rank() == 0 ? 3U : 0U), "nothing where no rank has any");
    return std::string("done");
  });
  check_ranks(texts, "done");
}

TEST_CASE("Collectives: parts of any shape are scattered, and exchanged between all", "[distributed]") {
  const auto texts = run_ranks(3, [](const Group& group) {
    const int rank = group.rank();
    // The tensor that rank `from` sends to rank `to`; shape, dtype and values identify both.
    const auto part = [](int from, int to) {
      return full({from, to + 1}, 10 * from + to, to == 2 ? at::kBFloat16 : at::kLong);
    };
    for (int root = 0; root < 3; ++root) {
      std::vector<at::Tensor> parts;
      for (int to = 0; rank == root && to < 3; ++to) {
        parts.push_back(part(root, to));
      }
      const at::Tensor mine = group.scatter(parts, root);
      expect(at::equal(mine, part(root, rank)) && mine.scalar_type() == part(root, rank).scalar_type(), "its part");
    }
    std::vector<at::Tensor> parts;
    for (int to = 0; to < 3; ++to) {
      parts.push_back(part(rank, to));
    }
    const auto received = group.all_to_all(parts);
    for (int from = 0; from < 3; ++from) {
      expect(at::equal(received[static_cast<std::size_t>(from)], part(from, rank)), "the part of each rank");
    }
    // Even: rank r has rows r * 6 to r * 6 + 5, and sends two to each.
    const at::Tensor rows = at::arange(rank * 6, rank * 6 + 6).view({6, 1}).expand({6, 2});
    const at::Tensor even = group.all_to_all_single(rows);
    const at::Tensor numbers = at::tensor({0, 1, 6, 7, 12, 13}, at::kLong).add_(2 * rank);
    expect(at::equal(even, numbers.view({6, 1}).expand({6, 2})), "equal splits");
    // Uneven: rank r sends b rows to rank b, so rank b receives b rows of each.
    const at::Tensor uneven = group.all_to_all_single(full({3}, rank), {0, 1, 2});
    expect(uneven.size(0) == 3 * rank, "as many rows as were sent");
    for (int row = 0; row < 3 * rank; ++row) {
      expect(uneven[row].item().toInt() == row / rank, "the rows in the order of ranks");
    }
    return std::string("done");
  });
  check_ranks(texts, "done");
}

TEST_CASE("Collectives: each rank reads its part of a reduction", "[distributed]") {
  const auto texts = run_ranks(3, [](const Group& group) {
    const int rank = group.rank();
    const at::Tensor rows = at::arange(12, at::kFloat).view({6, 2}).mul_(rank + 1);
    const at::Tensor all = at::arange(12, at::kFloat).view({6, 2}).mul_(6);
    expect(at::equal(group.reduce_scatter(rows), all.narrow(0, 2 * rank, 2)), "equal parts of the sum");
    expect(at::equal(group.reduce_scatter(rows, ReduceOp::mean), all.narrow(0, 2 * rank, 2).div(3)), "of the mean");
    const std::vector<std::int64_t> splits = {3, 0, 3};
    const at::Tensor part = group.reduce_scatter(rows.to(at::kBFloat16), ReduceOp::max, splits);
    const std::int64_t begin = rank == 0 ? 0 : 3;
    const at::Tensor expected = at::arange(12, at::kFloat).view({6, 2}).mul_(3).narrow(0, begin, rank == 1 ? 0 : 3);
    expect(at::equal(part, expected.to(at::kBFloat16)), "unequal parts of the maximum");
    const at::Tensor flags = at::zeros({3}, at::kBool).fill_(rank == 2);
    expect(group.reduce_scatter(flags).item().toBool(), "bools to be true where any is");
    return std::string("done");
  });
  check_ranks(texts, "done");
}

TEST_CASE("Collectives: unsigned integers of any size are reduced and scattered", "[distributed]") {
  check_ranks(run_ranks(2,
                        [](const Group& group) {
                          for (const auto type : {at::kByte, at::kUInt16, at::kUInt32, at::kUInt64}) {
                            const at::Tensor rows = full({2}, group.rank() + 2.0, type);
                            const auto value = [&](ReduceOp op) {
                              return group.reduce_scatter(rows, op).to(at::kLong).item<std::int64_t>();
                            };
                            expect(value(ReduceOp::sum) == 5, concat("a sum of ", c10::toString(type)));
                            expect(value(ReduceOp::product) == 6, concat("a product of ", c10::toString(type)));
                            expect(type == at::kUInt64 || value(ReduceOp::max) == 3, "a maximum");
                            expect(value(ReduceOp::bit_or) == 3, "bits");
                          }
                          return std::string("ok");
                        }),
              "ok");
}

TEST_CASE("Collectives: views that conjugate or negate travel as they are read", "[distributed]") {
  check_ranks(run_ranks(2,
                        [](const Group& group) {
                          const at::Tensor parts = at::arange(group.rank(), group.rank() + 6, at::kFloat);
                          const at::Tensor number = at::view_as_complex(parts.view({3, 2}));
                          const at::Tensor conjugate = number.conj(), negative = at::imag(conjugate);
                          const at::Tensor of_0 = at::view_as_complex(at::arange(6, at::kFloat).view({3, 2})).conj();
                          expect(conjugate.is_conj() && negative.is_neg(), "views with a flag");
                          expect(at::equal(group.all_gather(conjugate)[0], of_0), "rows");
                          expect(at::equal(group.all_gather(negative)[0], at::imag(of_0)), "negative rows");
                          expect(at::equal(group.all_to_all({conjugate, conjugate})[0], of_0), "parts");
                          at::Tensor sum = at::imag(number.clone().conj());
                          group.all_reduce(sum, ReduceOp::max);
                          expect(at::equal(sum, at::imag(of_0)), "the greatest of negated numbers");
                          at::Tensor message = number.clone().conj();
                          if (group.rank() == 0) {
                            group.send(conjugate, 1);
                          } else {
                            group.recv(message, 0);
                            expect(at::equal(message, of_0), "a message");
                          }
                          at::Tensor all = number.clone().conj();
                          group.broadcast(all, 0);
                          expect(at::equal(all, of_0), "a broadcast");
                          return std::string("ok");
                        }),
              "ok");
}

TEST_CASE("Collectives: the longest timeout is no timeout", "[distributed]") {
  const int port = danling_test::free_port();
  check_ranks(danling_test::run_processes(2,
                                          [&](int rank) {
                                            danling::GroupOptions options;
                                            options.timeout = std::chrono::milliseconds::max();
                                            const Group group =
                                                Group::connect(danling_test::identity_of_rank(rank, 2, port), options);
                                            group.set_timeout(std::chrono::milliseconds::max());
                                            group.barrier(std::chrono::milliseconds::max());
                                            return danling::detail::join(group.all_gather(std::to_string(rank)));
                                          }),
              "0, 1");
}

TEST_CASE("Collectives: messages between two ranks arrive in order, by tag, from any rank", "[distributed]") {
  const auto texts = run_ranks(3, [](const Group& group) {
    if (group.rank() > 0) {
      group.send(full({2}, group.rank()), 0, 7);
      group.send(full({3, 4}, group.rank(), at::kLong).t(), 0, 5);
      group.send(full({0}, 1), 0, 5);
      group.send(full({500'000}, 2), 0);
    } else {
      int seen = 0;
      for (int count = 0; count < 2; ++count) {
        at::Tensor any;
        const int from = group.recv(any, Group::any_rank, 7);
        seen += from;
        expect(at::equal(any, full({2}, from)), "the message of the rank that recv names");
      }
      expect(seen == 3, "a message of each rank");
      for (const int from : {2, 1}) {
        at::Tensor columns = at::zeros({3, 4}, at::kLong).t();
        expect(group.recv(columns, from, 5) == from && at::equal(columns, full({4, 3}, from, at::kLong)), "columns");
        at::Tensor empty;
        group.recv(empty, from, 5);
        expect(empty.numel() == 0, "an empty tensor");
        at::Tensor wrong = full({4}, 0);
        const std::string text = thrown([&] { group.recv(wrong, from); });
        expect(text == concat("[group.recv] expected Float [4], got Float [500000] of rank ", from, " with tag 0"),
               text);
      }
    }
    group.barrier();
    return std::string("done");
  });
  check_ranks(texts, "done");
}

TEST_CASE("Collectives: several sums in flight at once", "[distributed]") {
  for (const bool debug : {false, true}) {
    const int port = danling_test::free_port();
    const auto texts = danling_test::run_processes(3, [&](int rank) {
      danling::GroupOptions options;
      options.timeout = 30s;
      options.debug = debug && rank == 1;  // one is enough
      const Group group = Group::connect(danling_test::identity_of_rank(rank, 3, port), options);
      std::vector<at::Tensor> tensors;
      std::vector<danling::Work> works;
      for (int index = 0; index < 20; ++index) {
        tensors.push_back(full({index * 1000, 2}, rank + index, index % 3 == 0 ? at::kBFloat16 : at::kFloat));
        works.push_back(group.start_all_reduce(tensors.back(), index % 2 == 0 ? ReduceOp::sum : ReduceOp::mean));
      }
      at::Tensor columns = full({2, 3}, rank).t();
      works.push_back(group.start_all_reduce(columns, ReduceOp::max));
      group.barrier();
      for (danling::Work& work : works) {
        work.wait();
        expect(work.done(), "a work to be done that has been waited for");
        work.wait();
      }
      expect(at::equal(columns, full({3, 2}, 2)), "a strided tensor");
      for (int index = 0; index < 20; ++index) {
        const at::Tensor& tensor = tensors[static_cast<std::size_t>(index)];
        const double expected = index % 2 == 0 ? 3 + 3 * index : 1 + index;
        expect(at::equal(tensor, full({index * 1000, 2}, expected, tensor.scalar_type())), "the sum or mean");
      }
      {
        at::Tensor dropped = full({1'000'000}, 1);
        group.start_all_reduce(dropped);
      }
      at::Tensor last = full({1}, 1);
      group.all_reduce(last);
      expect(last.item().toDouble() == 3, "a group that works after a work was dropped");
      std::string out;
      if (debug) {
        out = thrown([&] { group.start_all_reduce(full({rank == 2 ? 3 : 2}, 1)); }) + "\n";
        out += thrown([&] { rank == 2 ? group.barrier() : void(group.start_all_reduce(full({2}, 1))); }) + "\n";
      }
      return out + "done";
    });
    check_ranks(texts, debug
                           ? "[group.start_all_reduce] expected matching tensors on all ranks, got Float [2] on rank 0 "
                             "and Float [3] on rank 2\n"
                             "[group.collective] expected the same collective on all ranks, got start_all_reduce on "
                             "rank 0 and barrier on rank 2\n"
                             "done"
                           : "done");
  }
}

TEST_CASE("Collectives: wrong requests are the same error on all ranks, and the group works on", "[distributed]") {
  const auto texts = run_ranks(3, [](const Group& group) {
    const bool odd = group.rank() == 2;
    at::Tensor one = full({2}, 1);
    at::Tensor whole = full({2}, 1, at::kLong);
    std::string out = thrown([&] { group.all_reduce(one, odd ? ReduceOp::max : ReduceOp::sum); }) + "\n";
    out += thrown([&] { group.all_reduce(whole, ReduceOp::mean); }) + "\n";
    out += thrown([&] { group.all_reduce(one, ReduceOp::bit_or); }) + "\n";
    out += thrown([&] { group.reduce(one, odd ? 1 : 0); }) + "\n";
    out += thrown([&] { group.broadcast(one, 3); }) + "\n";
    out += thrown([&] { group.broadcast("x", odd ? 1 : 0); }) + "\n";
    out += thrown([&] { group.gather(full({2, odd ? 2 : 3}, 1), 0); }) + "\n";
    out += thrown([&] { group.scatter({one}, 1); }) + "\n";
    out += thrown([&] { group.reduce_scatter(full({4}, 1)); }) + "\n";
    out += thrown([&] { group.reduce_scatter(full({4}, 1), ReduceOp::sum, {1, 2, 2}); }) + "\n";
    out += thrown([&] {
             group.all_to_all_single(full({4}, 1),
                                     odd ? std::vector<std::int64_t>{1, 2, 2} : std::vector<std::int64_t>{1, 1, 2});
           }) +
           "\n";
    out += thrown([&] { group.all_to_all(std::vector<at::Tensor>(odd ? 2 : 3, one)); }) + "\n";
    group.all_reduce(one);
    return out + danling::to_text(one[0].item().toDouble());
  });
  check_ranks(
      texts,
      "[group.all_reduce] expected matching tensors on all ranks, got Float [2] on rank 0 and Float [2] by max on "
      "rank 2\n"
      "[group.all_reduce] expected floating numbers for mean, got Long; sum them, or convert them first\n"
      "[group.all_reduce] expected integers or bools for bit_or, got Float\n"
      "[group.reduce] expected matching tensors on all ranks, got Float [2] to rank 0 on rank 0 and Float [2] to "
      "rank 1 on rank 2\n"
      "[group.broadcast] expected a root of 0 to 2, got 3\n"
      "[group.broadcast] expected the same root on all ranks, got rank 0 on rank 0 and rank 1 on rank 2\n"
      "[group.gather] expected matching rows on all ranks, got Float rows of shape [3] on rank 0 and Float rows of "
      "shape [2] on rank 2\n"
      "[group.scatter] expected 3 parts on the root, got 1\n"
      "[group.reduce_scatter] expected a number of rows that 3 ranks divide, got 4; pass the rows of each rank "
      "as `splits`\n"
      "[group.reduce_scatter] expected 3 counts that add up to 4 rows, got 1, 2, 2\n"
      "[group.all_to_all_single] expected 3 counts that add up to the rows, got 4 rows in 1, 2, 2 on rank 2\n"
      "[group.all_to_all] expected 3 parts on each rank, got 2 on rank 2\n"
      "3.0");
}

}  // namespace collectives_test
