// A Wire over a backend of LibTorch.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <distributed/wire.hpp>

namespace c10d {
class Backend;
class Work;
}  // namespace c10d

namespace danling::inline v0 {

class C10dWire : public Wire {
 public:
  explicit C10dWire(c10::intrusive_ptr<c10d::Backend> backend);
  ~C10dWire() override;

  int rank() const override;
  int size() const override;
  void set_timeout(std::chrono::milliseconds timeout) override;
  TransferPtr all_gather(std::vector<at::Tensor> outputs, at::Tensor mine) override;
  TransferPtr broadcast(at::Tensor tensor, int root) override;
  TransferPtr all_reduce(at::Tensor tensor, ReduceOp op) override;
  TransferPtr reduce(at::Tensor tensor, int root, ReduceOp op) override;
  TransferPtr all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> received,
                         std::vector<std::int64_t> sent) override;
  TransferPtr send(at::Tensor tensor, int to, int tag) override;
  TransferPtr recv(at::Tensor tensor, int from, int tag) override;

 private:
  c10::intrusive_ptr<c10d::Backend> backend_;
};

}  // namespace danling::inline v0
