// LoRA adapters against PEFT's. The files are by tests/golden/lora_peft.py.
#include <danling/nn/lora.hpp>

#include <nlohmann/json.hpp>

#include <torch/torch.h>

#include <danling/checkpoint/weights.hpp>
#include <danling/nn/lora_linear.hpp>
#include <danling/nn/recompute.hpp>

#include <support/error.hpp>
#include <support/python.hpp>
#include <support/temp_dir.hpp>

namespace lora_test {
namespace {

namespace fs = std::filesystem;
namespace nn = danling::nn;
using danling::CheckpointError;
using danling::ConfigError;
using danling::State;
using danling_test::error_of;
using danling_test::TempDir;
using Names = std::vector<std::string>;

at::Tensor numbers(double from, double to, at::IntArrayRef sizes) {
  return torch::linspace(from, to, c10::multiply_integers(sizes)).view(sizes);
}

// The script's net.
struct Net : torch::nn::Module {
  Net() {
    register_module("fc", fc);
    register_module("head", head);
    const at::NoGradGuard no_grad;
    for (auto& value : parameters()) {
      value.copy_(numbers(-0.5, 0.5, value.sizes()));
    }
  }
  at::Tensor forward(const at::Tensor& x) { return head(torch::tanh(fc(x))); }
  torch::nn::Linear fc{4, 8};
  torch::nn::Linear head{8, 3};
};

at::Tensor inputs() { return numbers(-1, 1, {6, 4}); }
at::Tensor targets() { return torch::arange(6) % 3; }

nn::LoraOptions options() {
  nn::LoraOptions out;
  out.target_modules = Names{"fc"};
  out.r = 2;
  out.lora_alpha = 6;
  out.bias = "lora_only";
  out.modules_to_save = Names{"^head"};
  return out;
}

fs::path golden(const std::string& name) { return fs::path(DANLING_SOURCE_DIR) / "tests/golden/data/lora" / name; }

at::Tensor tensor_of(const nlohmann::json& rows) {
  if (!rows[0].is_array()) {
    return torch::tensor(rows.get<std::vector<double>>(), torch::kDouble);
  }
  std::vector<at::Tensor> out;
  for (const auto& row : rows) {
    out.push_back(tensor_of(row));
  }
  return torch::stack(out);
}

void check_close(const at::Tensor& got, const at::Tensor& expected) {
  REQUIRE(got.sizes() == expected.sizes());
  CHECK((got.to(torch::kDouble) - expected.to(torch::kDouble)).abs().max().item<double>() < 1e-6);
}

State state_of(const torch::nn::Module& module, const nn::LoraAdapters& adapters) {
  State out = State::Map();
  for (const auto& item : module.named_parameters()) {
    out[item.key()] = item.value().detach();
  }
  for (const auto& [name, tensor] : adapters.named_parameters()) {
    out[name] = tensor.detach();
  }
  return out;
}

std::vector<at::Tensor> trained(const torch::nn::Module& module, const nn::LoraAdapters& adapters) {
  std::vector<at::Tensor> out;
  for (const auto& parameter : module.parameters()) {
    if (parameter.requires_grad()) out.push_back(parameter);
  }
  for (const auto& [name, tensor] : adapters.named_parameters()) out.push_back(tensor);
  return out;
}

TEST_CASE("LoraAdapters: 20 steps of SGD equal PEFT's, and so do the merged weights", "[nn]") {
  std::ifstream file(golden("lora.json"));
  const auto expected = nlohmann::json::parse(file);
  Net net;
  const nn::LoraAdapters adapters(net, options());
  {
    const at::NoGradGuard no_grad;
    adapters.named_parameters()[0].second.copy_(numbers(-0.4, 0.6, {2, 4}));
    adapters.update();
  }
  torch::optim::SGD optimizer(trained(net, adapters), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (const double loss_then : expected["losses"]) {
    optimizer.zero_grad();
    const at::Tensor loss = torch::nn::functional::cross_entropy(net.forward(inputs()), targets());
    CHECK(std::abs(loss.item<double>() - loss_then) < 1e-6);
    loss.backward();
    optimizer.step();
    adapters.update();
  }
  check_close(net.forward(inputs()), tensor_of(expected["outputs"]));
  const State merged = adapters.merge(state_of(net, adapters));
  CHECK(merged.map().size() == 4);
  for (const char* name : {"fc.weight", "fc.bias", "head.weight", "head.bias"}) {
    INFO(name);
    check_close(merged.at(name).tensor(), tensor_of(expected[name]));
  }
  CHECK(at::equal(merged.at("fc.weight").tensor(), net.fc->weight));  // as it was used, to the bit
}

TEST_CASE("LoraAdapters: PEFT's files load, and compute what PEFT computed", "[nn]") {
  std::ifstream file(golden("lora.json"));
  const auto expected = nlohmann::json::parse(file);
  Net net;
  const nn::LoraAdapters adapters(net, options());
  adapters.load(golden("adapter"));
  check_close(net.forward(inputs()), tensor_of(expected["outputs"]));
}

TEST_CASE("LoraAdapters: entries that PEFT writes twice are left out", "[nn]") {
  const TempDir folder;
  fs::copy(golden("adapter"), folder.path());
  State weights = danling::load_safetensors(golden("adapter/adapter_model.safetensors"));
  weights["base_model.model.head.modules_to_save.bias"] = torch::zeros({3});  // with bias "all"
  weights["base_model.model.head.original_module.bias"] = torch::zeros({3});
  danling::save_safetensors(weights, folder / "adapter_model.safetensors");
  Net net, other;
  nn::LoraAdapters(net, options()).load(folder.path());
  nn::LoraAdapters(other, options()).load(golden("adapter"));
  CHECK(at::equal(net.forward(inputs()), other.forward(inputs())));
}

TEST_CASE("LoraAdapters: a saved file has PEFT's names and tensors, and loads again", "[nn]") {
  Net net;
  const nn::LoraAdapters adapters(net, options());
  adapters.load(golden("adapter"));
  const TempDir folder;
  adapters.save(folder / "new");
  const State written = danling::load_safetensors(folder / "new/adapter_model.safetensors");
  const State peft = danling::load_safetensors(golden("adapter/adapter_model.safetensors"));
  REQUIRE(written.map().size() == peft.map().size());
  for (const auto& [name, value] : peft.map()) {
    REQUIRE(written.find(name) != nullptr);
    CHECK(at::equal(written.at(name).tensor(), value.tensor()));
  }
  const auto config = nlohmann::json::parse(danling_test::read_file(folder / "new/adapter_config.json"));
  const auto theirs = nlohmann::json::parse(danling_test::read_file(golden("adapter/adapter_config.json")));
  for (const auto& [key, value] : config.items()) {
    INFO(key);
    CHECK(value == theirs.at(key));
  }
  Net other;
  const nn::LoraAdapters again(other, options());
  again.load(folder / "new");
  CHECK(at::equal(other.forward(inputs()), net.forward(inputs())));
}

TEST_CASE("LoraAdapters: PEFT opens a saved file, where this machine has it", "[nn][python]") {
  const std::string python = danling_test::python_with_torch();
  if (python.empty() || std::system((python + " -W ignore -c 'import peft' >/dev/null 2>&1").c_str()) != 0) {
    WARN("skipped: no Python with peft");
    return;
  }
  Net net;
  const nn::LoraAdapters adapters(net, options());
  adapters.load(golden("adapter"));
  const TempDir folder;
  adapters.save(folder / "new");
  const std::string script = std::string(DANLING_SOURCE_DIR) + "/tests/golden/lora_peft.py";
  REQUIRE(std::system((python + " -W ignore '" + script + "' check '" + (folder / "new").string() + "' > '" +
                       (folder / "out").string() + "' 2>/dev/null")
                          .c_str()) == 0);
  check_close(net.forward(inputs()), tensor_of(nlohmann::json::parse(danling_test::read_file(folder / "out"))));
}

TEST_CASE("LoraAdapters: the start changes nothing; only adapters train by default", "[nn]") {
  Net net, plain;
  nn::LoraOptions only;
  only.target_modules = Names{"."};
  const nn::LoraAdapters adapters(net, only);
  CHECK(at::equal(net.forward(inputs()), plain.forward(inputs())));
  CHECK(adapters.layers().size() == 2);
  CHECK(adapters.layers()[0].scale == 1.0);  // PEFT's defaults: 8 / 8
  CHECK(adapters.layers()[0].a.sizes() == at::IntArrayRef({8, 4}));
  CHECK(adapters.layers()[0].a.abs().max().item<double>() <= 0.5);  // 1 / sqrt(in)
  for (const auto& parameter : net.parameters()) {
    CHECK_FALSE(parameter.requires_grad());
  }
  net.forward(inputs()).sum().backward();
  CHECK(adapters.layers()[0].b.grad().abs().sum().item<double>() > 0);
  CHECK_FALSE(net.named_parameters()["fc.weight"].grad().defined());
}

TEST_CASE("LoraAdapters: gradients of A and B are those of W + s B A, also after several backward passes", "[nn]") {
  Net net;
  net.to(at::kDouble);  // sums of random weights that cancel lose the digits of float32
  const at::Tensor x = inputs().to(at::kDouble);
  auto settings = options();
  settings.use_rslora = true;
  const nn::LoraAdapters adapters(net, settings);
  const auto& layer = adapters.layers()[0];
  CHECK(std::abs(layer.scale - 6 / std::sqrt(2.0)) < 1e-12);
  {
    const at::NoGradGuard no_grad;
    layer.b.copy_(numbers(-1, 1, {8, 2}));
    adapters.update();
  }
  const at::Tensor a = layer.a.detach().clone().requires_grad_();
  const at::Tensor b = layer.b.detach().clone().requires_grad_();
  const at::Tensor w = net.named_parameters()["fc.weight"] + layer.scale * b.mm(a);
  const auto reference = [&](const at::Tensor& of) {
    return net.head(torch::tanh(torch::linear(of, w, net.fc->bias)));
  };
  reference(x).pow(2).sum().backward({}, /*retain_graph=*/true);
  reference(x * 2).sum().backward();
  net.forward(x).pow(2).sum().backward();  // one update(), two backward passes
  net.forward(x * 2).sum().backward();
  CHECK(layer.a.grad().allclose(a.grad(), 1e-9, 1e-11));
  CHECK(layer.b.grad().allclose(b.grad(), 1e-9, 1e-11));

  const at::Tensor late = net.forward(x).sum();
  {
    const at::NoGradGuard no_grad;
    layer.a.mul_(2);
  }
  CHECK(error_of<danling::StateError>([&] { late.backward(); }) ==
        "[nn.lora] expected a backward pass before the adapters change, got one after; repeat the forward pass");
}

TEST_CASE("LoraAdapters: a layer that recomputes its activations has the same gradients, bit for bit", "[nn]") {
  const auto gradients = [](bool recomputes) {
    Net net;
    const nn::LoraAdapters adapters(net, options());
    {
      const at::NoGradGuard no_grad;
      adapters.layers()[0].a.copy_(numbers(-0.4, 0.6, {2, 4}));
      adapters.layers()[0].b.copy_(numbers(-1, 1, {8, 2}));
      adapters.update();
    }
    for (int pass = 0; pass < 2; ++pass) {
      const auto body = [&](const at::Tensor& x) { return torch::tanh(net.fc(x)); };
      const at::Tensor hidden = recomputes ? nn::recompute(body, inputs()) : body(inputs());
      net.head(hidden).pow(2).sum().backward();
    }
    return std::vector{adapters.layers()[0].a.grad(), adapters.layers()[0].b.grad(), net.fc->bias.grad()};
  };
  const auto plain = gradients(false);
  const auto again = gradients(true);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    CHECK(at::equal(plain[i], again[i]));
  }
}

TEST_CASE("LoraAdapters: adapters of bfloat16 layers are float32, merged once rounded", "[nn]") {
  Net net;
  net.to(torch::kBFloat16);
  const nn::LoraAdapters adapters(net, options());
  const auto& layer = adapters.layers()[0];
  CHECK(layer.a.scalar_type() == torch::kFloat);
  {
    const at::NoGradGuard no_grad;
    layer.b.copy_(numbers(-1, 1, {8, 2}));
  }
  adapters.update();
  CHECK(net.fc->weight.scalar_type() == torch::kBFloat16);
  CHECK(at::equal(net.fc->weight, layer.base + (layer.b.mm(layer.a) * 3.0).to(torch::kBFloat16)));
  net.forward(inputs().to(torch::kBFloat16)).sum().backward();
  CHECK(layer.a.grad().scalar_type() == torch::kFloat);
}

TEST_CASE("LoraAdapters: options that fit no layer are named", "[nn]") {
  const auto message = [](auto change) {
    Net net;
    auto changed = options();
    change(changed);
    return error_of<ConfigError>([&] { nn::LoraAdapters(net, changed); });
  };
  CHECK(
      message([](auto& o) { o.target_modules = Names{"fd"}; }) ==
      "[lora.target_modules] expected a pattern that matches a linear layer (fc, head), got 'fd'; did you mean 'fc'?");
  CHECK(message([](auto& o) { o.target_modules.reset(); }) == "[lora] expected target_modules, got none");
  CHECK(message([](auto& o) { o.lora_dropout = 0.1; }) ==
        "[lora] expected lora_dropout 0 for layer 'fc', got 0.1; only nn::LoraLinear has dropout");
  CHECK(message([](auto& o) { o.modules_to_save = Names{"^fc"}; }) ==
        "[lora.modules_to_save] expected parameters of layers without adapters, got 'fc.weight'");
  CHECK(message([](auto& o) { o.bias = "some"; }) == "[lora] expected bias none, all or lora_only, got 'some'");
  CHECK(message([](auto& o) { o.target_modules = Names{""}; }) == "[lora.target_modules] expected a pattern, got none");

  struct Shared : torch::nn::Module {
    Shared() {
      register_module("out", out);
      register_parameter("table", out->weight);
    }
    torch::nn::Linear out{4, 5};
  } shared;
  auto tied = options();
  tied.target_modules = Names{"out"};
  CHECK(error_of<ConfigError>([&] { nn::LoraAdapters(shared, tied); }) ==
        "[lora.target_modules] expected linear layers with untied weights, got 'out', whose weight is shared by "
        "table, out.weight");
}

TEST_CASE("LoraAdapters: files of other adapters are refused, and nothing is changed", "[nn]") {
  Net net;
  const nn::LoraAdapters adapters(net, options());
  const at::Tensor before = net.forward(inputs()).detach();
  const auto message = [&](const std::string& key, const nlohmann::json& value) {
    const TempDir folder;
    fs::copy(golden("adapter"), folder.path(), fs::copy_options::recursive);
    auto config = nlohmann::json::parse(danling_test::read_file(folder / "adapter_config.json"));
    config[key] = value;
    std::ofstream(folder / "adapter_config.json") << config;
    std::string text = error_of<CheckpointError>([&] { adapters.load(folder.path()); });
    const std::string path = folder.path().string();
    return text.replace(text.find(path), path.size(), "DIR");
  };
  CHECK(message("r", 4) == "[nn.lora.load] expected r 2 in file 'DIR/adapter_config.json', got 4");
  CHECK(message("lora_alpha", 4) == "[nn.lora.load] expected lora_alpha 6.0 in file 'DIR/adapter_config.json', got 4");
  CHECK(message("use_dora", true) ==
        "[nn.lora.load] expected use_dora false in file 'DIR/adapter_config.json', got true");
  CHECK(message("peft_type", "IA3") ==
        "[nn.lora.load] expected peft_type \"LORA\" in file 'DIR/adapter_config.json', got \"IA3\"");
  Net other;
  auto wider = options();
  wider.target_modules = Names{"fc", "head"};
  wider.modules_to_save.reset();
  const nn::LoraAdapters both(other, wider);
  const std::string text = error_of<CheckpointError>([&] { both.load(golden("adapter")); });
  CHECK(text == "[nn.lora.load] expected the adapters of this model in file '" +
                    golden("adapter/adapter_model.safetensors").string() +
                    "', got 3 missing (base_model.model.head.lora_A.weight, base_model.model.head.lora_B.weight, "
                    "base_model.model.head.base_layer.bias); 2 unexpected (base_model.model.head.bias, "
                    "base_model.model.head.weight)");
  CHECK(at::equal(net.forward(inputs()), before));
}

TEST_CASE("LoraLinear: W x + b + s B A x, with dropout of the adapter's input alone", "[nn]") {
  nn::LoraOptions settings;
  settings.r = 2;
  settings.lora_alpha = 6;
  nn::LoraLinear layer(4, 8, settings);
  {
    const at::NoGradGuard no_grad;
    layer->lora_B.copy_(numbers(-1, 1, {8, 2}));
  }
  const at::Tensor expected =
      torch::linear(inputs(), layer->weight, layer->bias) + 3.0 * inputs().mm(layer->lora_A.t()).mm(layer->lora_B.t());
  CHECK(layer(inputs()).allclose(expected, 1e-5, 1e-6));
  Names names;
  for (const auto& item : layer->named_parameters()) {
    names.push_back(item.key() + (item.value().requires_grad() ? " trains" : ""));
  }
  CHECK(names == Names{"weight", "bias", "lora_A.weight trains", "lora_B.weight trains"});

  settings.lora_dropout = 1.0;
  nn::LoraLinear dropped(4, 8, settings);
  {
    const at::NoGradGuard no_grad;
    dropped->lora_B.fill_(1);
  }
  CHECK(at::equal(dropped(inputs()), torch::linear(inputs(), dropped->weight, dropped->bias)));
  dropped->eval();
  CHECK_FALSE(dropped(inputs()).allclose(torch::linear(inputs(), dropped->weight, dropped->bias)));
}

TEST_CASE("LoraAdapters: layers that are LoraLinear keep their adapters, and may have dropout", "[nn]") {
  nn::LoraOptions settings;
  settings.r = 2;
  settings.lora_alpha = 6;
  settings.lora_dropout = 0.5;
  torch::nn::Sequential net(nn::LoraLinear(4, 8, settings), torch::nn::Tanh(), torch::nn::Linear(8, 3));
  settings.target_modules = Names{"^0$"};
  const nn::LoraAdapters adapters(*net, settings);
  CHECK(adapters.named_parameters().empty());  // the module has them
  net->eval();
  {
    const at::NoGradGuard no_grad;
    adapters.layers()[0].b.copy_(numbers(-1, 1, {8, 2}));
  }
  const State merged = adapters.merge(state_of(*net, adapters));
  CHECK(merged.map().size() == 4);
  const at::Tensor hidden = torch::linear(inputs(), merged.at("0.weight").tensor(), merged.at("0.bias").tensor());
  CHECK(net->forward(inputs()).allclose(net->ptr<torch::nn::LinearImpl>(2)->forward(hidden.tanh()), 1e-5, 1e-6));
  settings.r = 3;
  CHECK(error_of<ConfigError>([&] { nn::LoraAdapters(*net, settings); }) ==
        "[lora] expected the r and scale of layer '0', 2 and 3.0, got 3 and 2.0; build the layer with these options");
}

}  // namespace
}  // namespace lora_test
