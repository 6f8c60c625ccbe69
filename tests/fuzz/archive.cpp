#include "archive.hpp"

#include <algorithm>
#include <cstring>
#include <random>

#include <zlib.h>

#include <danling/core/error.hpp>
#include <danling/formats/detail/zip_reader.hpp>

#include "formats/little_endian.hpp"
#include "formats/zip_layout.hpp"
#include "memory_file.hpp"

#ifdef DANLING_FUZZ
extern "C" std::size_t LLVMFuzzerMutate(unsigned char* data, std::size_t size, std::size_t most);
#endif

namespace danling_fuzz {
namespace {

using danling::formats::put_little;
namespace layout = danling::formats::zip;

// Writes the fields that the local header and the directory share.
void put_common(std::string& out, const std::string& name, const std::string& content) {
  const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size());
  put_little(out, std::uint16_t{0});  // flags
  put_little(out, layout::method_stored);
  put_little(out, std::uint32_t{0});  // time and date
  put_little(out, static_cast<std::uint32_t>(crc));
  put_little(out, static_cast<std::uint32_t>(content.size()));
  put_little(out, static_cast<std::uint32_t>(content.size()));
  put_little(out, static_cast<std::uint16_t>(name.size()));
  put_little(out, std::uint16_t{0});  // extra fields
}

}  // namespace

Records unpack(std::string_view archive) {
  Records out;
  try {
    const MemoryFile file(archive);
    const danling::formats::ZipReader zip(file.path(), std::uint64_t{1} << 22);
    for (const auto& entry : zip.entries()) {
      out.emplace_back(entry.name, zip.read(entry));
    }
  } catch (const danling::Error&) {
  }
  return out;
}

std::string pack(const Records& records) {
  std::string out;
  std::string directory;
  for (const auto& [name, content] : records) {
    put_little(directory, layout::central_signature);
    put_little(directory, std::uint16_t{0});
    put_little(directory, std::uint16_t{0});
    put_common(directory, name, content);
    directory.append(10, '\0');  // comment, disk, attributes
    put_little(directory, static_cast<std::uint32_t>(out.size()));
    directory += name;
    put_little(out, layout::local_signature);
    put_little(out, std::uint16_t{0});
    put_common(out, name, content);
    out += name;
    out += content;
  }
  const auto offset = static_cast<std::uint32_t>(out.size());
  out += directory;
  put_little(out, layout::end_signature);
  put_little(out, std::uint32_t{0});
  put_little(out, static_cast<std::uint16_t>(records.size()));
  put_little(out, static_cast<std::uint16_t>(records.size()));
  put_little(out, static_cast<std::uint32_t>(directory.size()));
  put_little(out, offset);
  put_little(out, std::uint16_t{0});
  return out;
}

#ifdef DANLING_FUZZ
std::size_t mutate_archive(unsigned char* data, std::size_t size, std::size_t most, unsigned seed) {
  std::minstd_rand random(seed);
  Records records = unpack({reinterpret_cast<const char*>(data), size});
  if (records.empty() || random() % 4 == 0) {
    return LLVMFuzzerMutate(data, size, most);
  }
  const std::size_t chosen = random() % records.size();
  auto& [name, content] = records[chosen];
  switch (random() % 8) {
    case 0:
      records.erase(records.begin() + static_cast<std::ptrdiff_t>(chosen));
      break;
    case 1:
      std::swap(records[chosen], records[random() % records.size()]);
      break;
    case 2:
      content.swap(records[random() % records.size()].second);
      break;
    default: {
      std::string& text = random() % 8 == 0 ? name : content;
      std::string room = text;
      room.resize(text.size() + 64);
      text.assign(room, 0, LLVMFuzzerMutate(reinterpret_cast<unsigned char*>(room.data()), text.size(), room.size()));
    }
  }
  const std::string out = pack(records);
  if (out.size() > most) {
    return LLVMFuzzerMutate(data, size, most);
  }
  std::memcpy(data, out.data(), out.size());
  return out.size();
}
#endif

}  // namespace danling_fuzz
