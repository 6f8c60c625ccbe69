#include <danling/formats/detail/pickle.hpp>

#include <sys/resource.h>

#include <limits>

#include <danling/core/error.hpp>

#include <support/child.hpp>
#include <support/error.hpp>

namespace {

using danling::CheckpointError;
using danling::formats::DType;
using danling::formats::read_pickle;
using danling::formats::RecordTree;
using danling::formats::TensorRecord;
using danling::formats::write_pickle;
using danling_test::error_of;

std::string pickle_error(const std::string& bytes) {
  return error_of<CheckpointError>([&] { read_pickle(bytes); });
}

// The text after `[checkpoint.read] expected `.
std::string refusal(const std::string& bytes) {
  const std::string text = pickle_error(bytes);
  const std::string start = "[checkpoint.read] expected ";
  REQUIRE(text.substr(0, start.size()) == start);
  return text.substr(start.size());
}

const std::string kProto = "\x80\x02";

std::string py_text(const std::string& value) {
  std::string out = "X";
  for (std::size_t i = 0; i < 4; ++i) {
    out.push_back(static_cast<char>(value.size() >> (8 * i)));
  }
  return out + value;
}

std::string py_integer(std::int64_t value) {
  std::string out = "\x8a\x08";
  for (std::size_t i = 0; i < 8; ++i) {
    out.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i)));
  }
  return out;
}

std::string py_tuple(const std::vector<std::int64_t>& values) {
  std::string out = "(";
  for (const auto value : values) {
    out += py_integer(value);
  }
  return out + "t";
}

struct PyTensor {
  std::string storage_class = "torch\nFloatStorage";
  std::int64_t count = 4;
  std::int64_t offset = 0;
  std::vector<std::int64_t> sizes = {2, 2};
  std::vector<std::int64_t> strides = {2, 1};
  std::string hooks = "}";

  std::string pickle() const {
    return kProto + "ctorch._utils\n_rebuild_tensor_v2\n((" + py_text("storage") + "c" + storage_class + "\n" +
           py_text("0") + py_text("cpu") + py_integer(count) + "tQ" + py_integer(offset) + py_tuple(sizes) +
           py_tuple(strides) + "\x89" + hooks + "tR.";
  }
};

TEST_CASE("write_pickle: writes the bytes of Python's pickle for plain values", "[formats]") {
  const auto bytes = [](const RecordTree& tree) { return write_pickle(tree, {}); };
  // pickle.dumps(value, protocol=2) of CPython, where that has no memo entries.
  CHECK(bytes(nullptr) == "\x80\x02N.");
  CHECK(bytes(true) == "\x80\x02\x88.");
  CHECK(bytes(0) == std::string("\x80\x02K\0.", 5));
  CHECK(bytes(255) == "\x80\x02K\xff.");
  CHECK(bytes(256) == std::string("\x80\x02M\0\1.", 6));
  CHECK(bytes(65536) == std::string("\x80\x02J\0\0\1\0.", 8));
  CHECK(bytes(-1) == "\x80\x02J\xff\xff\xff\xff.");
  CHECK(bytes(std::int64_t{1} << 31) == std::string("\x80\x02\x8a\x05\0\0\0\x80\0.", 10));
  CHECK(bytes(-(std::int64_t{1} << 31) - 1) == "\x80\x02\x8a\x05\xff\xff\xff\x7f\xff.");
  CHECK(bytes(std::numeric_limits<std::int64_t>::min()) == std::string("\x80\x02\x8a\x08\0\0\0\0\0\0\0\x80.", 13));
  CHECK(bytes(1.5) == std::string("\x80\x02G\x3f\xf8\0\0\0\0\0\0.", 12));
  CHECK(bytes(RecordTree::Tuple{}) == "\x80\x02).");
}

TEST_CASE("write_pickle and read_pickle: a tensor record comes back with dtype, view and flags", "[formats]") {
  TensorRecord first{DType::complex64, 0, 1, {2, 0, 1}, {1, 5, 0}, true, true, false};
  TensorRecord second{DType::uint16, 0, 3, {4}, {2}, false, false, false};
  TensorRecord third{DType::float32, 1, 0, {}, {}, false, false, true};
  const RecordTree tree = RecordTree::List{first, second, third};
  const std::vector<std::uint64_t> sizes = {24, 4};
  const auto back = read_pickle(write_pickle(tree, sizes));
  REQUIRE(back.storages.size() == 2);
  CHECK(back.storages[0].key == "0");
  CHECK(back.storages[0].size == 24);
  CHECK(back.tree.list().at(0).tensor() == first);
  CHECK(back.tree.list().at(1).tensor() == second);
  CHECK(back.tree.list().at(2).tensor() == third);
}

