// find_batch_size: the largest batch that a limit of memory allows, and what remains after memory ran out.
#include <sys/resource.h>
#include <unistd.h>

#include <support/ranks.hpp>

#include "fixture.hpp"
#include "printed.hpp"
#include "runner/step_memory.hpp"

namespace runner_test {
namespace {

using Catch::Matchers::WithinAbs;

constexpr std::int64_t mebi = 1 << 20;

/// Each sample takes one MiB during a step, on top of less than half a MiB for everything else.
class Hungry : public TinyRunner {
 public:
  using TinyRunner::TinyRunner;
  std::vector<std::int64_t> sizes;
  std::int64_t appetite = 1;  ///< MiB per sample

 protected:
  dl::StepOutput train_step(dl::Batch& batch) override {
    sizes.push_back(batch.size());
    const auto food = torch::empty({batch.size(), appetite * mebi / 4});
    return TinyRunner::train_step(batch);
  }
};

TinyConfig hungry_config(const Folder& folder) {
  TinyConfig config(folder);
  config.epochs = 2;
  config.records = 200;
  config.dataloader.shuffle = true;
  config.accum_steps = 2;
  return config;
}

dl::FindBatchSizeOptions limit(double mebibytes) {
  return {.steps = 1, .memory_limit = dl::MemorySize{static_cast<std::int64_t>(mebibytes * mebi)}};
}

TEST_CASE("find_batch_size: doubles, then bisects to the last size that the limit allows, and changes nothing",
          "[runner]") {
  const Folder folder;
  Hungry runner(hungry_config(folder));
  runner.initialize();
  const dl::State before = dl::clone(runner.state_dict());
  const auto report = runner.find_batch_size(limit(37.5));
  CHECK(report.largest == 37);
  CHECK(report.ended_by == "memory");
  std::vector<std::int64_t> tried;
  for (const auto& point : report.points) {
    tried.push_back(point.batch_size);
    CHECK(point.fits == (point.batch_size <= 37));
    if (point.fits) {
      CHECK_THAT(static_cast<double>(point.peak_bytes) / mebi,
                 WithinAbs(static_cast<double>(point.batch_size) + 0.25, 0.25));
      CHECK(point.samples_per_s > 0);
    }
  }
  CHECK(tried == std::vector<std::int64_t>{1, 2, 4, 8, 16, 32, 36, 37, 38, 40, 48, 64});
  CHECK(dl::first_difference(before, runner.state_dict()) == "");
  CHECK(fs::is_empty(folder.path()));
  CHECK_THAT(report.text(), ContainsSubstring("\nlargest batch size: 37 (more does not fit into 37.5 MiB, "
                                              "memory_limit)\n"));
}

TEST_CASE("find_batch_size: the run that follows is that without it, also after memory ran out", "[runner]") {
  const auto trained_with = [](bool finds) {
    const Folder folder;
    Hungry runner(hungry_config(folder));
    if (finds) {
      CHECK(runner.find_batch_size(limit(9.5)).largest == 9);
    }
    runner.sizes.clear();
    runner.train();
    CHECK(runner.close());
    return outcome_of(runner.workspace().dir());
  };
  check_same(trained_with(false), trained_with(true));
}

TEST_CASE("find_batch_size: the data and max bound the size", "[runner]") {
  const Folder folder;
  TinyConfig config = hungry_config(folder);
  config.records = 50;
  Hungry runner(config);
  const auto of_data = runner.find_batch_size(limit(1000));
  CHECK(of_data.largest == 50);
  CHECK(of_data.ended_by == "the data");
  auto options = limit(1000);
  options.max = 12;
  const auto of_max = runner.find_batch_size(options);
  CHECK(of_max.largest == 12);
  CHECK(of_max.ended_by == "max");
  CHECK(runner.sizes.back() == 12);
}

TEST_CASE("find_batch_size: without a batch that fits it says so", "[runner]") {
  const Folder folder;
  Hungry runner(hungry_config(folder));
  const auto report = runner.find_batch_size(limit(0.6));
  CHECK(report.largest == 0);
  CHECK(report.recommended == 0);
  CHECK_THAT(report.text(), EndsWith("\nno batch size fits into memory of 614.4 KiB (memory_limit)"));
}

TEST_CASE("find_batch_size: recommends the smallest size within 5 % of the highest rate", "[runner]") {
  dl::BatchSizeReport report;
  report.points = {{1, true, 100, 1}, {2, true, 190, 2}, {4, true, 290, 4}, {8, true, 300, 8}, {16, false, 900, 0}};
  report.find_recommended();
  CHECK(report.largest == 8);
  CHECK(report.recommended == 4);
}

TEST_CASE("find_batch_size: std::bad_alloc of a step means that the size does not fit, other errors end it",
          "[runner]") {
  const Folder folder;
  Hungry runner(hungry_config(folder));
  runner.before_step = [](TinyRunner& self, std::int64_t) {
    if (static_cast<Hungry&>(self).sizes.back() > 5) {
      throw std::bad_alloc();
    }
  };
  CHECK(runner.find_batch_size(limit(1000)).largest == 5);
  runner.initialize();
  const dl::State before = dl::clone(runner.state_dict());
  throw_before(runner, runner.micro_batches + 3);
  CHECK_THROWS_WITH(runner.find_batch_size(limit(1000)), StartsWith("a bad batch"));
  CHECK(dl::first_difference(before, runner.state_dict()) == "");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which need the address space themselves
TEST_CASE("find_batch_size: where the system refuses memory, the process goes on and trains", "[runner]") {
  const auto texts = danling_test::run_processes(1, [](int) {
    const Folder folder;
    Hungry runner(hungry_config(folder));
    runner.appetite = 8;
    runner.initialize();
    std::ifstream statm("/proc/self/statm");
    rlim_t pages = 0;
    statm >> pages;
    const rlim_t most = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + 400 * mebi;
    const rlimit limit_of_process{most, most};
    danling_test::expect(setrlimit(RLIMIT_AS, &limit_of_process) == 0, "a limit of the address space");
    const auto report = runner.find_batch_size(limit(1e6));
    danling_test::expect(report.largest >= 1 && report.largest < 150,
                         dl::detail::concat("about 50, got ", report.largest));
    danling_test::expect(report.ended_by == "memory", "memory to end it, got " + report.ended_by);
    runner.appetite = 0;
    runner.train();
    return dl::detail::concat("trained ", runner.state().train.epoch);
  });
  CHECK(texts[0] == "trained 2");
}
#endif

TEST_CASE("find_batch_size: wrong uses are one clear line", "[runner]") {
  const Folder folder;
  Hungry runner(hungry_config(folder));
  CHECK(error_of<dl::ConfigError>([&] { runner.find_batch_size({.min = 8, .max = 4}); }) ==
        "[runner.find_batch_size] expected find_batch_size.min of at least 1 and at most find_batch_size.max, and "
        "steps, got 8, 4 and 3");
}

TEST_CASE("StepMemory: tensors outlive it, and real exhaustion of memory is recognised", "[runner]") {
  at::Tensor kept;
  {
    dl::detail::StepMemory memory(at::kCPU, 3 * mebi);
    kept = torch::full({mebi / 4}, 7.0F);
    {
      const auto more = torch::empty({mebi / 4});
    }
    CHECK(memory.peak() >= 2 * mebi);
    memory.reset_peak();
    CHECK(memory.peak() < 2 * mebi);
    CHECK_THROWS_AS(torch::empty({mebi}), c10::OutOfMemoryError);
  }
  CHECK(kept.sum().item<float>() == 7.0F * mebi / 4);
  kept.resize_({mebi});
  kept = at::Tensor();
  bool recognised = false;
  try {
    (void)torch::empty({std::int64_t{1} << 50}, at::kByte);
  } catch (const std::exception& error) {
    recognised = dl::detail::is_memory_error(error);
  }
  CHECK(recognised);
  CHECK_FALSE(dl::detail::is_memory_error(std::runtime_error("a bad batch")));
  CHECK(dl::detail::available_host_memory() > 0);
}

TEST_CASE("find_batch_size: --find_batch_size prints the sizes and writes no run", "[runner]") {
  const Folder folder;
  const std::string root = (folder.path() / "runs").string();
  std::vector<std::string> words = {
      "program", "--find_batch_size", "--find_batch_size.memory_limit", "5.5MiB", "--workspace_root", root, "--epochs",
      "1"};
  std::vector<char*> arguments;
  for (auto& word : words) {
    arguments.push_back(word.data());
  }
  int code = -1;
  const std::string text =
      printed_by([&] { code = dl::run<Hungry, TinyConfig>(static_cast<int>(arguments.size()), arguments.data()); });
  CHECK(code == dl::exit_success);
  CHECK_THAT(text, StartsWith("batch size  memory        samples/s\n"));
  CHECK_THAT(text, ContainsSubstring("\n         6  does not fit"));
  CHECK_THAT(text, ContainsSubstring("\nlargest batch size: 5 (more does not fit into 5.5 MiB, memory_limit)\n"));
  CHECK_FALSE(fs::exists(root));
}

}  // namespace
}  // namespace runner_test
