#include <distributed/rank_notes.hpp>

#include <mutex>
#include <set>
#include <string_view>
#include <thread>

#ifdef USE_DISTRIBUTED
#include <torch/csrc/distributed/c10d/Store.hpp>
#endif

#include <danling/core/error.hpp>

#include <distributed/group_impl.hpp>

namespace danling::inline v0::detail {

RankNotes::RankNotes(const Group& group)
    : rank_(group.rank()), size_(group.size()), watch_(GroupCall::watch_of(group)) {}

#ifdef USE_DISTRIBUTED

namespace {

constexpr auto note_turn = std::chrono::milliseconds(20);
constexpr std::string_view note_prefix = "notes/";

}  // namespace

std::map<std::int64_t, std::string> RankNotes::exchange(const std::string& note,
                                                        std::chrono::milliseconds limit) const {
  struct Found {
    std::mutex mutex;
    std::map<std::int64_t, std::string> notes;
  };
  const auto found = std::make_shared<Found>();
  found->notes[rank_] = note;
  if (watch_ == nullptr) {
    return found->notes;
  }
  const auto deadline = std::chrono::steady_clock::now() + limit;
  // A store whose server is stopped blocks forever: the thread continues in the background.
  ends_within(limit, [found, note, deadline, watch = watch_, rank = rank_, size = size_] {
    try {
      const auto store = watch->new_client();
      store->set(concat(note_prefix, rank), note);
      std::set<std::int64_t> known = {rank};
      while (known.size() < static_cast<std::size_t>(size) && std::chrono::steady_clock::now() < deadline) {
        for (std::int64_t other = 0; other < size; ++other) {
          const std::string key = concat(note_prefix, other);
          if (!known.contains(other) && store->check({key})) {
            const std::string text = store->get_to_str(key);
            const std::lock_guard<std::mutex> lock(found->mutex);
            found->notes[other] = text;
            known.insert(other);
          }
        }
        std::this_thread::sleep_for(note_turn);
      }
    } catch (const std::exception&) {  // the store has ended: other notes stay unknown
    }
  });
  const std::lock_guard<std::mutex> lock(found->mutex);
  return found->notes;
}

void RankNotes::leave(const std::map<std::int64_t, std::string>& ranks, std::chrono::milliseconds limit) const {
  if (watch_ == nullptr || ranks.size() < 2) {
    return;
  }
  std::vector<std::string> keys;
  for (const auto& [rank, note] : ranks) {
    keys.push_back(concat(note_prefix, "left/", rank));
  }
  ends_within(limit, [keys, limit, serves = rank_ == 0, watch = watch_, own = concat(note_prefix, "left/", rank_)] {
    try {
      const auto store = watch->new_client();
      store->set(own, std::string("1"));
      const auto deadline = std::chrono::steady_clock::now() + limit;
      while (!store->check(keys) && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(note_turn);
      }
      if (serves) {
        std::this_thread::sleep_for(5 * note_turn);  // gives other ranks time to read it
      }
    } catch (const std::exception&) {  // no rank is left to wait for
    }
  });
}

#else

std::map<std::int64_t, std::string> RankNotes::exchange(const std::string& note, std::chrono::milliseconds) const {
  return {{rank_, note}};
}
void RankNotes::leave(const std::map<std::int64_t, std::string>&, std::chrono::milliseconds) const {}

#endif

}  // namespace danling::inline v0::detail
