// Weights of any layout, found and put in place by name. The files are by tests/golden/pretrained_layouts.py.
#include <danling/checkpoint/pretrained.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <danling/checkpoint/file.hpp>

#include <support/error.hpp>

namespace pretrained_weights {
namespace {

using danling::CheckpointError;
using danling::PretrainedOptions;
using danling::State;
using danling::WeightMatch;
using danling_test::error_of;
using Names = std::vector<std::string>;

std::filesystem::path golden_file(const std::string& name) {
  return std::filesystem::path(DANLING_SOURCE_DIR) / "tests/golden/data" / ("pretrained_" + name);
}

// The tensors of the script's Net, all zero: those of a model that was just built.
State net() {
  State out;
  out["embed.weight"] = at::zeros({4, 3});
  for (const auto* name : {"norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"}) {
    out[name] = at::zeros({3});
  }
  out["norm.num_batches_tracked"] = at::zeros({}, at::kLong);
  out["head.weight"] = out.at("embed.weight");
  return out;
}

// As the script fills them: halves from the number of the entry on.
State filled(double sign) {
  State out = danling::clone(net());
  double number = 0;
  for (const auto& entry : out.map()) {
    const bool tied = entry.key.string() == "embed.weight";  // overwritten as the head
    const at::Tensor& tensor = entry.value.tensor();
    tensor.copy_((at::arange(tensor.numel()).reshape(tensor.sizes()) * 0.5 + (tied ? 5.0 : std::min(number, 5.0))) *
                 sign);
    ++number;
  }
  return out;
}

TEST_CASE("load_pretrained: finds the weights in the layouts of Python's programs", "[checkpoint][pretrained]") {
  struct Row {
    const char* file;
    const char* key;
    const char* prefix;
    double sign;
  };
  const auto row = GENERATE(values<Row>({{"plain.pth", "", "", 1},
                                         {"parallel.pth", "state_dict", "module.", 1},
                                         {"compiled.pth", "model", "", 1},
                                         {"compiled_parallel.pth", "", "module.", 1},
                                         {"lightning.pth", "state_dict", "model.", 1},
                                         {"danling.pth", "ema", "module.", -1},
                                         {"danling_no_ema.pth", "model", "", 1},
                                         {"timm.pth", "state_dict_ema", "", -1},
                                         {"deepspeed.pth", "module", "", 1},
                                         {"half.safetensors", "", "", 1},
                                         {"tied.safetensors", "", "", 1}}));
  CAPTURE(row.file);
  const State own = net();
  const WeightMatch match = danling::load_pretrained(own, golden_file(row.file));
  CHECK(match.key == row.key);
  CHECK(match.prefix == row.prefix);
  CHECK(match.complete());
  CHECK(match.lines().empty());
  CHECK(danling::first_difference(danling::clone(own), filled(row.sign)) == "");
  CHECK(own.at("head.weight").tensor().is_same(own.at("embed.weight").tensor()));
}

TEST_CASE("load_pretrained: a text is a path", "[checkpoint][pretrained]") {
  const State own;
  const std::string text = "nowhere.pth";
  const auto refusal = [&](const auto& file) {
    return danling_test::error_of<danling::CheckpointError>([&] { danling::load_pretrained(own, file); });
  };
  CHECK(refusal(std::filesystem::path(text)).find("nowhere.pth") != text.npos);
  CHECK(refusal(text) == refusal(std::filesystem::path(text)));
  CHECK(refusal(text.c_str()) == refusal(std::filesystem::path(text)));
}

TEST_CASE("load_pretrained: takes the weights at a key, below prefixes that are renamed", "[checkpoint][pretrained]") {
  const State own = net();
  CHECK(danling::load_pretrained(own, golden_file("teacher.pth"), {.key = "teacher.backbone"}).key ==
        "teacher.backbone");
  CHECK(danling::first_difference(danling::clone(own), filled(-1)) == "");
  danling::load_pretrained(own, golden_file("teacher.pth"), {.key = "student", .rename_prefix = {{"backbone.", ""}}});
  CHECK(danling::first_difference(danling::clone(own), filled(1)) == "");
  CHECK(error_of<CheckpointError>([&] {
          danling::load_pretrained(own, danling::load_file(golden_file("teacher.pth")), {.key = "teacher.encoder"});
        }) ==
        "[checkpoint.load_pretrained] expected a map of weights in the checkpoint under 'teacher.encoder', got none; "
        "the keys under 'teacher' are backbone");
}

TEST_CASE("load_pretrained: renames by pattern, after prefixes", "[checkpoint][pretrained]") {
  State own;
  own["blocks.0.weight"] = at::zeros({2});
  own["blocks.11.weight"] = at::zeros({2});
  State given;
  given["encoder.layer11.gamma"] = at::full({2}, 11.0);
  given["encoder.layer0.gamma"] = at::full({2}, 0.5);
  const WeightMatch match =
      danling::load_pretrained(own, given,
                               {.rename_prefix = {{"encoder.", ""}},
                                .rename_pattern = {{R"(^layer(\d+)\.)", "blocks.$1."}, {"gamma$", "weight"}}});
  CHECK(match.loaded == Names{"blocks.0.weight", "blocks.11.weight"});
  CHECK(at::equal(own.at("blocks.0.weight").tensor(), at::full({2}, 0.5)));
  CHECK(at::equal(own.at("blocks.11.weight").tensor(), at::full({2}, 11.0)));
  CHECK(error_of<danling::ConfigError>(
            [&] { danling::load_pretrained(own, given, {.rename_pattern = {{R"(layer\d+)", "layer"}}}); }) ==
        "[checkpoint.load_pretrained] expected a name for each entry, got 'encoder.layer11.gamma' and "
        "'encoder.layer0.gamma', which both become 'encoder.layer.gamma'");
  CHECK_THAT(
      error_of<danling::ConfigError>([&] { danling::load_pretrained(own, given, {.rename_pattern = {{"(", ""}}}); }),
      Catch::Matchers::StartsWith(
          "[checkpoint.load_pretrained] expected a regular expression in rename_pattern, got '(': "));
}

// One entry of each kind that does not match.
State misfit() {
  State out = filled(1);
  out.map().erase("norm.bias");
  out["head.weight"] = at::ones({5, 3});
  out["norm.running_mean"] = 3;
  for (const auto* name : {"fc.weight", "fc.bias", "a", "b", "c", "d"}) {
    out[name] = at::ones({1});
  }
  return out;
}

TEST_CASE("load_pretrained: a misfit is one error with names and counts, and changes nothing",
          "[checkpoint][pretrained]") {
  const State own = net();
  State wrapped;
  wrapped["state_dict"] = misfit();
  CHECK(error_of<CheckpointError>([&] { danling::load_pretrained(own, wrapped); }) ==
        "[checkpoint.load_pretrained] expected weights of the same architecture in the checkpoint under 'state_dict', "
        "got 1 missing (norm.bias); 6 unexpected (fc.weight, fc.bias, a, b and 2 more); 2 of another shape "
        "(norm.running_mean is Float [3] here and an integer there, head.weight is Float [4, 3] here and Float [5, 3] "
        "there); rename them, choose others by `key`, or set strict to false to leave those as they are");
  CHECK(danling::bitwise_equal(own, net()));
}

TEST_CASE("load_pretrained: without strict it loads what matches and reports the rest", "[checkpoint][pretrained]") {
  const State own = net();
  State wrapped;
  wrapped["model"]["state_dict"] = misfit();
  const WeightMatch match = danling::load_pretrained(own, wrapped, {.strict = false});
  CHECK(match.key == "model.state_dict");
  CHECK_FALSE(match.complete());
  CHECK(match.loaded == Names{"embed.weight", "norm.weight", "norm.running_var", "norm.num_batches_tracked"});
  CHECK(match.missing == Names{"norm.bias"});
  CHECK(match.unexpected == Names{"fc.weight", "fc.bias", "a", "b", "c", "d"});
  REQUIRE(match.shape_mismatches.size() == 2);
  CHECK(match.shape_mismatches[1].name == "head.weight");
  CHECK(match.shape_mismatches[1].expected == "Float [4, 3]");
  CHECK(match.shape_mismatches[1].got == "Float [5, 3]");
  CHECK(match.lines() ==
        Names{"1 missing (norm.bias): these keep their values",
              "6 unexpected (fc.weight, fc.bias, a, b and 2 more): these are skipped",
              "2 of another shape (norm.running_mean is Float [3] here and an integer there, head.weight is Float [4, "
              "3] here and Float [5, 3] there): these keep their values"});
  const State expected = filled(1);
  for (const auto& name : match.loaded) {
    CHECK(at::equal(own.at(name).tensor(), expected.at(name).tensor()));
  }
  CHECK(at::equal(own.at("norm.bias").tensor(), at::zeros({3})));
  CHECK(at::equal(own.at("norm.running_mean").tensor(), at::zeros({3})));
}

TEST_CASE("load_pretrained: a file without the model's names is refused with the keys that there are, strict or not",
          "[checkpoint][pretrained]") {
  const State own = net();
  State other;
  other["epoch"] = 3;
  other["model"]["fc1.weight"] = at::ones({2});
  other["model"]["fc1.bias"] = at::ones({2});
  const std::string text =
      "[checkpoint.load_pretrained] expected weights of this model (embed.weight, norm.weight, norm.bias, "
      "norm.running_mean and 3 more) in the checkpoint, got none of them; the keys are epoch, model, under 'model' "
      "fc1.weight, fc1.bias; choose them by `key`, or rename them";
  CHECK(error_of<CheckpointError>([&] { danling::load_pretrained(own, other); }) == text);
  CHECK(error_of<CheckpointError>([&] { danling::load_pretrained(own, other, {.strict = false}); }) == text);
  CHECK(error_of<CheckpointError>([&] { danling::load_pretrained(own, State(3)); }) ==
        "[checkpoint.load_pretrained] expected a map of weights in the checkpoint, got an integer");
  // Two parts of it are as good: none is guessed.
  State own_pair;
  own_pair["weight"] = at::zeros({2});
  State two;
  two["model.weight"] = at::ones({2});
  two["net.weight"] = at::ones({2});
  CHECK_THAT(error_of<CheckpointError>([&] { danling::load_pretrained(own_pair, two); }),
             ContainsSubstring("got none of them; the keys are model.weight, net.weight"));
}

TEST_CASE("load_pretrained: nested maps are names joined by dots, and a name of the model's own wins over a wrapper's",
          "[checkpoint][pretrained]") {
  State own;
  own["model.fc.weight"] = at::zeros({2});
  State nested;
  nested["model"]["fc"]["weight"] = at::ones({2});
  CHECK(danling::load_pretrained(own, nested).key.empty());
  CHECK(at::equal(own.at("model.fc.weight").tensor(), at::ones({2})));
  State flat;
  flat["model.fc.weight"] = at::full({2}, 2.0);
  CHECK(danling::load_pretrained(own, flat).prefix.empty());
  CHECK(at::equal(own.at("model.fc.weight").tensor(), at::full({2}, 2.0)));
}

TEST_CASE("load_pretrained: types are converted, but complex numbers do not become real", "[checkpoint][pretrained]") {
  State own;
  own["w"] = at::zeros({2});
  State given;
  for (const auto dtype : {at::kHalf, at::kBFloat16, at::kDouble, at::kLong}) {
    given["w"] = at::full({2}, 3.0, at::TensorOptions().dtype(dtype));
    danling::load_pretrained(own, given);
    CHECK(danling::bitwise_equal(own.at("w"), State(at::full({2}, 3.0))));
    own["w"].tensor().zero_();
  }
  given["w"] = at::complex(at::ones({2}), at::ones({2}));
  CHECK_THAT(error_of<CheckpointError>([&] { danling::load_pretrained(own, given); }),
             ContainsSubstring("1 of another shape (w is Float [2] here and ComplexFloat [2] there)"));
}

}  // namespace
}  // namespace pretrained_weights
