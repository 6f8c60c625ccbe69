// PyTorch archives: tree and storages read, or the archive is refused. Mutations keep the zip sound most of the time.
#include <danling/formats/pth.hpp>

#include "archive.hpp"
#include "memory_file.hpp"
#include "records.hpp"
#include "scratch.hpp"

namespace danling_fuzz {
namespace {

std::vector<std::byte> content(const danling::formats::PthReader& reader, std::size_t storage) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(reader.storage_size(storage)));
  reader.read_storage(storage, bytes);
  return bytes;
}

}  // namespace

const Allowance allowance{std::size_t{1} << 24, 8192};

void run(std::string_view input) {
  const MemoryFile file(input);
  const danling::formats::PthReader first(file.path());
  first.verify();
  std::vector<std::uint64_t> sizes;
  std::vector<std::vector<std::byte>> storages;
  for (std::size_t i = 0; i < first.num_storages(); ++i) {
    require(first.storage_size(i) <= 1032 * input.size(), "storages that the file can hold");
    sizes.push_back(first.storage_size(i));
    storages.push_back(content(first, i));
  }

  const Scratch scratch;
  try {
    danling::formats::AtomicFile out(scratch.path());
    danling::formats::write_pth(out, first.tree(), sizes,
                                [&](std::size_t i) { return std::span<const std::byte>(storages[i]); });
    out.commit();
  } catch (const danling::Error& error) {
    require(false, danling::detail::concat("that what was read can be written, got ", error.what()));
  }
  const danling::formats::PthReader second(scratch.path());
  second.verify();
  require(second.has_manifest(), "a manifest in what was written");
  // Storages that no tensor of the tree views are not read again, so the numbers may differ.
  std::vector<std::vector<std::byte>> copies;
  for (std::size_t i = 0; i < second.num_storages(); ++i) {
    copies.push_back(content(second, i));
  }
  const auto same_tensor = [&](const auto& a, const auto& b) {
    return same_view(a, b) && storages[a.storage] == copies[b.storage];
  };
  require(same(first.tree(), second.tree(), same_tensor), "the same state after writing and reading");
}

}  // namespace danling_fuzz

#ifdef DANLING_FUZZ
extern "C" std::size_t LLVMFuzzerCustomMutator(unsigned char* data, std::size_t size, std::size_t most, unsigned seed) {
  return danling_fuzz::mutate_archive(data, size, most, seed);
}
#endif
