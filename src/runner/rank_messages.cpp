#include "runner/rank_messages.hpp"

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr char failed = 'f';

std::string tagged(char kind, std::string_view body) {
  std::string out(1, kind);
  return out.append(body);
}

}  // namespace

std::vector<Message> meet(const Group& group, Purpose purpose, std::string_view body) {
  const std::vector<std::string> texts = group.all_gather(tagged(static_cast<char>(purpose), body));
  std::vector<Message> out;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    check<DistributedError>(!texts[rank].empty(), "runner.train", "expected a message of rank ", rank,
                            ", got an empty one; do all ranks run the same program?");
    if (texts[rank].front() == failed) {
      fail<DistributedError>("runner.train", "expected every process to continue, got an error on rank ", rank, ": ",
                             texts[rank].substr(1));
    }
    out.push_back({static_cast<Purpose>(texts[rank].front()), texts[rank].substr(1)});
  }
  return out;
}

std::vector<std::string> exchange(const Group& group, std::string_view body) {
  std::vector<std::string> out;
  for (Message& message : meet(group, Purpose::exchange, body)) {
    check<DistributedError>(message.purpose == Purpose::exchange, "runner.train",
                            "expected all processes at the same place, got one elsewhere in its loop; the steps of all "
                            "ranks must call the same collective functions");
    out.push_back(std::move(message.body));
  }
  return out;
}

void check_outside_step(const std::vector<Message>& messages, std::string_view where) {
  for (std::size_t rank = 0; rank < messages.size(); ++rank) {
    check<DistributedError>(messages[rank].purpose != Purpose::statistics, where,
                            "expected all processes at the end of their step, got rank ", rank,
                            " in a SyncBatchNorm; all ranks must call it equally often, forward and backward");
  }
}

void report_failure(const Group& group, std::string_view words) { group.all_gather(tagged(failed, words)); }

}  // namespace danling::inline v0::detail
