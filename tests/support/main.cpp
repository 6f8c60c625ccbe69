// The main function of every test program.
#if !__has_include(<catch2/catch_all.hpp>)
#define CATCH_CONFIG_RUNNER
#endif
#include <clocale>
#include <cstdlib>
#include <locale>
#include <string_view>

#include <support/catch.hpp>

namespace {

// Many tests fork ranks, and a fork cannot use CUDA after its parent has. So GPUs are hidden unless the command asks
// for tests of them alone.
bool asks_for_cuda(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "[cuda]") {
      return true;
    }
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  // Uses the user's locale, as programs may: the library's output and input must not depend on it.
  if (std::setlocale(LC_ALL, "") != nullptr) {
    std::locale::global(std::locale(""));
    std::setlocale(LC_MESSAGES, "C");  // system messages, which are parts of errors, may be translated
  }
  if (!asks_for_cuda(argc, argv)) {
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
  }
  return Catch::Session().run(argc, argv);
}
