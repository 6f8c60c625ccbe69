// Sets the process's locale and restores it at the end of a test.
#pragma once

#include <clocale>
#include <initializer_list>
#include <string>

namespace danling_test {

class Locale {
 public:
  /// Sets the first of `names` that the machine has.
  explicit Locale(std::initializer_list<const char*> names) : old_(std::setlocale(LC_ALL, nullptr)) {
    for (const char* name : names) {
      known_ = known_ || std::setlocale(LC_ALL, name) != nullptr;
    }
  }
  ~Locale() { std::setlocale(LC_ALL, old_.c_str()); }
  Locale(const Locale&) = delete;
  Locale& operator=(const Locale&) = delete;

  bool known() const { return known_; }

 private:
  std::string old_;
  bool known_ = false;
};

/// A locale that writes 0,5 for a half.
struct CommaLocale : Locale {
  CommaLocale() : Locale({"de_DE.UTF-8", "fr_FR.UTF-8", "es_ES.UTF-8", "it_IT.UTF-8", "pt_BR.UTF-8", "ru_RU.UTF-8"}) {}
};

}  // namespace danling_test
