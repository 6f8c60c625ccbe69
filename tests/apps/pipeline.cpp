// danling pipeline.
#include <apps/command.hpp>

namespace {

using danling_test::run_danling;

TEST_CASE("pipeline: compares the schedules by length, bubble and live activations", "[apps]") {
  const auto compared = run_danling({"pipeline", "--ranks", "2", "--micro_batches", "6"});
  CHECK(compared.err.empty());
  REQUIRE(compared.code == 0);
  // 6 micro-batches of 3 units of time, and one of 3 in the bubble: 1 / (6 + 1) of the time.
  CHECK(compared.out.find("GPipe                       2      21  14.3 %  6 6\n") != std::string::npos);
  CHECK(compared.out.find("1F1B                        2      21  14.3 %  2 1\n") != std::string::npos);
  CHECK(compared.out.find("ZBVZeroBubble               4 ") != std::string::npos);

  const auto odd = run_danling({"pipeline", "--ranks", "2", "--stages", "2"}).out;
  CHECK(odd.find("\n1F1B                        -       -       -  1F1B: expected 1 stage per rank, got 2; ") !=
        std::string::npos);
  CHECK(odd.find("\nInterleaved1F1B             4 ") != std::string::npos);
}

TEST_CASE("pipeline: draws a schedule", "[apps]") {
  const auto drawn = run_danling({"pipeline", "--ranks", "2", "--micro_batches", "2", "--schedule", "1f1b"});
  CHECK(drawn.err.empty());
  REQUIRE(drawn.code == 0);
  CHECK(drawn.out ==
        "1F1B: 2 stages on 2 ranks, 2 micro-batches\n"
        "rank 0 |0 1 ....b0- ..b1- |\n"
        "rank 1 |..0 b0- 1 b1- ....|\n"
        "bubble 33.3 % predicted; live activations 2 1\n");
  // A message takes as long as a forward pass: two on the way there and back.
  const auto slow = run_danling(
      {"pipeline", "--ranks", "2", "--micro_batches", "1", "--schedule", "GPipe", "--backward", "1", "--message", "1"});
  CHECK(slow.out.find("bubble 66.7 % predicted") != std::string::npos);
}

TEST_CASE("pipeline: what it cannot draw is one line", "[apps]") {
  CHECK(run_danling({"pipeline", "--schedule", "2F2B"}).err ==
        "[pipeline.schedule] expected one of GPipe, 1F1B, LoopedBFS, Interleaved1F1B, InterleavedZeroBubble, "
        "ZBVZeroBubble, got \"2F2B\"\n");
  CHECK(run_danling({"pipeline", "--ranks", "0"}).code != 0);
  CHECK(run_danling({"pipeline", "--rank", "2"}).err.find("did you mean '--ranks'") != std::string::npos);
}

}  // namespace
