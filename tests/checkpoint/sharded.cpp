// States in shards: written by several ranks, read by others, and by Python's torch.distributed.checkpoint.
#include <danling/checkpoint/sharded.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <danling/checkpoint/weights.hpp>
#include <danling/distributed/group.hpp>
#include <danling/formats/detail/dcp_reader.hpp>

#include <support/error.hpp>
#include <support/python.hpp>
#include <support/temp_dir.hpp>

namespace sharded_checkpoints {
namespace {

namespace fs = std::filesystem;
using danling::CheckpointError;
using danling::Group;
using danling::ShardBox;
using danling::ShardedState;
using danling::State;
using danling_test::error_of;
using danling_test::TempDir;

// reference() of tests/golden/checkpoint_dcp.py.
State reference_state() {
  State out;
  State& model = out["model"];
  model["weight"] = at::arange(12, at::kFloat).reshape({3, 4});
  model["half"] = (at::arange(5).to(at::kBFloat16) / 4);
  model["mask"] = at::arange(3).remainder(2).eq(0);
  model["scalar"] = at::scalar_tensor(2.5, at::kDouble);
  model["empty"] = at::zeros({0, 3});
  model["turned"] = at::arange(6, at::kLong).reshape({2, 3}).t();
  State& optimizer = out["optimizer"];
  optimizer["state"]["0"]["step"] = at::scalar_tensor(4.0, at::kFloat);
  optimizer["state"]["0"]["exp_avg"] = at::full({3, 4}, 0.5, at::kFloat);
  optimizer["param_groups"] = State::List{State::Map{{"lr", 0.125}, {"params", State::List{0, 1}}}};
  out["epoch"] = 3;
  out["name"] = "run";
  out["pair"] = State(State::Tuple{{1, "x"}});
  out["nothing"] = nullptr;
  return out;
}

std::int64_t part(std::int64_t total, int parts) { return (total + parts - 1) / parts; }

// The rows of a rank as FSDP2 splits them, the last ranks may have none.
std::pair<at::Tensor, danling::ShardPlace> rows_of(const at::Tensor& whole, int rank, int size) {
  const std::int64_t step = part(whole.size(0), size);
  const std::int64_t begin = std::min(step * rank, whole.size(0));
  const std::int64_t end = std::min(begin + step, whole.size(0));
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(whole.dim()), 0);
  offsets[0] = begin;
  return {whole.narrow(0, begin, end - begin), {whole.sizes().vec(), offsets}};
}

at::Tensor numbers(at::IntArrayRef sizes) {
  return at::arange(c10::multiply_integers(sizes), at::kFloat).reshape(sizes);
}

TEST_CASE("save_sharded: one process reads back what it wrote, to the kinds of keys and tuples",
          "[checkpoint][sharded]") {
  const TempDir directory;
  State state = reference_state();
  state["optimizer"]["numbered"] = State::Map{{0, at::ones({2})}, {7, State::Map{}}};
  state["list"] = State::List{at::ones({1}), 2, State(State::Tuple{{at::zeros({2}), "text"}})};
  state["bytes"] = danling::Bytes{std::string("\0\xff", 2)};
  state["parameter"] = at::ones({2}).set_requires_grad(true);
  danling::save_sharded({state}, directory.path() / "saved");
  const State got = danling::load_sharded(directory.path() / "saved");
  CHECK(danling::first_difference(got, state) == "");
  CHECK(got.at("parameter").tensor().requires_grad());
  CHECK(danling::first_difference(danling::load_weights(directory.path() / "saved"), state) == "");
  CHECK(error_of<CheckpointError>([&] { danling::save_sharded({state}, directory.path() / "saved"); }) ==
        "[checkpoint.write] expected a directory without a checkpoint, got one: '" +
            (directory.path() / "saved").string() + "'");
}

TEST_CASE("save_sharded: shards of 1 to 4 ranks are read by 1 to 4 ranks, each byte about once",
          "[checkpoint][sharded]") {
  const at::Tensor big = numbers({1031, 257});
  const at::Tensor small = numbers({2, 3}) + 5;
  for (const int writers : {1, 2, 3, 4}) {
    const TempDir directory;
    Group::run_threads(writers, [&](Group& group) {
      ShardedState own;
      auto [rows, place] = rows_of(big, group.rank(), writers);
      own.state["model"]["big"] = rows;
      own.places["model.big"] = place;
      auto [few, few_place] = rows_of(small, group.rank(), writers);
      own.state["model"]["few"] = few;
      own.places["model.few"] = few_place;
      own.state["model"]["same"] = small;
      own.state["step"] = 12;
      own.state["ranks"][group.rank()]["seed"] = group.rank() + 100;
      danling::save_sharded(own, directory.path(), group);
    });
    for (const int readers : {1, 2, 3, 4}) {
      CAPTURE(writers, readers);
      std::uint64_t read = 0;
      for (int rank = 0; rank < readers; ++rank) {
        const auto [rows, place] = rows_of(big, rank, readers);
        const State got = danling::load_sharded(directory.path(), [&, wanted = place, count = rows.size(0)](
                                                                      const std::string& path, at::IntArrayRef sizes) {
          CHECK(sizes.size() == 2);
          return std::optional(path == "model.big" ? ShardBox{wanted.offsets, {count, 257}} : ShardBox{});
        });
        CHECK(at::equal(got.at("model").at("big").tensor(), rows));
        CHECK(at::equal(got.at("model").at("few").tensor(), small));
        CHECK(at::equal(got.at("model").at("same").tensor(), small));
        CHECK(got.at("step").integer() == 12);
        CHECK(got.at("ranks").map().size() == static_cast<std::size_t>(writers));
        CHECK(got.at("ranks").at(writers - 1).at("seed").integer() == writers + 99);

        danling::formats::DcpReader reader(directory.path());
        std::vector<std::byte> bytes(rows.nbytes());
        reader.read(*reader.find("model.big"), place.offsets, rows.sizes(), bytes);
        read += reader.bytes_read();
        CHECK(std::memcmp(bytes.data(), rows.contiguous().const_data_ptr(), bytes.size()) == 0);
      }
      // Beyond the tensor: a block at each end of a box, the hashes, and the metadata.
      const auto most = big.nbytes() + static_cast<std::uint64_t>(readers + writers) * 3 * danling::formats::dcp_block;
      CHECK(read < most);
    }
  }
}

TEST_CASE("save_sharded: a grid of boxes is read as rows, columns and other grids", "[checkpoint][sharded]") {
  const TempDir directory;
  const at::Tensor whole = numbers({7, 5, 3});
  // Rows 0-3 and 4-6, columns 0-1, 2-4 of the second dimension.
  Group::run_threads(4, [&](Group& group) {
    const std::int64_t row = group.rank() / 2 * 4;
    const std::int64_t column = group.rank() % 2 * 2;
    ShardedState own;
    own.state["w"] = whole.narrow(0, row, row == 0 ? 4 : 3).narrow(1, column, column == 0 ? 2 : 3);
    own.places["w"] = {{7, 5, 3}, {row, column, 0}};
    danling::save_sharded(own, directory.path(), group);
  });
  for (std::int64_t row = 0; row < 7; ++row) {
    for (std::int64_t column = 0; column < 5; ++column) {
      for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{2}, 7 - row}) {
        const std::int64_t height = std::min(rows, 7 - row);
        const ShardBox box{{row, column, 1}, {height, 5 - column, 2}};
        const State got =
            danling::load_sharded(directory.path(), [&](const auto&, at::IntArrayRef) { return std::optional(box); });
        CHECK(at::equal(got.at("w").tensor(),
                        whole.narrow(0, row, height).narrow(1, column, 5 - column).narrow(2, 1, 2)));
      }
    }
  }
  // Any range of the bytes of the whole.
  danling::formats::DcpReader reader(directory.path());
  const auto* bytes = static_cast<const std::byte*>(whole.const_data_ptr());
  for (std::size_t begin = 0; begin < whole.nbytes(); begin += 13) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{4}, std::size_t{57}, std::size_t{400}}) {
      std::vector<std::byte> out(std::min(count, whole.nbytes() - begin));
      reader.read(*reader.find("w"), begin, out);
      CHECK(std::equal(out.begin(), out.end(), bytes + begin));
    }
  }
  CHECK(error_of<CheckpointError>([&] {
          danling::load_sharded(directory.path(), [](const auto&, at::IntArrayRef) {
            return std::optional(ShardBox{{5, 0, 0}, {3, 5, 3}});
          });
        }).find("expected a box inside of the sizes [7, 5, 3], got sizes [3, 5, 3] at offsets [5, 0, 0]") !=
        std::string::npos);
}

