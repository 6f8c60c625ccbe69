// NestedTensors in checkpoints and exported weights.
#include <filesystem>

#include <ATen/Functions.h>

#include <danling/checkpoint/file.hpp>
#include <danling/checkpoint/file_manager.hpp>
#include <danling/checkpoint/weights.hpp>
#include <danling/tensors/nested_tensor.hpp>

#include <support/error.hpp>
#include <support/python.hpp>
#include <support/temp_dir.hpp>

namespace nested_checkpoints {
namespace {

using danling::NestedTensor;
using danling::State;

State state_with_nested() {
  State out;
  out["words"] = NestedTensor({at::arange(6, at::kFloat).view({3, 2}), at::empty({0, 2}), at::full({1, 2}, 7.0)},
                              {.padding_value = -1, .mask_value = true});
  out["deep"]["images"] = NestedTensor({at::arange(12).view({3, 2, 2}), at::arange(18).view({3, 3, 2})});
  out["deep"]["plain"] = at::arange(3);
  return out;
}

void check_same(const State& got) {
  const State expected = state_with_nested();
  for (const auto& [a, b] : {std::pair(&got.at("words"), &expected.at("words")),
                             std::pair(&got.at("deep").at("images"), &expected.at("deep").at("images"))}) {
    const NestedTensor tensor(a->tensor()), other(b->tensor());
    CHECK(tensor.concat().equal(other.concat()));
    CHECK(tensor.shapes() == other.shapes());
    CHECK(tensor.ragged_dims() == other.ragged_dims());
    CHECK(tensor.padding_value() == other.padding_value());
    CHECK(tensor.mask_value() == other.mask_value());
  }
  CHECK(got.at("deep").at("plain").tensor().equal(at::arange(3)));
}

TEST_CASE("save_file: NestedTensors come back as such", "[checkpoint][nested]") {
  const danling_test::TempDir dir;
  danling::save_file(state_with_nested(), dir / "state.pth");
  check_same(danling::load_file(dir / "state.pth"));
}

TEST_CASE("save_file: Python reads a NestedTensor as values, offsets and shapes", "[checkpoint][nested]") {
  const danling_test::TempDir dir;
  danling::save_file(state_with_nested(), dir / "state.pth");
  danling::save_safetensors(State(State::Map{{"words", state_with_nested().at("words")}}), dir / "w.safetensors");
  if (danling_test::python_with_torch().empty()) {
    WARN("no Python with torch: set DANLING_PYTHON");
    return;
  }
  CHECK(danling_test::run_python("tests/golden/checkpoint_nested.py",
                                 {(dir / "state.pth").string(), (dir / "w.safetensors").string()}));
}

TEST_CASE("save_safetensors: NestedTensors come back as such", "[checkpoint][nested]") {
  const danling_test::TempDir dir;
  danling::save_safetensors(state_with_nested(), dir / "weights.safetensors");
  State flat = danling::load_safetensors(dir / "weights.safetensors");
  State nested;
  nested["words"] = flat.at("words");
  nested["deep"]["images"] = flat.at("deep.images");
  nested["deep"]["plain"] = flat.at("deep.plain");
  check_same(nested);
}

TEST_CASE("load_file: a NestedTensor that contradicts itself is refused with its key", "[checkpoint][nested]") {
  const danling_test::TempDir dir;
  State::Map broken;
  broken.set("values", at::zeros({4, 2}));
  broken.set("offsets", at::tensor(std::vector<std::int64_t>{0, 3, 5}));
  broken.set("shapes", at::tensor(std::vector<std::int64_t>{3, 2, 2, 2}).view({2, 2}));
  broken.set("nested_tensor", at::tensor(std::vector<std::int64_t>{1, 1, 0, 1, 0}));
  broken.set("padding_value", at::tensor(0.0, at::kDouble));
  State state;
  state["a"]["b"] = broken;
  danling::save_file(state, dir / "state.pth");
  CHECK_THROWS_WITH(danling::load_file(dir / "state.pth"),
                    ContainsSubstring("[checkpoint.read] expected a valid NestedTensor, got one with (key 'a.b'): ") &&
                        ContainsSubstring("expected values of shape (5, 2) for these shapes, got (4, 2)"));
  broken.set("nested_tensor", at::tensor(std::vector<std::int64_t>{2, 1, 0, 1, 0}));
  state["a"]["b"] = broken;
  danling::save_file(state, dir / "newer.pth");
  CHECK_THROWS_WITH(danling::load_file(dir / "newer.pth"),
                    ContainsSubstring("expected a NestedTensor of version 1, got one of version 2"));
}

TEST_CASE("load_file: sizes of a NestedTensor that no memory holds are refused with its key", "[checkpoint][nested]") {
  const danling_test::TempDir dir;
  State::Map broken;
  broken.set("values", at::zeros({0}));
  broken.set("offsets", at::zeros({2}, at::kLong));
  broken.set("shapes", at::full({1, 2}, std::int64_t{1} << 32, at::kLong));
  broken.set("nested_tensor", at::tensor(std::vector<std::int64_t>{1, 1, 0, 2, 0, 1}));
  broken.set("padding_value", at::tensor(0.0, at::kDouble));
  State state;
  state["a"] = broken;
  danling::save_file(state, dir / "state.pth");
  CHECK_THROWS_WITH(
      danling::load_file(dir / "state.pth"),
      ContainsSubstring(
          "[checkpoint.read] expected a valid NestedTensor, got one with (key 'a'): "
          "[nested_tensor.from_concatenated] expected fewer than 2^63 rows, got (4294967296, 4294967296)"));
}

TEST_CASE("save_file: a NestedTensor without ragged dimensions comes back as such", "[checkpoint][nested]") {
  const danling_test::TempDir dir;
  const NestedTensor squeezed(NestedTensor({at::ones({1, 3}), at::zeros({1, 3})}).squeeze(1));
  State state;
  state["a"] = squeezed;
  danling::save_file(state, dir / "state.pth");
  const NestedTensor got(danling::load_file(dir / "state.pth").at("a").tensor());
  CHECK(got.ragged_dims().empty());
  CHECK(got.tensor().equal(squeezed.tensor()));
}

TEST_CASE("save_file: a NestedTensor without elements keeps its dimensions", "[checkpoint][nested]") {
  const danling_test::TempDir dir;
  const NestedTensor none(NestedTensor({at::ones({3, 1}), at::zeros({3, 2})}).slice(0, 0, 0));
  State state;
  state["a"] = none;
  danling::save_file(state, dir / "state.pth");
  const NestedTensor got(danling::load_file(dir / "state.pth").at("a").tensor());
  CHECK(got.sizes() == none.sizes());
  CHECK(got.ragged_dims() == none.ragged_dims());
  CHECK_THROWS_WITH(NestedTensor::from_concatenated(at::zeros({5, 2}), {}),
                    ContainsSubstring("expected values of shape (0, 2) for these shapes, got (5, 2)"));
}

TEST_CASE("FileCheckpointManager: copies a NestedTensor before training goes on", "[checkpoint][nested]") {
  const danling_test::TempDir dir;
  const NestedTensor live(state_with_nested().at("words").tensor());
  {
    danling::FileCheckpointManager manager(
        {.directory = dir.path(), .interval = 1, .async_enabled = true},
        [&] {
          State out;
          out["buffer"] = at::Tensor(live);
          return out;
        },
        [] { return State(State::Map()); });
    manager.save_checkpoint({.last_step = true});
    live.concat().fill_(100);
    manager.close();
  }
  const State state = danling::load_file(dir / "latest.pth");
  CHECK(NestedTensor(state.at("buffer").tensor())
            .concat()
            .equal(NestedTensor(state_with_nested().at("words").tensor()).concat()));
}

}  // namespace
}  // namespace nested_checkpoints
