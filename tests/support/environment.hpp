// Sets an environment variable and restores it at the end of a test.
#pragma once

#include <stdlib.h>

#include <optional>
#include <string>
#include <utility>

namespace danling_test {

class Variable {
 public:
  /// Removes the variable if there is no value.
  Variable(std::string name, const std::optional<std::string>& value) : name_(std::move(name)) {
    const char* old = getenv(name_.c_str());
    if (old != nullptr) {
      old_ = old;
    }
    set(value);
  }
  ~Variable() { set(old_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const std::optional<std::string>& value) const {
    value ? setenv(name_.c_str(), value->c_str(), 1) : unsetenv(name_.c_str());
  }

  std::string name_;
  std::optional<std::string> old_;
};

}  // namespace danling_test
