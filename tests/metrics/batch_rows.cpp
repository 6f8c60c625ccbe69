// The batch numbers of rows.
#include <metrics/batch_rows.hpp>

#include <cstdint>
#include <vector>

#include <support/catch.hpp>

namespace batch_rows_test {

TEST_CASE("BatchRows: equal batches share an entry; parts, later batches and joins keep all rows", "[metrics]") {
  danling::detail::BatchRows batches;
  for (std::int64_t batch = 0; batch < 1000; ++batch) {
    batches.add(batch, 8);
  }
  CHECK(batches.runs().size() <= 2);
  CHECK(batches.rows() == 8000);
  CHECK(batches.last() == 999);
  batches.add(999, 3);
  CHECK(batches.rows() == 8003);
  CHECK(batches.after(997).numbers() == std::vector<std::int64_t>{998, 1, 8, 999, 1, 11});
  danling::detail::BatchRows copy;
  REQUIRE(copy.read(batches.tensor()));
  CHECK(copy.numbers() == batches.numbers());
  danling::detail::BatchRows other;
  other.add(999, 1);
  other.add(1005, 2);
  CHECK(danling::detail::joined(batches, other).after(998).numbers() ==
        std::vector<std::int64_t>{999, 1, 12, 1005, 1, 2});
  batches.append(other.after(999));
  CHECK(batches.rows() == 8005);
  CHECK(batches.last() == 1005);
  for (const std::vector<std::int64_t>& wrong :
       {std::vector<std::int64_t>{0, 1}, {0, 0, 5}, {0, 2, 5, 1, 1, 5}, {0, 1, -1}, {-2, 1, 1}}) {
    CHECK(!copy.read(wrong));
  }
}

}  // namespace batch_rows_test
