// Convolutions, pooling, norms over positions and recurrent layers: those of each sequence by itself.
#include <danling/core/error.hpp>

#include <nested/per_element.hpp>

namespace nested_convolution {
namespace {

namespace F = torch::nn::functional;
using danling::NestedTensor;
using per_element::Layout;
using per_element::Results;
using torch::Tensor;

const std::vector<Layout>& channel_layouts() {
  static const std::vector<Layout> all = {
      {"ragged", {{4, 7}, {4, 12}, {4, 5}}}, {"equal lengths", {{4, 9}, {4, 9}}}, {"one", {{4, 6}}}};
  return all;
}

Layout pictures() { return {"pictures", {{2, 6, 8}, {2, 9, 5}, {2, 7, 7}}}; }

/// Gradients of parameters too.
void check_module(const Layout& layout, const std::function<Results(const Tensor&)>& call,
                  const std::vector<Tensor>& parameters, double tolerance = 1e-4) {
  per_element::check_same(layout, call, call, torch::kFloat, tolerance);
  std::vector<Tensor> got;
  for (const bool nested : {true, false}) {
    for (const Tensor& parameter : parameters) {
      parameter.mutable_grad() = Tensor();
    }
    Tensor loss = torch::zeros({}, torch::kDouble);
    if (nested) {
      loss = per_element::loss_of(call(layout.nested())[0]);
    } else {
      for (const Tensor& element : layout.elements()) {
        loss = loss + per_element::loss_of(call(element)[0]);
      }
    }
    loss.backward();
    for (std::size_t at = 0; at < parameters.size(); ++at) {
      if (nested) {
        got.push_back(parameters[at].grad().clone());
      } else {
        CHECK(per_element::close(got[at], parameters[at].grad(), 1e-3, 1e-3));
      }
    }
  }
}

TEST_CASE("NestedTensor: conv1d is exact at the borders of each sequence", "[nested]") {
  torch::manual_seed(2);
  for (const Layout& layout : channel_layouts()) {
    for (const std::int64_t kernel : {1, 2, 3}) {
      for (const std::int64_t stride : {1, 2, 3}) {
        for (const std::int64_t padding : {0, 1, 4}) {
          for (const std::int64_t dilation : {1, 2}) {
            const std::int64_t groups = kernel == 2 ? 2 : 1;
            const Tensor weight = torch::randn({6, 4 / groups, kernel}).requires_grad_();
            const Tensor bias = torch::randn({6}).requires_grad_();
            INFO("kernel " << kernel << ", stride " << stride << ", padding " << padding << ", dilation " << dilation);
            check_module(layout,
                         [&](const Tensor& x) {
                           return Results{torch::conv1d(x, weight, bias, stride, padding, dilation, groups)};
                         },
                         {weight, bias});
          }
        }
      }
    }
    for (const std::int64_t kernel : {2, 3, 4}) {
      for (const char* padding : {"same", "valid"}) {
        const Tensor weight = torch::randn({3, 4, kernel}).requires_grad_();
        check_module(layout, [&](const Tensor& x) { return Results{torch::conv1d(x, weight, {}, 1, padding)}; },
                     {weight});
      }
    }
  }
}

TEST_CASE("NestedTensor: conv1d keeps types, empty batches, and runs without fallback", "[nested]") {
  const danling::NoNestedFallback forbidden;
  const Tensor weight = torch::randn({6, 4, 3});
  for (const auto type : {torch::kDouble, torch::kBFloat16}) {
    per_element::check_same(
        channel_layouts()[0], [&](const Tensor& x) { return Results{torch::conv1d(x, weight.to(type), {}, 1, 1)}; },
        [&](const Tensor& x) { return Results{torch::conv1d(x, weight.to(type), {}, 1, 1)}; }, type,
        type == torch::kDouble ? 1e-9 : 5e-2);
  }
  const NestedTensor with_empty({torch::randn({4, 3}), torch::randn({4, 0})});
  const NestedTensor out(torch::conv1d(with_empty, weight, {}, 1, 2));
  CHECK(out.shapes() == std::vector<std::vector<std::int64_t>>{{6, 5}, {6, 2}});
  CHECK(out.elements()[1].equal(torch::zeros({6, 2})));
  CHECK_THROWS_WITH(torch::conv1d(with_empty, weight),
                    ContainsSubstring("[nested_tensor.conv1d] expected sequences of at least 3 positions without the "
                                      "padding, got elements (4, 3), (4, 0)"));
  CHECK_THROWS_WITH(torch::conv1d(NestedTensor({torch::randn({3, 4}), torch::randn({5, 4})}), weight),
                    ContainsSubstring("[nested_tensor.conv1d] expected elements (channels, length) of 4 channels, got "
                                      "(3, 4), (5, 4)"));
  CHECK_THROWS_WITH(torch::conv1d(NestedTensor({torch::randn({5, 4}), torch::randn({5, 3})}), weight),
                    ContainsSubstring("[nested_tensor.conv1d] expected elements of 4 channels, got (5, 4), (5, 3)"));
}

struct Spatial {
  std::string name;
  std::function<Results(const Tensor&)> call;
};

TEST_CASE("NestedTensor: pooling and transposed convolutions are those of each sequence", "[nested]") {
  torch::manual_seed(4);
  const Tensor transposed = torch::randn({4, 3, 3});
  const std::vector<Spatial> all = {
      {"max_pool1d", [](const Tensor& x) { return Results{torch::max_pool1d(x, 2)}; }},
      {"max_pool1d, padded", [](const Tensor& x) { return Results{torch::max_pool1d(x, 3, 2, 1)}; }},
      {"avg_pool1d", [](const Tensor& x) { return Results{torch::avg_pool1d(x, 3, 1, 1)}; }},
      {"adaptive_avg_pool1d", [](const Tensor& x) { return Results{torch::adaptive_avg_pool1d(x, 3)}; }},
      {"adaptive_max_pool1d", [](const Tensor& x) { return Results{std::get<0>(torch::adaptive_max_pool1d(x, 3))}; }},
      {"conv_transpose1d", [&](const Tensor& x) { return Results{torch::conv_transpose1d(x, transposed, {}, 2)}; }},
      {"pad", [](const Tensor& x) { return Results{torch::constant_pad_nd(x, {1, 2}, 0.5)}; }},
      {"reflection_pad1d", [](const Tensor& x) { return Results{torch::reflection_pad1d(x, {1, 2})}; }},
  };
  for (const Layout& layout : channel_layouts()) {
    for (const Spatial& spatial : all) {
      INFO(spatial.name);
      per_element::check_same(layout, spatial.call, spatial.call);
    }
  }
}

TEST_CASE("NestedTensor: pictures of different sizes go through two-dimensional layers", "[nested]") {
  torch::manual_seed(4);
  const Tensor weight = torch::randn({3, 2, 3, 3}).requires_grad_(), up = torch::randn({2, 3, 2, 2});
  check_module(pictures(), [&](const Tensor& x) { return Results{torch::conv2d(x, weight, {}, 2, 1)}; }, {weight});
  const std::vector<Spatial> all = {
      {"max_pool2d", [](const Tensor& x) { return Results{torch::max_pool2d(x, 2)}; }},
      {"avg_pool2d", [](const Tensor& x) { return Results{torch::avg_pool2d(x, 2)}; }},
      {"adaptive_avg_pool2d", [](const Tensor& x) { return Results{torch::adaptive_avg_pool2d(x, {2, 3})}; }},
      {"conv_transpose2d", [&](const Tensor& x) { return Results{torch::conv_transpose2d(x, up)}; }},
      {"replication_pad2d", [](const Tensor& x) { return Results{torch::replication_pad2d(x, {1, 0, 0, 2})}; }},
  };
  for (const Spatial& spatial : all) {
    INFO(spatial.name);
    per_element::check_same(pictures(), spatial.call, spatial.call);
  }
}

TEST_CASE("NestedTensor: a scale of interpolate gives each sequence its own length", "[nested]") {
  const auto batched = [](const Tensor& x, const F::InterpolateFuncOptions& options) {
    return NestedTensor::is_nested(x) ? Results{F::interpolate(x, options)}
                                      : Results{F::interpolate(x.unsqueeze(0), options).squeeze(0)};
  };
  for (const Layout& layout : channel_layouts()) {
    for (const auto& options :
         {F::InterpolateFuncOptions().scale_factor(std::vector<double>{2}).mode(torch::kNearest),
          F::InterpolateFuncOptions().scale_factor(std::vector<double>{1.5}).mode(torch::kLinear).align_corners(false),
          F::InterpolateFuncOptions().size(std::vector<std::int64_t>{5}).mode(torch::kNearest)}) {
      per_element::check_same(
          layout, [&](const Tensor& x) { return batched(x, options); },
          [&](const Tensor& x) { return batched(x, options); });
    }
  }
}

TEST_CASE("NestedTensor: batch_norm takes its statistics from valid positions alone", "[nested]") {
  for (const bool channels_last : {false, true}) {
    std::vector<Tensor> parts;
    for (const Tensor& part : channel_layouts()[0].elements()) {
      parts.push_back(channels_last ? part.t().contiguous() : part);
    }
    std::vector<Tensor> rows;
    for (const Tensor& part : parts) {
      rows.push_back(channels_last ? part : part.t());
    }
    torch::nn::BatchNorm1d layer(4), own(4);
    const NestedTensor x(parts, {.requires_grad = true});
    const Tensor all = torch::cat(rows).requires_grad_();
    for (const bool training : {true, false}) {
      layer->train(training);
      own->train(training);
      const NestedTensor out(layer->forward(x));
      const Tensor expected = own->forward(all);
      CHECK(per_element::close(out.concat(), expected));
      CHECK(out.shapes() == x.shapes());
      CHECK(per_element::close(layer->running_mean, own->running_mean));
      CHECK(per_element::close(layer->running_var, own->running_var));
      per_element::loss_of(out).backward();
      per_element::loss_of(expected).backward();
    }
    CHECK(per_element::close(NestedTensor(x.grad()).concat(), all.grad(), 1e-4, 1e-4));
    CHECK(per_element::close(layer->weight.grad(), own->weight.grad(), 1e-4, 1e-4));
  }
}

TEST_CASE("NestedTensor: group_norm and instance_norm take those of each sequence", "[nested]") {
  const Tensor weight = torch::randn({4}).requires_grad_(), bias = torch::randn({4}).requires_grad_();
  const auto batched = [](const Tensor& x, const auto& call) {
    return NestedTensor::is_nested(x) ? Results{call(x)} : Results{call(x.unsqueeze(0)).squeeze(0)};
  };
  for (const Layout& layout : channel_layouts()) {
    for (const std::int64_t groups : {1, 2, 4}) {
      check_module(layout,
                   [&](const Tensor& x) {
                     return batched(x, [&](const Tensor& y) { return torch::group_norm(y, groups, weight, bias); });
                   },
                   {weight, bias});
    }
    check_module(layout,
                 [&](const Tensor& x) {
                   return batched(x, [&](const Tensor& y) {
                     return torch::instance_norm(y, weight, bias, {}, {}, true, 0.1, 1e-5, false);
                   });
                 },
                 {weight, bias});
  }
  check_module({"pictures", {{4, 6, 8}, {4, 9, 5}}},
               [&](const Tensor& x) {
                 return batched(x, [&](const Tensor& y) { return torch::group_norm(y, 2, weight, bias); });
               },
               {weight, bias});
  const Layout equal = {"equal", {{4, 9}, {4, 9}, {4, 9}}};
  torch::nn::InstanceNorm1d layer(torch::nn::InstanceNorm1dOptions(4).track_running_stats(true).affine(true)),
      own(torch::nn::InstanceNorm1dOptions(4).track_running_stats(true).affine(true));
  const NestedTensor out(layer->forward(equal.nested()));
  CHECK(out.tensor().allclose(own->forward(torch::stack(equal.elements())), 1e-4, 1e-5));
  CHECK(layer->running_mean.allclose(own->running_mean));
  CHECK(layer->running_var.allclose(own->running_var));
}

template <class Module>
void check_recurrent(Module module, const Layout& layout) {
  check_module(
      layout,
      [&](const Tensor& x) {
        if (NestedTensor::is_nested(x)) {
          const auto result = module->forward(x);
          return Results{std::get<0>(result)};
        }
        const std::int64_t batch = layout.batch_first ? 0 : 1;
        return Results{std::get<0>(module->forward(x.unsqueeze(batch))).squeeze(batch)};
      },
      module->parameters());
}

TEST_CASE("NestedTensor: recurrent layers run over each sequence to its own end", "[nested]") {
  torch::manual_seed(9);
  for (const bool batch_first : {true, false}) {
    for (const Layout& layout :
         {Layout{"ragged", {{3, 4}, {7, 4}, {1, 4}, {5, 4}}, batch_first},
          Layout{"equal", {{3, 4}, {3, 4}}, batch_first}, Layout{"one", {{6, 4}}, batch_first}}) {
      for (const bool both_ways : {false, true}) {
        check_recurrent(
            torch::nn::LSTM(
                torch::nn::LSTMOptions(4, 5).num_layers(2).batch_first(batch_first).bidirectional(both_ways)),
            layout);
        check_recurrent(torch::nn::GRU(torch::nn::GRUOptions(4, 5).batch_first(batch_first).bidirectional(both_ways)),
                        layout);
        check_recurrent(torch::nn::RNN(torch::nn::RNNOptions(4, 5).batch_first(batch_first).bidirectional(both_ways)),
                        layout);
      }
    }
  }
}

TEST_CASE("NestedTensor: states of recurrent layers are those at the end of each sequence", "[nested]") {
  torch::manual_seed(9);
  torch::nn::LSTM layer(torch::nn::LSTMOptions(4, 5).batch_first(true));
  const std::vector<Tensor> parts = {torch::randn({2, 4}), torch::randn({0, 4}), torch::randn({5, 4})};
  const Tensor hidden = torch::randn({1, 3, 5}), cell = torch::randn({1, 3, 5});
  const auto [out, states] = layer->forward(NestedTensor(parts), std::tuple(hidden, cell));
  for (const std::int64_t i : {0, 2}) {
    const auto [own, own_states] = layer->forward(parts[static_cast<std::size_t>(i)].unsqueeze(0),
                                                  std::tuple(hidden.narrow(1, i, 1), cell.narrow(1, i, 1)));
    CHECK(NestedTensor(out).elements()[static_cast<std::size_t>(i)].allclose(own[0], 1e-5, 1e-6));
    CHECK(std::get<0>(states).narrow(1, i, 1).allclose(std::get<0>(own_states), 1e-5, 1e-6));
    CHECK(std::get<1>(states).narrow(1, i, 1).allclose(std::get<1>(own_states), 1e-5, 1e-6));
  }
  CHECK(std::get<0>(states).select(1, 1).equal(hidden.select(1, 1)));
  CHECK_THROWS_WITH(layer->forward(NestedTensor(parts, {.batch_first = false})),
                    ContainsSubstring("[nested_tensor.lstm] expected a layer with batch_first="));
}

}  // namespace
}  // namespace nested_convolution
