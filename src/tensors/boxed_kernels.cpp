#include <tensors/boxed_kernels.hpp>

#include <map>
#include <string>
#include <utility>

#include <torch/library.h>

namespace danling::inline v0::detail {
namespace {

bool takes_tensors(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments()) {
    if (argument.type()->str().find("Tensor") != std::string::npos) {
      return true;
    }
  }
  return false;
}

using Libraries = std::map<std::pair<std::string, c10::DispatchKey>, std::unique_ptr<torch::Library>>;

}  // namespace

void register_for_all_operators(std::initializer_list<c10::DispatchKey> keys,
                                const std::function<std::unique_ptr<BoxedKernel>(const c10::OperatorHandle&)>& make) {
  // `used` keeps the pointer, so leak checkers do not report the memory.
  [[gnu::used]] static auto* const kept = new Libraries();
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op || !takes_tensors(op->schema())) {
      continue;
    }
    const std::string space = name.name.substr(0, name.name.find("::")), full = c10::toString(name);
    for (const c10::DispatchKey key : keys) {
      auto& library = (*kept)[{space, key}];
      if (library == nullptr) {
        library = std::make_unique<torch::Library>(torch::Library::IMPL, space, key, __FILE__, __LINE__);
      }
      library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunctor(make(*op)));
    }
  }
}

}  // namespace danling::inline v0::detail
