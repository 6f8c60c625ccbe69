// Files from and for Python. tests/golden/checkpoint_interop.py holds the same reference state in Python; the files in
// tests/golden/data come from its `make`.
#include <limits>

#include <ATen/ATen.h>

#include <danling/checkpoint/file.hpp>

#include <support/error.hpp>
#include <support/python.hpp>
#include <support/temp_dir.hpp>

namespace {

using danling::State;
using danling_test::error_of;

std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(DANLING_SOURCE_DIR) / "tests/golden/data" / ("checkpoint_" + name + ".pth");
}

at::Tensor byte_pattern(c10::ScalarType type) {
  if (type == c10::ScalarType::Bool) {
    return at::arange(6).remainder(2).eq(1).reshape({2, 3});
  }
  const auto bytes = at::arange(static_cast<std::int64_t>(6 * c10::elementSize(type)), at::kByte);
  return bytes.view(type).reshape({2, 3});
}

State reference_dtypes() {
  using c10::ScalarType;
  State out;
  for (const auto& [name, type] : std::vector<std::pair<const char*, ScalarType>>{
           {"float64", ScalarType::Double},
           {"float32", ScalarType::Float},
           {"float16", ScalarType::Half},
           {"bfloat16", ScalarType::BFloat16},
           {"float8_e4m3fn", ScalarType::Float8_e4m3fn},
           {"float8_e5m2", ScalarType::Float8_e5m2},
           {"float8_e4m3fnuz", ScalarType::Float8_e4m3fnuz},
           {"float8_e5m2fnuz", ScalarType::Float8_e5m2fnuz},
           {"float8_e8m0fnu", ScalarType::Float8_e8m0fnu},
           {"int64", ScalarType::Long},
           {"int32", ScalarType::Int},
           {"int16", ScalarType::Short},
           {"int8", ScalarType::Char},
           {"uint8", ScalarType::Byte},
           {"uint16", ScalarType::UInt16},
           {"uint32", ScalarType::UInt32},
           {"uint64", ScalarType::UInt64},
           {"bool", ScalarType::Bool},
           {"complex32", ScalarType::ComplexHalf},
           {"complex64", ScalarType::ComplexFloat},
           {"complex128", ScalarType::ComplexDouble},
       }) {
    out[name] = byte_pattern(type);
  }
  return out;
}

State reference_plain() {
  const auto infinity = std::numeric_limits<double>::infinity();
  const auto largest = std::numeric_limits<std::int64_t>::max();
  const auto smallest = std::numeric_limits<std::int64_t>::min();
  State::List integers;
  for (const std::int64_t value :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{-1}, std::int64_t{255}, std::int64_t{256}, std::int64_t{65535},
        std::int64_t{65536}, std::int64_t{-129}, std::int64_t{2147483647}, std::int64_t{-2147483648LL},
        std::int64_t{2147483648LL}, std::int64_t{1} << 40, -(std::int64_t{1} << 40), largest, smallest,
        std::int64_t{127}, std::int64_t{128}, std::int64_t{-128}}) {
    integers.push_back(value);
  }
  std::string all_bytes;
  for (int i = 0; i < 256; ++i) {
    all_bytes.push_back(static_cast<char>(i));
  }
  State out;
  out["none"] = nullptr;
  out["true"] = true;
  out["false"] = false;
  out["integers"] = integers;
  out["floats"] = State::List{0.0, -0.0, 0.1, infinity, -infinity, 1e-310};
  out["text"] = "schöne Grüße, 世界 \xf0\x9f\x98\x80";
  out["empty_text"] = "";
  out["bytes"] = danling::Bytes{all_bytes};
  out["empty_bytes"] = danling::Bytes{};
  out["tuple"] = State::Tuple{{1, "a", State::Tuple{{2.5}}, State::Tuple{}}};
  out["list"] = State::List{State::List{}, State::Map{}, State::List{nullptr}};
  out[3] = State::Map{{-7, "integer keys"}};
  return out;
}

