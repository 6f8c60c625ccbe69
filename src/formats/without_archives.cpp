// In place of the reader of TAR archives, in a library that is built without it.
#include <danling/core/error.hpp>
#include <danling/formats/file.hpp>
#include <danling/formats/tar.hpp>

namespace danling::inline v0::formats {

TarArchive::TarArchive(std::filesystem::path path) {
  fail<DataError>("formats.tar", "expected a library that reads TAR archives, got one built without: build danling ",
                  "with -DDANLING_WITH_ARCHIVES=ON to read ", path.string());
}
TarArchive::~TarArchive() = default;

// No archive exists: its constructor throws.
const std::filesystem::path& TarArchive::path() const { return file_->path(); }
std::uint64_t TarArchive::size() const { return 0; }
std::optional<TarMember> TarArchive::next(std::uint64_t) const { return std::nullopt; }
std::string TarArchive::read(const TarMember&) const { return {}; }
void TarArchive::prefetch(std::uint64_t, std::uint64_t) const {}

}  // namespace danling::inline v0::formats
