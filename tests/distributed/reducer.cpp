// Sums of gradients in buckets.
#include <danling/distributed/reducer.hpp>

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <torch/nn/module.h>
#include <torch/torch.h>

#include <danling/core/error.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

#include "distributed/shared_memory.hpp"

namespace reducer_test {

using danling::DistributedError;
using danling::Group;
using danling::Reducer;
using danling::ReducerOptions;
using danling::StateError;
using danling::detail::concat;
using danling::detail::SharedMemory;
using danling_test::check_ranks;
using danling_test::error_of;
using danling_test::expect;
using danling_test::run_ranks;

/// Parameters whose gradient on rank r is r + 1 times known integers, so that sums are exact in any order.
struct Problem {
  std::vector<at::Tensor> params;
  Problem() {
    for (const auto& shape : std::vector<std::vector<std::int64_t>>{{100, 30}, {5}, {}, {1000}, {2, 3, 4}}) {
      params.push_back(at::ones(shape).requires_grad_());
    }
    params.push_back(at::ones({40, 20}).t().requires_grad_());  // not contiguous
    params.push_back(at::ones({3}, at::kDouble).requires_grad_());
    params.push_back(at::ones({64}, at::kBFloat16).requires_grad_());
  }
  at::Tensor factor(std::size_t index) const {
    const at::Tensor& param = params[index];
    return (torch::arange(param.numel(), at::kDouble).remainder(7) + 1).view(param.sizes()).to(param.scalar_type());
  }
  at::Tensor loss(double scale, const std::vector<std::size_t>& used) const {
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (const std::size_t index : used) {
      sum = sum + (params[index] * factor(index)).to(at::kDouble).sum() * scale;
    }
    return sum;
  }
  std::vector<std::size_t> all() const {
    std::vector<std::size_t> out(params.size());
    std::iota(out.begin(), out.end(), 0);
    return out;
  }
  void zero_grad() {
    for (at::Tensor& param : params) {
      param.mutable_grad().reset();
    }
  }
  void expect_gradients(double scale) const {
    for (std::size_t index = 0; index < params.size(); ++index) {
      expect(params[index].grad().defined() && at::equal(params[index].grad(), factor(index) * scale),
             concat("the sum in parameter ", index, " with scale ", scale));
      expect(params[index].grad().strides() == params[index].strides(), "the strides of the parameter");
    }
  }
};

std::vector<ReducerOptions> kinds() {
  return {{}, {.overlap = false}, {.shared_memory = false}, {.bucket_bytes = 2048, .first_bucket_bytes = 256}};
}

TEST_CASE("Reducer: gradients are summed in every dtype and layout, with the memory of the buckets", "[distributed]") {
  for (const ReducerOptions& options : kinds()) {
    for (const int size : {2, 3}) {
      check_ranks(run_ranks(size,
                            [&](const Group& group) {
                              Problem problem;
                              Reducer reducer(problem.params, group, options);
                              const double mine = group.rank() + 1;
                              const double sum = size * (size + 1) / 2;
                              for (int step = 0; step < 3; ++step) {
                                reducer.begin_backward(/*closes=*/true);
                                problem.loss(mine, problem.all()).backward();
                                reducer.finish();
                                problem.expect_gradients(sum);
                                problem.zero_grad();
                              }
                              for (int part = 0; part < 3; ++part) {  // a window of three passes
                                reducer.begin_backward(/*closes=*/part == 2);
                                problem.loss(mine, problem.all()).backward();
                              }
                              reducer.finish();
                              problem.expect_gradients(3 * sum);
                              return std::string("ok");
                            }),
                  "ok");
    }
  }
}

TEST_CASE("Reducer: complex gradients are summed, also late ones, beside real ones in one bucket", "[distributed]") {
  check_ranks(run_ranks(2,
                        [](const Group& group) {
                          const auto complex =
                              torch::complex(torch::arange(6.0), torch::arange(6.0).neg()).view({2, 3});
                          at::Tensor wave = at::ones({3, 2}, at::kComplexFloat).t().requires_grad_();
                          at::Tensor real = at::ones({5}).requires_grad_();
                          Reducer reducer({wave, real}, group);
                          const auto backward = [&] {
                            reducer.begin_backward(true);
                            const at::Tensor product = at::real(wave.conj() * complex).sum();
                            ((product + real.sum()) * (group.rank() + 1.0)).backward();  // its gradient is `complex`
                          };
                          for (const double passes : {1.0, 1.0, 2.0}) {
                            wave.mutable_grad().reset();
                            real.mutable_grad().reset();
                            for (double pass = 0; pass < passes; ++pass) {
                              backward();
                            }
                            reducer.finish();
                            expect(at::equal(wave.grad(), complex * (3.0 * passes)), concat("the sum of ", passes));
                            expect(wave.grad().strides() == wave.strides(), "the strides of the parameter");
                            expect(at::equal(real.grad(), at::full({5}, 3.0 * passes)), "the real sum");
                          }
                          return std::string("ok");
                        }),
              "ok");
}

TEST_CASE("Reducer: a parameter that no rank uses stays without gradient; one that some use gets their sum",
          "[distributed]") {
  for (const ReducerOptions& options : kinds()) {
    check_ranks(run_ranks(3,
                          [&](const Group& group) {
                            Problem problem;
                            Reducer reducer(problem.params, group, options);
                            for (int step = 0; step < 2; ++step) {
                              reducer.begin_backward(true);
                              std::vector<std::size_t> used = {0, 4};
                              if (group.rank() == 1) {
                                used.push_back(3);
                              }
                              if (group.rank() != 2) {  // which has no backward pass at all
                                problem.loss(1, used).backward();
                              }
                              reducer.finish();
                              expect(at::equal(problem.params[0].grad(), problem.factor(0) * 2),
                                     "the sum of two ranks");
                              expect(at::equal(problem.params[3].grad(), problem.factor(3)), "that of one");
                              expect(!problem.params[1].grad().defined(), "none");
                              problem.zero_grad();
                            }
                            return std::string("ok");
                          }),
                "ok");
  }
}

TEST_CASE("Reducer: another backward pass after the sums have begun is added", "[distributed]") {
  for (const ReducerOptions& options : kinds()) {
    check_ranks(run_ranks(2,
                          [&](const Group& group) {
                            Problem problem;
                            Reducer reducer(problem.params, group, options);
                            for (int step = 0; step < 3; ++step) {  // in the later ones two passes are expected
                              reducer.begin_backward(true);
                              problem.loss(1, problem.all()).backward();
                              reducer.begin_backward(true);
                              problem.loss(4, problem.all()).backward();
                              reducer.finish();
                              problem.expect_gradients(10);
                              problem.zero_grad();
                            }
                            reducer.begin_backward(true);
                            problem.loss(1, problem.all()).backward();
                            reducer.finish();
                            problem.expect_gradients(2);
                            return std::string("ok");
                          }),
                "ok");
  }
}

TEST_CASE("Reducer: gradients that change while they are summed, sparse ones and other parameters are errors",
          "[distributed]") {
  check_ranks(run_ranks(2,
                        [](const Group& group) {
                          Problem problem;
                          Reducer reducer(problem.params, group);
                          for (int window = 0; window < 2; ++window) {  // in the first one sums begin at its end
                            problem.zero_grad();
                            reducer.begin_backward(true);
                            problem.loss(1, problem.all()).backward();
                            if (window == 0) {
                              reducer.finish();
                            }
                          }
                          problem.params[0].mutable_grad().mul_(2);
                          return error_of<StateError>([&] { reducer.finish(); });
                        }),
              "[reducer.finish] expected unchanged gradients between backward() and step(), got changed ones after "
              "their sum over the ranks had started; set ddp.overlap to false, or change them in optimizer_step()");
  check_ranks(
      run_ranks(2,
                [](const Group& group) {
                  const at::Tensor table = at::ones({4, 2}).requires_grad_();
                  Reducer reducer({table}, group);
                  reducer.begin_backward(true);
                  return error_of<StateError>([&] {
                    at::embedding(table, torch::tensor({1, 2}), -1, false, /*sparse=*/true).sum().backward();
                  });
                }),
      "[reducer.backward] expected dense gradients, got a sparse one of shape [4, 2]; create the embedding with "
      "sparse(false)");
  check_ranks(
      run_ranks(2,
                [](const Group& group) {
                  return error_of<DistributedError>(
                      [&] { Reducer({at::ones({2 + group.rank()}).requires_grad_()}, group); });
                }),
      "[reducer.params] expected the same parameters that require gradients on all ranks, got Float[2] on rank 0 "
      "and Float[3] on rank 1");
}

TEST_CASE("Reducer: covers the same parameters while the same ones require gradients", "[distributed]") {
  check_ranks(run_ranks(2,
                        [](const Group& group) {
                          Problem problem;
                          Reducer reducer(problem.params, group);
                          expect(reducer.matches_parameters(problem.params), "its own");
                          problem.params[1].set_requires_grad(false);
                          expect(!reducer.matches_parameters(problem.params), "others after a freeze");
                          return reducer.transport();
                        }),
              "shared memory");
}

TEST_CASE("Reducer: bfloat16 on the wire rounds each rank's gradient once", "[distributed]") {
  check_ranks(run_ranks(2,
                        [](const Group& group) {
                          const at::Tensor param = at::zeros({3}).requires_grad_();
                          Reducer reducer({param}, group, {.reduce_dtype = at::kBFloat16});
                          reducer.begin_backward(true);
                          (param * torch::tensor({1.0, 1.00390625, 257.0})).sum().backward();  // ties to even
                          reducer.finish();
                          return concat(param.grad()[0].item<float>(), " ", param.grad()[1].item<float>(), " ",
                                        param.grad()[2].item<float>());
                        }),
              "2.0 2.0 512.0");
}

TEST_CASE("SharedMemory: names that killed processes have left behind go after an hour", "[distributed]") {
  const std::filesystem::path folder = "/dev/shm";
  if (!std::filesystem::exists(folder)) {
    WARN("skipped: no /dev/shm");
    return;
  }
  const std::string prefix = concat("danling-", getuid(), "-test-", getpid(), "-");
  const auto old = folder / (prefix + "old"), recent = folder / (prefix + "recent");
  for (const auto& path : {old, recent}) {
    std::ofstream(path) << "x";
  }
  std::filesystem::last_write_time(old, std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  check_ranks(
      run_ranks(2,
                [](const Group& group) {
                  return std::string(SharedMemory::create(group, {.bytes = 64, .flags = 2}, nullptr) ? "ok" : "none");
                }),
      "ok");
  CHECK_FALSE(std::filesystem::exists(old));
  CHECK(std::filesystem::remove(recent));
}

TEST_CASE("SharedMemory: a rank that is killed, stays away or aborts ends the waits of the others by name",
          "[distributed]") {
  const std::string how = GENERATE("killed", "late", "aborts");
  const auto texts = run_ranks(3, [&](const Group& group) {
    const auto memory = SharedMemory::create(group, {.bytes = 64, .flags = 1, .timeout = std::chrono::seconds(4)});
    memory->raise(0, 1);
    memory->await(0, 1, "the first sum");
    group.barrier();
    if (group.rank() == 1) {
      if (how == "killed") {
        raise(SIGKILL);
      } else if (how == "aborts") {
        memory->abort("no room");
      } else {
        std::this_thread::sleep_for(std::chrono::seconds(12));
      }
      return std::string("gone");
    }
    memory->raise(0, 2);
    return error_of<DistributedError>([&] { memory->await(0, 2, "the second sum"); });
  });
  for (const int rank : {0, 2}) {
    const std::string& text = texts[static_cast<std::size_t>(rank)];
    if (how == "killed") {
      CHECK(text == concat("[group.collective] expected all 3 ranks to join the second sum, got no answer from rank 1, "
                           "which has ended; see its log (seen from rank ",
                           rank, ")"));
    } else if (how == "aborts") {
      CHECK(text == "[group.collective] expected all 3 ranks to join the second sum, got an abort of rank 1: no room");
    } else {
      CHECK(text == concat("[group.collective] expected all 3 ranks to join the second sum within 4 s, got no answer "
                           "from rank 1, which is alive but waits elsewhere or computes (seen from rank ",
                           rank, ")"));
    }
  }
}

TEST_CASE("Reducer: more backward passes than in the window before", "[distributed]") {
  const auto texts = run_ranks(2, [](const Group& group) {
    Problem problem;
    Reducer reducer(problem.params, group);
    for (const int passes : {1, 3, 1, 4, 4}) {
      double scale = 0;
      for (int pass = 0; pass < passes; ++pass) {
        reducer.begin_backward(/*closes=*/true);
        problem.loss((group.rank() + 1) * (pass + 1), problem.all()).backward();
        scale += 3 * (pass + 1);
      }
      reducer.finish();
      problem.expect_gradients(scale);
      problem.zero_grad();
    }
    return std::string("ok");
  });
  check_ranks(texts, "ok");
}

/// Gives no gradient to its second input unless asked, as a recomputed part of a model does.
struct Partial : torch::autograd::Function<Partial> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& w,
                            bool gives) {
    context->saved_data["gives"] = gives;
    return x + w;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const bool gives = context->saved_data["gives"].toBool();
    return {gradients[0], gives ? gradients[0] : at::Tensor(), at::Tensor()};
  }
};

TEST_CASE("Reducer: a gradient that a backward pass leaves undefined counts as none", "[distributed]") {
  for (const bool shared : {true, false}) {
    const auto texts = run_ranks(2, [shared](const Group& group) {
      const std::vector<at::Tensor> params = {at::ones({3}).requires_grad_(), at::ones({3}).requires_grad_()};
      Reducer reducer(params, group, {.shared_memory = shared});
      for (int step = 0; step < 3; ++step) {
        const bool gives = step == 0 || group.rank() == 0;
        reducer.begin_backward(/*closes=*/true);
        Partial::apply(params[0], params[1], gives).sum().backward();
        reducer.finish();
        expect(at::equal(params[0].grad(), at::full({3}, 2.0)), "the sum of both ranks");
        expect(at::equal(params[1].grad(), at::full({3}, step == 0 ? 2.0 : 1.0)), "that of those with a gradient");
        params[0].mutable_grad().reset();
        params[1].mutable_grad().reset();
      }
      return std::string("ok");
    });
    check_ranks(texts, "ok");
  }
}

}  // namespace reducer_test