State reference_state() {
  const at::Tensor base = at::arange(12, at::kFloat);
  const auto complex = [] { return at::complex(at::tensor({1.0F, 3.0F}), at::tensor({2.0F, -4.0F})); };
  State state;
  state["dtypes"] = reference_dtypes();
  state["views"]["base"] = base;
  state["views"]["transposed"] = base.reshape({3, 4}).t();
  state["views"]["strided"] = base.slice(0, 1, std::nullopt, 3);
  state["views"]["expanded"] = base.slice(0, 2, 3).expand({4});
  state["views"]["conjugate"] = complex().conj();
  state["views"]["negative"] = at::imag(complex().conj());
  state["shapes"]["empty"] = at::empty({0});
  state["shapes"]["empty_matrix"] = at::empty({0, 3}, at::kLong);
  state["shapes"]["scalar"] = at::scalar_tensor(2.5);
  state["shapes"]["trained"] = at::ones({2}).set_requires_grad(true);
  state["plain"] = reference_plain();
  return state;
}

void check_reference(const State& state) {
  CHECK(danling::first_difference(state, reference_state()) == "");
  const State& views = state.at("views");
  const at::Tensor base = views.at("base").tensor();
  for (const char* name : {"transposed", "strided", "expanded"}) {
    CHECK(views.at(name).tensor().storage().is_alias_of(base.storage()));
  }
  CHECK(views.at("transposed").tensor().strides() == at::IntArrayRef({1, 4}));
  CHECK(views.at("expanded").tensor().strides() == at::IntArrayRef({0}));
  CHECK(views.at("conjugate").tensor().is_conj());
  CHECK(views.at("negative").tensor().is_neg());
  CHECK(state.at("shapes").at("trained").tensor().requires_grad());
  CHECK_FALSE(base.requires_grad());
}

TEST_CASE("load_file: reads every dtype, view and plain value that torch.save wrote", "[checkpoint]") {
  check_reference(danling::load_file(golden("reference")));
}

TEST_CASE("load_file: reads a module's state dict with its running statistics", "[checkpoint]") {
  State expected;
  expected["0.weight"] = at::arange(6, at::kFloat).reshape({3, 2});
  expected["0.bias"] = at::arange(3, at::kFloat) + 1;
  expected["1.weight"] = at::arange(3, at::kFloat) + 2;
  expected["1.bias"] = at::arange(3, at::kFloat) + 3;
  State with_statistics = expected;
  with_statistics["1.running_mean"] = at::zeros({3});
  with_statistics["1.running_var"] = at::ones({3});
  with_statistics["1.num_batches_tracked"] = at::scalar_tensor(0, at::kLong);
  CHECK(danling::first_difference(danling::load_file(golden("module")), with_statistics) == "");

  const State parameters = danling::load_file(golden("parameters"));
  CHECK(danling::first_difference(parameters, expected) == "");
  CHECK(parameters.at("0.weight").tensor().requires_grad());
}

TEST_CASE("load_file: reads an optimizer's state dict with integer keys", "[checkpoint]") {
  const State state = danling::load_file(golden("optimizer"));
  const State& optimizer = state.at("optimizer");
  CHECK(optimizer.at("state").map().size() == 4);
  CHECK(optimizer.at("state").at(0).at("step").tensor().item<float>() == 1.0F);
  CHECK(optimizer.at("state").at(3).at("exp_avg").tensor().sizes() == at::IntArrayRef({3}));
  // The gradient of the sum of a batch of 4 with respect to the last bias is 4; its first average is 0.1 of it.
  CHECK(optimizer.at("state").at(3).at("exp_avg").tensor().sub(0.4).abs().max().item<float>() < 1e-6F);
  const State& group = optimizer.at("param_groups").list().at(0);
  CHECK(group.at("lr").number() == 0.125);
  CHECK(group.at("betas").tuple().at(1).number() == 0.999);
  CHECK(group.at("amsgrad").boolean() == false);
  CHECK(group.at("foreach").is_null());
  CHECK(group.at("params").list().at(3).integer() == 3);
  CHECK(state.at("rng").tensor().scalar_type() == at::kByte);
}

TEST_CASE("load_file: reads pickle protocols 2 to 5 alike", "[checkpoint]") {
  State expected;
  expected["plain"] = reference_plain();
  expected["size"] = State::Tuple{{2, 3}};
  expected["bytearray"] = danling::Bytes{"a\xff"};
  expected["tensor"] = byte_pattern(at::kFloat);
  for (const char* name : {"protocol2", "protocol3", "protocol4", "protocol5"}) {
    CHECK(danling::first_difference(danling::load_file(golden(name)), expected) == "");
  }
}

