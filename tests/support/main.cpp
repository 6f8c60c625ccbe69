// The main function of every test program.
#if !__has_include(<catch2/catch_all.hpp>)
#define CATCH_CONFIG_RUNNER
#endif
#include <clocale>
#include <locale>

#include <support/catch.hpp>

int main(int argc, char** argv) {
  // Uses the user's locale, as programs may: the library's output and input must not depend on it.
  if (std::setlocale(LC_ALL, "") != nullptr) {
    std::locale::global(std::locale(""));
    std::setlocale(LC_MESSAGES, "C");  // system messages, which are parts of errors, may be translated
  }
  return Catch::Session().run(argc, argv);
}