TEST_CASE("save_sharded: what several ranks have is written once, and about equally by all", "[checkpoint][sharded]") {
  const TempDir directory;
  Group::run_threads(3, [&](Group& group) {
    ShardedState own;
    for (int i = 0; i < 30; ++i) {
      own.state["model"][danling::detail::concat("layer", i)] = at::full({1000}, i, at::kFloat);
    }
    danling::save_sharded(own, directory.path(), group);
  });
  for (int rank = 0; rank < 3; ++rank) {
    const auto size = fs::file_size(directory.path() / danling::detail::concat("__", rank, "_0.distcp"));
    CHECK(size > 10 * 4000);
    CHECK(size < 10 * 6000);
  }
  CHECK(danling::load_sharded(directory.path()).at("model").at("layer29").tensor()[999].item<float>() == 29.0F);
}

TEST_CASE("save_sharded: ranks may have other keys, and tensors in lists", "[checkpoint][sharded]") {
  const TempDir directory;
  Group::run_threads(2, [&](Group& group) {
    ShardedState own;  // two pipeline stages
    own.state["model"][danling::detail::concat("stage", group.rank())] = at::full({2}, group.rank(), at::kFloat);
    own.state["shared"] = State::List{at::ones({2}), "text"};
    own.state["lr"] = group.rank() == 0 ? 0.5 : 0.25;
    danling::save_sharded(own, directory.path(), group);
  });
  const State got = danling::load_sharded(directory.path());
  CHECK(got.at("model").at("stage0").tensor()[1].item<float>() == 0.0F);
  CHECK(got.at("model").at("stage1").tensor()[1].item<float>() == 1.0F);
  CHECK(at::equal(got.at("shared").list().at(0).tensor(), at::ones({2})));
  CHECK(got.at("lr").number() == 0.5);
  // A stage reads its own.
  const State second = danling::load_sharded(directory.path(), [](const std::string& path, at::IntArrayRef) {
    return path == "model.stage1" ? std::optional(ShardBox{}) : std::nullopt;
  });
  CHECK(second.at("model").map().size() == 1);
  CHECK(second.at("shared").list().at(0).is_null());
}

