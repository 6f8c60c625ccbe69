// The measured process of bench/parallel.cpp: a custom loop around ShardedModel.
#include "parallel_work.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <stdexcept>

#include <torch/torch.h>

#include <danling/distributed/group.hpp>
#include <danling/distributed/process.hpp>
#include <danling/distributed/reducer.hpp>
#include <danling/optim/adam.hpp>
#include <danling/optim/sgd.hpp>
#include <danling/parallel/sharded_model.hpp>

#include "instructions.hpp"
#include "rank_loop.hpp"

namespace dl = danling;

namespace bench {
namespace {

constexpr std::int64_t num_samples = 3840;

torch::nn::Sequential make_net(const std::string& folder) {
  using namespace torch::nn;
  Sequential net(Linear(784, 1024), ReLU(), Linear(1024, 1024), ReLU(), Linear(1024, 10));
  const at::NoGradGuard no_grad;
  std::int64_t count = 0, at = 0;
  for (const at::Tensor& param : net->parameters()) {
    count += param.numel();
  }
  const at::Tensor all = at::from_file(folder + "/weights", false, count, at::TensorOptions().dtype(at::kFloat));
  for (at::Tensor& param : net->parameters()) {
    param.copy_(all.narrow(0, at, param.numel()).view(param.sizes()));
    at += param.numel();
  }
  return net;
}

std::unique_ptr<dl::optim::Optimizer> make_optimizer(const std::string& name, const std::vector<at::Tensor>& params,
                                                     double rate) {
  if (name == "sgd") {
    return std::make_unique<dl::optim::SGD>(params, dl::optim::OptimizerOptions{.lr = rate, .weight_decay = 0.01});
  }
  return std::make_unique<dl::optim::AdamW>(params, dl::optim::OptimizerOptions{.lr = rate, .weight_decay = 0.01});
}

/// A step of one process, of any kind.
class Trainer {
 public:
  Trainer(const std::string& folder, std::int64_t batch_size, const std::string& optim, double rate,
          const std::string& how, const dl::Group& group)
      : group_(group), batch_size_(batch_size), net_(make_net(folder)) {
    input_ = at::from_file(folder + "/input", false, num_samples * 784, at::TensorOptions().dtype(at::kFloat))
                 .view({num_samples, 784});
    target_ = at::from_file(folder + "/target", false, num_samples, at::TensorOptions().dtype(at::kLong));
    std::vector<at::Tensor> params = net_->parameters();
    if (how == "ddp") {
      reducer_ = std::make_unique<dl::Reducer>(params, group_);
    } else if (how != "plain") {
      dl::ShardOptions options;
      options.units = how == "whole" ? std::vector<std::string>() : std::vector<std::string>{"Linear"};
      options.stage = how == "zero1" ? 1 : how == "zero2" ? 2 : 3;
      options.shared_memory = how != "gloo";
      sharded_ = std::make_unique<dl::ShardedModel>(net_.ptr(), group_, options);
      params.clear();
      for (const auto& [name, rows] : sharded_->named_parameters()) {
        params.push_back(rows);
      }
    }
    optimizer_ = make_optimizer(optim, params, rate);
  }

  at::Tensor step() {
    const std::int64_t size = group_.size(), batches = num_samples / batch_size_ / size;
    const std::int64_t begin = (steps_++ % batches * size + group_.rank()) * batch_size_;
    const at::Tensor x = input_.narrow(0, begin, batch_size_), y = target_.narrow(0, begin, batch_size_);
    optimizer_->zero_grad();
    at::Tensor loss;
    if (sharded_ != nullptr) {
      sharded_->zero_grad();
      const dl::ShardedModel::Step scope(*sharded_);
      loss = torch::nn::functional::cross_entropy(net_->forward(x), y);
      backward(loss);
    } else {
      if (reducer_ != nullptr) {
        reducer_->begin_backward(true);
      }
      loss = torch::nn::functional::cross_entropy(net_->forward(x), y);
      backward(loss);
    }
    if (sharded_ != nullptr) {
      sharded_->finish_backward();
    } else if (reducer_ != nullptr) {
      reducer_->finish(false, false);
    }
    optimizer_->step();
    if (sharded_ != nullptr) {
      sharded_->update_parameters();
    }
    return loss.detach();
  }

 private:
  /// Backward pass of the mean over all ranks.
  void backward(const at::Tensor& loss) const {
    group_.size() == 1 ? loss.backward() : loss.div(static_cast<double>(group_.size())).backward();
  }

  dl::Group group_;
  std::int64_t batch_size_;
  torch::nn::Sequential net_;
  at::Tensor input_, target_;
  std::unique_ptr<dl::Reducer> reducer_;
  std::unique_ptr<dl::ShardedModel> sharded_;
  std::unique_ptr<dl::optim::Optimizer> optimizer_;
  std::int64_t steps_ = 0;
};

double instructions_of(int file) {
  std::int64_t value = 0;
  return read(file, &value, sizeof value) == sizeof value ? static_cast<double>(value) : 0;
}

}  // namespace

int train_sharded_on_command(const std::vector<std::string>& arguments) {
  if (arguments.size() != 5) {
    throw std::runtime_error("expected five arguments of a rank");
  }
  at::set_num_threads(1);
  const dl::Group group = dl::Group::connect(dl::read_process_identity());
  Trainer trainer(arguments[0], std::stoll(arguments[1]), arguments[2], std::stod(arguments[3]), arguments[4], group);
  train_on_lines([&](int steps) -> std::function<double()> {
    at::Tensor loss;
    for (int left = steps; left > 0; --left) {
      loss = trainer.step();
    }
    return [loss] { return loss.item<double>(); };
  });
}

StepCounts count_steps(const std::string& folder) {
  at::set_num_threads(1);
  const int file = open_instructions();
  if (file < 0) {
    return {};
  }
  StepCounts out;
  for (const std::string how : {"plain", "units"}) {
    Trainer trainer(folder, 64, "sgd", 0.01, how, dl::Group());
    trainer.step();
    trainer.step();
    constexpr int steps = 5;
    const double before = instructions_of(file);
    for (int step = 0; step < steps; ++step) {
      trainer.step();
    }
    (how == "plain" ? out.plain : out.sharded) = (instructions_of(file) - before) / steps;
  }
  close(file);
  return out;
}

}  // namespace bench
