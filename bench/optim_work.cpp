// The work of bench/optim.cpp: optimizers, parameters with gradients, and steps.
#include "optim_work.hpp"

#include <cstddef>
#include <utility>

#include <ATen/ATen.h>

#include <danling/config/config.hpp>

#include "tables.hpp"

namespace bench {
namespace {

at::Tensor irregular(const std::vector<std::int64_t>& shape, double phase, at::ScalarType dtype) {
  std::int64_t count = 1;
  for (const auto size : shape) {
    count *= size;
  }
  return at::arange(count, at::kDouble).mul_(1.7).add_(phase).sin_().to(dtype).view(shape);
}

}  // namespace

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"sgd", "SGD", "{}", 3, true},
      {"sgd", "SGD", R"({"momentum":0.9})", 5, true},
      {"adam", "Adam", "{}", 7, true},
      {"adamw", "AdamW", "{}", 7, true},
      {"adagrad", "Adagrad", "{}", 5, true},
      {"asgd", "ASGD", "{}", 4, false},
      {"adadelta", "Adadelta", "{}", 7, false},
      {"adamax", "Adamax", "{}", 7, false},
      {"nadam", "NAdam", "{}", 7, false},
      {"radam", "RAdam", "{}", 7, false},
      {"rmsprop", "RMSprop", "{}", 5, false},
      {"rprop", "Rprop", "{}", 7, false},
      {"lion", "Lion", "{}", 5, false},
      {"lamb", "Lamb", "{}", 10, false},
      {"adafactor", "Adafactor", "{}", 6, false},
      {"muon", "Muon", "{}", 0, false},
  };
  return all;
}

Model::Model(const Shapes& shapes, at::ScalarType dtype) {
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    starts.push_back(irregular(shapes[i], static_cast<double>(i), dtype));
    params.push_back(starts.back().clone().set_requires_grad(true));
    grads.push_back(irregular(shapes[i], static_cast<double>(i) + 0.5, dtype));
    params.back().mutable_grad() = grads.back().clone();
  }
}

void Model::refill() {
  for (std::size_t i = 0; i < params.size(); ++i) {
    params[i].mutable_grad().copy_(grads[i]);
  }
}

double Model::moved() const {
  double sum = 0;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < params.size(); ++i) {
    sum += params[i].detach().to(at::kDouble).sub_(starts[i]).abs_().sum().item().toDouble();
    count += params[i].numel();
  }
  return 1e6 * sum / static_cast<double>(count);
}

std::shared_ptr<optim::Optimizer> make_optimizer(const Kind& kind, const std::vector<at::Tensor>& params) {
  optim::OptimizerSpec spec;
  danling::load_text(spec, kind.options, kind.name);
  spec.type = kind.name;
  std::vector<optim::NamedParameter> named;
  for (std::size_t i = 0; i < params.size(); ++i) {
    named.emplace_back(std::to_string(i), params[i]);
  }
  return optim::build_optimizer(spec, named);
}

double Stepper::value() {
  for (int i = 0; i < 3; ++i) {
    model.refill();
    step();
  }
  return model.moved();
}

double Stepper::time(int calls) const {
  return seconds_of([&] {
           for (int i = 0; i < calls; ++i) {
             step();
           }
         }) /
         calls;
}

double Stepper::time_renewed(int calls) {
  double total = 0;
  for (int i = 0; i < calls; ++i) {
    model.refill();
    total += seconds_of(step);
  }
  return total / calls;
}

}  // namespace bench
