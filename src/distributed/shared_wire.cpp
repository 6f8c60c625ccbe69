#include <distributed/shared_wire.hpp>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {
namespace {

// Two slots are enough: a rank writes its next message while others still read the last. It writes the one after that
// only when all have raised their flags for the next one, that is, have read the last.
constexpr std::uint32_t slots = 2;

std::byte* slot_of(const SharedMemory& memory, int rank, std::uint32_t number) {
  return memory.part(rank) + number % slots * shared_message_bytes;
}

class SharedGather : public Transfer {
 public:
  SharedGather(std::shared_ptr<SharedMemory> memory, std::uint32_t number, std::vector<at::Tensor> outputs)
      : memory_(std::move(memory)), number_(number), outputs_(std::move(outputs)) {}

  bool done() override { return wait_for(std::chrono::milliseconds(0)); }

  bool wait_for(std::chrono::milliseconds limit) override {
    if (read_) {
      return true;
    }
    if (memory_->wait_for(0, number_, limit)) {
      for (std::size_t rank = 0; rank < outputs_.size(); ++rank) {
        std::memcpy(outputs_[rank].data_ptr(), slot_of(*memory_, static_cast<int>(rank), number_),
                    outputs_[rank].nbytes());
      }
      read_ = true;
    } else if (const auto rank = memory_->ended_rank(0, number_)) {
      throw std::runtime_error(concat("rank ", memory_->name(*rank), " has ended"));  // the caller determines the
                                                                                      // reason
    }
    return read_;
  }

 private:
  std::shared_ptr<SharedMemory> memory_;
  std::uint32_t number_;
  std::vector<at::Tensor> outputs_;
  bool read_ = false;
};

class SharedWire : public Wire {
 public:
  SharedWire(std::shared_ptr<SharedMemory> memory, std::unique_ptr<Wire> other)
      : memory_(std::move(memory)), other_(std::move(other)) {}

  int rank() const override { return other_->rank(); }
  int size() const override { return other_->size(); }
  void set_timeout(std::chrono::milliseconds timeout) override { other_->set_timeout(timeout); }

  TransferPtr all_gather(std::vector<at::Tensor> outputs, at::Tensor mine) override {
    if (mine.nbytes() > shared_message_bytes) {
      return other_->all_gather(std::move(outputs), std::move(mine));
    }
    ++number_;
    std::memcpy(slot_of(*memory_, rank(), number_), mine.const_data_ptr(), mine.nbytes());
    memory_->raise(0, number_);
    return std::make_unique<SharedGather>(memory_, number_, std::move(outputs));
  }
  Wire& for_several() override { return other_->for_several(); }
  TransferPtr broadcast(at::Tensor tensor, int root) override { return other_->broadcast(std::move(tensor), root); }
  TransferPtr all_reduce(at::Tensor tensor, ReduceOp op) override { return other_->all_reduce(std::move(tensor), op); }
  TransferPtr reduce(at::Tensor tensor, int root, ReduceOp op) override {
    return other_->reduce(std::move(tensor), root, op);
  }
  TransferPtr all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> received,
                         std::vector<std::int64_t> sent) override {
    return other_->all_to_all(std::move(output), std::move(input), std::move(received), std::move(sent));
  }
  TransferPtr send(at::Tensor tensor, int to, int tag) override { return other_->send(std::move(tensor), to, tag); }
  TransferPtr recv(at::Tensor tensor, int from, int tag) override { return other_->recv(std::move(tensor), from, tag); }

 private:
  std::shared_ptr<SharedMemory> memory_;
  std::unique_ptr<Wire> other_;
  std::uint32_t number_ = 0;  // of the last message
};

}  // namespace

SharedMemory::Options shared_wire_memory() { return {.bytes = slots * shared_message_bytes, .flags = 1}; }

std::unique_ptr<Wire> make_shared_wire(std::shared_ptr<SharedMemory> memory, std::unique_ptr<Wire> other) {
  return std::make_unique<SharedWire>(std::move(memory), std::move(other));
}

}  // namespace danling::inline v0::detail
