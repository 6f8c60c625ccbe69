// Safetensors files: every tensor reads, and what is written of them reads as the same.
#include <danling/formats/safetensors.hpp>

#include <algorithm>

#include "memory_file.hpp"
#include "scratch.hpp"

namespace danling_fuzz {
namespace {

using danling::formats::SafetensorsEntry;
using danling::formats::SafetensorsReader;

std::vector<std::byte> content(const SafetensorsReader& reader, const SafetensorsEntry& entry) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(entry.bytes));
  reader.read(entry, bytes);
  return bytes;
}

}  // namespace

const Allowance allowance{std::size_t{1} << 23, 1024};

void run(std::string_view input) {
  const MemoryFile file(input);
  const SafetensorsReader first(file.path());
  std::uint64_t total = 0;
  for (const auto& entry : first.entries()) {
    total += entry.bytes;
    require(first.find(entry.name) == &entry, "that each tensor is found by its name");
  }
  require(total <= input.size(), "tensors that do not overlap");
  first.aliases();

  Scratch scratch;
  try {
    danling::formats::AtomicFile out(scratch.path());
    danling::formats::write_safetensors(
        out, first.entries(), first.metadata(),
        [&](std::size_t tensor, const auto& sink) { sink(content(first, first.entries()[tensor])); });
    out.commit();
  } catch (const danling::Error& error) {
    require(false, danling::detail::concat("that what was read can be written, got ", error.what()));
  }
  const SafetensorsReader second(scratch.path());
  require(second.entries().size() == first.entries().size(), "as many tensors after writing and reading");
  require(second.metadata() == first.metadata(), "the same metadata after writing and reading");
  for (const auto& entry : first.entries()) {
    const auto* copy = second.find(entry.name);
    require(copy != nullptr && copy->dtype == entry.dtype && copy->sizes == entry.sizes &&
                content(first, entry) == content(second, *copy),
            "the same tensor after writing and reading");
  }
}

}  // namespace danling_fuzz
