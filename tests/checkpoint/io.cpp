// load() and save() by extension, beside what Python reads and writes.
#include <danling/checkpoint/io.hpp>

#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <danling/config/config.hpp>

#include <support/error.hpp>
#include <support/python.hpp>
#include <support/temp_dir.hpp>

namespace io_by_extension {
namespace {

using danling::State;
using danling_test::error_of;
using danling_test::read_file;
using danling_test::TempDir;

State values() {
  State out;
  out["none"] = State();
  out["flag"] = true;
  out["count"] = -3;
  out["rate"] = 1e-5;
  out["whole"] = 2.0;
  out["text"] = "a \"quoted\" line\n\tand ümlaut";
  out["numeric text"] = "0123";
  out["list"] = State::List{1, 2.5, "three", State::List{}, State::Map{}};
  out["map"]["inner"] = "null";
  out["far"] = std::numeric_limits<double>::infinity();
  return out;
}

TEST_CASE("save and load: values come back from JSON, YAML, pickles and archives", "[checkpoint][io]") {
  const TempDir dir;
  const auto name = GENERATE("a.json", "a.yaml", "a.YML", "a.pkl", "a.pickle", "a.pth", "a.pt", "below/it/a.json");
  CAPTURE(name);
  const auto file = dir / name;
  CHECK(danling::save(values(), file) == file);
  CHECK(danling::first_difference(danling::load(file), values()) == "");
}

TEST_CASE("save: JSON is the text of Python's json.dumps", "[checkpoint][io]") {
  const TempDir dir;
  State state;
  state["a"] = State::List{1, 0.5, true, State()};
  state["b"]["c"] = "x";
  danling::save(state, dir / "a.json");
  CHECK(read_file(dir / "a.json") == R"({"a": [1, 0.5, true, null], "b": {"c": "x"}})");
}

TEST_CASE("load: plain scalars of YAML are what they read as", "[checkpoint][io]") {
  const TempDir dir;
  danling_test::write_file(dir / "a.yml", "a: 1e-3\nb: yes\nc: ~\nd: '5'\ne: 0x1f\nf: [.inf, -7, word]\n");
  State expected;
  expected["a"] = 0.001;
  expected["b"] = true;
  expected["c"] = State();
  expected["d"] = "5";
  expected["e"] = "0x1f";
  expected["f"] = State::List{std::numeric_limits<double>::infinity(), -7, "word"};
  CHECK(danling::first_difference(danling::load(dir / "a.yml"), expected) == "");
}

State arrays() {
  State out;
  out["float"] = at::arange(6, at::kFloat).reshape({2, 3}) * 0.5;
  out["scalar"] = at::scalar_tensor(7, at::kLong);
  out["flags"] = at::tensor({1, 0, 1}, at::kInt).to(at::kBool);
  out["half"] = at::ones({3}, at::kHalf);
  out["empty"] = at::ones({0, 4}, at::kDouble);
  out["columns"] = at::arange(6, at::kShort).reshape({2, 3}).t();
  return out;
}

TEST_CASE("save and load: tensors come back from .npy, .npz and .safetensors", "[checkpoint][io]") {
  const TempDir dir;
  const State state = arrays();
  for (const auto& [key, value] : state.map()) {
    CAPTURE(key.string());
    CHECK(danling::first_difference(danling::load(danling::save(value, dir / "one.npy")), value) == "");
  }
  CHECK(danling::first_difference(danling::load(danling::save(state, dir / "all.npz")), state) == "");
  const State weights = danling::load(danling::save(state, dir / "all.safetensors"));
  CHECK(weights.map().size() == state.map().size());
  CHECK(danling::first_difference(weights.at("float"), state.at("float")) == "");
}

TEST_CASE("save and load: .npy files are NumPy's, both ways", "[checkpoint][io]") {
  if (danling_test::python_with_torch().empty()) {
    WARN("no Python with torch: set DANLING_PYTHON");
    return;
  }
  const TempDir dir;
  const State state = arrays();
  for (const auto& [key, value] : state.map()) {
    danling::save(value, dir / ("ours-" + key.string() + ".npy"));
  }
  danling::save(state, dir / "ours.npz");
  danling::save(values(), dir / "ours.json");
  danling::save(values(), dir / "ours.pkl");
  danling::save(values(), dir / "ours.yaml");
  REQUIRE(danling_test::run_python("tests/golden/io_files.py", {dir.path().string()}));
  for (const auto& [key, value] : state.map()) {
    CAPTURE(key.string());
    const auto theirs = dir / ("theirs-" + key.string() + ".npy");
    CHECK(danling::first_difference(danling::load(theirs), value) == "");
    if (key.string() != "columns") {  // NumPy keeps the order of a transposed array
      CHECK(read_file(theirs) == read_file(dir / ("ours-" + key.string() + ".npy")));
    }
  }
  CHECK(danling::first_difference(danling::load(dir / "theirs.npz"), state) == "");
  CHECK(danling::first_difference(danling::load(dir / "theirs.json"), values()) == "");
  CHECK(danling::first_difference(danling::load(dir / "theirs.pkl"), values()) == "");
  if (std::filesystem::exists(dir / "theirs.yaml")) {  // where Python has PyYAML
    CHECK(danling::first_difference(danling::load(dir / "theirs.yaml"), values()) == "");
  }
}

TEST_CASE("save and load: columns come back from tables", "[checkpoint][io]") {
  const TempDir dir;
  State state;
  state["id"] = at::tensor({7, 8, 9}, at::kLong);
  state["score"] = at::tensor({0.1, 2.0, std::numeric_limits<double>::quiet_NaN()}, at::kDouble);
  state["ok"] = at::tensor({1, 0, 1}, at::kInt).to(at::kBool);
  state["name, full"] = State::List{"a,b", "say \"hi\"", "two\nlines"};
  const auto csv = danling::save(state, dir / "a.csv");
  CHECK(read_file(csv) ==
        "id,score,ok,\"name, full\"\n7,0.1,true,\"a,b\"\n8,2.0,false,\"say \"\"hi\"\"\"\n9,,true,\"two\nlines\"\n");
  CHECK(danling::first_difference(danling::load(csv), state) == "");
  CHECK(danling::first_difference(danling::load(danling::save(state, dir / "a.tsv")), state) == "");

  State lists;
  lists["only"] = State::List{"", "x", ""};
  CHECK(danling::first_difference(danling::load(danling::save(lists, dir / "b.csv")), lists) == "");
  State numbers;
  numbers["only"] = State::List{1, State(), 0.5};
  danling::save(numbers, dir / "c.csv");
  CHECK(read_file(dir / "c.csv") == "only\n1.0\nnan\n0.5\n");
  CHECK(danling::load(dir / "c.csv").at("only").tensor().numel() == 3);
}

struct Rate {
  double lr = 0.5;
  void fields(danling::Fields& f) { f("lr", lr, "learning rate"); }
};

struct Counter {
  std::int64_t count = 3;
  State state_dict() const { return State(count); }
  void load_state_dict(const State& state) { count = state.integer(); }
};

TEST_CASE("save: takes configs and whatever has a state", "[checkpoint][io]") {
  const TempDir dir;
  CHECK(danling::load(danling::save(Rate(), dir / "a.yaml")).at("lr").number() == 0.5);
  Counter counter;
  CHECK(danling::load(danling::save(counter, dir / "a.json")).integer() == 3);
}

TEST_CASE("save and load: what a format or its name does not have is refused, and no file is left",
          "[checkpoint][io]") {
  const TempDir dir;
  State state;
  state["model"]["w"] = at::ones({2});
  const auto refusal = [&](const State& object, const char* name) {
    const auto text = error_of<danling::Error>([&] { danling::save(object, dir / name); });
    CHECK(std::filesystem::is_empty(dir.path()));
    return text;
  };
  CHECK(refusal(state, "a.json") ==
        "[checkpoint.save] expected values that JSON can store, got a tensor (key 'model.w'); save a .pth");
  CHECK(refusal(state, "a.pkl") ==
        "[checkpoint.save] expected values that a pickle can store, got a tensor (key 'model.w'); save a .pth");
  CHECK(refusal(state, "a.npy") == "[checkpoint.save] expected a tensor for .npy, got a map");
  CHECK(refusal(at::ones({2}, at::kBFloat16), "a.npy") ==
        "[checkpoint.save] expected a dense tensor of a type that NumPy supports, got BFloat16; save a .pth or "
        ".safetensors");
  State uneven;
  uneven["a"] = State::List{1, 2};
  uneven["b"] = State::List{1};
  CHECK(refusal(uneven, "a.csv") == "[checkpoint.save] expected columns of equal length, got 2 and 1 rows (key 'b')");
  State hashes;
  hashes["ids"] = at::tensor({1, -1}, at::kLong).view(at::kUInt64);  // 2^64 - 1
  CHECK(refusal(hashes, "a.csv") == "[checkpoint.save] expected integers below 2^63, got a larger one (key 'ids')");
  const State twice(State::Map{{1, "a"}, {"1", "b"}});
  CHECK(refusal(twice, "a.json") ==
        "[checkpoint.save] expected keys with different texts, got '1' as a number and as a text; save a .pth");
  const std::string known =
      "expected a file whose name ends in one of .pth, .pt, .safetensors, .npy, .npz, .json, .yaml, .yml, .csv, .tsv, "
      ".pkl, .pickle, .ckpt, got '";
  CHECK(refusal(state, "a.parquet") == "[checkpoint.save] " + known + (dir / "a.parquet").string() + "'");
  CHECK(error_of<danling::ConfigError>([&] { danling::load("a.jsom"); }) ==
        "[checkpoint.load] " + known + "a.jsom'; did you mean '.json'?");
  CHECK_THAT(error_of<danling::Error>([&] { danling::load(dir / "none.json"); }), ContainsSubstring("none.json"));
}

}  // namespace
}  // namespace io_by_extension
