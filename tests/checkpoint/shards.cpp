// Weights in Hugging Face's layout of shards. The files are by tests/golden/sharded_weights.py.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <danling/checkpoint/pretrained.hpp>
#include <danling/checkpoint/weights.hpp>

#include <support/error.hpp>
#include <support/python.hpp>
#include <support/temp_dir.hpp>

namespace sharded_weights {
namespace {

namespace fs = std::filesystem;
using danling::CheckpointError;
using danling::ConfigError;
using danling::State;
using danling_test::error_of;
using danling_test::TempDir;
using Names = std::vector<std::string>;

constexpr auto index_name = "model.safetensors.index.json";
constexpr auto first_shard = "model-00001-of-00002.safetensors";
constexpr auto second_shard = "model-00002-of-00002.safetensors";

fs::path golden(const std::string& name) { return fs::path(DANLING_SOURCE_DIR) / "tests/golden/data/sharded" / name; }

// The numbers of the script.
void check_weights(const State& state) {
  REQUIRE(state.map().size() == 5);
  const auto at = [&](const char* key) { return state.at(key).tensor(); };
  CHECK(at::equal(at("model.embed.weight"), at::arange(12, at::kFloat).reshape({4, 3})));
  CHECK(at::equal(at("model.layers.0.fc.weight"), at::arange(6, at::kFloat).reshape({2, 3}) - 2.5));
  CHECK(at::equal(at("model.layers.0.fc.bias"), at::tensor({0.5, -0.5}).to(at::kBFloat16)));
  CHECK(at::equal(at("model.norm.weight"), at::full({3}, 1.25, at::kHalf)));
  CHECK(at::equal(at("lm_head.weight"), at::arange(8, at::kFloat).reshape({4, 2}) * 0.25));
}

// A copy that a test may damage.
struct Copy {
  Copy() { fs::copy(golden("safetensors"), folder.path()); }
  fs::path index() const { return folder / index_name; }
  std::string error() const {
    return error_of<CheckpointError>([this] { danling::load_weights(index()); });
  }
  void write_index(const std::string& text) const { std::ofstream(index()) << text; }
  /// Replaces `from` in the index, every time.
  void edit_index(const std::string& from, const std::string& to) const {
    std::string text = danling_test::read_file(index());
    for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
    }
    write_index(text);
  }
  std::string quoted() const { return "'" + index().string() + "'"; }
  TempDir folder;
};

TEST_CASE("load_weights: shards of safetensors and of PyTorch, by index and by directory", "[checkpoint]") {
  check_weights(danling::load_weights(golden("safetensors") / index_name));
  check_weights(danling::load_weights(golden("safetensors")));
  check_weights(danling::load_weights(golden("bin") / "pytorch_model.bin.index.json"));
  check_weights(danling::load_weights(golden("bin")));
}

TEST_CASE("load_weights: shards that this machine's Python writes", "[checkpoint][python]") {
  if (danling_test::python_with_torch().empty()) {
    WARN("skipped: no Python with torch");
    return;
  }
  const TempDir folder;
  REQUIRE(danling_test::run_python("tests/golden/sharded_weights.py", {folder.path().string()}));
  check_weights(danling::load_weights(folder / "safetensors"));
  check_weights(danling::load_weights(folder / "bin"));
}

TEST_CASE("load_weights: in a directory a whole file comes before an index, safetensors before PyTorch",
          "[checkpoint]") {
  const Copy copy;
  danling::save_safetensors(State(State::Map{{"a", at::ones({2})}}), copy.folder / "model.safetensors");
  CHECK(danling::load_weights(copy.folder.path()).map().size() == 1);
  const TempDir empty;
  CHECK(error_of<CheckpointError>([&] { danling::load_weights(empty.path()); }) ==
        "[checkpoint.read] expected model.safetensors, model.safetensors.index.json, pytorch_model.bin, "
        "pytorch_model.bin.index.json in directory '" +
            empty.path().string() + "', got none of them; name the file");
}

TEST_CASE("load_weights: an index of any name, and shards that are links, as in a cache of downloads", "[checkpoint]") {
  const Copy copy;
  fs::rename(copy.index(), copy.folder / "weights");
  const TempDir blobs;
  fs::rename(copy.folder / first_shard, blobs / "blob");
  fs::create_symlink(blobs / "blob", copy.folder / first_shard);
  check_weights(danling::load_weights(copy.folder / "weights"));
}

TEST_CASE("load_pretrained: shards with renaming, and a part of the model", "[checkpoint]") {
  State own;
  own["embed.weight"] = at::zeros({4, 3});
  own["blocks.0.fc.weight"] = at::zeros({2, 3});
  own["blocks.0.fc.bias"] = at::zeros({2});
  own["norm.weight"] = at::zeros({3});
  own["head.weight"] = at::full({7, 2}, 3.0);
  const danling::PretrainedOptions options = {.rename_prefix = {{"model.", ""}, {"lm_head.", "head."}},
                                              .rename_pattern = {{R"(^layers\.(\d+))", "blocks.$1"}},
                                              .skip = {"^head"}};
  const auto match = danling::load_pretrained(own, golden("safetensors"), options);
  CHECK(match.loaded == Names{"embed.weight", "blocks.0.fc.weight", "blocks.0.fc.bias", "norm.weight"});
  CHECK(match.skipped == Names{"head.weight"});
  CHECK(match.complete());
  CHECK(at::equal(own.at("blocks.0.fc.bias").tensor(), at::tensor({0.5f, -0.5f})));
  CHECK(at::equal(own.at("norm.weight").tensor(), at::full({3}, 1.25f)));
  CHECK(at::equal(own.at("head.weight").tensor(), at::full({7, 2}, 3.0)));
}

TEST_CASE("load_pretrained: skip excuses what the file lacks, and must match a weight of the model", "[checkpoint]") {
  State own;
  own["embed.weight"] = at::zeros({4, 3});
  own["extra.weight"] = at::full({2}, 3.0);
  State given = State::Map();
  given["embed.weight"] = at::ones({4, 3});
  CHECK(danling::load_pretrained(own, given, {.skip = {"^extra"}}).skipped == Names{"extra.weight"});
  CHECK(at::equal(own.at("embed.weight").tensor(), at::ones({4, 3})));
  CHECK(error_of<ConfigError>([&] { danling::load_pretrained(own, given, {.skip = {"^extra", "^hed"}}); }) ==
        "[checkpoint.load_pretrained] expected in skip a pattern that matches a weight of the model, got '^hed'");
}

TEST_CASE("load_weights: all missing shards are named before one is read", "[checkpoint]") {
  const Copy copy;
  fs::remove(copy.folder / second_shard);
  CHECK(copy.error() ==
        "[checkpoint.read] expected 2 shards next to index " + copy.quoted() + ", got none of " + second_shard);
  fs::remove(copy.folder / first_shard);
  CHECK(copy.error() == "[checkpoint.read] expected 2 shards next to index " + copy.quoted() + ", got none of " +
                            first_shard + ", " + second_shard);
}

TEST_CASE("load_weights: shards outside of the index's directory are refused", "[checkpoint]") {
  for (const std::string name : {"../model.safetensors", "/etc/passwd", "a/b", "..", ".", "", "a\\\\b", "x\\u0000y"}) {
    const Copy copy;
    copy.edit_index(second_shard, name);
    INFO(copy.error());
    CHECK_THAT(copy.error(),
               Catch::Matchers::StartsWith("[checkpoint.read] expected shards in the directory of index " +
                                           copy.quoted() + ", got '"));
  }
  const Copy copy;
  copy.edit_index(second_shard, "../other.safetensors");
  CHECK(copy.error() == "[checkpoint.read] expected shards in the directory of index " + copy.quoted() +
                            ", got '../other.safetensors' for key 'lm_head.weight'");
}

TEST_CASE("load_weights: keys that are not in exactly the shard of the index", "[checkpoint]") {
  {
    const Copy copy;
    fs::copy_file(copy.folder / first_shard, copy.folder / second_shard, fs::copy_options::overwrite_existing);
    CHECK(copy.error() == "[checkpoint.read] expected each key in one shard of index " + copy.quoted() +
                              ", got 'model.embed.weight' in " + first_shard + " and " + second_shard);
  }
  {
    const Copy copy;
    copy.edit_index("lm_head.weight", "lm_head.bias");
    CHECK(copy.error() == "[checkpoint.read] expected key 'lm_head.bias' in shard " + std::string(second_shard) +
                              ", as index " + copy.quoted() + " says, got none");
  }
  {
    const Copy copy;
    copy.edit_index(std::string("\"lm_head.weight\": \"") + second_shard,
                    std::string("\"lm_head.weight\": \"") + first_shard);
    CHECK(copy.error() == "[checkpoint.read] expected key 'lm_head.weight' in shard " + std::string(first_shard) +
                              ", as index " + copy.quoted() + " says, got it in " + second_shard);
  }
}

TEST_CASE("load_weights: damaged indices and shards", "[checkpoint]") {
  const Copy copy;
  const auto message = [&](const std::string& text) {
    copy.write_index(text);
    return copy.error();
  };
  const std::string map =
      "[checkpoint.read] expected 'weight_map', a map from keys to shards, in index " + copy.quoted();
  CHECK(message("{}") == map + ", got none");
  CHECK(message(R"({"weight_map": {}})") == map + ", got an empty one");
  CHECK(message(R"({"weight_map": []})") == map + ", got a list");
  CHECK(message(R"({"weight_map": {"a": 1}})") ==
        "[checkpoint.read] expected the name of a shard for key 'a' in index " + copy.quoted() + ", got an integer");
  const std::string broken = message(R"({"weight_map": {"a")");
  CHECK_THAT(broken, Catch::Matchers::StartsWith("[checkpoint.read] expected "));
  CHECK_THAT(broken, ContainsSubstring(copy.quoted()) && !ContainsSubstring("\n"));
  CHECK_THAT(message(R"({"weight_map": {"a": "x", "a": "y"}})"), ContainsSubstring(copy.quoted()));

  const Copy other;
  const auto shard = other.folder / second_shard;
  fs::resize_file(shard, fs::file_size(shard) - 3);
  CHECK_THAT(other.error(), ContainsSubstring(shard.string()) && !ContainsSubstring("\n"));
  fs::copy_file(golden("safetensors") / index_name, shard,
                fs::copy_options::overwrite_existing);  // an index as a shard
  CHECK_THAT(other.error(), ContainsSubstring(shard.string()));
}

}  // namespace
}  // namespace sharded_weights