TEST_CASE("write_pickle: values that Python could not read are named by their path", "[formats]") {
  const auto error = [](const RecordTree& tree, std::vector<std::uint64_t> sizes = {}) {
    return error_of<CheckpointError>([&] { write_pickle(tree, sizes); });
  };
  RecordTree tree;
  tree["a"]["b"] = RecordTree::List{"fine", "caf\xe9"};
  CHECK(error(tree) ==
        "[checkpoint.write] expected UTF-8 text, got byte 233 at position 3 (key 'a.b[1]'); store it as bytes");
  tree["a"]["b"] = TensorRecord{DType::float32, 0, 0, {3}, {1}, false, false, false};
  CHECK(error(tree, {8}) ==
        "[checkpoint.write] expected a view inside its storage of 2 elements, got offset 0, sizes "
        "[3] and strides [1] (key 'a.b')");
  CHECK(error(tree) == "[checkpoint.write] expected one of 0 storages, got number 0 (key 'a.b')");
  RecordTree deep;
  for (int i = 0; i < 300; ++i) {
    deep = RecordTree(RecordTree::List{deep});
  }
  CHECK_THAT(error(deep), ContainsSubstring("[checkpoint.write] expected at most 256 levels of nesting, got more at "));
}

TEST_CASE("read_pickle: globals that could run code are refused by name, wherever they stand", "[formats]") {
  CHECK(pickle_error(kProto + "cos\nsystem\n" + py_text("true") + "\x85R.") ==
        "[checkpoint.read] expected plain values and tensors, got the global 'os.system', which is not supported "
        "(pickle, "
        "byte 2)");
  CHECK(refusal("\x80\x04" + py_text("builtins") + py_text("eval") + "\x93.") ==
        "plain values and tensors, got the global 'builtins.eval', which is not supported (pickle, byte 24)");
  CHECK(refusal(kProto + "ctorch\nload\n.") ==
        "plain values and tensors, got the global 'torch.load', which is not supported (pickle, byte 2)");
  CHECK(refusal(kProto + "ctorch\n\n.") ==
        "plain values and tensors, got the global 'torch.', which is not supported (pickle, byte 2)");
  CHECK(refusal(kProto + "ctorch\nFloatStorage\n)R.") == "a function that makes a value, got a type (pickle, byte 23)");
  CHECK(refusal(kProto + "ctorch\nfloat32\n.") ==
        "plain values and tensors, got a global as a value (pickle, byte 17)");
}

TEST_CASE("read_pickle: opcodes beyond plain values are refused by name", "[formats]") {
  CHECK(refusal(kProto + "(ios\nsystem\n.") ==
        "an opcode for plain values, got INST, which is not supported (pickle, byte 3)");
  CHECK(refusal(kProto + "K\x01"
                         "0.") == "an opcode for plain values, got POP, which is not supported (pickle, byte 4)");
  CHECK(refusal(kProto + "))}\x92.") ==
        "an opcode for plain values, got NEWOBJ_EX, which is not supported (pickle, byte 5)");
  CHECK(refusal(kProto + "ctorch\nSize\n)\x81.") == "a class of dicts, got another global (pickle, byte 15)");
  CHECK(refusal(kProto + "I1\n.") == "an opcode for plain values, got INT, which is not supported (pickle, byte 2)");
  CHECK(refusal(kProto + "\xfe.") == "a pickle opcode, got byte 254 (pickle, byte 2)");
  CHECK(refusal("\x80\x09N.") == "pickle protocol 2 to 5, got 9 (pickle, byte 0)");
  CHECK(refusal(kProto + "]N b.") == "a pickle opcode, got byte 32 (pickle, byte 4)");
  CHECK(refusal(kProto + "}}b.") == "attributes of an OrderedDict, got a plain dict (pickle, byte 4)");
  CHECK(refusal(kProto + "NN.") == "one value and the end of the pickle, got more (pickle, byte 4)");
  CHECK(refusal(kProto + "N.N") == "one value and the end of the pickle, got more (pickle, byte 3)");
}

TEST_CASE("read_pickle: keys, integers and text that a state cannot hold are refused", "[formats]") {
  CHECK(refusal(kProto + "}\x88Ns.") == "a string or an integer as key, got a bool (pickle, byte 6)");
  CHECK(refusal(kProto + "}(NNNu.") == "keys and values in pairs, got 3 values (pickle, byte 7)");
  CHECK(refusal(kProto + "\x8a\x09" + std::string(8, '\xff') + '\0' + ".") ==
        "an integer of at most 64 bits with its sign, got 9 bytes (pickle, byte 2)");
  CHECK(refusal(kProto + py_text("\xff") + ".") == "UTF-8 text, got other bytes (pickle, byte 2)");
  CHECK(refusal(kProto + "NK\x01"
                         "a.") == "a list, got None (pickle, byte 5)");
}

