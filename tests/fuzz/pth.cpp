// PyTorch archives: tree and storages read, or the archive is refused. Mutations keep the zip sound most of the time.
#include <danling/formats/pth.hpp>

#include "archive.hpp"
#include "memory_file.hpp"

namespace danling_fuzz {

const Allowance allowance{std::size_t{1} << 24, 8192};

void run(std::string_view input) {
  const MemoryFile file(input);
  const danling::formats::PthReader reader(file.path());
  reader.verify();
  for (std::size_t i = 0; i < reader.num_storages(); ++i) {
    require(reader.storage_size(i) <= 1032 * input.size(), "storages that the file can hold");
    std::vector<std::byte> bytes(static_cast<std::size_t>(reader.storage_size(i)));
    reader.read_storage(i, bytes);
  }
}

}  // namespace danling_fuzz

#ifdef DANLING_FUZZ
extern "C" std::size_t LLVMFuzzerCustomMutator(unsigned char* data, std::size_t size, std::size_t most, unsigned seed) {
  return danling_fuzz::mutate_archive(data, size, most, seed);
}
#endif
