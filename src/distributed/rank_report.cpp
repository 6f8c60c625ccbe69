#include <distributed/rank_report.hpp>

#include <algorithm>

#include <danling/core/error.hpp>

#include <distributed/packing.hpp>

namespace danling::inline v0::detail {
namespace {

void pack_place(Packer& packer, const Place& place) {
  packer.text(place.group);
  packer.numbers(place.ranks);
  packer.number(place.number);
  packer.text(place.operation);
}

Place unpack_place(Unpacker& unpacker) {
  Place place;
  place.group = unpacker.text();
  place.ranks = unpacker.numbers();
  place.number = unpacker.number();
  place.operation = unpacker.text();
  return place;
}

const Place* place_in(const RankReport& report, const std::string& group) {
  const auto found = std::find_if(report.places.begin(), report.places.end(),
                                  [&](const Place& place) { return place.group == group; });
  return found == report.places.end() ? nullptr : &*found;
}

/// Returns the report of the original failure. A backend that times out closes its connections, so a broken connection
/// may follow from a timeout. If a process ends, connections break long before a timeout.
const RankReport* first_failure(const RankReports& reports) {
  for (const auto kind : {RankReport::Kind::timed_out, RankReport::Kind::failed}) {
    for (const auto& [rank, report] : reports) {
      if (report.kind == kind) {
        return &report;
      }
    }
  }
  return nullptr;
}

/// Returns ranks of the first group without a report.
std::vector<std::int64_t> ranks_without_report(const RankReports& reports, const RankReport& of) {
  std::vector<std::int64_t> out;
  for (const Place& place : of.places) {
    for (const std::int64_t rank : place.ranks) {
      if (reports.find(rank) == reports.end() && std::find(out.begin(), out.end(), rank) == out.end()) {
        out.push_back(rank);
      }
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string last_joined(const Place& place) {
  return place.number == 0 ? " has joined no collective"
                           : concat(" was last in ", place.operation, " number ", place.number);
}

}  // namespace

std::string pack_report(const RankReport& report) {
  Packer packer;
  packer.number(static_cast<std::int64_t>(report.kind));
  packer.text(report.text);
  packer.number(report.limit.count());
  pack_place(packer, report.failed_at);
  packer.number(static_cast<std::int64_t>(report.places.size()));
  for (const Place& place : report.places) {
    pack_place(packer, place);
  }
  return packer.take();
}

RankReport unpack_report(std::string_view bytes) {
  Unpacker unpacker(bytes);
  RankReport report;
  report.kind = static_cast<RankReport::Kind>(unpacker.number());
  report.text = unpacker.text();
  report.limit = std::chrono::milliseconds(unpacker.number());
  report.failed_at = unpack_place(unpacker);
  for (std::int64_t left = unpacker.number(); left > 0; --left) {
    report.places.push_back(unpack_place(unpacker));
  }
  return report;
}

bool any_aborted(const RankReports& reports) {
  return std::any_of(reports.begin(), reports.end(),
                     [](const auto& entry) { return entry.second.kind == RankReport::Kind::aborted; });
}

std::string ranks_text(const std::vector<std::int64_t>& ranks) {
  return concat(ranks.size() == 1 ? "rank " : "ranks ", join(ranks));
}

std::string explain(const RankReports& reports) {
  std::vector<std::string> sentences;
  for (const auto& [rank, report] : reports) {
    if (report.kind == RankReport::Kind::aborted) {
      sentences.push_back(concat("rank ", rank, ": ", report.text));
    }
  }
  const RankReport* failure = first_failure(reports);
  if (!sentences.empty() || failure == nullptr) {
    return join(sentences, "; ");
  }

  const Place& at = failure->failed_at;
  const bool timed_out = failure->kind == RankReport::Kind::timed_out;
  const bool collective = at.number > 0;
  std::vector<std::int64_t> silent;
  std::vector<std::int64_t> left;
  std::vector<std::int64_t> joined;
  std::vector<std::int64_t> absent;
  for (const std::int64_t rank : at.ranks) {
    const auto found = reports.find(rank);
    const Place* place = found == reports.end() ? nullptr : place_in(found->second, at.group);
    if (found == reports.end()) {
      silent.push_back(rank);
    } else if (found->second.kind == RankReport::Kind::left || place == nullptr) {
      left.push_back(rank);
    } else {
      (place->number >= at.number ? joined : absent).push_back(rank);
    }
  }
  const std::string others = joined.empty() ? "" : concat(" (", ranks_text(joined), " did)");
  const std::string limit = timed_out ? concat(" within ", format_seconds(failure->limit)) : "";
  if (!silent.empty() && !timed_out) {
    sentences.push_back(concat(ranks_text(silent), silent.size() == 1 ? " has ended" : " have ended"));
  } else if (!silent.empty()) {
    sentences.push_back(collective ? concat(ranks_text(silent), " did not join ", at.operation, " number ", at.number,
                                            limit, others, " and ", silent.size() == 1 ? "does" : "do", " not answer")
                                   : concat(ranks_text(silent), silent.size() == 1 ? " does" : " do",
                                            " not answer: no ", at.operation, limit));
  }
  if (!left.empty()) {
    sentences.push_back(concat(ranks_text(left), left.size() == 1 ? " has" : " have", " left the group"));
  }
  // If a process has ended, other ranks wait at different places.
  const bool ended = !silent.empty() && !timed_out;
  if (collective && !absent.empty() && !ended) {
    sentences.push_back(
        concat(ranks_text(absent), " did not join ", at.operation, " number ", at.number, limit, others));
    for (const std::int64_t rank : absent) {
      sentences.push_back(concat("rank ", rank, last_joined(*place_in(reports.at(rank), at.group))));
    }
  } else if (!collective && sentences.empty()) {
    sentences.push_back(concat("no ", at.operation, limit));
  }
  // The awaited ranks may wait for another rank themselves, and close their connections after a timeout.
  if (silent.empty()) {
    if (const std::vector<std::int64_t> others_silent = ranks_without_report(reports, *failure);
        !others_silent.empty()) {
      sentences.push_back(
          concat(ranks_text(others_silent), others_silent.size() == 1 ? " does not answer" : " do not answer"));
    }
  }
  const std::string text = join(sentences, "; ");
  return text.empty() || text == failure->text ? failure->text : concat(text, ": ", failure->text);
}

}  // namespace danling::inline v0::detail
