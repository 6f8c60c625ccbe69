// Low-rank approximations of gradients, by a Reducer.
#include <cmath>
#include <fstream>

#include <nlohmann/json.hpp>

#include <torch/torch.h>

#include <danling/core/error.hpp>
#include <danling/distributed/reducer.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

namespace powersgd_test {

using danling::Group;
using danling::PowerSGDOptions;
using danling::PowerSGDState;
using danling::Reducer;
using danling::ReducerOptions;
using danling::detail::concat;
using danling_test::check_ranks;
using danling_test::expect;
using danling_test::run_ranks;

ReducerOptions options_of(const PowerSGDOptions& powersgd, bool shared_memory = true) {
  ReducerOptions out;
  out.powersgd = powersgd;
  out.shared_memory = shared_memory;
  return out;
}

/// Sums `gradients`, one for each parameter, as backward and a step do.
void sum(Reducer& reducer, std::vector<at::Tensor>& params, const std::vector<at::Tensor>& gradients) {
  for (at::Tensor& param : params) {
    param.mutable_grad().reset();
  }
  reducer.begin_backward(true);
  at::Tensor loss = torch::zeros({}, at::kDouble);
  for (std::size_t i = 0; i < params.size(); ++i) {
    loss = loss + (params[i] * gradients[i]).to(at::kDouble).sum();
  }
  loss.backward();
  reducer.finish();
}

std::vector<at::Tensor> params_like(const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor> out;
  for (const at::Tensor& gradient : gradients) {
    out.push_back(torch::zeros_like(gradient).requires_grad_());
  }
  return out;
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).norm().item<double>() / b.to(at::kDouble).norm().item<double>();
}

at::Tensor random(std::vector<std::int64_t> shape, std::uint64_t seed) {
  torch::manual_seed(seed);
  return torch::randn(shape, at::kDouble);
}

/// Columns that are orthonormal.
at::Tensor basis(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  return std::get<0>(torch::linalg_qr(random({rows, columns}, seed)));
}

TEST_CASE("PowerSGD: sums equal those of torch's powerSGD_hook on two ranks", "[distributed]") {
  constexpr std::int64_t rows = 12, columns = 9;
  std::ifstream file(std::string(DANLING_SOURCE_DIR) + "/tests/golden/powersgd.json");
  REQUIRE(file.good());
  const auto golden = nlohmann::json::parse(file);
  const std::pair<std::string, PowerSGDOptions> cases[] = {
      {"defaults", {.start_iter = 2}},
      {"two columns", {.rank = 2, .start_iter = 2, .min_compression_rate = 1}},
      {"epsilon", {.rank = 2, .start_iter = 2, .min_compression_rate = 1, .orthogonalization_epsilon = 0.1}},
      {"no feedback", {.start_iter = 2, .use_error_feedback = false}},
  };
  const auto gradient = [](int rank, int step) {  // as in tests/golden/powersgd.py
    at::Tensor out = torch::empty({rows, columns}, at::kDouble);
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        const auto r = static_cast<double>(row), c = static_cast<double>(column);
        out[row][column] = std::sin(1 + r * c + 0.7 * rank * r + 0.3 * step * (c + 1)) + (r + 1) * 0.1 * (rank + 1);
      }
    }
    return out;
  };
  for (const auto& [name, powersgd] : cases) {
    INFO(name);
    const auto& expected = golden.at(name);
    for (const bool shared : {true, false}) {
      check_ranks(
          run_ranks(2,
                    [&, &options = powersgd](const Group& group) {
                      auto params = params_like({gradient(0, 0)});
                      Reducer reducer(params, group, options_of(options, shared));
                      const auto factor = expected.at("factor").get<std::vector<double>>();
                      reducer.load_powersgd_state(
                          {.iteration = 0,
                           .errors = {},
                           .factors = {torch::tensor(factor, at::kDouble).view({columns, options.rank})}});
                      int step = 0;
                      for (const auto& numbers : expected.at("sums")) {
                        sum(reducer, params, {gradient(group.rank(), step)});
                        const auto reference =
                            torch::tensor(numbers.get<std::vector<double>>(), at::kDouble).view({rows, columns});
                        const double off = distance(params[0].grad(), reference);
                        expect(off < 1e-10, concat("torch's sum in step ", step, ", got a distance of ", off));
                        ++step;
                      }
                      return concat(step, " steps");
                    }),
          "5 steps");
    }
  }
}

