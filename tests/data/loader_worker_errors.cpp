// Errors in the workers of a loader, and batches that are tried again.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <danling/data/loader.hpp>

#include <support/error.hpp>

#include "loader_support.hpp"

namespace {

namespace loader_worker_errors_test {

using namespace loader_test;
using Loader = data::Loader<Records>;
using danling_test::error_of;

TEST_CASE("Loader: what a worker throws names the records, and that batch is tried again", "[data]") {
  for (const std::int64_t workers : {0, 2}) {
    for (const bool in_order : {true, false}) {
      std::atomic<int> kind = 1;
      const auto dataset = std::make_shared<Computed>(40, [&](std::span<const std::int64_t> indices) {
        if (std::find(indices.begin(), indices.end(), 7) == indices.end() || kind == 0) {
          return;
        }
        if (kind == 1) {
          throw std::runtime_error("a broken disk");
        }
        if (kind == 2) {
          throw std::bad_alloc();
        }
        throw 5;
      });
      Loader loader(dataset, {.batch_size = 3, .split = "train", .num_workers = workers, .in_order = in_order});
      loader.start_epoch(0);
      Numbers seen;
      std::vector<std::string> errors;
      while (true) {
        try {
          if (!loader.next()) {
            break;
          }
          const Numbers& values = loader.batch().values;
          seen.insert(seen.end(), values.begin(), values.end());
        } catch (const danling::DataError& error) {
          CHECK(loader.batch_size() == 0);
          CHECK(loader.samples() == static_cast<std::int64_t>(seen.size()));
          errors.emplace_back(error.what());
          kind = kind == 1 ? 2 : 0;
          try {
            std::rethrow_if_nested(error);
            FAIL("expected the original inside");
          } catch (const std::runtime_error& original) {
            CHECK(std::string(original.what()) == "a broken disk");
          } catch (const std::bad_alloc&) {
            CHECK(errors.size() == 2);
          }
        }
      }
      REQUIRE(errors.size() == 2);
      CHECK(errors[0] ==
            "[data.read] expected a batch, got: a broken disk; while reading records 6, 7, 8 of split 'train'");
      CHECK(errors[1] ==
            "[data.read] expected a batch, got: std::bad_alloc; while reading records 6, 7, 8 of split 'train'");
      if (in_order || workers == 0) {
        CHECK(seen == counting(40));
      }
      std::sort(seen.begin(), seen.end());
      CHECK(seen == counting(40));
    }
  }
}

TEST_CASE("Loader: an error that names its record is left as it is, long lists of records are cut", "[data]") {
  std::string text = "[test.read] expected a sound file, got a damaged record 5";
  const auto dataset =
      std::make_shared<Computed>(40, [&](std::span<const std::int64_t>) { throw danling::DataError(text); });
  Loader loader(dataset, {.batch_size = 12, .num_workers = 1});
  loader.start_epoch(0);
  CHECK(error_of<danling::DataError>([&] { loader.next(); }) == text);
  loader.start_epoch(0);
  text = "[test.read] expected a sound file, got a damaged one";
  CHECK(error_of<danling::DataError>([&] { loader.next(); }) ==
        text + "; while reading records 0, 1, 2, 3, 4, 5, 6, 7, ... (12 in all)");
}

TEST_CASE("Loader: a job of a stream that fails is made of what the stream yields again", "[data]") {
  for (const std::int64_t workers : {0, 2}) {
    for (const std::int64_t every : {1, 3}) {
      std::atomic<int> failures = 3;
      const auto stream = std::make_shared<Counting>(30, [&](std::int64_t first) {
        if (first == 12 && failures-- > 0) {
          throw std::runtime_error("a bad moment");
        }
      });
      Loader loader(stream,
                    {.batch_size = 4, .split = "train", .num_workers = workers, .snapshot_every_n_steps = every});
      loader.start_epoch(0);
      Numbers seen;
      for (int errors = 0; errors < 3; ++errors) {
        const std::string error = error_of<danling::DataError>([&] {
          while (loader.next()) {
            const Numbers& values = loader.batch().values;
            seen.insert(seen.end(), values.begin(), values.end());
          }
        });
        CHECK(error ==
              "[data.read] expected a batch, got: a bad moment; while reading records 12 to 15 of split 'train'");
        CHECK(loader.state_dict().at("samples").integer() == 12);
      }
      const Numbers rest = drain(loader);
      seen.insert(seen.end(), rest.begin(), rest.end());
      CHECK(seen == counting(30));
    }
  }
}

}  // namespace loader_worker_errors_test

}  // namespace
