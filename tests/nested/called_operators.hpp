// Which operators of LibTorch are called.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>

#include <ATen/record_function.h>

namespace nested_tests {

/// Names such as "aten::bmm" of all operators that any thread calls while it lives. One at a time.
class CalledOperators {
 public:
  CalledOperators() {
    const std::lock_guard<std::mutex> lock(mutex());
    names().clear();
    handle_ = at::addGlobalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
          const std::lock_guard<std::mutex> own(mutex());
          names().insert(function.name());
          return nullptr;
        }).scopes({at::RecordScope::FUNCTION}));
  }
  ~CalledOperators() { at::removeCallback(handle_); }
  CalledOperators(const CalledOperators&) = delete;
  CalledOperators& operator=(const CalledOperators&) = delete;

  bool contain(const std::string& name) const {
    const std::lock_guard<std::mutex> lock(mutex());
    return names().contains(name);
  }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::set<std::string>& names() {
    static std::set<std::string> all;
    return all;
  }

  at::CallbackHandle handle_;
};

}  // namespace nested_tests
