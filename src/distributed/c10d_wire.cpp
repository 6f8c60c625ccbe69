#include <distributed/c10d_wire.hpp>

#include <thread>
#include <utility>

#include <c10/util/Exception.h>
#ifdef USE_DISTRIBUTED
#include <torch/csrc/distributed/c10d/Backend.hpp>
#endif

#include <danling/core/error.hpp>

namespace danling::inline v0 {

std::string detail::reason_of(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  std::string text = of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
  text = text.substr(0, text.find('\n'));
  // Removes the source file and line from Gloo's messages.
  if (text.starts_with('[')) {
    const auto end = text.find("] ");
    text = end == std::string::npos ? text : text.substr(end + 2);
  }
  // Removes general advice at the end.
  return text.substr(0, text.find(". This is typically"));
}

#ifdef USE_DISTRIBUTED

namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

c10d::ReduceOp c10d_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::product:
      return c10d::ReduceOp::PRODUCT;
    case ReduceOp::min:
      return c10d::ReduceOp::MIN;
    case ReduceOp::max:
      return c10d::ReduceOp::MAX;
    case ReduceOp::bit_and:
      return c10d::ReduceOp::BAND;
    case ReduceOp::bit_or:
      return c10d::ReduceOp::BOR;
    case ReduceOp::bit_xor:
      return c10d::ReduceOp::BXOR;
    default:
      return c10d::ReduceOp::SUM;
  }
}

/// A collective. For tensors on a device, LibTorch's `wait` only synchronizes streams.
class CollectiveTransfer : public Transfer {
 public:
  CollectiveTransfer(WorkPtr work, Tensors tensors)
      : work_(std::move(work)), tensors_(std::move(tensors)), on_host_(tensors_.front().device().is_cpu()) {}

  bool done() override { return work_->isCompleted(); }

  bool wait_for(std::chrono::milliseconds limit) override {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    if (on_host_ && !work_->isCompleted()) {
      try {
        return work_->wait(limit);
      } catch (const std::exception&) {  // timed out, or the work failed
      }
    }
    while (!work_->isCompleted()) {
      if (std::chrono::steady_clock::now() >= deadline) {
        return false;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    work_->wait();  // throws if the work failed
    return true;
  }

 private:
  WorkPtr work_;
  Tensors tensors_;
  bool on_host_;
};

/// A point-to-point message. Gloo closes the connection if a wait for one times out.
class MessageTransfer : public Transfer {
 public:
  MessageTransfer(WorkPtr work, at::Tensor tensor) : work_(std::move(work)), tensor_(std::move(tensor)) {}

  bool done() override { return work_->isCompleted(); }
  bool wait_for(std::chrono::milliseconds limit) override { return work_->wait(limit); }
  bool resumable() const override { return false; }
  void cancel() override { work_->abort(); }
  int source() override { return work_->sourceRank(); }

 private:
  WorkPtr work_;
  at::Tensor tensor_;
};

TransferPtr collective(WorkPtr work, Tensors tensors) {
  return std::make_unique<CollectiveTransfer>(std::move(work), std::move(tensors));
}

}  // namespace

C10dWire::C10dWire(c10::intrusive_ptr<c10d::Backend> backend) : backend_(std::move(backend)) {}
C10dWire::~C10dWire() = default;
int C10dWire::rank() const { return backend_->getRank(); }
int C10dWire::size() const { return backend_->getSize(); }
void C10dWire::set_timeout(std::chrono::milliseconds timeout) { backend_->setTimeout(timeout); }

TransferPtr C10dWire::all_gather(std::vector<at::Tensor> outputs, at::Tensor mine) {
  std::vector<Tensors> all = {std::move(outputs)};
  Tensors inputs = {std::move(mine)};
  auto work = backend_->allgather(all, inputs);
  inputs.insert(inputs.end(), all.front().begin(), all.front().end());
  return collective(std::move(work), std::move(inputs));
}

TransferPtr C10dWire::broadcast(at::Tensor tensor, int root) {
  Tensors tensors = {std::move(tensor)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  auto work = backend_->broadcast(tensors, options);
  return collective(std::move(work), std::move(tensors));
}

TransferPtr C10dWire::all_reduce(at::Tensor tensor, ReduceOp op) {
  Tensors tensors = {std::move(tensor)};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d_op(op);
  auto work = backend_->allreduce(tensors, options);
  return collective(std::move(work), std::move(tensors));
}

TransferPtr C10dWire::reduce(at::Tensor tensor, int root, ReduceOp op) {
  Tensors tensors = {std::move(tensor)};
  c10d::ReduceOptions options;
  options.reduceOp = c10d_op(op);
  options.rootRank = root;
  auto work = backend_->reduce(tensors, options);
  return collective(std::move(work), std::move(tensors));
}

TransferPtr C10dWire::all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> received,
                                 std::vector<std::int64_t> sent) {
  auto work = backend_->alltoall_base(output, input, received, sent);
  return collective(std::move(work), {std::move(output), std::move(input)});
}

TransferPtr C10dWire::send(at::Tensor tensor, int to, int tag) {
  Tensors tensors = {tensor};
  return std::make_unique<MessageTransfer>(backend_->send(tensors, to, tag), std::move(tensor));
}

TransferPtr C10dWire::recv(at::Tensor tensor, int from, int tag) {
  Tensors tensors = {tensor};
  auto work = from < 0 ? backend_->recvAnysource(tensors, tag) : backend_->recv(tensors, from, tag);
  return std::make_unique<MessageTransfer>(std::move(work), std::move(tensor));
}

#endif

}  // namespace danling::inline v0
