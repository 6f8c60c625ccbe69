// More operators to compare devices: single tokens, layers, norms and losses of (batch, length, 4).
#pragma once

#include "nested/device_operators.hpp"

namespace nested_devices {

inline Results of_complex(const Tensor& real, const Tensor& imaginary) {
  const NestedTensor x(real), y(imaginary);
  const Tensor values = torch::complex(x.concat(), y.concat());
  const NestedTensor both = NestedTensor::from_concatenated(values, x.shapes());
  return {both.mean(1).abs(), both.var(2, false), torch::linalg_vector_norm(both, 2, 1)};
}

inline const std::vector<Case>& of_layers() {
  static const std::vector<Case> all = {
      {"index of tokens",
       [](auto& in) {
         return Results{in.x.index({in.indices({2, 0}), in.indices({0, -1})}),
                        in.x.index({torch::tensor({2, 0}), torch::tensor({0, 1}), torch::tensor({3, 2})})};
       }},
      {"index_put_ of tokens",
       [](auto& in) {
         NestedTensor x(in.x * 2);
         x.index_put_({Slice(), 0}, in.plain({4}));
         x.index_put_({in.indices({1, 0}), in.indices({-1, 0})}, in.plain({2, 4}));
         return Results{x};
       }},
      {"nonzero", [](auto& in) { return Results{torch::nonzero(in.x > 0)}; }},
      {"masked_scatter", [](auto& in) { return Results{in.x.masked_scatter(in.x > 0, in.plain({in.x.numel()}))}; }},
      {"addmm", [](auto& in) { return Results{torch::addmm(in.plain({3}), in.x, in.plain({4, 3}), 0.5, 2)}; }},
      {"cdist", [](auto& in) { return Results{torch::cdist(in.x, in.y), torch::cdist(in.x, in.plain({7, 4}))}; }},
      {"tensordot",
       [](auto& in) {
         return Results{torch::tensordot(in.x, in.plain({4, 2}), {2}, {0}),
                        torch::tensordot(in.x, in.y, {0, 1}, {0, 1})};
       }},
      {"einsum", [](auto& in) { return Results{torch::einsum("...d,de->...e", {in.x, in.plain({4, 3})})}; }},
      {"searchsorted",
       [](auto& in) {
         const Tensor table = torch::linspace(-1, 1, 5).to(in.device);
         return Results{torch::searchsorted(table, in.x), torch::bucketize(in.x, table)};
       }},
      {"matrix norms",
       [](auto& in) {
         return Results{torch::linalg_matrix_norm(in.x, 1), torch::linalg_matrix_norm(in.x, "fro"),
                        torch::linalg_norm(in.x, 3, 2)};
       }},
      {"complex values", [](auto& in) { return of_complex(in.x, in.y); }},
      {"bilinear", [](auto& in) { return Results{torch::bilinear(in.x, in.y, in.plain({3, 4, 4}), in.plain({3}))}; }},
      {"cells",
       [](auto& in) {
         const Tensor state = in.y * 1;
         return Results{
             torch::gru_cell(in.x, state, in.plain({12, 4}), in.plain({12, 4}), in.plain({12}), in.plain({12})),
             torch::rnn_tanh_cell(in.x, state, in.plain({4, 4}), in.plain({4, 4}))};
       }},
      {"embedding bag",
       [](auto& in) {
         const Tensor weight = in.plain({5, 3});
         return Results{std::get<0>(torch::embedding_bag(weight, in.labels, {}, false, 1)),
                        std::get<0>(torch::embedding_bag(weight, in.labels, in.labels.offsets()))};
       }},
      {"dropout of no channel and of all",
       [](auto& in) {
         return Results{torch::feature_dropout(in.x, 1, true), torch::feature_alpha_dropout(in.x, 0, true)};
       }},
      {"ctc_loss",
       [](auto& in) {
         const Tensor targets = torch::ones({in.x.batch_size()}, torch::kLong).to(in.device);
         const std::vector<std::int64_t> ones(static_cast<std::size_t>(in.x.batch_size()), 1);
         return Results{torch::ctc_loss(in.x.log_softmax(-1), targets, torch::IntArrayRef(), ones, 0, 0)};
       }},
      {"prelu of each channel", [](auto& in) { return Results{torch::prelu(in.x, in.plain({4}))}; }},
      {"instance_norm with running statistics",
       [](auto& in) {
         const Tensor mean = values_of({4}).to(in.device), variance = mean.square() + 1;
         return Results{
             torch::instance_norm(in.x, in.plain({4}), in.plain({4}), mean, variance, false, 0.1, 1e-5, true)};
       }},
  };
  return all;
}

}  // namespace nested_devices
