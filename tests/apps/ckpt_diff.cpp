// danling ckpt diff.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

#include <nlohmann/json.hpp>

#include <ATen/ATen.h>

#include <danling/checkpoint/file.hpp>
#include <danling/checkpoint/weights.hpp>

#include <apps/command.hpp>
#include <support/python.hpp>

#include "ckpt_commands.hpp"

namespace ckpt_commands {
namespace {

using nlohmann::json;

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

}  // namespace
}  // namespace ckpt_commands
