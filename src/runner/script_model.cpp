// TorchScript models: matches arguments by name and converts values to trees.
#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/export.h>

#include <danling/formats/file.hpp>
#include <danling/nn/summary.hpp>
#include <danling/runner/model.hpp>
#include <danling/tensors/detail/describe.hpp>

namespace danling::inline v0::detail {
namespace {

using c10::IValue;
using c10::TypePtr;
constexpr auto model_where = "runner.model";

State tree_of(const IValue& value) {
  if (value.isNone()) {
    return {};
  }
  if (value.isTensor()) {
    return value.toTensor();
  }
  if (value.isBool()) {
    return value.toBool();
  }
  if (value.isInt()) {
    return value.toInt();
  }
  if (value.isDouble()) {
    return value.toDouble();
  }
  if (value.isString()) {
    return value.toStringRef();
  }
  if (value.isTuple()) {
    const auto tuple = value.toTuple();
    const auto& schema = tuple->type()->schema();  // of a named tuple
    State::List items;
    State::Map fields;
    for (std::size_t i = 0; i < tuple->elements().size(); ++i) {
      if (schema != nullptr) {
        fields.set(schema->arguments()[i].name(), tree_of(tuple->elements()[i]));
      } else {
        items.push_back(tree_of(tuple->elements()[i]));
      }
    }
    return schema != nullptr ? State(std::move(fields)) : State(State::Tuple{std::move(items)});
  }
  if (value.isList()) {
    State::List items;
    for (const IValue& item : value.toListRef()) {
      items.push_back(tree_of(item));
    }
    return items;
  }
  if (value.isGenericDict()) {
    State::Map map;
    for (const auto& entry : value.toGenericDict()) {
      if (entry.key().isString()) {
        map.set(entry.key().toStringRef(), tree_of(entry.value()));
      } else if (entry.key().isInt()) {
        map.set(entry.key().toInt(), tree_of(entry.value()));
      } else {
        fail<StateError>(model_where, "expected a TorchScript model whose dicts have texts or integers as keys, got ",
                         entry.key().tagKind());
      }
    }
    return map;
  }
  fail<StateError>(model_where,
                   "expected a TorchScript model that returns tensors, numbers, texts, tuples, lists or dicts, got ",
                   value.type()->str());
}

/// The common type of all items; Any if they differ.
TypePtr common_type(const std::vector<IValue>& items) {
  const TypePtr first = items.empty() ? TypePtr(c10::TensorType::get()) : items.front().type();
  const bool same = std::all_of(items.begin(), items.end(), [&](const IValue& item) {
    return item.isTensor() ? first->kind() == c10::TypeKind::TensorType : *item.type() == *first;
  });
  return !same                                        ? TypePtr(c10::AnyType::get())
         : first->kind() == c10::TypeKind::TensorType ? TypePtr(c10::TensorType::get())
                                                      : first;
}

/// Converts a tree to the declared type of an argument; `type` is null if none is declared.
IValue value_of(const State& tree, const TypePtr& type) {
  if (const auto optional = type == nullptr ? nullptr : type->cast<c10::OptionalType>()) {
    return value_of(tree, optional->getElementType());
  }
  if (tree.is_null()) {
    return {};
  }
  if (tree.is_tensor()) {
    return tree.tensor();
  }
  if (tree.is_bool()) {
    return tree.boolean();
  }
  if (tree.is_integer()) {
    return type != nullptr && type->kind() == c10::TypeKind::FloatType ? IValue(tree.number()) : IValue(tree.integer());
  }
  if (tree.is_double()) {
    return tree.number();
  }
  if (tree.is_string()) {
    return tree.string();
  }
  if (tree.is_map()) {
    const auto dict_type = type == nullptr ? nullptr : type->cast<c10::DictType>();
    std::vector<IValue> keys;
    std::vector<IValue> values;
    for (const auto& [key, value] : tree.map()) {
      keys.push_back(key.is_string() ? IValue(key.string()) : IValue(key.integer()));
      values.push_back(value_of(value, dict_type == nullptr ? nullptr : dict_type->getValueType()));
    }
    c10::impl::GenericDict dict(dict_type != nullptr ? dict_type->getKeyType()
                                : keys.empty()       ? TypePtr(c10::StringType::get())
                                                     : keys.front().type(),
                                dict_type != nullptr ? dict_type->getValueType() : common_type(values));
    for (std::size_t i = 0; i < keys.size(); ++i) {
      dict.insert(keys[i], values[i]);
    }
    return dict;
  }
  if (tree.is_list() || tree.is_tuple()) {
    const auto tuple_type = type == nullptr ? nullptr : type->cast<c10::TupleType>();
    const auto list_type = type == nullptr ? nullptr : type->cast<c10::ListType>();
    std::vector<IValue> items;
    for (const State& item : tree.items()) {
      const std::size_t i = items.size();
      items.push_back(value_of(item, list_type != nullptr ? list_type->getElementType()
                                     : tuple_type != nullptr && i < tuple_type->elements().size()
                                         ? tuple_type->elements()[i]
                                         : nullptr));
    }
    if (tuple_type != nullptr || (list_type == nullptr && tree.is_tuple())) {
      return c10::ivalue::Tuple::create(std::move(items));
    }
    c10::impl::GenericList list(list_type != nullptr ? list_type->getElementType() : common_type(items));
    for (IValue& item : items) {
      list.push_back(std::move(item));
    }
    return list;
  }
  fail<StateError>(model_where, "expected tensors, numbers, texts and containers of them for a TorchScript model, got ",
                   tree.kind());
}

class ScriptModel final : public ModelConcept {
 public:
  explicit ScriptModel(const torch::jit::Module& module) : module_(module) {}

