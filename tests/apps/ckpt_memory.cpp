// Memory that danling ckpt and the functions that read checkpoints take, and the errors where there is too little.
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <danling/checkpoint/file.hpp>
#include <danling/checkpoint/weights.hpp>
#include <danling/core/error.hpp>
#include <danling/formats/pth.hpp>

#include <apps/command.hpp>
#include <support/child.hpp>

#include "ckpt_commands.hpp"

namespace ckpt_commands {
namespace {

// Returns 0 if `read` fails with `expected` in a process that may allocate only 40 MB more.
int without_memory(const std::function<void()>& read, const std::string& expected) {
  danling_test::Child child([&](auto) {
    malloc_trim(0);  // what earlier tests gave back must not serve this one
    std::ifstream pages("/proc/self/statm");
    rlim_t now = 0;
    pages >> now;
    const rlimit limit{now * 4096 + 40'000'000, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    try {
      read();
    } catch (const danling::CheckpointError& error) {
      return error.what() == expected ? 0 : 1;
    } catch (const std::exception&) {
      return 2;
    }
    return 3;
  });
  return child.wait();
}

TEST_CASE("load_file, load_safetensors, load_weights, verify_file: too little memory is an error that names the file",
          "[apps]") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  WARN("skipped: sanitizers end the process where they find no memory");
  return;
#endif
  const danling_test::TempDir directory;
  const auto pth = directory / "a.pth";
  const auto safetensors = directory / "a.safetensors";
  State state;
  state["large"] = at::zeros({40'000'000});
  danling::save_file(state, pth);
  danling::save_safetensors(state, safetensors);
  const auto message = [](const std::string& what, const std::filesystem::path& path) {
    return "[checkpoint.read] expected memory for " + what + ", got none (file '" + path.string() + "')";
  };
  CHECK(without_memory([&] { danling::load_file(pth); }, message("160000000 bytes of tensors", pth)) == 0);
  CHECK(without_memory([&] { danling::load_weights(pth); }, message("160000000 bytes of tensors", pth)) == 0);
  CHECK(without_memory([&] { danling::load_safetensors(safetensors); },
                       message("160000000 bytes of tensors", safetensors)) == 0);
  State list;
  list["list"] = State::List(1'000'000, State(nullptr));
  danling::save_file(list, pth);
  CHECK(without_memory([&] { danling::load_file(pth); }, message("the list of its values", pth)) == 0);
  CHECK(without_memory([&] { danling::verify_file(pth); }, message("the list of its values", pth)) == 0);
}

TEST_CASE("danling ckpt: 300 MB in one tensor take less than 64 MB of memory", "[apps]") {
  const danling_test::TempDir directory;
  constexpr std::uint64_t kBytes = 300'000'000;
  danling::formats::RecordTree tree;
  tree["weight"] =
      danling::formats::TensorRecord{danling::formats::DType::float32, 0, 0, {kBytes / 4}, {1}, false, false, false};
  {
    danling::formats::AtomicFile file(directory / "a.pth");
    const std::vector<std::byte> piece(std::size_t{1} << 20, std::byte{0x3f});
    danling::formats::write_pth(file, tree, std::vector<std::uint64_t>{kBytes},
                                [&](std::size_t, const danling::formats::PieceSink& sink) {
                                  for (std::uint64_t left = kBytes; left > 0;) {
                                    const auto count = std::min<std::uint64_t>(left, piece.size());
                                    sink(std::span(piece).first(static_cast<std::size_t>(count)));
                                    left -= count;
                                  }
                                });
    file.commit();
  }
  const long start = run_danling({"ckpt", "--help"}).max_kilobytes;
  const auto extra = [&](const CommandResult& result) {
    CHECK(result.err == "");
    CHECK(result.code == 0);
    return (result.max_kilobytes - start) / 1024;
  };
  const std::string path = (directory / "a.pth").string();
  CHECK(extra(run_danling({"ckpt", "verify", path})) < 64);
  CHECK(extra(run_danling({"ckpt", "show", "--stats", path})) < 64);
  CHECK(extra(ckpt_convert(path, directory / "b.safetensors")) < 64);
  CHECK(extra(ckpt_convert(path, directory / "c.pth", {"--dtype", "bfloat16"})) < 64);
  CHECK(extra(run_danling({"ckpt", "verify", (directory / "b.safetensors").string()})) < 64);
  CHECK(extra(ckpt_diff(path, directory / "b.safetensors")) < 64);
  CHECK(extra(ckpt_diff(path, directory / "c.pth", {"--any-dtype", "--tolerance", "0.01"})) < 64);
}

}  // namespace
}  // namespace ckpt_commands
