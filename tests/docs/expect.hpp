// Compares what the code of a page prints with what the page says, and loads the configs of pages.
#pragma once

#include <exception>
#include <iostream>
#include <sstream>
#include <string>

#include <danling/runner/runner_config.hpp>

inline std::ostringstream docs_printed;
inline int docs_failures = 0;

inline void docs_expect(const char* page, int line, const std::string& expected) {
  const std::string printed = docs_printed.str();
  docs_printed.str({});
  if (printed != expected) {
    ++docs_failures;
    std::cerr << page << ":" << line << ": expected\n" << expected << "got\n" << printed << "\n";
  }
}

inline void docs_config(const char* page, int line, const std::string& yaml) {
  try {
    danling::RunnerConfig config;
    danling::load_text(config, yaml, page);
    danling::finalize(config);
  } catch (const danling::ConfigError& error) {
    ++docs_failures;
    std::cerr << page << ", the block of line " << line << ": " << error.what() << "\n";
  }
}

inline void docs_run(const char* page, void (*code)()) {
  std::streambuf* before = std::cout.rdbuf(docs_printed.rdbuf());
  const std::ios_base::fmtflags flags = std::cout.flags();
  try {
    code();
  } catch (const std::exception& error) {
    ++docs_failures;
    std::cerr << page << ": " << error.what() << "\n";
  }
  docs_printed.str({});
  std::cout.flags(flags);
  std::cout.rdbuf(before);
}

inline int docs_result() {
  std::cout << (docs_failures == 0 ? "the pages say what their code prints\n" : "") << std::flush;
  return docs_failures == 0 ? 0 : 1;
}
