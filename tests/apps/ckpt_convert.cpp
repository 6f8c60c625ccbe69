// danling ckpt diff and convert.
#include <malloc.h>
#include <sys/resource.h>

#include <functional>

#include <nlohmann/json.hpp>

#include <ATen/ATen.h>

#include <danling/checkpoint/file.hpp>
#include <danling/checkpoint/weights.hpp>
#include <danling/core/signals.hpp>
#include <danling/formats/pth.hpp>

#include <apps/command.hpp>
#include <support/child.hpp>
#include <support/python.hpp>

namespace {

using danling::State;
using danling_test::CommandResult;
using danling_test::run_danling;
using nlohmann::json;

std::string convert_golden(const std::string& name) {
  return (std::filesystem::path(DANLING_SOURCE_DIR) / "tests/golden/data" / name).string();
}

CommandResult ckpt_diff(const std::filesystem::path& a, const std::filesystem::path& b,
                        std::vector<std::string> options = {}) {
  options.insert(options.begin(), {"ckpt", "diff", a.string(), b.string()});
  return run_danling(options);
}

CommandResult ckpt_convert(const std::filesystem::path& in, const std::filesystem::path& out,
                           std::vector<std::string> options = {}) {
  options.insert(options.begin(), {"ckpt", "convert", in.string(), out.string()});
  return run_danling(options);
}

State convert_weights() {
  State out;
  const at::Tensor weight = at::arange(12, at::kFloat).div(7).reshape({3, 4});
  out["fc.weight"] = weight;
  out["fc.tied"] = weight;
  out["fc.transposed"] = weight.t();
  out["counter"] = at::scalar_tensor(std::int64_t{7}, at::kLong);
  out["mask"] = at::arange(2).eq(0);
  return out;
}

State convert_run() {
  State out;
  out["model"] = convert_weights();
  out["ema"]["fc.weight"] = at::ones({3, 4});
  out["optimizer"]["state"][0]["step"] = at::scalar_tensor(3.0);
  out["state"]["train"]["epoch"] = 3;
  return out;
}

TEST_CASE("danling ckpt diff: finds every kind of difference and says where", "[apps]") {
  const danling_test::TempDir directory;
  State a;
  a["same"] = at::arange(3);
  a["elements"] = at::zeros({2, 3});
  a["dtype"] = at::ones({2});
  a["shape"] = at::ones({2});
  a["kind"] = 1;
  a["value"] = 0.5;
  a["list"] = State::List{1, 2, 3};
  a["left"] = at::ones({2}, at::kHalf);
  a["nan"] = at::full({2}, std::nan(""));
  State b = a;
  b["elements"] = at::tensor({0.0, 0.0, 0.0, 0.0, 0.25, -0.5}, at::kFloat).reshape({2, 3});
  b["dtype"] = at::ones({2}, at::kDouble);
  b["shape"] = at::ones({2, 1});
  b["kind"] = 1.0;
  b["value"] = 0.75;
  b["list"] = State::List{1, 5, 3};
  b.map().erase("left");
  b["right"] = "text";
  danling::save_file(a, directory / "a.pth");
  danling::save_file(b, directory / "b.pth");

  const auto result = ckpt_diff(directory / "a.pth", directory / "b.pth");
  CHECK(result.err == "");
  CHECK(result.code == 1);
  CHECK(result.out ==
        "elements: 2 of 6 elements differ, first at [1, 1]: 0.0 and 0.25; largest difference 0.5\n"
        "dtype: dtype: float32 [2] and float64 [2]\n"
        "shape: shape: float32 [2] and float32 [2, 1]\n"
        "kind: kind: integer 1 and number 1.0\n"
        "value: value: 0.5 and 0.75\n"
        "list[1]: value: 2 and 5\n"
        "left: only in A: float16 [2]\n"
        "right: only in B: 'text'\n"
        "8 differences; 8 common values compared\n");
  const auto tolerant = ckpt_diff(directory / "a.pth", directory / "b.pth", {"--tolerance", "0.25", "--any-dtype"});
  CHECK(tolerant.code == 1);
  CHECK(tolerant.out ==
        "elements: 1 of 6 elements differ, first at [1, 2]: 0.0 and -0.5; largest difference 0.5\n"
        "shape: shape: float32 [2] and float32 [2, 1]\n"
        "kind: kind: integer 1 and number 1.0\n"
        "list[1]: value: 2 and 5\n"
        "left: only in A: float16 [2]\n"
        "right: only in B: 'text'\n"
        "6 differences; 8 common values compared\n");
  const auto one = ckpt_diff(directory / "a.pth", directory / "b.pth", {"--key", "nan"});
  CHECK(one.code == 0);
  CHECK(one.out == "no difference; 1 common value compared\n");

  const json report = json::parse(ckpt_diff(directory / "a.pth", directory / "b.pth", {"--json"}).out);
  CHECK(report.at("same") == false);
  CHECK(report.at("differences").at(0) == json({{"key", "elements"},
                                                {"kind", "elements"},
                                                {"a", "0.0"},
                                                {"b", "0.25"},
                                                {"elements", 6},
                                                {"differing", 2},
                                                {"first", {1, 1}},
                                                {"largest_difference", 0.5}}));
  const auto missing = ckpt_diff(directory / "a.pth", directory / "c.pth");
  CHECK(missing.code == 2);
  CHECK(missing.err == "[checkpoint.read] expected a readable file, got '" + (directory / "c.pth").string() +
                           "': No such file or directory\n");
  const auto key = ckpt_diff(directory / "a.pth", directory / "b.pth", {"--key", "none"});
  CHECK(key.code == 2);
  CHECK(key.err == "[danling ckpt diff] expected a key that one of the files has, got 'none'\n");
}

TEST_CASE("danling ckpt diff: bits count without a tolerance, numbers with one", "[apps]") {
  const danling_test::TempDir directory;
  State a;
  a["zero"] = at::zeros({2});
  a["large"] = at::tensor({std::numeric_limits<std::int64_t>::max()});
  a["infinite"] = at::full({1}, std::numeric_limits<double>::infinity());
  a["undefined"] = at::full({1}, std::nan(""));
  State b;
  b["zero"] = at::zeros({2}).neg();
  b["large"] = at::tensor({std::numeric_limits<std::int64_t>::max() - 1});
  b["infinite"] = at::full({1}, -std::numeric_limits<double>::infinity());
  b["undefined"] = at::zeros({1});
  danling::save_file(a, directory / "a");
  danling::save_safetensors(b, directory / "b");
  CHECK(ckpt_diff(directory / "a", directory / "b").out ==
        "zero: 2 of 2 elements differ, first at [0]: 0.0 and -0.0; largest difference 0.0\n"
        "large: 1 of 1 element differ, first at [0]: 9223372036854775807 and 9223372036854775806; largest difference "
        "1.0\n"
        "infinite: 1 of 1 element differ, first at [0]: inf and -inf; largest difference inf\n"
        "undefined: 1 of 1 element differ, first at [0]: nan and 0.0; largest difference inf\n"
        "4 differences; 4 common values compared\n");
  CHECK(ckpt_diff(directory / "a", directory / "b", {"--tolerance=1"}).out ==
        "infinite: 1 of 1 element differ, first at [0]: inf and -inf; largest difference inf\n"
        "undefined: 1 of 1 element differ, first at [0]: nan and 0.0; largest difference inf\n"
        "2 differences; 4 common values compared\n");
}

TEST_CASE("danling ckpt diff: layout, order of keys and sharing make no difference, damage is an error", "[apps]") {
  const danling_test::TempDir directory;
  danling::save_file(convert_run(), directory / "run.pth");
  danling::save_safetensors(convert_weights(), directory / "model.safetensors");
  const auto result = ckpt_diff(directory / "run.pth", directory / "model.safetensors", {"--key", "model"});
  CHECK(result.out == "no difference; 5 common values compared\n");
  CHECK(result.code == 0);

  std::string bytes = danling_test::read_file(directory / "run.pth");
  const auto at = bytes.find(std::string("\0\0\x80\x3f\0\0\x80\x3f", 8));
  REQUIRE(at != std::string::npos);
  bytes[at + 2] = '\x40';
  danling_test::write_file(directory / "damaged.pth", bytes);
  const auto damaged = ckpt_diff(directory / "run.pth", directory / "damaged.pth");
  CHECK(damaged.code == 2);
  CHECK(damaged.out == "");
  CHECK(damaged.err.find("the data was damaged") != std::string::npos);
}

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

TEST_CASE("danling ckpt diff: reads every small floating-point number as LibTorch does", "[apps]") {
  const danling_test::TempDir directory;
  State state;
  const at::Tensor bytes = at::arange(256).to(at::kByte);
  state["e4m3fn"] = bytes.view(at::kFloat8_e4m3fn);
  state["e5m2"] = bytes.view(at::kFloat8_e5m2);
  state["e4m3fnuz"] = bytes.view(at::kFloat8_e4m3fnuz);
  state["e5m2fnuz"] = bytes.view(at::kFloat8_e5m2fnuz);
  state["e8m0fnu"] = bytes.view(at::kFloat8_e8m0fnu);
  const at::Tensor words = at::arange(65536).to(at::kUInt16);
  state["half"] = words.view(at::kHalf);
  state["bfloat16"] = words.view(at::kBFloat16);
  danling::save_file(state, directory / "a.pth");
  REQUIRE(ckpt_convert(directory / "a.pth", directory / "b.pth", {"--dtype", "float64"}).err == "");
  CHECK(danling::load_file(directory / "b.pth").at("e4m3fn").tensor().scalar_type() == at::kDouble);
  CHECK(ckpt_diff(directory / "a.pth", directory / "b.pth", {"--any-dtype"}).out ==
        "no difference; 7 common values compared\n");
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

// What happens in a process that may take 40 MB more than it has; 0 when `read` fails with `expected`.
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

TEST_CASE("danling ckpt diff: reads archives that were compressed afterwards", "[apps][python]") {
  if (danling_test::python_with_torch().empty()) {
    WARN("skipped: no Python with torch; set DANLING_PYTHON");
    return;
  }
  const danling_test::TempDir directory;
  danling::save_file(convert_run(), directory / "a.pth");
  const std::string code =
      "import sys, zipfile\n"
      "old = zipfile.ZipFile(sys.argv[1])\n"
      "with zipfile.ZipFile(sys.argv[2], 'w', zipfile.ZIP_DEFLATED) as new:\n"
      "    for name in old.namelist():\n"
      "        new.writestr(name, old.read(name))\n";
  danling_test::write_file(directory / "deflate.py", code);
  REQUIRE(std::system((danling_test::python_with_torch() + " '" + (directory / "deflate.py").string() + "' '" +
                       (directory / "a.pth").string() + "' '" + (directory / "b.pth").string() + "'")
                          .c_str()) == 0);
  CHECK(ckpt_diff(directory / "a.pth", directory / "b.pth").out == "no difference; 8 common values compared\n");
  REQUIRE(ckpt_convert(directory / "b.pth", directory / "c.pth").err == "");
  CHECK(danling::first_difference(danling::load_file(directory / "c.pth"), convert_run()) == "");
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
