// The sentences that follow from what ranks report.
#include <distributed/rank_report.hpp>

#include <support/catch.hpp>

namespace rank_report_test {

using namespace danling::detail;
using namespace std::chrono_literals;
using Kind = RankReport::Kind;

RankReport report(Kind kind, std::int64_t number, const std::string& text = {}, std::int64_t failed_at = 17) {
  RankReport made;
  made.kind = kind;
  made.text = text;
  made.limit = 30s;
  made.places = {{"", {0, 1, 2, 3}, number, "all_reduce"}};
  made.failed_at = {"", {0, 1, 2, 3}, failed_at, "all_reduce"};
  return made;
}

TEST_CASE("Reports: a report is read back as it was", "[distributed]") {
  const RankReport sent = report(Kind::timed_out, 4, "words");
  const RankReport read = unpack_report(pack_report(sent));
  CHECK(read.kind == Kind::timed_out);
  CHECK(read.text == "words");
  CHECK(read.limit == 30s);
  CHECK(read.failed_at.ranks == sent.failed_at.ranks);
  CHECK(read.places.at(0).number == 4);
  CHECK(read.places.at(0).operation == "all_reduce");
}

TEST_CASE("Reports: which ranks did not join, ended, left or gave up", "[distributed]") {
  const RankReport waits = report(Kind::timed_out, 17, "timed out");
  const RankReport joined = report(Kind::alive, 17);
  const RankReport broke = report(Kind::failed, 17, "Connection closed");
  CHECK(explain({{0, waits}, {1, joined}, {3, joined}}) ==
        "rank 2 did not join all_reduce number 17 within 30 s (ranks 0, 1, 3 did) and does not answer: timed out");
  CHECK(explain({{0, waits}, {3, joined}}) ==
        "ranks 1, 2 did not join all_reduce number 17 within 30 s (ranks 0, 3 did) and do not answer: timed out");
  CHECK(explain({{0, waits}, {1, joined}, {2, report(Kind::alive, 16)}, {3, joined}}) ==
        "rank 2 did not join all_reduce number 17 within 30 s (ranks 0, 1, 3 did); rank 2 was last in all_reduce "
        "number 16: timed out");
  CHECK(explain({{0, waits}, {1, joined}, {2, report(Kind::alive, 0)}, {3, joined}}) ==
        "rank 2 did not join all_reduce number 17 within 30 s (ranks 0, 1, 3 did); rank 2 has joined no collective: "
        "timed out");
  CHECK(explain({{0, broke}, {1, joined}, {3, report(Kind::alive, 16)}}) == "rank 2 has ended: Connection closed");
  CHECK(explain({{0, broke}}) == "ranks 1, 2, 3 have ended: Connection closed");
  CHECK(explain({{0, broke}, {1, joined}, {2, report(Kind::left, 0)}, {3, joined}}) ==
        "rank 2 has left the group: Connection closed");
  // A timeout breaks the connections of others.
  CHECK(explain({{0, broke}, {1, waits}, {3, joined}}) ==
        "rank 2 did not join all_reduce number 17 within 30 s (ranks 0, 1, 3 did) and does not answer: timed out");
  // All have joined, and yet the data did not arrive.
  CHECK(explain({{0, waits}, {1, joined}, {2, joined}, {3, joined}}) == "timed out");
  CHECK(explain({{0, broke}, {2, report(Kind::aborted, 3, "no space")}}) == "rank 2: no space");
  CHECK(explain({{1, report(Kind::aborted, 3, "a")}, {2, report(Kind::aborted, 3, "b")}}) == "rank 1: a; rank 2: b");
  CHECK(explain({{0, joined}}).empty());

  RankReport message = report(Kind::timed_out, 5, "timed out", 0);
  message.failed_at.ranks = {2};
  message.failed_at.operation = "message of rank 2 with tag 0";
  CHECK(explain({{0, message}, {1, joined}}) ==
        "rank 2 does not answer: no message of rank 2 with tag 0 within 30 s: timed out");
  CHECK(explain({{0, message}, {1, joined}, {2, joined}, {3, joined}}) ==
        "no message of rank 2 with tag 0 within 30 s: timed out");
  // Rank 2 waits for another itself.
  CHECK(explain({{0, message}, {1, joined}, {2, joined}}) ==
        "no message of rank 2 with tag 0 within 30 s; rank 3 does not answer: timed out");
  // Rank 2 gave up waiting for rank 3, and closed its connections before it could say so.
  message.kind = Kind::failed;
  message.text = "Connection closed";
  CHECK(explain({{0, message}, {1, joined}, {2, joined}}) ==
        "no message of rank 2 with tag 0; rank 3 does not answer: Connection closed");
}

}  // namespace rank_report_test