TEST_CASE("load_file: one Python list under two names becomes two equal lists", "[checkpoint]") {
  const State state = danling::load_file(golden("aliases"));
  CHECK(state.at("a").list().at(0).string() == "one list");
  CHECK(state.at("b").list().at(0).string() == "one list");
}

TEST_CASE("load_file: refuses other globals by name", "[checkpoint]") {
  const auto forbidden = golden("forbidden").string();
  CHECK(error_of<danling::CheckpointError>([&] { danling::load_file(forbidden); }) ==
        "[checkpoint.read] expected plain values and tensors, got the global 'pathlib.PurePosixPath', which is not "
        "supported "
        "(file '" +
            forbidden + "', record 'checkpoint_forbidden/data.pkl', byte 16)");
}

TEST_CASE("save_file: what is written reads back bit for bit, twice with the same bytes", "[checkpoint]") {
  const danling_test::TempDir directory;
  danling::save_file(reference_state(), directory / "a.pth");
  check_reference(danling::load_file(directory / "a.pth"));
  danling::verify_file(directory / "a.pth");
  // The whole of the second file is made from what was read: order, sharing and every byte must have survived.
  danling::save_file(danling::load_file(directory / "a.pth"), directory / "another name.pth");
  CHECK(danling_test::read_file(directory / "a.pth") == danling_test::read_file(directory / "another name.pth"));
  CHECK(std::distance(std::filesystem::directory_iterator(directory.path()), {}) == 2);
}

TEST_CASE("save_file: Python loads it with weights_only, mapped, and by computed offsets", "[checkpoint][python]") {
  if (danling_test::python_with_torch().empty()) {
    WARN("skipped: no Python with torch; set DANLING_PYTHON");
    return;
  }
  const danling_test::TempDir directory;
  const auto ours = directory / "ours.pth";
  const auto theirs = directory / "theirs.pth";
  danling::save_file(reference_state(), ours);
  CHECK(danling_test::run_python("tests/golden/checkpoint_interop.py", {"check", ours.string()}));
  REQUIRE(danling_test::run_python("tests/golden/checkpoint_interop.py", {"resave", ours.string(), theirs.string()}));
  check_reference(danling::load_file(theirs));
  REQUIRE(danling_test::run_python("tests/golden/checkpoint_interop.py", {"make", directory.path().string()}));
  check_reference(danling::load_file(directory / "checkpoint_reference.pth"));
}

TEST_CASE("load_file: a view without elements may begin behind its storage, as Python writes it", "[checkpoint]") {
  // Written with torch.serialization.set_crc32_options(False): there is nothing to verify it by.
  const State loaded = danling::load_file(golden("unchecked"));
  danling::verify_file(golden("unchecked"));
  const at::Tensor rows = loaded.at("rows").tensor();
  const at::Tensor behind = loaded.at("behind").tensor();
  CHECK(rows.equal(at::arange(10, at::kFloat).reshape({5, 2})));
  CHECK(behind.sizes() == at::IntArrayRef({0, 1}));
  CHECK(behind.storage_offset() == 11);
  CHECK(behind.is_alias_of(rows));
  const danling_test::TempDir directory;
  danling::save_file(loaded, directory / "again.pth");
  CHECK(danling::first_difference(danling::load_file(directory / "again.pth"), loaded) == "");
  CHECK(rows.storage().nbytes() == 40);
}

TEST_CASE("save_file: more dimensions than can be read are refused by name", "[checkpoint]") {
  const danling_test::TempDir directory;
  State state;
  state["model"]["deep"] = at::zeros(std::vector<std::int64_t>(64, 1));
  danling::save_file(state, directory / "a.pth");
  CHECK(danling::load_file(directory / "a.pth").at("model").at("deep").tensor().dim() == 64);
  state["model"]["deep"] = at::zeros(std::vector<std::int64_t>(65, 1));
  CHECK(error_of<danling::CheckpointError>([&] { danling::save_file(state, directory / "b.pth"); }) ==
        "[checkpoint.write] expected at most 64 dimensions, got 65 (key 'model.deep')");
  CHECK_FALSE(std::filesystem::exists(directory / "b.pth"));
}

}  // namespace
