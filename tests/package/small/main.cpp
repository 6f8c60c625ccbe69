// Prints how a library without readers refuses each kind of file.
#include <cstdio>

#include <danling/core/error.hpp>
#include <danling/formats/image.hpp>
#include <danling/formats/table.hpp>
#include <danling/formats/tar.hpp>

template <class Read>
void print_error(const Read& read) {
  try {
    read();
    std::puts("no error");
  } catch (const danling::DataError& error) {
    std::puts(error.what());
  }
}

int main() {
  using namespace danling::formats;
  print_error([] { read_image_info("\x89PNG\r\n\x1a\n"); });
  print_error([] { read_csv("table.csv"); });
  print_error([] { read_json_lines("table.jsonl"); });
  print_error([] { TarArchive("shard.tar"); });
}