TEST_CASE("save_sharded: refuses boxes that are not the whole, on all ranks", "[checkpoint][sharded]") {
  const auto error_with = [](auto change) {
    const TempDir directory;
    std::vector<std::string> errors(2);
    Group::run_threads(2, [&](Group& group) {
      ShardedState own;
      own.state["w"] = at::ones({2, 3});
      own.places["w"] = {{4, 3}, {2 * group.rank(), 0}};
      change(own, group.rank());
      errors[static_cast<std::size_t>(group.rank())] =
          error_of<CheckpointError>([&] { danling::save_sharded(own, directory.path(), group); });
    });
    CHECK(errors[0] == errors[1]);
    return errors[1];
  };
  CHECK(error_with([](ShardedState& own, int) { own.places["w"].offsets = {0, 0}; }) ==
        "[checkpoint.write] expected boxes of 12 elements together, got 6 of a tensor with sizes [4, 3] (key 'w')");
  CHECK(error_with([](ShardedState& own, int rank) { own.places["w"].offsets = {rank, 0}; }) ==
        "[checkpoint.write] expected boxes that do not overlap, got two at offsets [0, 0] and [1, 0] (key 'w')");
  CHECK(error_with([](ShardedState& own, int rank) { own.places["w"].sizes = {rank == 0 ? 4 : 5, 3}; }) ==
        "[checkpoint.write] expected one dtype and one size on all ranks, got float32 [4, 3] on rank 0 and float32 [5, "
        "3] on rank 1 (key 'w')");
  CHECK(error_with([](ShardedState& own, int rank) {
          if (rank == 1) {
            own.places["w"].offsets = {3, 0};
          }
        }) ==
        "rank 1: [checkpoint.write] expected a place with room for sizes [2, 3], got offsets [3, 0] in [4, 3] (key "
        "'w')");
  CHECK(error_with([](ShardedState& own, int) { own.places["v"] = {{4, 3}, {0, 0}}; }) ==
        "rank 0: [checkpoint.write] expected a tensor for each place, got none (key 'v')");
  CHECK(error_with([](ShardedState& own, int) {
          own.state["a"] = State::Map{{"b.c", at::ones({1})}, {"b", State::Map{{"c", at::ones({1})}}}};
        }) == "rank 0: [checkpoint.write] expected a name for each tensor, got two (key 'a.b.c')");
  CHECK(error_with([](ShardedState& own, int rank) {
          own.state["x"] = rank == 0 ? State(1) : State(State::Map{{"y", at::ones({1})}});
        }) ==
        "rank 0: [checkpoint.write] expected a tensor on all ranks that have the key, got another value on "
        "one (key 'x.y')");
}

