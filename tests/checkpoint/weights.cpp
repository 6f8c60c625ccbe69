// Weights as safetensors files, also from and for Python; tests/golden/safetensors_interop.py has the same tensors.
#include <danling/checkpoint/weights.hpp>

#include <ATen/ATen.h>

#include <danling/checkpoint/file.hpp>

#include <support/error.hpp>
#include <support/python.hpp>
#include <support/temp_dir.hpp>

namespace {

using danling::CheckpointError;
using danling::State;
using danling_test::error_of;

std::filesystem::path weights_golden(const std::string& name) {
  return std::filesystem::path(DANLING_SOURCE_DIR) / "tests/golden/data" / name;
}

State reference_weights() {
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
           {"complex64", ScalarType::ComplexFloat},
       }) {
    const auto bytes = at::arange(static_cast<std::int64_t>(6 * c10::elementSize(type)), at::kByte);
    out[name] =
        type == ScalarType::Bool ? at::arange(6).remainder(2).eq(1).reshape({2, 3}) : bytes.view(type).reshape({2, 3});
  }
  out["empty"] = at::empty({0, 3});
  out["scalar"] = at::scalar_tensor(2.5);
  out["größe \"1\"\n\t\x01\x7f/\\"] = at::arange(3, at::kShort);
  return out;
}

State tied_weights() {
  State out;
  out["embedding"]["weight"] = at::arange(6, at::kFloat).reshape({3, 2}).set_requires_grad(true);
  out["head"]["weight"] = out.at("embedding").at("weight").tensor();
  out["head"]["bias"] = at::arange(3, at::kFloat);
  return out;
}

// By name, since the order of a file is not that of the map that was saved.
void check_same_weights(const State& loaded, const State& expected) {
  CHECK(loaded.map().size() == expected.map().size());
  for (const auto& [key, value] : expected.map()) {
    INFO(key.text());
    REQUIRE(loaded.map().contains(key));
    CHECK(danling::first_difference(loaded.at(key), value) == "");
  }
}

std::string save_refusal(const State& weights, danling::formats::SafetensorsMetadata metadata = {}) {
  const danling_test::TempDir directory;
  const auto text =
      error_of<CheckpointError>([&] { danling::save_safetensors(weights, directory / "x", std::move(metadata)); });
  CHECK(std::filesystem::is_empty(directory.path()));
  return text;
}

TEST_CASE("save_safetensors: the data is as Python's save_file writes it, hashes beside it", "[checkpoint]") {
  const danling_test::TempDir directory;
  danling::save_safetensors(reference_weights(), directory / "a");
  danling::save_safetensors(reference_weights(), directory / "b");
  const danling::formats::SafetensorsReader ours(directory / "a");
  const danling::formats::SafetensorsReader theirs(weights_golden("safetensors_reference.safetensors"));
  CHECK(ours.has_hashes());
  CHECK(ours.metadata() == theirs.metadata());
  const auto data_of = [](const danling::formats::SafetensorsReader& reader) {
    return danling_test::read_file(reader.path()).substr(reader.entries().front().offset);
  };
  CHECK(data_of(ours) == data_of(theirs));
  CHECK(danling_test::read_file(directory / "a") == danling_test::read_file(directory / "b"));
}

TEST_CASE("load_safetensors: a damaged tensor is an error by its name", "[checkpoint]") {
  const danling_test::TempDir directory;
  State state;
  state["first"] = at::zeros({4});
  state["second"] = at::ones({4});
  danling::save_safetensors(state, directory / "a");
  std::string bytes = danling_test::read_file(directory / "a");
  bytes.back() = '\x40';
  danling_test::write_file(directory / "a", bytes);
  const auto text = error_of<CheckpointError>([&] { danling::load_weights(directory / "a"); });
  CHECK_THAT(text, ContainsSubstring(": the data was damaged") && ContainsSubstring("tensor 'second'"));
}

TEST_CASE("load_safetensors: reads every dtype, name and shape of Python's save_file", "[checkpoint]") {
  check_same_weights(danling::load_safetensors(weights_golden("safetensors_reference.safetensors")),
                     reference_weights());
  CHECK(danling::load_safetensors(weights_golden("safetensors_empty.safetensors")).map().empty());
}

TEST_CASE("load_safetensors: tied weights of Python's save_model are one tensor again", "[checkpoint]") {
  const State loaded = danling::load_safetensors(weights_golden("safetensors_tied.safetensors"));
  State flat;
  flat["embedding.weight"] = at::arange(6, at::kFloat).reshape({3, 2});
  flat["head.weight"] = flat.at("embedding.weight").tensor();
  flat["head.bias"] = at::arange(3, at::kFloat);
  check_same_weights(loaded, flat);
  CHECK(loaded.at("head.weight").tensor().is_same(loaded.at("embedding.weight").tensor()));
  CHECK_FALSE(loaded.at("head.bias").tensor().requires_grad());
}

TEST_CASE("save_safetensors: nested names are joined, tied weights are written once and come back tied",
          "[checkpoint]") {
  const danling_test::TempDir directory;
  danling::save_safetensors(tied_weights(), directory / "a", {{"author", "nobody"}});
  const danling::formats::SafetensorsReader reader(directory / "a");
  CHECK(reader.entries().size() == 2);
  CHECK(reader.metadata() == danling::formats::SafetensorsMetadata{
                                 {"author", "nobody"}, {"format", "pt"}, {"head.weight", "embedding.weight"}});
  const State loaded = danling::load_safetensors(directory / "a");
  CHECK(loaded.at("head.weight").tensor().is_same(loaded.at("embedding.weight").tensor()));
  CHECK(at::equal(loaded.at("head.bias").tensor(), at::arange(3, at::kFloat)));
}