TEST_CASE("PowerSGD: sums of low rank are exact, in any layout, and what is small is not compressed", "[distributed]") {
  for (const auto& [warm, feedback] : {std::pair(true, false), {false, false}, {true, true}}) {
    check_ranks(
        run_ranks(3,
                  [&, warm = warm, feedback = feedback](const Group& group) {
                    // All ranks' gradients have the same column space: so has the sum.
                    const at::Tensor left = random({40, 2}, 1);
                    const auto low_rank = [&](int rank, int step) {
                      return left.mm(random({2, 24}, 10 + static_cast<std::uint64_t>(10 * rank + step)));
                    };
                    const auto gradients = [&](int rank, int step) {
                      const at::Tensor m = low_rank(rank, step);
                      const at::Tensor small = torch::outer(torch::arange(40, at::kDouble).remainder(5) - 2,
                                                            torch::arange(24, at::kDouble).remainder(3) + 1);
                      return std::vector<at::Tensor>{
                          m.to(at::kFloat),
                          random({7}, 5).to(at::kFloat),
                          m.clone().t(),
                          random({3, 4}, 6),
                          m.view({40, 6, 2, 2}).to(at::kFloat).contiguous(at::MemoryFormat::ChannelsLast),
                          small.mul(rank + 1).to(at::kBFloat16)};
                    };
                    auto params = params_like(gradients(0, 0));
                    Reducer reducer(
                        params, group,
                        options_of({.rank = 2, .start_iter = 1, .use_error_feedback = feedback, .warm_start = warm}));
                    // Rounding errors come back with the feedback, times the condition of the products of this step.
                    const double of_floats = feedback ? 1e-3 : 1e-5;
                    for (int step = 0; step < 4; ++step) {
                      sum(reducer, params, gradients(group.rank(), step));
                      for (std::size_t i = 0; i < params.size(); ++i) {
                        at::Tensor reference = torch::zeros(params[i].sizes(), at::kDouble);
                        for (int rank = 0; rank < 3; ++rank) {
                          reference += gradients(rank, step)[i].to(at::kDouble);
                        }
                        const double tolerance = i == 2 ? 1e-12 : of_floats;
                        const double off = distance(params[i].grad(), reference);
                        expect(off < tolerance, concat("the sum in parameter ", i, " in step ", step, ", got ", off));
                      }
                    }
                    const PowerSGDState state = reducer.powersgd_state();
                    expect(state.iteration == 4 && state.errors.size() == 6, "the state of six parameters");
                    expect(!state.errors[1].defined() && !state.errors[3].defined(), "no errors of small ones");
                    expect(state.errors[2].defined() == feedback && state.errors[4].defined() == feedback,
                           "errors of large ones");
                    return reducer.transport();
                  }),
        "PowerSGD of rank 2 by shared memory");
  }
}

TEST_CASE("PowerSGD: with a warm start a constant gradient becomes its best approximation", "[distributed]") {
  check_ranks(run_ranks(2,
                        [](const Group& group) {
                          const at::Tensor u = basis(30, 4, 1), v = basis(20, 4, 2);
                          const at::Tensor values = torch::tensor({8.0, 4.0, 1.0, 0.5}, at::kDouble);
                          const at::Tensor whole = (u * values).mm(v.t());
                          const at::Tensor best = (u * values).narrow(1, 0, 2).mm(v.narrow(1, 0, 2).t());
                          const at::Tensor noise = random({30, 20}, 3);  // cancels in the sum
                          const at::Tensor own = whole / 2 + (group.rank() == 0 ? noise : -noise);
                          auto params = params_like({own});
                          Reducer reducer(params, group,
                                          options_of({.rank = 2, .start_iter = 0, .use_error_feedback = false}));
                          for (int step = 0; step < 25; ++step) {
                            sum(reducer, params, {own});
                          }
                          // Eckart and Young; the iteration converges with (1/4)^2 a step.
                          expect(distance(params[0].grad(), best) < 1e-10, "the best approximation of rank 2");
                          return std::string("ok");
                        }),
              "ok");
}

