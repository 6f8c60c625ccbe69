#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>

#include <danling/core/detail/suggest.hpp>
#include <danling/core/format.hpp>
#include <danling/core/registry.hpp>

#include <support/error.hpp>
#include <support/locale.hpp>

namespace {

TEST_CASE("to_text: doubles read back as the same number", "[core]") {
  CHECK(danling::to_text(0.1) == "0.1");
  CHECK(danling::to_text(1.0) == "1.0");
  CHECK(danling::to_text(1e-9) == "1e-09");
  const std::string third = danling::to_text(1.0 / 3.0);
  double back = 0;
  std::from_chars(third.data(), third.data() + third.size(), back);
  CHECK(back == 1.0 / 3.0);
  CHECK(danling::detail::concat("a", 1, ' ', 2.5, true) == "a1 2.5true");
}

TEST_CASE("to_fixed: a fixed number of digits, no sign on nan, scientific when long", "[core]") {
  CHECK(danling::to_fixed(0.25, 4) == "0.2500");
  CHECK(danling::to_fixed(2.0, 0) == "2");
  CHECK(danling::to_fixed(-std::numeric_limits<double>::quiet_NaN(), 4) == "nan");
  CHECK(danling::to_fixed(-std::numeric_limits<double>::infinity(), 4) == "-inf");
  CHECK(danling::to_fixed(1e300, 2) == "1.00e+300");
}

TEST_CASE("to_significant, to_scientific: as printf's g and e", "[core]") {
  CHECK(danling::to_significant(0.0335, 4) == "0.0335");
  CHECK(danling::to_significant(1e-7, 4) == "1e-07");
  CHECK(danling::to_significant(12345.6, 4) == "1.235e+04");
  CHECK(danling::to_scientific(1250, 4) == "1.2500e+03");
  CHECK(danling::to_scientific(-std::numeric_limits<double>::quiet_NaN(), 4) == "nan");
}

TEST_CASE("format_bytes: units of 1,024", "[core]") {
  CHECK(danling::format_bytes(0) == "0 B");
  CHECK(danling::format_bytes(1023) == "1023 B");
  CHECK(danling::format_bytes(1536) == "1.5 KiB");
  CHECK(danling::format_bytes((1U << 20U) - 1) == "1.0 MiB");
  CHECK(danling::format_bytes(std::uint64_t{5} << 30U) == "5.0 GiB");
  CHECK(danling::format_bytes(UINT64_MAX) == "16.0 EiB");
}

TEST_CASE("format_amount: three digits, units of 1,000", "[core]") {
  CHECK(danling::format_amount(0) == "0");
  CHECK(danling::format_amount(999) == "999");
  CHECK(danling::format_amount(1000) == "1 k");
  CHECK(danling::format_amount(25'120) == "25.1 k");
  CHECK(danling::format_amount(999'500) == "1 M");
  CHECK(danling::format_amount(1'234'567'890) == "1.23 G");
}

TEST_CASE("format_percent: one decimal digit", "[core]") {
  CHECK(danling::format_percent(1.0 / 8) == "12.5 %");
  CHECK(danling::format_percent(1) == "100.0 %");
}

TEST_CASE("format_seconds: three digits, at most milliseconds, at least whole seconds", "[core]") {
  CHECK(danling::format_seconds(0) == "0 s");
  CHECK(danling::format_seconds(0.0126) == "0.013 s");
  CHECK(danling::format_seconds(0.25) == "0.25 s");
  CHECK(danling::format_seconds(1.254) == "1.25 s");
  CHECK(danling::format_seconds(31.46) == "31.5 s");
  CHECK(danling::format_seconds(999.6) == "1000 s");
  CHECK(danling::format_seconds(86400) == "86400 s");
  CHECK(danling::format_seconds(std::numeric_limits<double>::quiet_NaN()) == "nan s");
  CHECK(danling::format_seconds(std::chrono::milliseconds(1500)) == "1.5 s");
}

TEST_CASE("to_text, to_fixed: a point in every locale", "[core]") {
  const danling_test::CommaLocale locale;
  if (!locale.known()) {
    WARN("skipped: no locale with a decimal comma");
    return;
  }
  CHECK(danling::to_text(0.5) == "0.5");
  CHECK(danling::to_fixed(0.25, 4) == "0.2500");
  CHECK(danling::to_fixed(1e300, 2) == "1.00e+300");
  CHECK(danling::to_significant(0.25, 4) == "0.25");
}

TEST_CASE("shell_word: a shell reads the same text back", "[core]") {
  CHECK(danling::detail::shell_word("/runs/a_1/latest.pth") == "/runs/a_1/latest.pth");
  for (const std::string text :
       {"/my runs/latest.pth", "", "it's", "a\"b", "$HOME", "`x`", "*", "a;b", "-n", "\\", "ü", "a\nb"}) {
    const std::string command = "printf %s " + danling::detail::shell_word(text);
    FILE* output = popen(command.c_str(), "r");
    REQUIRE(output != nullptr);
    std::string read;
    for (int c = 0; (c = std::fgetc(output)) != EOF;) {
      read += static_cast<char>(c);
    }
    CHECK(pclose(output) == 0);
    CHECK(read == text);
  }
}

TEST_CASE("edit_distance: insertions, deletions, substitutions and swaps cost one", "[core]") {
  CHECK(danling::detail::edit_distance("", "abc") == 3);
  CHECK(danling::detail::edit_distance("kitten", "sitting") == 3);
  CHECK(danling::detail::edit_distance("epcohs", "epochs") == 1);
}

TEST_CASE("nearest: suggests what was meant, and nothing when nothing is near", "[core]") {
  const std::vector<std::string> keys = {"epochs", "steps", "optim.lr"};
  CHECK(danling::detail::nearest("epcohs", keys) == "epochs");
  CHECK(danling::detail::nearest("lr", keys) == "optim.lr");
  CHECK_FALSE(danling::detail::nearest("entirely_different", keys));
}

TEST_CASE("Registry: an unknown name lists the known ones", "[core]") {
  danling::Registry<int()> registry("optimizer");
  registry.add("SGD", [] { return 1; });
  registry.add("adam", [] { return 2; });
  CHECK(registry.at("sgd")() == 1);
  CHECK(danling_test::error_of<danling::ConfigError>([&] { registry.at("adamm"); }) ==
        "[optimizer.build] expected one of adam, sgd, got 'adamm'; did you mean 'adam'?");
}

TEST_CASE("Registry: ignores case in every locale", "[core]") {
  danling::Registry<int()> registry("scheduler");
  registry.add("linear", [] { return 1; });
  const danling_test::Locale locale({"tr_TR.UTF-8", "tr_TR.ISO-8859-9"});  // whose 'I' is no 'i'
  CHECK(registry.contains("LINEAR"));
}

}  // namespace
