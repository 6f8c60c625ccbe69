#include <danling/formats/tar.hpp>

#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>

#include <support/error.hpp>
#include <support/tar.hpp>
#include <support/temp_dir.hpp>

namespace {

namespace tar_test {

namespace fs = std::filesystem;
using danling::detail::concat;
using danling::detail::quote;
using danling::formats::TarArchive;
using danling::formats::TarMember;
using danling_test::error_of;
using danling_test::tar_blocks;
using danling_test::tar_header;
using danling_test::tar_size;
using danling_test::TempDir;
using nlohmann::json;

const fs::path folder = fs::path(DANLING_SOURCE_DIR) / "tests" / "golden" / "data" / "tar";

json golden(const std::string& name) { return json::parse(danling_test::read_file(folder / name)); }

std::string hex(const std::string& bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string out;
  for (const char character : bytes) {
    const auto byte = static_cast<unsigned char>(character);
    out += {digits[byte >> 4], digits[byte & 15]};
  }
  return out;
}

std::vector<TarMember> members_of(const TarArchive& archive) {
  std::vector<TarMember> out;
  std::uint64_t offset = 0;
  while (const auto member = archive.next(offset)) {
    offset = member->next;
    out.push_back(*member);
  }
  return out;
}

std::string refusal(const fs::path& path) {
  return error_of<danling::DataError>([&] { members_of(TarArchive(path)); });
}

TEST_CASE("TarArchive: names and contents are those that Python and GNU tar wrote", "[formats]") {
  const json expected = golden("members.json");
  CHECK(expected.size() == 12);
  for (const auto& [name, inside] : expected.items()) {
    INFO(name);
    const TarArchive archive(folder / (name + ".tar"));
    json found = json::array();
    for (const TarMember& member : members_of(archive)) {
      found.push_back({member.name, hex(archive.read(member))});
    }
    CHECK(found == inside);
  }
}

TEST_CASE("TarArchive: reading goes on from any member", "[formats]") {
  for (const char* name : {"python_pax.tar", "tar_gnu.tar", "tar_directory.tar"}) {
    const TarArchive archive(folder / name);
    const auto members = members_of(archive);
    REQUIRE(members.size() >= 2);
    for (std::size_t i = 0; i < members.size(); ++i) {
      CHECK(archive.next(members[i].header) == members[i]);
      CHECK(archive.next(members[i].next) == (i + 1 < members.size() ? std::optional(members[i + 1]) : std::nullopt));
    }
  }
}

TEST_CASE("TarArchive: what is no plain archive of files is refused by name", "[formats]") {
  const json reasons = golden("refused.json");
  for (const auto& [name, reason] : reasons.items()) {
    const fs::path path = folder / (name + ".tar");
    const std::string text = refusal(path);
    INFO(name << ": " << text);
    CHECK(text.starts_with("[formats.tar] " + reason.get<std::string>()));
    CHECK(text.find(concat("(file ", quote(path.string()))) != std::string::npos);
  }
  const TempDir dir;
  danling_test::write_file(dir / "empty.tar", "");
  CHECK(refusal(dir / "empty.tar") == concat("[formats.tar] expected a TAR archive, got an empty file (file ",
                                             quote((dir / "empty.tar").string()), ")"));
  CHECK(refusal(dir / "none.tar") == concat("[formats.tar] expected a readable file, got ",
                                            quote((dir / "none.tar").string()), ": No such file or directory"));
  CHECK(refusal(dir.path()) ==
        concat("[formats.tar] expected a readable file, got ", quote(dir.path().string()), ": it is a directory"));
  REQUIRE(::mkfifo((dir / "pipe").c_str(), 0600) == 0);
  CHECK(refusal(dir / "pipe") == concat("[formats.tar] expected a readable file, got ", quote((dir / "pipe").string()),
                                        ": it is not a regular file"));
}

TEST_CASE("TarArchive: an archive that ends early is refused wherever it ends", "[formats]") {
  const TempDir dir;
  const fs::path path = dir / "x.tar";
  for (const char* name : {"tar_posix.tar", "tar_gnu.tar"}) {
    const std::string bytes = danling_test::read_file(folder / name);
    const auto members = members_of(TarArchive(folder / name));
    const std::uint64_t end = members.back().next;
    for (std::size_t size = 1; size<end + 512; size += size + 40> end ? 1 : 7) {
      danling_test::write_file(path, bytes.substr(0, size));
      const std::string text = refusal(path);
      INFO(size << ": " << text);
      CHECK(text.ends_with("bytes: the file is truncated (file " + quote(path.string()) + ", offset " +
                           std::to_string(size / 512 * 512) + ")") +
                (text.find("to the end of the file: it is truncated (file ") != std::string::npos) +
                (text.find("got the end of the file: it is truncated (file ") != std::string::npos) ==
            1);
    }
    // One block of zeros is enough, as for GNU tar and Python.
    danling_test::write_file(path, bytes.substr(0, end + 512));
    CHECK(members_of(TarArchive(path)) == members);
  }
}

TEST_CASE("TarArchive: a changed byte of a header is noticed, one of a content changes nothing else", "[formats]") {
  const TempDir dir;
  const fs::path path = dir / "x.tar";
  const std::string bytes = danling_test::read_file(folder / "tar_ustar.tar");
  const auto members = members_of(TarArchive(folder / "tar_ustar.tar"));
  for (std::size_t i = 0; i < members.back().next + 1024; ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x21);
    danling_test::write_file(path, damaged);
    INFO(i);
    if (i % 512 == 155) {
      continue;  // behind the end of the checksum's digits
    }
    const bool in_header = std::any_of(members.begin(), members.end(), [&](const TarMember& member) {
      return i >= member.header && i < member.offset;
    });
    const bool behind = i >= members.back().next;
    if (in_header || behind) {
      CHECK(refusal(path).starts_with("[formats.tar] expected "));
    } else {
      CHECK(members_of(TarArchive(path)) == members);
    }
  }
}

TEST_CASE("TarArchive: sizes that no file has, and extended headers that are damaged, are refused", "[formats]") {
  const TempDir dir;
  const fs::path path = dir / "x.tar";
  const auto text = [&](const std::string& bytes) {
    danling_test::write_file(path, bytes + std::string(1024, '\0'));
    return refusal(path);
  };
  const auto at = [&](std::uint64_t offset) {
    return concat(" (file ", quote(path.string()), ", offset ", offset, ")");
  };
  CHECK(text(tar_header("a", "77777777777")) ==
        concat("[formats.tar] expected 8589934591 bytes of content in whole blocks, got 1024 bytes to the end of the "
               "file: it is truncated",
               at(0)));
  CHECK(text(tar_header("a", "\xff" + std::string(11, '\xff')))
            .starts_with("[formats.tar] expected a size that is a number "
                         "below 2^64, got "));
  const std::string most = "\x80" + std::string(3, '\0') + std::string(8, '\xff');
  CHECK(text(tar_header("a", most)) ==
        concat("[formats.tar] expected 18446744073709551615 bytes of content in whole blocks, "
               "got 1024 bytes to the end of the file: it is truncated",
               at(0)));
  CHECK(text(tar_header("a", "12x")) ==
        concat("[formats.tar] expected a size that is a number below 2^64, got '12x'", at(0)));
  CHECK(text(tar_header("long", "00010000000", 'L')) ==
        concat("[formats.tar] expected an extended header of at most 1048576 bytes, got 2097152", at(0)));
  const auto pax = [&](const std::string& records) {
    return text(tar_header("pax", tar_size(records.size()), 'x') + tar_blocks(records) + tar_header("a", "0"));
  };
  const std::string damaged = "[formats.tar] expected extended headers of '<length> <key>=<value>', got ";
  for (const char* records :
       {"6 a=b", "9 path=x\ny", "7 a=bc\n9", "0 a=b\n", "x a=b\n", "99999999999999999999 a=b\n", "1 \n", "a"}) {
    INFO(records);
    CHECK(pax(records) == concat(damaged, "damaged ones", at(1024)));
  }
  CHECK(pax("6 abc\n") == concat(damaged, "one without '='", at(1024)));
  CHECK(pax("10 size=-1\n").starts_with(damaged));
  CHECK(pax("11 size=-1\n") == concat("[formats.tar] expected a size that is a number below 2^64, got '-1'", at(1024)));
  CHECK(pax("14 size=99999\n") ==
        concat("[formats.tar] expected 99999 bytes of content in whole blocks, got 1024 bytes "
               "to the end of the file: it is truncated",
               at(1024)));
  CHECK(text(tar_header("pax", "14", 'x') + tar_blocks("12 path=abc\n")) ==
        concat("[formats.tar] expected a member after an extended header, got the end of the archive", at(1024)));
  CHECK(text(tar_header("pax", "13", 'g') + tar_blocks("11 size=12\n") + tar_header("a", "0")) ==
        concat("[formats.tar] expected no 'size' for all members at once, got one", at(1024)));
}

TEST_CASE("TarArchive: an empty value of an extended header leaves what the header itself says", "[formats]") {
  const TempDir dir;
  const std::string records = "8 path=\n8 size=\n";
  danling_test::write_file(dir / "x.tar", tar_header("pax", tar_size(records.size()), 'x') + tar_blocks(records) +
                                              tar_header("a.txt", "3") + tar_blocks("abc") + std::string(1024, '\0'));
  const TarArchive archive(dir / "x.tar");
  const auto members = members_of(archive);
  REQUIRE(members.size() == 1);
  CHECK(members[0].name == "a.txt");
  CHECK(archive.read(members[0]) == "abc");
}

TEST_CASE("TarArchive: a member of another archive is not read beyond the file", "[formats]") {
  const TarArchive archive(folder / "tar_directory.tar");
  CHECK(error_of<danling::DataError>([&] {
          (void)archive.read({.name = "x", .header = 0, .offset = 4000, .size = 100, .next = 0});
        }) == concat("[formats.tar] expected 100 bytes at offset 4000, got a file of 3584 bytes (file ",
                     quote((folder / "tar_directory.tar").string()), ")"));
}

}  // namespace tar_test

}  // namespace
