// ResultHistory: the best of the results, and its state.
#include "fixture.hpp"

namespace runner_test {
namespace {

dl::Result split_result(double loss, double acc) {
  dl::Result result;
  result["val"].set("loss", loss);
  result["val"].set("acc", acc);
  return result;
}

TEST_CASE("ResultHistory: the lowest loss and the highest of other scores is the best, and the latest of equal ones",
          "[runner]") {
  dl::ResultHistory book;
  CHECK(book.is_best());
  CHECK(book.best_index() == 0);
  book.select("val", "loss");
  book.append(0, split_result(0.5, 0.9));
  CHECK(book.is_best());
  book.append(1, split_result(0.7, 0.95));
  CHECK_FALSE(book.is_best());
  CHECK(book.best_index() == 0);
  book.select("val", "acc");
  CHECK(book.is_best());
  CHECK(book.best_index() == 1);
  book.append(2, split_result(0.6, 0.95));
  CHECK(book.best_index() == 2);
  CHECK(book.best_score() == 0.95);
}

TEST_CASE("ResultHistory: without a score no row is the best", "[runner]") {
  dl::ResultHistory book;
  book.select("val", "auroc");
  book.append(0, split_result(0.5, 0.9));
  CHECK_FALSE(book.is_best());
  CHECK_FALSE(book.best_score());
}

TEST_CASE("ResultHistory: its state restores rows and nested results", "[runner]") {
  dl::ResultHistory book;
  book.append(3, split_result(0.25, 0.5));
  dl::ResultHistory other;
  other.load_state_dict(book.state_dict());
  REQUIRE(other.rows().size() == 1);
  CHECK(other.rows()[0].index == 3);
  CHECK(*other.rows()[0].result.number("val.acc") == 0.5);
}

TEST_CASE("ResultHistory: the saved best is the last row that was within 1e-7 of the best", "[runner]") {
  dl::ResultHistory book;
  book.select("val", "loss");
  CHECK(book.saved_best() == nullptr);
  const auto append = [&](std::int64_t index, double loss) {
    dl::Result result;
    result["val"].set("loss", loss);
    book.append(index, result);
  };
  append(0, std::nan(""));
  CHECK(book.saved_best() == nullptr);
  append(1, 0.5);
  append(2, 0.5 + 5e-8);  // is_best(), so that best.pth is written again
  CHECK(book.is_best());
  append(3, 0.7);
  REQUIRE(book.saved_best() != nullptr);
  CHECK(book.saved_best()->index == 2);
  CHECK(book.best_index() == 1);
}

dl::ResultHistory book_of(const std::vector<double>& scores, bool higher_is_better = false) {
  dl::ResultHistory book;
  book.select("val", "loss", higher_is_better);
  for (const double score : scores) {
    dl::Result result;
    result["val"].set("loss", score);
    book.append(static_cast<std::int64_t>(book.rows().size()), result);
  }
  return book;
}

TEST_CASE("ResultHistory: a score that is NaN or infinite is never the best, also where it comes first", "[runner]") {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const double bad = GENERATE_COPY(std::nan(""), inf, -inf);
  const bool higher = GENERATE(false, true);
  CAPTURE(bad, higher);
  CHECK(book_of({bad}, higher).best() == nullptr);
  CHECK(book_of({bad}, higher).best_index() == 0);
  CHECK_FALSE(book_of({bad}, higher).best_score());
  CHECK_FALSE(book_of({bad}, higher).is_best());
  CHECK_FALSE(book_of({bad}, higher).is_improved());
  CHECK(book_of({bad}, higher).saved_best() == nullptr);
  const auto book = book_of({bad, 0.5, bad}, higher);
  CHECK(book.best_index() == 1);
  CHECK(*book.best_score() == 0.5);
  CHECK_FALSE(book.is_best());
  CHECK(book.saved_best()->index == 1);
  CHECK(book_of({bad, 0.5}, higher).is_best());
  CHECK(book_of({bad, 0.5}, higher).is_improved());
  dl::ResultHistory restored = book_of({}, higher);
  restored.load_state_dict(book.state_dict());
  CHECK(restored.best_index() == 1);
  CHECK_FALSE(restored.is_best());
}

TEST_CASE("ResultHistory: a row without a score after the best row is not the best", "[runner]") {
  auto book = book_of({0.5});
  CHECK(book.is_best());
  dl::Result other;
  other["train"].set("loss", 0.1);
  book.append(1, other);
  CHECK_FALSE(book.is_best());
  CHECK(*book.latest_score() == 0.5);
  CHECK_FALSE(book.score_of(*book.latest()));
}

}  // namespace
}  // namespace runner_test
