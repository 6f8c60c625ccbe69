// Arrays of numpy and other objects of Python in pickles: what is read, and what their claims may not do.
#include <danling/core/error.hpp>
#include <danling/formats/detail/pickle.hpp>

#include <support/error.hpp>

namespace pickle_arrays {
namespace {

using danling::CheckpointError;
using danling::formats::read_pickle;
using danling::formats::RecordTree;

std::string refused_because(const std::string& bytes) {
  const std::string text = danling_test::error_of<CheckpointError>([&] { read_pickle(bytes); });
  const std::string start = "[checkpoint.read] expected ";
  REQUIRE(text.substr(0, start.size()) == start);
  return text.substr(start.size(), text.find(" (pickle") - start.size());
}

std::string short_text(const std::string& value) {
  return std::string("\x8c") + static_cast<char>(value.size()) + value;
}

std::string short_bytes(const std::string& value) { return std::string("C") + static_cast<char>(value.size()) + value; }

std::string shape_of(const std::vector<std::int64_t>& sizes) {
  std::string out = "(";
  for (const auto size : sizes) {
    out += "\x8a\x08";
    for (std::size_t i = 0; i < 8; ++i) {
      out.push_back(static_cast<char>(static_cast<std::uint64_t>(size) >> (8 * i)));
    }
  }
  return out + "t";
}

// The opcodes by which numpy pickles an array, with parts that may lie.
struct Array {
  std::string dtype = "i2";
  std::string order = "<";
  std::string subarray = "N";
  std::vector<std::int64_t> sizes = {2};
  std::string column_major = "\x89";
  std::string content = std::string("\x01\x00\xff\xff", 4);