TEST_CASE("load_sharded: damage, missing files and saves that were not completed are named", "[checkpoint][sharded]") {
  const TempDir directory;
  const auto saved = directory.path() / "saved";
  Group::run_threads(2, [&](Group& group) {
    ShardedState own;
    own.state["w"] = at::full({50000}, group.rank(), at::kFloat);
    own.places["w"] = {{100000}, {50000 * group.rank()}};
    own.state["epoch"] = 3;
    danling::save_sharded(own, saved, group);
  });
  const auto fresh = [&] {
    fs::remove_all(directory.path() / "copy");
    fs::copy(saved, directory.path() / "copy");
    return directory.path() / "copy";
  };
  const auto error_in = [&](const auto& change) {
    const auto copy = fresh();
    change(copy);
    return error_of<CheckpointError>([&] { danling::load_sharded(copy); });
  };
  const auto contains = [](const std::string& text, const std::string& what) {
    CAPTURE(text, what);
    CHECK(text.find(what) != std::string::npos);
  };
  const auto flip = [](const fs::path& file, std::int64_t at) {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(at, at < 0 ? std::ios::end : std::ios::beg);
    const char before = static_cast<char>(bytes.get());
    bytes.seekp(at, at < 0 ? std::ios::end : std::ios::beg);
    bytes.put(static_cast<char>(before ^ 1));
    REQUIRE(bytes.good());
  };
  contains(error_in([&](const fs::path& copy) { flip(copy / "__1_0.distcp", 150000); }),
           " bytes at offset 131072, got ");
  contains(error_in([&](const fs::path& copy) { flip(copy / "__1_0.distcp", 150000); }),
           ": the file is damaged (file '" + (directory.path() / "copy/__1_0.distcp").string() + "')");
  contains(error_in([&](const fs::path& copy) { flip(copy / "__0_0.distcp", -40); }),
           "expected hashes that match their own hash, got invalid data (file '");
  contains(error_in([&](const fs::path& copy) { flip(copy / "__0_0.distcp", -1); }),
           "expected the file that the manifest lists, got another file");
  contains(error_in([&](const fs::path& copy) { flip(copy / ".metadata", 40); }),
           "expected the hash in the manifest, got another hash");
  contains(error_in([&](const fs::path& copy) { flip(copy / "manifest.json", 60); }),
           "expected a manifest that ends with the hash of its text, got invalid data");
  contains(error_in([&](const fs::path& copy) { fs::resize_file(copy / "__1_0.distcp", 100); }),
           "bytes as the manifest lists it, got 100 bytes");
  contains(error_in([&](const fs::path& copy) { fs::remove(copy / "__1_0.distcp"); }),
           "bytes as the manifest lists it, got No such file or directory");
  contains(error_in([&](const fs::path& copy) { fs::remove(copy / "manifest.json"); }),
           "expected a manifest, got none: the save was not completed");
  // The manifest of another save.
  danling::save_sharded({State::Map{{"w", at::ones({3})}}}, directory.path() / "other");
  contains(error_in([&](const fs::path& copy) {
             fs::copy_file(directory.path() / "other/manifest.json", copy / "manifest.json",
                           fs::copy_options::overwrite_existing);
           }),
           "bytes as the manifest lists it, got ");
}