  at::Tensor forward(const at::Tensor& input) override {
    IValue output = module_.forward({input});
    if (!output.isTensor()) [[unlikely]] {
      fail_script_output(tree_of(output), typeid(at::Tensor));
    }
    return std::move(output).toTensor();
  }

  State call(const State& input) override {
    const std::vector<c10::Argument> arguments = arguments_of_forward();
    const bool single = arguments.size() == 1;
    const auto kind = single ? arguments[0].type()->kind() : c10::TypeKind::TensorType;
    const bool sequence = input.is_list() || input.is_tuple();
    if (input.is_map() && !(kind == c10::TypeKind::DictType && !input.map().contains(arguments[0].name()))) {
      return tree_of(module_.forward({}, by_name(input.map(), arguments)));
    }
    if (sequence && kind != c10::TypeKind::ListType && kind != c10::TypeKind::TupleType) {
      check<StateError>(input.items().size() <= arguments.size(), model_where, "expected at most ", arguments.size(),
                        " inputs for ", signature(arguments), " of the TorchScript model, got ", input.items().size());
      std::vector<IValue> values;
      for (const State& item : input.items()) {
        values.push_back(value_of(item, arguments[values.size()].type()));
      }
      return tree_of(module_.forward(std::move(values)));
    }
    return tree_of(module_.forward({value_of(input, single ? arguments[0].type() : nullptr)}));
  }

  NamedTensors named_parameters() const override {
    NamedTensors out;
    for (const auto& item : module_.named_parameters()) {
      out.emplace_back(item.name, item.value);
    }
    return out;
  }
  NamedTensors named_state() const override {
    NamedTensors out = named_parameters();
    for (const auto& item : module_.named_buffers()) {
      out.emplace_back(item.name, item.value);
    }
    return out;
  }
  std::vector<nn::ModuleTensors> modules() const override {
    std::vector<nn::ModuleTensors> out;
    for (const auto& item : module_.named_modules()) {
      nn::ModuleTensors tensors{item.name, item.value.type()->name()->name(), {}, {}};
      for (const auto& parameter : item.value.named_parameters(/*recurse=*/false)) {
        tensors.parameters.push_back(parameter.value);
      }
      for (const auto& buffer : item.value.named_buffers(/*recurse=*/false)) {
        tensors.buffers.push_back(buffer.value);
      }
      if (item.value.children().size() == 0 || !tensors.parameters.empty() || !tensors.buffers.empty()) {
        out.push_back(std::move(tensors));
      }
    }
    return out;
  }

  void to(at::Device device) override { module_.to(device); }
  void train(bool on) override { module_.train(on); }
  const std::type_info& type() const override { return typeid(torch::jit::Module); }
  void* get() override { return &module_; }
  bool is_script() const override { return true; }

  void save_script(const std::filesystem::path& path) const override {
    formats::AtomicFile out(path);
    const auto write = [&out](const void* data, std::size_t size) {
      out.write(std::span(static_cast<const std::byte*>(data), size));
      return size;
    };
    const NamedTensors state = named_state();
    const bool on_host = std::all_of(state.begin(), state.end(), [](const auto& item) { return item.second.is_cpu(); });
    torch::jit::ExportModule(on_host ? module_ : module_.deepcopy(at::kCPU), write);
    out.commit();
  }

 private:
  std::vector<c10::Argument> arguments_of_forward() const {
    const auto& all = module_.get_method("forward").function().getSchema().arguments();
    return {all.begin() + 1, all.end()};  // without self
  }

  static std::string signature(const std::vector<c10::Argument>& arguments) {
    std::string text;
    for (const auto& argument : arguments) {
      text += concat(text.empty() ? "" : ", ", argument.name());
    }
    return concat("forward(", text, ")");
  }

  static torch::jit::Kwargs by_name(const State::Map& input, const std::vector<c10::Argument>& arguments) {
    torch::jit::Kwargs values;
    std::vector<std::string> missing;
    for (const auto& argument : arguments) {
      if (const State* found = input.find(argument.name())) {
        values.emplace(argument.name(), value_of(*found, argument.type()));
      } else if (!argument.default_value()) {
        missing.push_back(quote(argument.name()));
      }
    }
    std::vector<std::string> unknown;
    for (const auto& entry : input) {
      if (!entry.key.is_string() || !values.contains(entry.key.string())) {
        unknown.push_back(entry.key.text());
      }
    }
    if (!missing.empty() || !unknown.empty()) {
      fail<StateError>(model_where, "expected a mapping with the arguments of ", signature(arguments),
                       " of the TorchScript model, got ",
                       missing.empty() ? "" : concat("no ", danling::detail::join(missing)),
                       missing.empty() || unknown.empty() ? "" : " and ",
                       unknown.empty() ? "" : concat("unknown ", danling::detail::join(unknown)));
    }
    return values;
  }

  torch::jit::Module module_;
};

}  // namespace

std::unique_ptr<ModelConcept> wrap_script(const torch::jit::Module& module) {
  return std::make_unique<ScriptModel>(module);
}

void fail_script_input(const std::type_info& input) {
  fail<StateError>(model_where,
                   "expected tensors, numbers, texts or standard containers of them for a TorchScript model, got ",
                   name_of(input), "; let model_input(batch), in the namespace of the batch's type, return them");
}

void fail_script_output(const State& given, const std::type_info& expected) {
  fail<StateError>(model_where, "expected a TorchScript model that returns ", name_of(expected), ", got ",
                   describe(given),
                   "; name another prediction, BasicTorchRunner<Batch, Prediction>: a tensor, a State, a standard "
                   "container of them, or a type with a constructor from a State");
}

}  // namespace danling::inline v0::detail
