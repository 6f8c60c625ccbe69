// Names functions by the loaded symbols, else by the file's symbol table.
#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include <danling/core/error.hpp>

#include <core/stack_traces.hpp>

namespace danling::inline v0::detail {
namespace {

// Longer names are cut: some of LibTorch's fill a page.
constexpr std::size_t longest_name = 200;

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  std::string out = status == 0 && text != nullptr ? text.get() : name;
  for (const auto& [written, usual] :
       {std::pair<std::string_view, std::string_view>{
            "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >", "std::string"},
        {"danling::v0::", "danling::"}}) {
    for (auto at = out.find(written); at != std::string::npos; at = out.find(written, at + usual.size())) {
      out.replace(at, written.size(), usual);
    }
  }
  return out.size() > longest_name ? out.substr(0, longest_name) + "..." : out;
}

/// A file in memory; empty if it cannot be read.
class MappedFile {
 public:
  explicit MappedFile(const char* path) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat about{};
    if (file >= 0 && fstat(file, &about) == 0 && about.st_size > 0) {
      void* const begin = mmap(nullptr, static_cast<std::size_t>(about.st_size), PROT_READ, MAP_PRIVATE, file, 0);
      begin_ = begin == MAP_FAILED ? nullptr : static_cast<const char*>(begin);
      size_ = begin_ == nullptr ? 0 : static_cast<std::size_t>(about.st_size);
    }
    if (file >= 0) {
      close(file);
    }
  }
  ~MappedFile() {
    if (begin_ != nullptr) {
      munmap(const_cast<char*>(begin_), size_);
    }
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// Returns the `index`-th T from `offset` on, or null beyond the end.
  template <class T>
  const T* at(std::size_t offset, std::size_t index = 0) const {
    const bool fits = offset <= size_ && index < (size_ - offset) / sizeof(T) && offset % alignof(T) == 0;
    return fits ? reinterpret_cast<const T*>(begin_ + offset) + index : nullptr;
  }
  const char* text(std::size_t offset) const {
    return offset < size_ && std::memchr(begin_ + offset, 0, size_ - offset) != nullptr ? begin_ + offset : nullptr;
  }

 private:
  const char* begin_ = nullptr;
  std::size_t size_ = 0;
};

struct Function {
  std::string name;
  std::size_t begin = 0;
};

/// Returns the function of the file at `address` (relative to the load address). Finds static functions, and those of a
/// program that does not export its symbols.
Function function_in(const char* path, std::size_t address) {
  const MappedFile file(path);
  const auto* const header = file.at<ElfW(Ehdr)>(0);
  if (header == nullptr || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) {
    return {};
  }
  for (std::size_t i = 0; i < header->e_shnum; ++i) {
    const auto* const section = file.at<ElfW(Shdr)>(header->e_shoff, i);
    if (section == nullptr || section->sh_type != SHT_SYMTAB) {
      continue;
    }
    const auto* const names = file.at<ElfW(Shdr)>(header->e_shoff, section->sh_link);
    for (std::size_t k = 0; names != nullptr && k < section->sh_size / sizeof(ElfW(Sym)); ++k) {
      const auto* const symbol = file.at<ElfW(Sym)>(section->sh_offset, k);
      if (symbol != nullptr && (symbol->st_info & 0xf) == STT_FUNC && symbol->st_value <= address &&
          address - symbol->st_value < symbol->st_size) {
        const char* const name = file.text(names->sh_offset + symbol->st_name);
        return name == nullptr ? Function() : Function{demangled(name), symbol->st_value};
      }
    }
  }
  return {};
}

std::string hex(std::size_t number) {
  char text[2 * sizeof number + 3];
  std::snprintf(text, sizeof text, "0x%zx", number);
  return text;
}

}  // namespace

std::string symbol_text(const void* address, bool returns) {
  const auto number = reinterpret_cast<std::size_t>(address);
  // A call may be the last instruction of a function: step back into it.
  const auto* const inside = static_cast<const char*>(address) - (returns ? 1 : 0);
  Dl_info info{};
  link_map* map = nullptr;
  if (dladdr1(inside, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 || info.dli_fname == nullptr) {
    return hex(number);
  }
  const std::string path = info.dli_fname;
  const std::string file = path.substr(path.rfind('/') + 1);
  const std::size_t offset = number - (map != nullptr ? map->l_addr : 0);
  if (info.dli_sname != nullptr) {
    return concat(demangled(info.dli_sname), " + ", hex(number - reinterpret_cast<std::size_t>(info.dli_saddr)), " (",
                  file, ")");
  }
  const bool program = map != nullptr && (map->l_name == nullptr || *map->l_name == '\0');
  const Function function = function_in(program ? "/proc/self/exe" : info.dli_fname, offset - (returns ? 1 : 0));
  return function.name.empty() ? concat(file, " + ", hex(offset))
                               : concat(function.name, " + ", hex(offset - function.begin), " (", file, ")");
}

}  // namespace danling::inline v0::detail
