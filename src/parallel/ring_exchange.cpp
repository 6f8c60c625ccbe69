#include <parallel/ring_exchange.hpp>

#include <cstddef>
#include <utility>

#include <ATen/ops/empty_like.h>

#include <danling/tape/observer.hpp>

namespace danling::inline v0::parallel::detail {
namespace {

constexpr int first_tag = 0x52494e47;  // distinct from the tags of the program in the same group

/// A send may block until it is received: even ranks send first, so that some rank receives.
void exchange_around(const Group& group, const std::vector<at::Tensor>& sent, std::vector<at::Tensor>& received) {
  const int next = (group.rank() + 1) % group.size(), before = (group.rank() + group.size() - 1) % group.size();
  for (std::size_t at = 0; at < sent.size(); ++at) {
    const int tag = first_tag + static_cast<int>(at);
    if (group.rank() % 2 == 0) {
      group.send(sent[at], next, tag);
    }
    group.recv(received[at], before, tag);
    if (group.rank() % 2 != 0) {
      group.send(sent[at], next, tag);
    }
  }
}

}  // namespace

RingExchange::RingExchange(const Group& group) : group_(group) {
  // The group's refusal happens on the calling thread, which a recording does not see.
  tape::mark_unrecordable("processes exchange values inside of it: ring attention");
}

void RingExchange::start(std::vector<at::Tensor> tensors) {
  sent_ = std::move(tensors);
  std::vector<at::Tensor> host;
  received_.clear();
  for (const at::Tensor& tensor : sent_) {
    host.push_back(tensor.to(at::kCPU));
    received_.push_back(at::empty_like(host.back()));
  }
  running_ = std::async(std::launch::async, [this, host] { exchange_around(group_, host, received_); });
}

std::vector<at::Tensor> RingExchange::finish() {
  running_.get();
  for (std::size_t at = 0; at < sent_.size(); ++at) {
    received_[at] = received_[at].to(sent_[at].device());
  }
  sent_.clear();
  return std::exchange(received_, {});
}

}  // namespace danling::inline v0::parallel::detail