TEST_CASE("read_pickle: tensors outside their storage are refused, whatever the arithmetic", "[formats]") {
  const auto largest = std::numeric_limits<std::int64_t>::max();
  CHECK(read_pickle(PyTensor().pickle()).tree.tensor().sizes == std::vector<std::int64_t>{2, 2});
  const auto outside = [](PyTensor tensor) {
    const std::string text = refusal(tensor.pickle());
    CHECK_THAT(text, ContainsSubstring("a view inside its storage of "));
  };
  outside({.offset = 1});
  outside({.offset = -1});
  outside({.offset = largest});
  outside({.sizes = {largest, largest}});
  outside({.sizes = {3, 2}});
  outside({.sizes = {-1, 2}});
  outside({.strides = {-1, 1}});
  outside({.strides = {largest, 1}});
  // One without elements begins anywhere, as `x[2:, 1:]` of two rows does.
  CHECK(read_pickle(PyTensor{.offset = 5, .sizes = {0, 1}, .strides = {2, 1}}.pickle()).tree.tensor().offset == 5);
  outside({.offset = -1, .sizes = {0}, .strides = {1}});
  CHECK_THAT(refusal(PyTensor{.count = -1}.pickle()), ContainsSubstring("a storage size in 63 bits, got -1 elements"));
  CHECK_THAT(refusal(PyTensor{.count = largest}.pickle()), ContainsSubstring("a storage size in 63 bits, got "));
  CHECK_THAT(refusal(PyTensor{.strides = {1}}.pickle()), ContainsSubstring("as many strides as sizes, got 1 and 2"));
  CHECK_THAT(refusal(PyTensor{.storage_class = "torch\nSize"}.pickle()),
             ContainsSubstring("a storage class, got another global"));
  CHECK_THAT(refusal(PyTensor{.hooks = "}K\1Ns"}.pickle()), ContainsSubstring("a tensor without hooks, got hooks"));
  CHECK_THAT(refusal(PyTensor{.sizes = std::vector<std::int64_t>(65, 1)}.pickle()),
             ContainsSubstring("at most 64 dimensions, got 65"));
}

TEST_CASE("read_pickle: deep, cyclic and exploding values end with an error", "[formats]") {
  const std::string deep = kProto + std::string(10000, ']') + std::string(9999, 'a') + ".";
  const std::string too_deep =
      "at most 256 levels of nesting, got more, or a value that contains itself (pickle, byte ";
  CHECK(refusal(deep) == too_deep + "20001)");
  CHECK(refusal(kProto + std::string(10000, '(') + std::string(10000, 't') + ".") == too_deep + "20002)");
  // A list and a dict that hold themselves, and a cycle of two.
  CHECK(refusal(kProto + std::string("]q\0h\0a.", 7)) == too_deep + "8)");
  CHECK(refusal(kProto + std::string("}q\0K\1h\0s.", 9)) == too_deep + "10)");
  CHECK(refusal(kProto + std::string("]q\0]q\1h\0aa.", 11)) == too_deep + "12)");

  // Forty lists, each holding the one before twice: 2^40 values when written out.
  std::string laughs = kProto + "]";
  for (char i = 0; i < 40; ++i) {
    laughs += std::string("q") + i + "h" + i + "\x86";
  }
  laughs += ".";
  CHECK_THAT(refusal(laughs), ContainsSubstring("values in proportion to "));
  // One long text, many times.
  std::string texts = kProto + "]" + py_text(std::string(1 << 20, 'x')) + std::string("q\0a(", 4);
  for (int i = 0; i < 1000; ++i) {
    texts += std::string("h\0", 2);
  }
  CHECK_THAT(refusal(texts + "e."), ContainsSubstring("values in proportion to "));
}

// Whether the process grows by no more than what the documentation allows `pickle` to take.
bool stays_in_bounds(const std::string& pickle) {
  danling_test::Child child([&](auto) {
    rusage before{};
    getrusage(RUSAGE_SELF, &before);
    try {
      const auto tree = read_pickle(pickle);
    } catch (const CheckpointError&) {
    }
    rusage after{};
    getrusage(RUSAGE_SELF, &after);
    const auto grown = static_cast<std::uint64_t>(after.ru_maxrss - before.ru_maxrss) * 1024;
    return grown <= (std::uint64_t{1} << 20) + 256 * pickle.size() ? 0 : 1;
  });
  return child.wait() == 0;
}