  std::string dtype_opcodes() const {
    return "cnumpy\ndtype\n" + short_text(dtype) + "\x89\x88\x87R(K\x03" + short_text(order) + subarray + "NNtb";
  }
  static std::string empty() {
    const std::string shape("(K\0t", 4);
    return "cnumpy._core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + shape + short_bytes("b") + "tR";
  }
  std::string state() const {
    return "(K\x01" + shape_of(sizes) + dtype_opcodes() + column_major + short_bytes(content) + "t";
  }
  std::string pickle() const { return "\x80\x04" + empty() + state() + "b."; }
};

TEST_CASE("read_pickle: an array of numpy becomes lists of numbers", "[formats]") {
  const auto integers = [](const RecordTree& list) {
    std::vector<std::int64_t> out;
    for (const auto& item : list.list()) {
      out.push_back(item.integer());
    }
    return out;
  };
  CHECK(integers(read_pickle(Array().pickle()).tree) == std::vector<std::int64_t>{1, -1});
  const auto rows = read_pickle(Array{.dtype = "u1", .order = "|", .sizes = {2, 2}}.pickle()).tree;
  CHECK(integers(rows.list().at(0)) == std::vector<std::int64_t>{1, 0});
  CHECK(integers(rows.list().at(1)) == std::vector<std::int64_t>{255, 255});
  const auto columns =
      read_pickle(Array{.dtype = "u1", .order = "|", .sizes = {2, 2}, .column_major = "\x88"}.pickle()).tree;
  CHECK(integers(columns.list().at(0)) == std::vector<std::int64_t>{1, 255});
  CHECK(read_pickle(Array{.sizes = {}, .content = std::string("\0\x80", 2)}.pickle()).tree.integer() == -32768);
  // The memo keeps the array that the state fills later: both entries are the same list.
  const std::string twice = "\x80\x04" + Array::empty() + "\x94" + Array().state() + "bh";
  const auto pair = read_pickle(twice + std::string("\0\x86.", 3)).tree;
  CHECK(integers(pair.tuple().at(1)) == std::vector<std::int64_t>{1, -1});
}

TEST_CASE("read_pickle: arrays that are not plain little-endian numbers are refused by dtype", "[formats]") {
  CHECK(refused_because(Array{.dtype = "O8"}.pickle()) ==
        "an array of bools, integers, or floats of 32 or 64 bits, got numpy's dtype 'O8'");
  CHECK(refused_because(Array{.dtype = "c8"}.pickle()) ==
        "an array of bools, integers, or floats of 32 or 64 bits, got numpy's dtype 'c8'");
  CHECK(refused_because(Array{.order = ">"}.pickle()) == "an array of little-endian numbers, got byte order '>'");
  CHECK(refused_because(Array{.order = "|"}.pickle()) == "an array of little-endian numbers, got byte order '|'");
  CHECK(refused_because(Array{.subarray = ")"}.pickle()) == "an array of numbers, got one of structures");
}

TEST_CASE("read_pickle: the shape of an array must fit its bytes, whatever the arithmetic", "[formats]") {
  const std::int64_t big = std::int64_t{1} << 62;
  CHECK(refused_because(Array{.sizes = {3}}.pickle()) ==
        "an array whose bytes fit its shape [3] of int16, got 4 bytes");
  CHECK(refused_because(Array{.sizes = {-2}}.pickle()) ==
        "an array whose bytes fit its shape [-2] of int16, got 4 bytes");
  CHECK_THAT(refused_because(Array{.sizes = {big, 4}}.pickle()),
             ContainsSubstring("an array whose bytes fit its shape"));
  CHECK_THAT(refused_because(Array{.sizes = {big, 4, 0}, .content = ""}.pickle()),
             ContainsSubstring("an array whose bytes fit its shape"));
  // No bytes, and 2^40 empty lists.
  CHECK_THAT(refused_because(Array{.sizes = {std::int64_t{1} << 40, 0}, .content = ""}.pickle()),
             ContainsSubstring("values in proportion to "));
  CHECK(refused_because(Array{.sizes = std::vector<std::int64_t>(65, 1)}.pickle()) == "at most 64 dimensions, got 65");
}

TEST_CASE("read_pickle: objects are made of the harmless globals only, each in its place", "[formats]") {
  CHECK(refused_because("\x80\x04" + Array::empty() + ".") ==
        "plain values and tensors, got an array without content as a value");
  CHECK(refused_because("\x80\x04" + Array::empty() + Array().state() + "b" + Array().state() + "b.") ==
        "a dict, got a list");
  CHECK(refused_because("\x80\x04" + Array().dtype_opcodes() + ".") ==
        "plain values and tensors, got a numpy dtype as a value");
  const std::string from_type =
      "\x80\x04"
      "ctorch._tensor\n_rebuild_from_type_v2\n(";
  CHECK(refused_because(from_type + "ccollections\nOrderedDict\nctorch\nTensor\n)NtR.") ==
        "arguments of _rebuild_from_type_v2, got 4 others");
  CHECK(refused_because(from_type + "ctorch._utils\n_rebuild_tensor_v2\nctorch\nSize\n)NtR.") ==
        "arguments of _rebuild_from_type_v2, got 4 others");
  // A defaultdict names what it makes of a missing key; that may be a type alone.
  CHECK(read_pickle("\x80\x04"
                    "ccollections\ndefaultdict\ncbuiltins\nlist\n\x85R.")
            .tree.map()
            .empty());
  CHECK(refused_because("\x80\x04"
                        "ccollections\ndefaultdict\nccollections\nCounter\n\x85R.") ==
        "arguments of defaultdict, got 1 others");
  // getattr is a name, and only for the class whose methods DanLing's schedulers keep.
  const std::string scheduler = "cdanling.optim.lr_scheduler.lr_scheduler\nLRScheduler\n";
  CHECK(read_pickle("\x80\x04"
                    "cbuiltins\ngetattr\n" +
                    scheduler + short_text("cosine") + "\x86R.")
            .tree.string() == "cosine");
  CHECK(refused_because("\x80\x04"
                        "cbuiltins\ngetattr\nccollections\nOrderedDict\n" +
                        short_text("__class__") + "\x86R.") ==
        "arguments of getattr for a method of LRScheduler, got 2 others");
  CHECK(refused_because("\x80\x04" + scheduler + ")R.") == "a function that makes a value, got a type");
  CHECK(refused_because("\x80\x04"
                        "cbuiltins\nlist\n)R.") == "a function that makes a value, got a type");
  CHECK(refused_because("\x80\x04"
                        "cchanfig.utils.null\nNULL\n)R.") == "a function that makes a value, got a type");
}

}  // namespace
}  // namespace pickle_arrays
