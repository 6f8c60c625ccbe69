// RunnerConfig: options of loaders, common and of one split.
#include "fixture.hpp"
#include "parse.hpp"

namespace runner_test {
namespace {

TEST_CASE("RunnerConfig: every loader option of a split overrides the common one", "[runner]") {
  RunnerConfig config;
  parse_options(config, "--dataloader.batch_size", "64", "--dataloader.shuffle", "true", "--dataloader.val.batch_size",
                "128", "--dataloader.val.shuffle", "false", "--dataloader.num_workers", "2",
                "--dataloader.prefetch_factor", "3", "--dataloader.persistent_workers", "true",
                "--dataloader.pin_memory", "true", "--dataloader.in_order", "false",
                "--dataloader.snapshot_every_n_steps", "4", "--dataloader.val.num_workers", "1",
                "--dataloader.val.prefetch_factor", "5", "--dataloader.val.persistent_workers", "false",
                "--dataloader.val.pin_memory", "false", "--dataloader.val.in_order", "true",
                "--dataloader.val.snapshot_every_n_steps", "6", "--dataloader.test.num_workers", "0");
  const auto train = config.dataloader.for_split("train");
  CHECK(train.batch_size == 64);
  CHECK(train.shuffle == true);
  CHECK(train.num_workers == 2);
  CHECK(train.prefetch_factor == 3);
  CHECK(train.persistent_workers == true);
  CHECK(train.pin_memory == true);
  CHECK(train.in_order == false);
  CHECK(train.snapshot_every_n_steps == 4);
  const auto val = config.dataloader.for_split("val");
  CHECK(val.batch_size == 128);
  CHECK(val.shuffle == false);
  CHECK_FALSE(val.drop_last);
  CHECK(val.num_workers == 1);
  CHECK(val.prefetch_factor == 5);
  CHECK(val.persistent_workers == false);
  CHECK(val.pin_memory == false);
  CHECK(val.in_order == true);
  CHECK(val.snapshot_every_n_steps == 6);
  // A split that reads without workers does not inherit what needs them.
  const auto test = config.dataloader.for_split("test");
  CHECK(test.num_workers == 0);
  CHECK_FALSE(test.prefetch_factor);
  CHECK_FALSE(test.persistent_workers);
  CHECK(test.pin_memory == true);
}

TEST_CASE("RunnerConfig: impossible loader options are errors with their names", "[runner]") {
  CHECK(error_of_options("--dataloader.num_workers", "-1") ==
        "[config.parse] expected a value of at least 0 for 'dataloader.num_workers', got -1 (command line)");
  CHECK(error_of_options("--dataloader.val.prefetch_factor", "0") ==
        "[config.parse] expected a value of at least 1 for 'dataloader.val.prefetch_factor', got 0 (command line)");
  CHECK(error_of_options("--dataloader.snapshot_every_n_steps", "0") ==
        "[config.parse] expected a value of at least 1 for 'dataloader.snapshot_every_n_steps', got 0 (command line)");
}

}  // namespace
}  // namespace runner_test
