// danling ckpt on directories of shards, danling's and Python's.
#include <sys/resource.h>
#include <sys/wait.h>

#include <ATen/ATen.h>

#include <danling/checkpoint/file.hpp>
#include <danling/checkpoint/sharded.hpp>
#include <danling/checkpoint/sharded_manager.hpp>
#include <danling/checkpoint/weights.hpp>
#include <danling/distributed/group.hpp>

#include <apps/command.hpp>
#include <support/python.hpp>

namespace ckpt_of_shards {
namespace {

using danling::Group;
using danling::ShardedState;
using danling::State;
using danling_test::run_danling;

at::Tensor shard_numbers(at::IntArrayRef sizes) {
  return at::arange(c10::multiply_integers(sizes), at::kFloat).reshape(sizes);
}

// Two ranks save columns of a weight, three times.
void save_columns(const std::filesystem::path& directory) {
  Group::run_threads(2, [&](Group& group) {
    std::int64_t epoch = 0;
    const auto state = [&] {
      ShardedState out;
      out.state["model"]["weight"] = shard_numbers({9, 4}).narrow(1, 2 * group.rank(), 2) + epoch;
      out.places["model.weight"] = {{9, 4}, {0, 2 * group.rank()}};
      out.state["model"]["bias"] = at::ones({3}, at::kBFloat16);
      out.state["state"]["train"] = State::Map{{"epoch", epoch}, {"global_step", 5 * epoch}};
      return out;
    };
    danling::TorchDistributedCheckpointManager manager({.directory = directory, .interval = 1}, group, state, state);
    for (epoch = 1; epoch < 4; ++epoch) {
      danling::CheckpointRequest request;
      request.epoch = epoch - 1;
      request.global_step = 5 * epoch;
      manager.save_checkpoint(request);
    }
    manager.close();
  });
}

TEST_CASE("danling ckpt ls: shows the checkpoints of shards, by name and by value", "[apps]") {
  const danling_test::TempDir directory;
  save_columns(directory.path());
  const auto all = run_danling({"ckpt", "ls", directory.path().string()});
  CHECK(all.code == 0);
  CHECK(all.out.find("latest.pointer") != std::string::npos);
  CHECK(all.out.find("ckpt-e000001.pointer") != std::string::npos);
  const auto one = run_danling({"ckpt", "ls", (directory / "latest").string()});
  CHECK(one.code == 0);
  CHECK(one.out.find("model.weight") != std::string::npos);
  CHECK(one.out.find("[9, 4]") != std::string::npos);
  CHECK(one.out.find("state.train.epoch") != std::string::npos);
}

TEST_CASE("danling ckpt diff and convert: shards as a whole", "[apps]") {
  const danling_test::TempDir directory;
  save_columns(directory.path());
  const auto latest = (directory / "latest").string();
  CHECK(run_danling({"ckpt", "diff", latest, (directory / "previous").string()}).code == 1);
  CHECK(run_danling({"ckpt", "diff", latest, (directory / "ckpt-e000003.pointer").string()}).code == 0);
  CHECK(run_danling({"ckpt", "convert", latest, (directory / "all.pth").string()}).code == 0);
  CHECK(run_danling({"ckpt", "diff", latest, (directory / "all.pth").string()}).code == 0);
  CHECK(danling::first_difference(danling::load_file(directory / "all.pth"),
                                  danling::load_sharded(directory / "latest")) == "");
  CHECK(run_danling({"ckpt", "convert", latest, (directory / "model.safetensors").string(), "--part", "model"}).code ==
        0);
  const State weights = danling::load_safetensors(directory / "model.safetensors");
  CHECK(at::equal(weights.at("weight").tensor(), shard_numbers({9, 4}) + 3));
  CHECK(at::equal(weights.at("bias").tensor(), at::ones({3}, at::kBFloat16)));
}

TEST_CASE("danling ckpt verify: names the damaged shard, and a save that was not completed", "[apps]") {
  const danling_test::TempDir directory;
  save_columns(directory.path());
  const auto latest = danling::resolve_sharded(directory / "latest");
  const auto sound = run_danling({"ckpt", "verify", (directory / "latest").string()});
  CHECK(sound.code == 0);
  CHECK(sound.out == (directory / "latest").string() + ": sound, checked XXH3-128 of 3 files\n");
  std::string bytes = danling_test::read_file(latest / "__1_0.distcp");
  bytes[600] = static_cast<char>(bytes[600] ^ 1);
  danling_test::write_file(latest / "__1_0.distcp", bytes);
  const auto damaged = run_danling({"ckpt", "verify", (directory / "latest").string()});
  CHECK(damaged.code == 1);
  CHECK(damaged.out.find("DAMAGED") != std::string::npos);
  CHECK(damaged.out.find("__1_0.distcp") != std::string::npos);
  std::filesystem::remove(latest / "manifest.json");
  const auto unfinished = run_danling({"ckpt", "verify", (directory / "latest").string()});
  CHECK(unfinished.code == 1);
  CHECK(unfinished.out.find("the save was not completed") != std::string::npos);
  CHECK(run_danling({"ckpt", "verify", directory.path().string()}).code == 1);
}

TEST_CASE("danling ckpt: Python's directories of torch.distributed.checkpoint", "[apps]") {
  if (danling_test::python_with_torch().empty()) {
    WARN("no Python with torch");
    return;
  }
  const danling_test::TempDir directory;
  const auto mesh = (directory / "mesh").string();
  REQUIRE(danling_test::run_python("tests/golden/checkpoint_dcp.py", {"mesh", mesh}));
  const auto verdict = run_danling({"ckpt", "verify", mesh});
  CHECK(verdict.code == 0);
  CHECK(verdict.out.find("CRC-32 of 4 files") != std::string::npos);
  CHECK(run_danling({"ckpt", "ls", mesh}).code == 0);
  CHECK(run_danling({"ckpt", "convert", mesh, (directory / "all.pth").string()}).code == 0);
  CHECK(at::equal(danling::load_file(directory / "all.pth").at("grid").tensor(), shard_numbers({7, 5})));
}

TEST_CASE("danling ckpt convert: the memory does not grow with the tensors", "[apps]") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  WARN("skipped: sanitizers keep memory that is freed");
  return;
#endif
  const danling_test::TempDir directory;
  const std::int64_t rows = 24576;
  Group::run_threads(2, [&](Group& group) {  // 192 MiB in columns
    ShardedState own;
    own.state["w"] = at::full({rows, 1024}, group.rank(), at::kFloat);
    own.places["w"] = {{rows, 2048}, {0, 1024 * group.rank()}};
    danling::save_sharded(own, directory / "big", group);
  });
  danling::save_sharded({State::Map{{"w", at::ones({3})}}}, directory / "small");
  const auto peak_of = [&](const std::string& name) {  // of the largest child so far, in kB
    REQUIRE(
        run_danling({"ckpt", "convert", (directory / name).string(), (directory / (name + ".safetensors")).string()})
            .code == 0);
    rusage usage = {};
    getrusage(RUSAGE_CHILDREN, &usage);
    return usage.ru_maxrss;
  };
  const auto small = peak_of("small");
  const auto big = peak_of("big");
  CAPTURE(small, big);
  CHECK(big - small < 48 * 1024);
  CHECK(std::filesystem::file_size(directory / "big.safetensors") > static_cast<std::uintmax_t>(rows) * 2048 * 4);
}

}  // namespace
}  // namespace ckpt_of_shards
