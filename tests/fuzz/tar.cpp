// TAR archives: members inside the file that do not overlap, from any of which reading goes on, or an error.
#include <danling/formats/tar.hpp>

#include "memory_file.hpp"

namespace danling_fuzz {

// Names and contents are held once, and once more while a name is taken over.
const Allowance allowance{std::size_t{1} << 22, 16};

void run(std::string_view input) {
  const MemoryFile file(input);
  const danling::formats::TarArchive archive(file.path());
  std::uint64_t offset = 0;
  while (const auto member = archive.next(offset)) {
    require(member->header == offset && member->offset > offset && member->next >= member->offset,
            "members one behind the other");
    require(member->next - member->offset >= member->size && member->next <= input.size(), "members inside the file");
    require(archive.read(*member) == input.substr(member->offset, member->size), "the bytes that the file has there");
    offset = member->next;
  }
}

}  // namespace danling_fuzz
