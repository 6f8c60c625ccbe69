// danling ckpt ls, show and verify.
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include <ATen/ATen.h>

#include <danling/checkpoint/file.hpp>
#include <danling/checkpoint/weights.hpp>

#include <apps/command.hpp>

namespace {

using danling::State;
using danling_test::run_danling;
using nlohmann::json;

std::string ckpt_golden(const std::string& name) {
  return (std::filesystem::path(DANLING_SOURCE_DIR) / "tests/golden/data" / name).string();
}

// A small checkpoint of a run.
State ckpt_run(std::int64_t epoch, std::int64_t step) {
  State state;
  state["model"]["weight"] = at::arange(6, at::kFloat).reshape({2, 3});
  state["model"]["tied"] = state.at("model").at("weight").tensor();
  state["model"]["row"] = state.at("model").at("weight").tensor().select(0, 1);
  state["optimizer"]["state"][0]["step"] = at::scalar_tensor(step, at::kLong);
  state["optimizer"]["param_groups"] = State::List{State::Map{{"lr", 0.125}, {"betas", State::Tuple{{0.9, 0.999}}}}};
  state["state"]["train"]["epoch"] = epoch;
  state["state"]["train"]["global_step"] = step;
  state["ema"] = nullptr;
  state["order"] = State::List{5, 4, 3, 2, 1, 0};
  state["name"] = "run";
  return state;
}

void set_age(const std::filesystem::path& path, std::int64_t seconds) {
  const timespec then = {std::time(nullptr) - seconds, 0};
  const timespec times[2] = {then, then};
  REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

void flip_byte(const std::filesystem::path& path, const std::string& before) {
  std::string bytes = danling_test::read_file(path);
  const auto at = bytes.find(before);
  REQUIRE(at != std::string::npos);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  danling_test::write_file(path, bytes);
}

TEST_CASE("danling ckpt ls: one line per checkpoint of a directory, links known as one file", "[apps]") {
  const danling_test::TempDir directory;
  danling::save_file(ckpt_run(3, 120), directory / "latest.pth");
  std::filesystem::create_hard_link(directory / "latest.pth", directory / "best.pth");
  danling::save_safetensors(ckpt_run(3, 120).at("model"), directory / "model.safetensors");
  State model;
  model["model"] = ckpt_run(0, 0).at("model");
  danling::save_file(model, directory / "model.pth");
  danling_test::write_file(directory / "notes.txt", "no checkpoint");
  danling_test::write_file(directory / ".latest.pth.tmp-1-1", "a temporary");
  set_age(directory / "latest.pth", 3 * 3600 + 100);
  set_age(directory / "model.pth", 330);
  set_age(directory / "model.safetensors", 50 * 3600);
  const auto size = std::filesystem::file_size(directory / "latest.pth");
  const auto model_size = std::filesystem::file_size(directory / "model.pth");
  const std::uint64_t weights_size = std::filesystem::file_size(directory / "model.safetensors");
  const auto kibibytes = [](std::uintmax_t bytes) { return danling::to_fixed(static_cast<double>(bytes) / 1024, 1); };

  const auto result = run_danling({"ckpt", "ls", directory.path().string()});
  CHECK(result.err == "");
  CHECK(result.code == 0);
  CHECK(result.out ==
        "name               kind        size    age  epoch  step  same file as\n"
        "best.pth           run      " +
            kibibytes(size) + " KiB    3 h      3   120\n" + "latest.pth         run      " + kibibytes(size) +
            " KiB    3 h      3   120  best.pth\n" + "model.pth          model    " + kibibytes(model_size) +
            " KiB  5 min\n"
            "model.safetensors  weights    " +
            danling::to_text(weights_size) +
            " B    2 d\n"
            "4 names, " +
            kibibytes(size + model_size + weights_size) + " KiB on disk\n");

  danling_test::write_file(directory / "torn.pth", "PK");
  const auto torn = run_danling({"ckpt", "ls", "--json", directory.path().string()});
  CHECK(torn.code == 1);
  const json lines = json::parse(torn.out);
  REQUIRE(lines.size() == 5);
  CHECK(lines[0].at("file") == (directory / "best.pth").string());
  CHECK(lines[0].at("epoch") == 3);
  CHECK(lines[0].at("step") == 120);
  CHECK(lines[1].at("same_as") == "best.pth");
  CHECK_FALSE(lines[0].contains("same_as"));
  CHECK(lines[2].at("kind") == "model");
  CHECK(lines[3].at("bytes") == weights_size);
  CHECK(lines[4].at("error").get<std::string>().find("torn.pth") != std::string::npos);
}

TEST_CASE("danling ckpt ls: one line per value of a file of danling or Python", "[apps]") {
  const danling_test::TempDir directory;
  danling::save_file(ckpt_run(3, 120), directory / "a.pth");
  const auto result = run_danling({"ckpt", "ls", (directory / "a.pth").string()});
  CHECK(result.code == 0);
  CHECK(result.out ==
        "model.weight                     float32  [2, 3]                       24 B\n"
        "model.tied                       float32  [2, 3]                       24 B\n"
        "model.row                        float32  [3]                          12 B\n"
        "optimizer.state.0.step           int64    []                            8 B\n"
        "optimizer.param_groups[0].lr     number   0.125\n"
        "optimizer.param_groups[0].betas  tuple    (0.9, 0.999)\n"
        "state.train.epoch                integer  3\n"
        "state.train.global_step          integer  120\n"
        "ema                              null     null\n"
        "order                            list     [5, 4, 3, 2, ... (6 items)]\n"
        "name                             string   'run'\n");
  const auto tied = run_danling({"ckpt", "ls", ckpt_golden("safetensors_tied.safetensors")});
  CHECK(tied.out ==
        "embedding.weight  float32  [3, 2]  24 B\n"
        "head.bias         float32  [3]     12 B\n"
        "head.weight       float32  [3, 2]  24 B\n");
}

TEST_CASE("danling ckpt show: the tree with values, sharing, statistics and totals", "[apps]") {
  const danling_test::TempDir directory;
  State state = ckpt_run(3, 120);
  state["special"] = at::tensor({1.0, -2.0, std::numeric_limits<double>::infinity(), std::nan("")}, at::kFloat);
  state["large"] = at::tensor({std::int64_t{9007199254740993}, std::int64_t{9007199254740992}});
  state["model"]["weight"].tensor().set_requires_grad(true);
  danling::save_file(state, directory / "a.pth");
  const std::string path = (directory / "a.pth").string();
  const std::string head = path + ": PyTorch archive of danling, " +
                           danling::to_fixed(static_cast<double>(std::filesystem::file_size(path)) / 1024, 1) +
                           " KiB\n";
  const auto plain = run_danling({"ckpt", "show", path});
  CHECK(plain.code == 0);
  CHECK(plain.out == head +
                         "model\n"
                         "  weight  float32 [2, 3]  24 B  requires grad\n"
                         "  tied  float32 [2, 3]  24 B  requires grad  is model.weight\n"
                         "  row  float32 [3]  12 B  shares memory with model.weight\n"
                         "optimizer\n"
                         "  state\n"
                         "    0\n"
                         "      step  int64 []  8 B  120\n"
                         "  param_groups\n"
                         "    [0]\n"
                         "      lr  0.125\n"
                         "      betas  (0.9, 0.999)\n"
                         "state\n"
                         "  train\n"
                         "    epoch  3\n"
                         "    global_step  120\n"
                         "ema  null\n"
                         "order  [5, 4, 3, 2, ... (6 items)]\n"
                         "name  'run'\n"
                         "special  float32 [4]  16 B\n"
                         "large  int64 [2]  16 B\n"
                         "6 tensors of 22 elements in 64 B, 7 other values\n");
  const auto part = run_danling({"ckpt", "show", path, "--key", "model", "--values"});
  CHECK(part.out == head +
                        "model\n"
                        "  weight  float32 [2, 3]  24 B  requires grad  0.0, 1.0, 2.0, 3.0, 4.0, 5.0\n"
                        "  tied  float32 [2, 3]  24 B  requires grad  is model.weight  0.0, 1.0, 2.0, 3.0, 4.0, 5.0\n"
                        "  row  float32 [3]  12 B  shares memory with model.weight  3.0, 4.0, 5.0\n"
                        "3 tensors of 15 elements in 24 B, 0 other values\n");
  CHECK(run_danling({"ckpt", "show", path, "--stats", "--key=special"}).out ==
        head +
            "special  float32 [4]  16 B  min -2.0  max 1.0  mean -0.5  not finite 2\n"
            "1 tensor of 4 elements in 16 B, 0 other values\n");
  CHECK(run_danling({"ckpt", "show", path, "--stats", "--key=large"}).out ==
        head +
            "large  int64 [2]  16 B  min 9007199254740992  max 9007199254740993  mean 9.0072e+15\n"
            "1 tensor of 2 elements in 16 B, 0 other values\n");

  const json tree = json::parse(run_danling({"ckpt", "show", path, "--stats", "--json"}).out);
  CHECK(tree.at("format") == "pth");
  CHECK(tree.at("tensors") == 6);
  CHECK(tree.at("tensor_bytes") == 64);
  const json& weight = tree.at("values").at(0);
  CHECK(weight.at("key") == "model.weight");
  CHECK(weight.at("shape") == json::array({2, 3}));
  CHECK(weight.at("mean") == 2.5);
  CHECK(tree.at("values").at(5) ==
        json({{"key", "optimizer.param_groups[0].betas"}, {"kind", "tuple"}, {"value", json::array({0.9, 0.999})}}));
  const auto unknown = run_danling({"ckpt", "show", path, "--key", "modle"});
  CHECK(unknown.code == 2);
  CHECK(unknown.err ==
        "[danling ckpt] expected a key that the file has, got 'modle'; it has model, optimizer, state, ema, order, "
        "name, special, large (file '" +
            path + "')\n");
}

TEST_CASE("danling ckpt: a file that is one tensor, and names that would move a terminal's cursor", "[apps]") {
  const danling_test::TempDir directory;
  danling::save_file(at::ones({2}), directory / "a.pth");
  danling::save_file(at::zeros({2}), directory / "b.pth");
  const std::string a = (directory / "a.pth").string();
  CHECK(run_danling({"ckpt", "ls", a}).out == "(root)  float32  [2]  8 B\n");
  CHECK(run_danling({"ckpt", "show", a}).out.find("\n(root)  float32 [2]  8 B\n1 tensor of 2 elements in 8 B") !=
        std::string::npos);
  CHECK(run_danling({"ckpt", "diff", a, (directory / "b.pth").string()}).out ==
        "(root): 2 of 2 elements differ, first at [0]: 1.0 and 0.0; largest difference 1.0\n"
        "1 difference; 1 common value compared\n");
  State state;
  state["\x1b[2J"] = "\x1b[31m";
  danling::save_file(state, directory / "c.pth");
  const std::string c = (directory / "c.pth").string();
  CHECK(run_danling({"ckpt", "ls", c}).out == "\\x1b[2J  string  '\\x1b[31m'\n");
  CHECK(run_danling({"ckpt", "show", c}).out.find("\n\\x1b[2J  '\\x1b[31m'\n") != std::string::npos);
  CHECK(json::parse(run_danling({"ckpt", "ls", "--json", c}).out).at(0).at("values").at(0).at("key") == "\x1b[2J");
}

TEST_CASE("danling ckpt show: every element type as Python reads it", "[apps]") {
  // pattern(name).flatten()[1] of tests/golden/checkpoint_interop.py as numpy prints it, types below 4 bytes as
  // float32.
  const json tree = json::parse(
      run_danling({"ckpt", "show", ckpt_golden("checkpoint_reference.pth"), "--key", "dtypes", "--values", "--json"})
          .out);
  const std::map<std::string, std::string> expected = {
      {"float64", "3.6919162048650923e-236"},
      {"float32", "1.0082514e-34"},
      {"float16", "4.5895576e-05"},
      {"bfloat16", "3.8203566e-37"},
      {"float8_e4m3fn", "0.001953125"},
      {"float8_e5m2", "1.5258789e-05"},
      {"float8_e4m3fnuz", "0.0009765625"},
      {"float8_e5m2fnuz", "7.6293945e-06"},
      {"float8_e8m0fnu", "1.1754944e-38"},
      {"int64", "1084818905618843912"},
      {"int32", "117835012"},
      {"int16", "770"},
      {"int8", "1"},
      {"uint8", "1"},
      {"uint16", "770"},
      {"uint32", "117835012"},
      {"uint64", "1084818905618843912"},
      {"bool", "true"},
      {"complex32", "7.6532364e-05+0.00010716915j"},
      {"complex64", "2.6584628e-32+7.003653e-30j"},
      {"complex128", "1.846323925681849e-197+8.567745616612358e-159j"},
  };
  CHECK(tree.at("values").size() == expected.size());
  for (const auto& value : tree.at("values")) {
    const std::string name = value.at("key").get<std::string>().substr(7);
    const std::string elements = value.at("elements");
    const auto start = elements.find(", ") + 2;
    CHECK(name + " " + elements.substr(start, elements.find(", ", start) - start) == name + " " + expected.at(name));
  }
}

TEST_CASE("danling ckpt verify: says which record is damaged, and what a file has no checksums for", "[apps]") {
  const danling_test::TempDir directory;
  danling::save_file(ckpt_run(3, 120), directory / "a.pth");
  danling::save_file(ckpt_run(3, 120), directory / "b.pth");
  const auto sound = run_danling({"ckpt", "verify", directory.path().string()});
  CHECK(sound.code == 0);

  const std::string floats("\0\0\x80\x3f\0\0\0\x40", 8);  // 1.0 and 2.0
  flip_byte(directory / "b.pth", floats);
  const auto damaged = run_danling({"ckpt", "verify", directory.path().string()});
  CHECK(damaged.code == 1);
  CHECK(damaged.out.find((directory / "a.pth").string() + ": sound, checked XXH3-128 of 8 records\n") == 0);
  CHECK(damaged.out.find((directory / "b.pth").string() + ": DAMAGED\n") != std::string::npos);
  CHECK(damaged.out.find("record 'archive/data/0'") != std::string::npos);
  const json verdicts = json::parse(run_danling({"ckpt", "verify", "--json", directory.path().string()}).out);
  CHECK(verdicts.at(0).at("sound") == true);
  CHECK(verdicts.at(1).at("sound") == false);
  CHECK(verdicts.at(1).at("damage").size() == 1);
  CHECK(verdicts.at(1).at("damage").at(0).at("record") == "archive/data/0");

  const std::string module = ckpt_golden("checkpoint_module.pth");
  CHECK(run_danling({"ckpt", "verify", module}).out ==
        module + ": sound, checked CRC-32 of 13 records; the file has no hashes of danling\n");
  const std::string tied = ckpt_golden("safetensors_tied.safetensors");
  CHECK(run_danling({"ckpt", "verify", tied}).out == tied + ": sound, checked its header; the file has no checksums\n");
  const std::string legacy = ckpt_golden("checkpoint_legacy.pth");
  const auto unreadable = run_danling({"ckpt", "verify", legacy});
  CHECK(unreadable.code == 1);
  CHECK(unreadable.out == legacy +
                              ": UNREADABLE\n  [checkpoint.read] expected a PyTorch zip archive, got the format before "
                              "PyTorch 1.6; convert it in Python with torch.save(torch.load(path), path) (file '" +
                              legacy + "')\n");
  const auto missing = run_danling({"ckpt", "verify", (directory / "none.pth").string()});
  CHECK(missing.code == 2);
  CHECK(missing.err ==
        "[danling ckpt] expected a file or a directory, got none at '" + (directory / "none.pth").string() + "'\n");
}

TEST_CASE("danling ckpt: usage errors name the mistake and exit with 2", "[apps]") {
  const auto refusal = [](const std::vector<std::string>& words) {
    const auto result = run_danling(words);
    CHECK(result.code == 2);
    CHECK(result.out == "");
    return result.err;
  };
  CHECK(refusal({"ckpt", "vrify"}) ==
        "[danling ckpt] expected a command, got 'vrify'; did you mean 'verify'?; danling ckpt --help lists them\n");
  CHECK(refusal({"ckpt", "show"}) ==
        "[danling ckpt show] expected one file, got 0 arguments; --help shows the usage\n");
  CHECK(refusal({"ckpt", "show", "a", "--stat"}) ==
        "[danling ckpt show] expected an option of this command, got '--stat'; did you mean '--stats'?; --help lists "
        "them\n");
  CHECK(refusal({"ckpt", "show", "a", "--key", "--json"}) ==
        "[danling ckpt show] expected --key PREFIX, got no value\n");
  CHECK(refusal({"ckpt", "show", "a", "--json=1"}) ==
        "[danling ckpt show] expected --json without a value, got '--json=1'\n");
  CHECK(refusal({"ckpt", "diff", "a", "b", "--tolerance", "-1"}) ==
        "[danling ckpt diff] expected --tolerance with a number of at least 0, got '-1'\n");
  const danling_test::TempDir directory;
  CHECK(refusal({"ckpt", "ls", directory.path().string()}) ==
        "[danling ckpt] expected files called *.pth, *.pt, *.bin, *.ckpt or *.safetensors, or directories of shards, "
        "got none in '" +
            directory.path().string() + "'\n");
  for (const char* name : {"ls", "show", "verify", "diff", "convert"}) {
    const auto help = run_danling({"ckpt", name, "--help"});
    CHECK(help.code == 0);
    CHECK(help.out.find(std::string("Usage: danling ckpt ") + name) == 0);
    CHECK(help.out.find(std::string("Example: danling ckpt ") + name) != std::string::npos);
    CHECK(help.out.find("Exit code: 0") != std::string::npos);
  }
}

TEST_CASE("danling ckpt: what is no file ends with an error, and is not waited for", "[apps]") {
  const danling_test::TempDir directory;
  const auto pipe = (directory / "pipe.pth").string();
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const auto loop = directory / "loop.pth";
  std::filesystem::create_symlink(loop, loop);
  danling::save_file(ckpt_run(3, 120), directory / "a.pth");
  const auto a = (directory / "a.pth").string();
  for (const auto& path : {pipe, std::string("/dev/zero")}) {
    for (const auto& words : std::vector<std::vector<std::string>>{{"ckpt", "verify", path},
                                                                   {"ckpt", "show", path},
                                                                   {"ckpt", "ls", path},
                                                                   {"ckpt", "diff", a, path},
                                                                   {"ckpt", "convert", path, "x.pth"}}) {
      const auto result = run_danling(words);
      CHECK(result.code == 2);
      CHECK(result.err == "[checkpoint.read] expected a readable file, got '" + path + "': it is not a regular file\n");
    }
  }
  const auto forced = run_danling({"ckpt", "convert", "--force", a, pipe});
  CHECK(forced.code == 2);
  CHECK(forced.err == "[danling ckpt convert] expected a new file, got '" + pipe + "', which is not a regular file\n");
  CHECK(std::filesystem::is_fifo(pipe));
  const auto looped = run_danling({"ckpt", "verify", loop.string()});
  CHECK(looped.code == 2);
  CHECK(looped.err.find(loop.string()) != std::string::npos);
}

TEST_CASE("danling ckpt verify and show: an archive written without CRCs is not damaged", "[apps]") {
  const std::string unchecked = ckpt_golden("checkpoint_unchecked.pth");
  const auto verdict = run_danling({"ckpt", "verify", unchecked});
  CHECK(verdict.code == 0);
  CHECK(verdict.out == unchecked + ": sound, checked its structure; the file has no checksums\n");
  const auto shown = run_danling({"ckpt", "show", "--stats", unchecked});
  CHECK(shown.code == 0);
  CHECK(shown.out.find("behind  float32 [0, 1]") != std::string::npos);
  CHECK(run_danling({"ckpt", "diff", unchecked, unchecked}).code == 0);
}

TEST_CASE("danling ckpt diff: a file is equal to itself also where flattened names are the same", "[apps]") {
  const danling_test::TempDir directory;
  State state;
  state["a"]["b"] = at::ones({2});
  state["a.b"] = at::zeros({3});
  state["c"][1] = 5;
  state["c"]["1"] = 6;
  danling::save_file(state, directory / "a.pth");
  // The same in another order.
  State other;
  other["c"]["1"] = 6;
  other["c"][1] = 5;
  other["a.b"] = at::zeros({3});
  other["a"]["b"] = at::ones({2});
  danling::save_file(other, directory / "b.pth");
  const auto diff = [&](const char* a, const char* b) {
    return run_danling({"ckpt", "diff", (directory / a).string(), (directory / b).string()});
  };
  CHECK(diff("a.pth", "a.pth").out == "no difference; 4 common values compared\n");
  CHECK(diff("a.pth", "b.pth").out == "no difference; 4 common values compared\n");
  other["a.b"] = at::ones({3});
  danling::save_file(other, directory / "b.pth");
  const auto changed = diff("a.pth", "b.pth");
  CHECK(changed.code == 1);
  CHECK(changed.out ==
        "a.b: 3 of 3 elements differ, first at [0]: 0.0 and 1.0; largest difference 1.0\n1 difference; 4 common values "
        "compared\n");
  // A flat file of weights still finds its values in nested ones.
  State flat;
  flat["a.b"] = at::ones({2});
  danling::save_file(flat, directory / "flat.pth");
  State nested;
  nested["a"]["b"] = at::ones({2});
  danling::save_file(nested, directory / "nested.pth");
  CHECK(diff("flat.pth", "nested.pth").code == 0);
}

TEST_CASE("danling ckpt diff and show: a tensor that a stride of 0 makes of 2^40 elements ends", "[apps]") {
  const danling_test::TempDir directory;
  const std::int64_t many = std::int64_t{1} << 40;
  State state;
  state["x"] = at::full({}, 2.0, at::kFloat).expand({many});
  danling::save_file(state, directory / "a.pth");
  state["x"] = at::full({}, 3.0, at::kFloat).expand({many});
  danling::save_file(state, directory / "b.pth");
  const auto a = (directory / "a.pth").string();
  const auto b = (directory / "b.pth").string();
  CHECK(run_danling({"ckpt", "diff", a, a}).out == "no difference; 1 common value compared\n");
  CHECK(run_danling({"ckpt", "diff", a, b}).out ==
        "x: 1099511627776 of 1099511627776 elements differ, first at [0]: 2.0 and 3.0; largest difference 1.0\n"
        "1 difference; 1 common value compared\n");
  const auto shown = run_danling({"ckpt", "show", "--stats", a});
  CHECK(shown.code == 0);
  CHECK(shown.out.find("min 2.0  max 2.0  mean 2") != std::string::npos);
  // Repeated by other strides: every element would have to be looked at.
  state["x"] = at::arange(1 << 20).as_strided({1 << 20, 1 << 20}, {0, 1});
  danling::save_file(state, directory / "a.pth");
  state["x"] = at::arange(1 << 20).as_strided({1 << 20, 1 << 20}, {1, 0});
  danling::save_file(state, directory / "b.pth");
  const auto refused = run_danling({"ckpt", "diff", a, b});
  CHECK(refused.code == 2);
  CHECK(refused.err ==
        "[checkpoint.read] expected a view of at most 17179869184 elements, got 1099511627776 that "
        "overlap in memory (file '" +
            a + "', key 'x')\n");
}

}  // namespace
