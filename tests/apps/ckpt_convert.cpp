// danling ckpt convert.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <danling/checkpoint/file.hpp>
#include <danling/checkpoint/weights.hpp>
#include <danling/core/signals.hpp>
#include <danling/formats/safetensors.hpp>

#include <apps/command.hpp>
#include <support/python.hpp>

#include "ckpt_commands.hpp"

namespace ckpt_commands {
namespace {

TEST_CASE("danling ckpt convert: Python's file becomes safetensors and back with the same values", "[apps]") {
  const danling_test::TempDir directory;
  const auto module = convert_golden("checkpoint_module.pth");
  CHECK(ckpt_convert(module, directory / "a.safetensors").code == 0);
  CHECK(ckpt_convert(directory / "a.safetensors", directory / "b.pth").code == 0);
  const State expected = danling::load_file(module);
  for (const char* name : {"a.safetensors", "b.pth"}) {
    const State loaded = danling::load_weights(directory / name);
    CHECK(loaded.map().size() == expected.map().size());
    for (const auto& [key, value] : expected.map()) {
      INFO(name << " " << key.text());
      CHECK(danling::first_difference(loaded.at(key), value) == "");
    }
  }
  // A whole tree stays one: every dtype, view and plain value.
  const auto reference = convert_golden("checkpoint_reference.pth");
  REQUIRE(ckpt_convert(reference, directory / "c.pt").code == 0);
  const State tree = danling::load_file(directory / "c.pt");
  CHECK(danling::first_difference(tree, danling::load_file(reference)) == "");
  CHECK(tree.at("views").at("strided").tensor().storage().is_alias_of(tree.at("views").at("base").tensor().storage()));
  CHECK(tree.at("shapes").at("trained").tensor().requires_grad());
}

TEST_CASE("danling ckpt convert: casts floating-point tensors as Tensor::to does, and tied ones stay tied", "[apps]") {
  const danling_test::TempDir directory;
  State state = convert_weights();
  state["bits"] = at::zeros({3});
  state["as_int"] = state.at("bits").tensor().view(at::kInt);  // two types of one storage
  state["random"] = at::rand({1000, 3}, at::kDouble).sub(0.5).mul(1e6);
  danling::save_file(state, directory / "a.pth");
  for (const auto& [name, dtype] :
       std::vector<std::pair<std::string, at::ScalarType>>{{"bfloat16", at::kBFloat16},
                                                           {"half", at::kHalf},
                                                           {"float32", at::kFloat},
                                                           {"fp64", at::kDouble},
                                                           {"float8_e5m2", at::kFloat8_e5m2}}) {
    for (const char* out : {"out.pth", "out.safetensors"}) {
      REQUIRE(ckpt_convert(directory / "a.pth", directory / out, {"--dtype", name, "--force"}).err == "");
      const State loaded = danling::load_weights(directory / out);
      CHECK(loaded.map().size() == state.map().size());
      for (const auto& [key, value] : state.map()) {
        INFO(name << " " << out << " " << key.text());
        const at::Tensor& tensor = value.tensor();
        CHECK(danling::first_difference(loaded.at(key), tensor.is_floating_point() ? tensor.to(dtype) : tensor) == "");
      }
      CHECK(loaded.at("fc.tied").tensor().data_ptr() == loaded.at("fc.weight").tensor().data_ptr());
    }
  }
}

TEST_CASE("danling ckpt convert: takes a part, renames by prefix, refuses to overwrite", "[apps]") {
  const danling_test::TempDir directory;
  danling::save_file(convert_run(), directory / "run.pth");
  REQUIRE(ckpt_convert(directory / "run.pth", directory / "ema.safetensors", {"--part", "ema"}).code == 0);
  State ema;
  ema["fc.weight"] = at::ones({3, 4});
  CHECK(danling::first_difference(danling::load_weights(directory / "ema.safetensors"), ema) == "");

  REQUIRE(ckpt_convert(directory / "run.pth", directory / "model.pth",
                       {"--part=model", "--map", "fc.=head.", "--map", "f=never", "--map", "mask="})
              .err == "");
  std::vector<std::string> names;
  for (const auto& entry : danling::load_file(directory / "model.pth").map()) {
    names.push_back(entry.key.string());
  }
  CHECK(names == std::vector<std::string>{"head.weight", "head.tied", "head.transposed", "counter", ""});

  REQUIRE(ckpt_convert(directory / "run.pth", directory / "fc.safetensors", {"--key", "model.fc"}).err == "");
  const danling::formats::SafetensorsReader fc(directory / "fc.safetensors");
  CHECK(fc.find("tied") != nullptr);
  CHECK(fc.find("transposed") != nullptr);
  CHECK(fc.aliases() == danling::formats::SafetensorsMetadata{{"weight", "tied"}});

  const std::string before = danling_test::read_file(directory / "model.pth");
  const auto refusal = [&](const std::filesystem::path& out, const std::vector<std::string>& options) {
    const auto result = ckpt_convert(directory / "run.pth", out, options);
    CHECK(result.code == 2);
    CHECK(result.out == "");
    return result.err;
  };
  const std::string model = (directory / "model.pth").string();
  CHECK(refusal(model, {}) ==
        "[danling ckpt convert] expected a new file, got '" + model + "', which exists; --force replaces it\n");
  CHECK(refusal(directory / "x.bin", {}) ==
        "[danling ckpt convert] expected OUT with the ending .pth, .pt or .safetensors, got '" +
            (directory / "x.bin").string() + "'\n");
  const std::string alone =
      "[danling ckpt convert] expected named tensors alone, since OUT is a safetensors file, got ";
  CHECK(refusal(directory / "x.safetensors", {}) ==
        alone + "the integer key 0 (key 'optimizer.state'); choose a part with --part or --key\n");
  CHECK(refusal(directory / "x.safetensors", {"--key", "state"}) ==
        alone + "an integer (key 'train.epoch'); choose a part with --part or --key\n");
  CHECK(refusal(directory / "x.pth", {"--part", "model", "--map", "fc.weight=mask"}) ==
        "[danling ckpt convert] expected a name for each tensor, got two called 'mask'\n");
  CHECK(refusal(directory / "x.pth", {"--map", "fc"}) == "[danling ckpt convert] expected --map OLD=NEW, got 'fc'\n");
  CHECK(refusal(directory / "x.pth", {"--part", "model", "--key", "model"}) ==
        "[danling ckpt convert] expected one of --part and --key, got both\n");
  CHECK(refusal(directory / "x.pth", {"--part", "optimizer"}) ==
        "[danling ckpt convert] expected --part model or ema, got 'optimizer'\n");
  CHECK(refusal(directory / "x.pth", {"--dtype", "int8"}) ==
        "[danling ckpt convert] expected --dtype with one of float64, double, fp64, float32, float, fp32, float16, "
        "half, fp16, bfloat16, bf16, float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz, got 'int8'\n");
  // Damage found on the way leaves what was there.
  std::string bytes = danling_test::read_file(directory / "run.pth");
  bytes[bytes.find(std::string("\0\0\x80\x3f\0\0\x80\x3f", 8)) + 2] = '\x40';
  danling_test::write_file(directory / "run.pth", bytes);
  CHECK(refusal(model, {"--force", "--part", "ema"}).find("the data was damaged") != std::string::npos);
  CHECK(danling_test::read_file(model) == before);
  CHECK_FALSE(std::filesystem::exists(directory / "x.pth"));
}

TEST_CASE("danling ckpt convert: a mapping that fits no name is an error", "[apps]") {
  const danling_test::TempDir directory;
  danling::save_file(convert_weights(), directory / "a.pth");
  for (const char* name : {"out.pth", "out.safetensors"}) {
    const auto out = directory / name;
    danling_test::write_file(out, "old");
    const auto result = ckpt_convert(directory / "a.pth", out, {"--force", "--map", "fc.=head.", "--map", "zzz=yyy"});
    CHECK(result.code == 2);
    CHECK(result.err ==
          "[danling ckpt convert] expected --map with the beginning of a tensor's name, got 'zzz=yyy', with which none "
          "of 5 names begins\n");
    CHECK(danling_test::read_file(out) == "old");
  }
}

// Leaves its end to be waited for.
bool still_runs(pid_t child) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

TEST_CASE("danling ckpt convert: a signal ends it with the signal's code and leaves nothing", "[apps]") {
  const danling_test::TempDir directory;
  // 4 GB that take no space: seconds of work, of which a moment is done.
  const std::string header =
      R"({"weight":{"dtype":"F32","shape":[1000000000],"data_offsets":[0,4000000000]}})" + std::string(3, ' ');
  std::string start(8, '\0');
  start[0] = static_cast<char>(header.size());
  danling_test::write_file(directory / "a.safetensors", start + header);
  std::filesystem::resize_file(directory / "a.safetensors", start.size() + header.size() + 4'000'000'000);
  for (const auto& [name, number] :
       std::vector<std::pair<std::string, int>>{{"out.safetensors", SIGTERM}, {"out.pth", SIGINT}}) {
    danling_test::write_file(directory / name, "old");
    const auto files = [&] {
      return std::distance(std::filesystem::directory_iterator(directory.path()),
                           std::filesystem::directory_iterator());
    };
    const auto before = files();
    const auto result =
        run_danling({"ckpt", "convert", "--force", (directory / "a.safetensors").string(), (directory / name).string()},
                    [&](pid_t child) {
                      while (files() == before && still_runs(child)) {
                        usleep(1000);
                      }
                      kill(child, number);
                    });
    CHECK(result.code == 128 + number);
    CHECK(result.out == "");
    CHECK(result.err ==
          "stopped by " + danling::signal_name(number) + "; " + (directory / name).string() + " is unchanged\n");
    CHECK(files() == before);
    CHECK(danling_test::read_file(directory / name) == "old");
  }
}

TEST_CASE("danling ckpt convert: Python opens what is written", "[apps][python]") {
  if (danling_test::python_with_torch().empty()) {
    WARN("skipped: no Python with torch; set DANLING_PYTHON");
    return;
  }
  const danling_test::TempDir directory;
  const std::string script = "tests/golden/safetensors_interop.py";
  REQUIRE(ckpt_convert(convert_golden("safetensors_reference.safetensors"), directory / "a.pth").code == 0);
  REQUIRE(ckpt_convert(directory / "a.pth", directory / "a.safetensors").code == 0);
  CHECK(danling_test::run_python(script, {"check", (directory / "a.safetensors").string()}));
  REQUIRE(ckpt_convert(convert_golden("safetensors_tied.safetensors"), directory / "b.pth").code == 0);
  REQUIRE(ckpt_convert(directory / "b.pth", directory / "b.safetensors").code == 0);
  CHECK(danling_test::run_python(script, {"check-tied", (directory / "b.safetensors").string()}));
  REQUIRE(ckpt_convert(convert_golden("checkpoint_reference.pth"), directory / "c.pth").code == 0);
  CHECK(danling_test::run_python("tests/golden/checkpoint_interop.py", {"check", (directory / "c.pth").string()}));
}

}  // namespace
}  // namespace ckpt_commands
