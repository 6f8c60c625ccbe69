#include <runner/rank_messages.hpp>

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr char failed = 'f';

std::string tagged(char kind, std::string_view body) {
  std::string out(1, kind);
  return out.append(body);
}

std::string place_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::update:
      return "an update";
    case Purpose::log:
      return "a line of the log";
    case Purpose::ended:
      return "the end of its pass";
    case Purpose::statistics:
      return "a SyncBatchNorm";
    case Purpose::exchange:
      break;
  }
  return "an evaluation, a save, a reading of metrics or the start of a run";
}

}  // namespace

void fail_apart(const std::vector<Message>& messages, std::string_view where) {
  std::vector<std::string> places;
  for (std::size_t rank = 0; rank < messages.size(); ++rank) {
    const Purpose purpose = messages[rank].purpose;
    const bool ends = rank + 1 == messages.size();
    const bool alike = rank > 0 && purpose == messages[rank - 1].purpose && !ends;
    if (!alike) {
      places.push_back(concat("rank ", rank, " at ", place_of(purpose)));
    }
  }
  fail<DistributedError>(where, "expected all processes at the same place, got ", join(places),
                         "; all ranks must call evaluate(), save_checkpoint(), metrics and other functions that "
                         "communicate, so none of them may stand behind `if (rank() == 0)`");
}

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
  std::vector<Message> messages = meet(group, Purpose::exchange, body);
  for (Message& message : messages) {
    if (message.purpose != Purpose::exchange) {
      fail_apart(messages, "runner.train");
    }
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