TEST_CASE("read_pickle: memory stays within 256 times the input, whatever the opcodes", "[formats]") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  WARN("skipped: sanitizers hold memory of their own beside every block");
  return;
#endif
  const auto many = [](const std::string& ops) {
    std::string out;
    while (out.size() < 400'000) {
      out += ops;
    }
    return out;
  };
  CHECK(stays_in_bounds(kProto + "(" + many("]") + "t."));
  CHECK(stays_in_bounds(kProto + "(" + many("}") + "t."));
  CHECK(stays_in_bounds(kProto + "(" + many("N") + "t."));
  CHECK(stays_in_bounds(kProto + "(" + many("N\x85") + "t."));
  CHECK(stays_in_bounds(kProto + "(" + many("}K\1Ns") + "t."));
  CHECK(stays_in_bounds(kProto + "(" + many("]Na") + "t."));
  CHECK(stays_in_bounds(kProto + "(" + many(std::string("X\x10\0\0\0", 5) + "sixteen letters.") + "t."));
  CHECK(stays_in_bounds(kProto + "N" + many("\x85") + "."));
  CHECK(stays_in_bounds(kProto + many("(") + "."));
  CHECK(stays_in_bounds(kProto + many("(N1") + "."));
  CHECK(stays_in_bounds("\x80\x04(" + many("]\x94") + "t."));
  CHECK(stays_in_bounds(kProto + "(}K\1Nsq" + std::string(1, '\0') + many(std::string("h\0", 2)) + "t."));
  // A list of nothing but None is honest.
  CHECK(read_pickle(kProto + "](" + many("N") + "e.").tree.list().size() == 400'000);
}

TEST_CASE("read_pickle: memo, stack and lengths are checked", "[formats]") {
  CHECK(refusal(kProto + "h\x05.") == "a memo number that was put before, got 5 (pickle, byte 2)");
  CHECK(refusal(kProto + "Nr\xff\xff\xff\x7f.") == "a memo number below 9, got 2147483647 (pickle, byte 3)");
  CHECK(refusal(kProto + "a.") == "a value on the stack, got none (pickle, byte 2)");
  CHECK(refusal(kProto + "N(a.") == "a value on the stack, got none (pickle, byte 4)");
  CHECK(refusal(kProto + "t.") == "a mark on the stack, got none (pickle, byte 2)");
  CHECK(refusal(kProto + "R.") == "a value on the stack, got none (pickle, byte 2)");
  CHECK(refusal(kProto + ".") == "a value on the stack, got none (pickle, byte 2)");
  CHECK(refusal("") == "1 more bytes, got 0: the pickle was cut off (pickle, byte 0)");
  CHECK(refusal(kProto + "X\xff\xff\xff\xff"
                         "a.") == "4294967295 more bytes, got 2: the pickle was cut off (pickle, byte 2)");
  CHECK(refusal("\x80\x04\x8d" + std::string(7, '\0') +
                "\x80"
                "a.") == "9223372036854775808 more bytes, got 2: the pickle was cut off (pickle, byte 2)");
  CHECK(refusal("\x80\x04\x95" + std::string(8, '\x7f') + "N.") ==
        "a frame of at most 2 bytes, got 9187201950435737471 (pickle, byte 2)");
  CHECK(refusal(kProto + "ctorch") == "a line, got the end of the pickle (pickle, byte 2)");
}

TEST_CASE("read_pickle: every prefix and every flipped bit of a real pickle is an error or a value", "[formats]") {
  RecordTree tree;
  tree["weights"] = TensorRecord{DType::bfloat16, 0, 0, {2, 3}, {3, 1}, true, false, false};
  tree["fp8"] = TensorRecord{DType::float8_e5m2, 1, 0, {3}, {1}, false, false, false};
  tree["list"] = RecordTree::List{1, -70000, 1.5, "text", danling::Bytes{"\xff"}, RecordTree::Tuple{{1, 2, 3, 4}}};
  tree[7] = nullptr;
  const std::vector<std::uint64_t> sizes = {12, 3};
  const std::string whole = write_pickle(tree, sizes);
  read_pickle(whole);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    pickle_error(whole.substr(0, size));
  }
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    try {
      read_pickle(bytes);
    } catch (const CheckpointError&) {
      ++refused;
    }
  }
  CHECK(refused > whole.size());  // most flips hit an opcode, a name or a length
}

}  // namespace