TEST_CASE("PowerSGD: what updates lose is in the errors of the ranks, and reaches later updates", "[distributed]") {
  check_ranks(run_ranks(3,
                        [](const Group& group) {
                          const auto gradient = [](int rank, int step) {
                            return random({16, 16}, 100 + static_cast<std::uint64_t>(10 * step + rank)) +
                                   random({16, 16}, 1);
                          };
                          auto params = params_like({gradient(0, 0)});
                          Reducer reducer(params, group, options_of({.start_iter = 0}));
                          at::Tensor all = torch::zeros({16, 16}, at::kDouble), seen = all.clone();
                          constexpr int steps = 200;
                          double early = 0;
                          for (int step = 0; step < steps; ++step) {
                            sum(reducer, params, {gradient(group.rank(), step)});
                            seen += params[0].grad();
                            for (int rank = 0; rank < 3; ++rank) {
                              all += gradient(rank, step);
                            }
                            at::Tensor errors = reducer.powersgd_state().errors.at(0).clone();
                            group.all_reduce(errors);
                            expect(distance(seen + errors, all) < 1e-10, "all gradients in sums and errors");
                            early = step == 9 ? distance(seen, all) : early;
                          }
                          const double late = distance(seen, all);
                          expect(late < early / 3 && late < 0.2, concat("a smaller share lost: ", late, " of ", early));
                          return std::string("ok");
                        }),
              "ok");
}

TEST_CASE("PowerSGD: a loss scale that changes does not change the sums, nor a state that was saved before",
          "[distributed]") {
  check_ranks(
      run_ranks(2,
                [](const Group& group) {
                  const auto gradient = [&](int step) {
                    return random({16, 24}, static_cast<std::uint64_t>(10 * step + group.rank()));
                  };
                  const auto options = options_of({.rank = 2, .start_iter = 0});
                  auto plain_params = params_like({gradient(0)}), params = params_like({gradient(0)});
                  Reducer plain(plain_params, group, options);
                  auto scaled = std::make_unique<Reducer>(params, group, options);
                  const double scales[] = {1024, 1024, 2048, 512, 65536};
                  for (int step = 0; step < 5; ++step) {
                    if (step == 3) {  // as a resumed run does
                      const PowerSGDState state = scaled->powersgd_state();
                      scaled = std::make_unique<Reducer>(params, group, options);
                      scaled->load_powersgd_state(state);
                    }
                    scaled->set_loss_scale(torch::tensor(scales[step], at::kFloat));
                    sum(plain, plain_params, {gradient(step)});
                    sum(*scaled, params, {gradient(step) * scales[step]});
                    expect(distance(params[0].grad() / scales[step], plain_params[0].grad()) < 1e-12,
                           concat("the same sum in step ", step));
                    expect(distance(scaled->powersgd_state().errors.at(0), plain.powersgd_state().errors.at(0)) < 1e-10,
                           concat("the same errors in step ", step));
                  }
                  return std::string("ok");
                }),
      "ok");
}

TEST_CASE("PowerSGD: a loaded state continues bit for bit, and gradients of zeros or infinities do not end it",
          "[distributed]") {
  for (const bool warm : {true, false}) {
    check_ranks(run_ranks(2,
                          [&](const Group& group) {
                            const auto gradients = [&](int step) {
                              const auto seed = static_cast<std::uint64_t>(7 * step + group.rank());
                              std::vector<at::Tensor> out = {random({20, 30}, seed).to(at::kFloat),
                                                             random({64, 10}, seed).to(at::kFloat)};
                              if (step == 2) {
                                out[0].zero_();
                              } else if (step == 5 && group.rank() == 1) {
                                out[1][3][3] = std::numeric_limits<float>::infinity();
                              }
                              return out;
                            };
                            const auto options = options_of({.rank = 2, .start_iter = 2, .warm_start = warm});
                            auto params = params_like(gradients(0)), again = params_like(gradients(0));
                            Reducer first(params, group, options);
                            std::unique_ptr<Reducer> second;
                            for (int step = 0; step < 9; ++step) {
                              if (step > 0) {
                                const PowerSGDState state = first.powersgd_state();
                                second = std::make_unique<Reducer>(again, group, options);
                                second->load_powersgd_state(state);
                                sum(*second, again, gradients(step));
                              }
                              const auto errors = first.powersgd_state().errors;
                              sum(first, params, gradients(step));
                              const bool finite = params[0].grad().isfinite().all().item<bool>() &&
                                                  params[1].grad().isfinite().all().item<bool>();
                              expect(finite == (step != 5), concat("a finite sum in step ", step));
                              for (std::size_t i = 0; step > 0 && finite && i < 2; ++i) {
                                expect(at::equal(params[i].grad(), again[i].grad()), "the same bits");
                              }
                              for (std::size_t i = 0; step == 5 && i < 2; ++i) {  // an update that a scaler leaves out
                                expect(at::equal(first.powersgd_state().errors[i], errors[i]), "the errors before");
                              }
                              if (step == 4) {
                                expect(params[0].grad().norm().item<float>() > 1, "a sum after zeros");
                              }
                            }
                            return std::string("ok");
                          }),
                "ok");
  }
}

}  // namespace powersgd_test