TEST_CASE("load_sharded: metadata with other classes is refused by name, and runs no code", "[checkpoint][sharded]") {
  const TempDir directory;
  const auto error_with = [&](const std::string& metadata) {
    danling_test::write_file(directory / ".metadata", metadata);
    return error_of<CheckpointError>([&] { danling::load_sharded(directory.path()); });
  };
  const std::string file = "file '" + (directory / ".metadata").string() + "'";
  CHECK(error_with(std::string("\x80\x02"
                               "cos\nsystem\n(X\x02\0\0\0lstR.",
                               24)) ==
        "[checkpoint.read] expected plain values and tensors, got the global 'os.system', which is not supported (" +
            file + ", byte 2)");
  CHECK(error_with("\x80\x02}.") ==
        "[checkpoint.read] expected an object of the class Metadata, got a map (" + file + ")");
  const auto corpus = fs::path(DANLING_SOURCE_DIR) / "tests/fuzz/corpus/dcp_metadata";
  CHECK(error_with(danling_test::read_file(corpus / "outside")) ==
        "[checkpoint.read] expected a file of the directory, got '../x' (" + file + ", entry 'w')");
  CHECK(error_with(danling_test::read_file(corpus / "overlap")) ==
        "[checkpoint.read] expected boxes of 12 elements together, got 15 of a tensor with sizes [4, 3] (" + file +
            ", entry 'w')");
  CHECK(error_with(danling_test::read_file(corpus / "huge")) ==
        "[checkpoint.read] expected a tensor of less than 2^59 elements, got sizes [1099511627776, 1099511627776] (" +
            file + ", entry 'w')");
}

TEST_CASE("save_sharded: Python's torch.distributed.checkpoint reads it", "[checkpoint][sharded][python]") {
  if (danling_test::python_with_torch().empty()) {
    WARN("no Python with torch");
    return;
  }
  const TempDir directory;
  danling::save_sharded({reference_state()}, directory.path() / "one");
  CHECK(danling_test::run_python("tests/golden/checkpoint_dcp.py", {"check", (directory.path() / "one").string()}));
  Group::run_threads(3, [&](Group& group) {
    ShardedState own;
    auto [rows, place] = rows_of(numbers({7, 5}), group.rank(), 3);
    own.state["w"] = rows;
    own.places["w"] = place;
    danling::save_sharded(own, directory.path() / "rows", group);
  });
  CHECK(danling_test::run_python("tests/golden/checkpoint_dcp.py", {"flat", (directory.path() / "rows").string()}));
}

TEST_CASE("load_sharded: reads what Python's torch.distributed.checkpoint writes", "[checkpoint][sharded][python]") {
  if (danling_test::python_with_torch().empty()) {
    WARN("no Python with torch");
    return;
  }
  const TempDir directory;
  const auto one = directory.path() / "one";
  REQUIRE(danling_test::run_python("tests/golden/checkpoint_dcp.py", {"make", one.string()}));
  CHECK(danling::first_difference(danling::load_sharded(one), reference_state()) == "");
  const auto mesh = directory.path() / "mesh";
  REQUIRE(danling_test::run_python("tests/golden/checkpoint_dcp.py", {"mesh", mesh.string()}));
  const State got = danling::load_sharded(mesh);
  CHECK(at::equal(got.at("rows").tensor(), numbers({7, 5})));
  CHECK(at::equal(got.at("grid").tensor(), numbers({7, 5})));
  CHECK(at::equal(got.at("plain").tensor(), at::ones({2}, at::kDouble)));
  CHECK(at::equal(got.at("few").tensor(), at::zeros({1})));
  CHECK(at::equal(got.at("fewest").tensor(), at::zeros({1})));
  CHECK(got.at("step").integer() == 7);
  const State box = danling::load_sharded(mesh, [](const std::string& path, at::IntArrayRef) {
    return path == "grid" ? std::optional(ShardBox{{2, 1}, {4, 3}}) : std::nullopt;
  });
  CHECK(at::equal(box.at("grid").tensor(), numbers({7, 5}).narrow(0, 2, 4).narrow(1, 1, 3)));
}

}  // namespace
}  // namespace sharded_checkpoints
