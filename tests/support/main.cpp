// The main function of every test program.
#if !__has_include(<catch2/catch_all.hpp>)
#define CATCH_CONFIG_RUNNER
#endif
#include <support/catch.hpp>

#include <clocale>
#include <locale>

int main(int argc, char** argv) {
  // As programs do that speak their user's language: what the library writes and reads must not depend on it.
  if (std::setlocale(LC_ALL, "") != nullptr) {
    std::locale::global(std::locale(""));
    std::setlocale(LC_MESSAGES, "C");  // the system's reasons, which are parts of errors, may be translated
  }
  return Catch::Session().run(argc, argv);
}