TEST_CASE("save_safetensors: views that are not the same are written apart, in row-major order", "[checkpoint]") {
  const danling_test::TempDir directory;
  const at::Tensor base = at::arange(12, at::kFloat).reshape({3, 4});
  const at::Tensor complex = at::complex(at::tensor({1.0F, 3.0F}), at::tensor({2.0F, -4.0F}));
  State state;
  state["base"] = base;
  state["transposed"] = base.t();
  state["part"] = base.slice(1, 1, 3);
  state["expanded"] = base.slice(0, 2, 3).expand({5, 4});
  state["bytes"] = base.view(at::kInt);
  state["complex"] = complex;
  state["conjugate"] = complex.conj();
  state["negative"] = at::imag(complex.conj());
  danling::save_safetensors(state, directory / "a");
  const State loaded = danling::load_safetensors(directory / "a");
  check_same_weights(loaded, state);
  CHECK(danling::formats::SafetensorsReader(directory / "a").aliases().empty());
  for (const auto& [key, value] : loaded.map()) {
    INFO(key.text());
    CHECK(value.tensor().is_contiguous());
    CHECK_FALSE(value.tensor().is_conj());
    CHECK_FALSE(value.tensor().is_neg());
  }
}

TEST_CASE("save_safetensors: refuses what safetensors files cannot hold by its key", "[checkpoint]") {
  const std::string instead = "; safetensors files hold only named tensors, save a .pth";
  State state;
  state["model"]["weight"] = at::zeros({1});
  state["model"][3] = at::zeros({1});
  CHECK(save_refusal(state) == "[checkpoint.write] expected names as keys, got the integer 3 (key 'model')" + instead);
  state = State();
  state["model"]["epoch"] = 3;
  CHECK(save_refusal(state) == "[checkpoint.write] expected tensors, got an integer (key 'model.epoch')" + instead);
  state = State();
  state["list"] = State::List{at::zeros({1})};
  CHECK(save_refusal(state) == "[checkpoint.write] expected tensors, got a list (key 'list')" + instead);
  CHECK(save_refusal(State(at::zeros({1}))) == "[checkpoint.write] expected a map of tensors, got a tensor");
  state = State();
  state["a.b"] = at::zeros({1});
  state["a"]["b"] = at::zeros({1});
  CHECK(save_refusal(state) ==
        "[checkpoint.write] expected a name for each tensor, got two tensors whose keys, joined by dots, are 'a.b'");
  state = State();
  state["sparse"] = at::zeros({2, 2}).to_sparse();
  CHECK(
      save_refusal(state) ==
      "[checkpoint.write] expected a dense tensor, got one of dtype Float on cpu that is sparse, quantized, nested or "
      "without data (key 'sparse')");
  state = State();
  state["undefined"] = at::Tensor();
  CHECK(save_refusal(state) == "[checkpoint.write] expected a dense tensor, got an undefined one (key 'undefined')");
  state = State();
  state["wide"] = at::zeros({2}, at::kComplexDouble);
  CHECK(save_refusal(state) ==
        "[checkpoint.write] expected an element type that safetensors files have, got complex128; cast it, or save a "
        ".pth (tensor 'wide')");
  CHECK(save_refusal(tied_weights(), {{"head.weight", "mine"}}) ==
        "[checkpoint.write] expected metadata without a key 'head.weight', which is the name of a tied tensor");
}

TEST_CASE("load_weights: opens either format by its content, not its name", "[checkpoint]") {
  const danling_test::TempDir directory;
  State state;
  state["weight"] = at::arange(3, at::kFloat);
  danling::save_file(state, directory / "a.safetensors");
  danling::save_safetensors(state, directory / "b.pth");
  CHECK(danling::first_difference(danling::load_weights(directory / "a.safetensors"), state) == "");
  CHECK(danling::first_difference(danling::load_weights(directory / "b.pth"), state) == "");
  danling_test::write_file(directory / "c", "no weights at all");
  CHECK(error_of<CheckpointError>([&] { danling::load_weights(directory / "c"); }) ==
        "[checkpoint.read] expected a PyTorch zip archive, got 17 bytes that do not start with 'PK' (file '" +
            (directory / "c").string() + "')");
}

TEST_CASE("save_safetensors: Python loads it, and a model with tied weights", "[checkpoint][python]") {
  if (danling_test::python_with_torch().empty()) {
    WARN("skipped: no Python with torch; set DANLING_PYTHON");
    return;
  }
  const danling_test::TempDir directory;
  const std::string script = "tests/golden/safetensors_interop.py";
  danling::save_safetensors(reference_weights(), directory / "ours", {{"author", "nobody"}});
  CHECK(danling_test::run_python(script, {"check", (directory / "ours").string()}));
  danling::save_safetensors(tied_weights(), directory / "tied");
  CHECK(danling_test::run_python(script, {"check-tied", (directory / "tied").string()}));
  REQUIRE(danling_test::run_python(script, {"make", directory.path().string()}));
  check_same_weights(danling::load_safetensors(directory / "safetensors_reference.safetensors"), reference_weights());
}

}  // namespace
