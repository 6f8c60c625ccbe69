#include <danling/data/datasets/tar_shards.hpp>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <numeric>
#include <set>

#include <nlohmann/json.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <danling/core/error.hpp>
#include <danling/data/loader.hpp>
#include <danling/data/map.hpp>

#include <support/error.hpp>
#include <support/tar.hpp>
#include <support/temp_dir.hpp>

namespace {

namespace tar_shards_test {

namespace data = danling::data;
namespace fs = std::filesystem;
using danling::Batch;
using danling::State;
using danling::detail::concat;
using danling_test::error_of;
using danling_test::tar_archive;
using danling_test::TempDir;
using danling_test::write_file;
using nlohmann::json;

const fs::path folder = fs::path(DANLING_SOURCE_DIR) / "tests" / "golden" / "data";

/// Shards of 0 to 6 numbered records, each of one to three members: `0000.cls` ...
struct Numbers {
  TempDir dir;
  std::int64_t count = 0;
  explicit Numbers(int shards = 5) {
    for (int shard = 0; shard < shards; ++shard) {
      std::vector<std::pair<std::string, std::string>> members;
      for (int i = 0; i < (shard * 4 + 3) % 7; ++i, ++count) {
        const std::string key = concat("n/", count);
        members.emplace_back(key + ".cls", concat(count, "\n"));
        if (i % 2 == 1) {
          members.emplace_back(key + ".bin", std::string(static_cast<std::size_t>(700 * i), 'x'));
        }
      }
      write_file(dir / concat("s", shard, ".tar"), tar_archive(members));
    }
  }
  std::string pattern() const { return (dir.path() / "s{0..4}.tar").string(); }
};

std::vector<std::int64_t> drain(data::TarRecords& records) {
  std::vector<std::int64_t> out;
  while (const auto record = records.next()) {
    out.push_back(record->value(record->at("cls")).integer());
  }
  return out;
}

std::vector<std::int64_t> counted(std::int64_t count) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), std::int64_t{0});
  return out;
}

data::TarShardsOptions numbers_only(const data::TarRecordsOptions& records) {
  data::TarShardsOptions options;
  options.shuffle_shards = records.shuffle_shards;
  options.shuffle_buffer = records.shuffle_buffer;
  options.seed = records.seed;
  options.input = "cls";
  options.target = "";
  options.extra = std::vector<std::string>();
  return options;
}

TEST_CASE("expand_braces: ranges keep their digits, lists and several braces multiply", "[data]") {
  using Names = std::vector<std::string>;
  CHECK(data::expand_braces("a.tar") == Names{"a.tar"});
  CHECK(data::expand_braces("s-{008..011}.tar") == Names{"s-008.tar", "s-009.tar", "s-010.tar", "s-011.tar"});
  CHECK(data::expand_braces("{9..11}") == Names{"9", "10", "11"});
  CHECK(data::expand_braces("{a,b}/{0..1}") == Names{"a/0", "a/1", "b/0", "b/1"});
  CHECK(data::expand_braces("x{,y}") == Names{"x", "xy"});
  const auto refusal = [](const char* pattern) {
    return error_of<danling::ConfigError>([&] { data::expand_braces(pattern); });
  };
  const std::string begin = "[data.tar_shards] expected a pattern such as 'shard-{000..099}.tar', got ";
  CHECK(refusal("a{0..1") == begin + "'a{0..1': each '{' needs a '}', and braces cannot be nested");
  CHECK(refusal("a0}") == begin + "'a0}': each '{' needs a '}', and braces cannot be nested");
  CHECK(refusal("{a{b,c}}") == begin + "'{a{b,c}}': each '{' needs a '}', and braces cannot be nested");
  CHECK(refusal("{x}") == begin + "'{x}': braces hold a range or a list");
  CHECK(refusal("{5..2}") == begin + "'{5..2}': a range is two whole numbers, the smaller one first");
  CHECK(refusal("{a..c}") == begin + "'{a..c}': a range is two whole numbers, the smaller one first");
  CHECK(refusal("{0..99999999999}") == begin + "'{0..99999999999}': it expands to more than 10000000 names");
  CHECK(refusal("{0..9999}{0..9999}") == begin + "'{0..9999}{0..9999}': it expands to more than 10000000 names");
}

TEST_CASE("tar_records: members make the records that WebDataset makes of them", "[data]") {
  auto records = data::tar_records((folder / "tar" / "webdataset.tar").string());
  const json expected = json::parse(danling_test::read_file(folder / "tar" / "webdataset.json"));
  json found = json::array();
  while (const auto record = records.next()) {
    json members;
    for (const auto& member : record->members()) {
      members[member.name] = record->bytes(member);
    }
    found.push_back({record->key(), members});
  }
  CHECK(found == expected);
  CHECK(found.size() == 9);
}

TEST_CASE("tar_records: hidden files are passed over, and a record ends with its shard", "[data]") {
  const TempDir dir;
  write_file(dir / "0.tar", tar_archive({{"a.x", "1"}, {"._a.x", "no"}, {"d/.b.x", "no"}, {"a.y", "2"}, {"b.x", "3"}}));
  write_file(dir / "1.tar", tar_archive({{"b.y", "4"}}));
  data::TarRecords records({(dir / "0.tar").string(), (dir / "1.tar").string()});
  std::vector<std::string> found;
  while (const auto record = records.next()) {
    found.push_back(concat(record->key(), ":", danling::detail::join(record->names())));
  }
  CHECK(found == std::vector<std::string>{"a:x, y", "b:x", "b:y"});
}

TEST_CASE("TarRecord: contents become what their names say", "[data]") {
  const TempDir dir;
  const std::string npy = danling_test::read_file(folder / "arrays" / "big_fortran.npy");
  write_file(dir / "0.tar", tar_archive({{"k.cls", " 7\n"},
                                         {"k.txt", "schön"},
                                         {"k.json", R"({"a": [1, 2.5, null, true], "b": "x"})"},
                                         {"k.npy", npy},
                                         {"k.bin", "raw"},
                                         {"k.pth", "raw too"},
                                         {"k.bad.cls", "7 8"},
                                         {"k.bad.json", "{"},
                                         {"k.bad.npy", "x"}}));
  auto records = data::tar_records((dir / "0.tar").string());
  const auto record = records.next();
  REQUIRE(record);
  const auto value = [&](const char* name) { return record->value(record->at(name)); };
  CHECK(value("cls").integer() == 7);
  CHECK(value("none;cls").integer() == 7);
  CHECK(value("txt").string() == "schön");
  CHECK(value("json").at("a").list().at(1).number() == 2.5);
  CHECK(value("json").at("b").string() == "x");
  CHECK(value("bin").bytes().data == "raw");
  CHECK(value("pth").bytes().data == "raw too");
  // Big-endian float32 [5, 2, 3] in Fortran's order.
  const at::Tensor array = value("npy").tensor();
  CHECK(array.sizes() == at::IntArrayRef({5, 2, 3}));
  CHECK(at::equal(array.flatten().slice(0, 0, 6), at::tensor({0, 1, 2, 10, 11, 12}, at::kFloat)));
  const auto text = [&](const char* name) { return error_of<danling::DataError>([&] { value(name); }); };
  const std::string where = concat("key 'k', file ", danling::detail::quote((dir / "0.tar").string()), ", offset 0)");
  CHECK(text("bad.cls") == concat("[data.tar_shards] expected an integer, got '7 8' (member 'bad.cls', ", where));
  CHECK(text("bad.json").ends_with(concat(" (member 'bad.json', ", where)));
  CHECK(text("bad.npy").ends_with(concat(" (member 'bad.npy', ", where)));
  CHECK(text("jpg;png") == concat("[data.tar_shards] expected a member 'jpg;png', got [cls, txt, json, npy, bin, pth, "
                                  "bad.cls, bad.json, bad.npy] (",
                                  where));
}

#ifdef DANLING_WITH_IMAGES

std::string image_file(const std::string& name) {
  static const json cases = json::parse(danling_test::read_file(folder / "images.json"));
  std::string out;
  for (const auto& item : cases) {
    const std::string digits = item["name"] == name ? item["file"].get<std::string>() : "";
    for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
      out.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
    }
  }
  REQUIRE_FALSE(out.empty());
  return out;
}

TEST_CASE("tar_shards: a batch of images, targets, and everything else by name", "[data]") {
  const TempDir dir;
  std::vector<std::pair<std::string, std::string>> members;
  for (int i = 0; i < 3; ++i) {
    const std::string key = concat("train/", i);
    members.emplace_back(key + (i == 1 ? ".png" : ".jpg"), image_file(i == 1 ? "rgb8.png" : "rgb_444.jpg"));
    members.emplace_back(key + ".cls", concat(10 + i));
    members.emplace_back(key + ".seg.png", image_file("gray8.png"));
    members.emplace_back(key + ".json", concat(R"({"id": )", i, "}"));
    members.emplace_back(key + ".txt", concat("caption ", i));
  }
  write_file(dir / "0.tar", tar_archive(members));
  for (const std::int64_t workers : {0, 2}) {
    data::Loader<Batch> loader(data::tar_shards((dir / "0.tar").string()), {.batch_size = 3, .num_workers = workers});
    loader.start_epoch(0);
    REQUIRE(loader.next());
    const Batch& batch = loader.batch();
    CHECK(batch.input.sizes() == at::IntArrayRef({3, 3, 11, 18}));
    CHECK(at::equal(batch.input[1], data::image_tensor(image_file("rgb8.png"))));
    CHECK(at::equal(batch.target, at::tensor({10, 11, 12}, at::kLong)));
    CHECK(batch.at("seg.png").sizes() == at::IntArrayRef({3, 1, 11, 18}));
    CHECK(at::equal(batch.at("json.id"), at::tensor({0, 1, 2}, at::kLong)));
    CHECK(batch.extra.at("txt").list().at(2).string() == "caption 2");
    CHECK(batch.info.entry_keys.at(2) == "train/2");
    CHECK_FALSE(loader.next());
  }

  data::TarShardsOptions options;
  options.extra = std::vector<std::string>{"txt"};
  options.image.resize_to = data::ImageSize{4, 5};
  data::Loader<Batch> loader(data::tar_shards((dir / "0.tar").string(), options), {.batch_size = 3});
  loader.start_epoch(0);
  REQUIRE(loader.next());
  CHECK(loader.batch().input.sizes() == at::IntArrayRef({3, 3, 4, 5}));
  CHECK(loader.batch().extra.map().size() == 1);
}

TEST_CASE("tar_shards: damaged members and missing ones are named with key, shard and record", "[data]") {
  const TempDir dir;
  const fs::path path = dir / "0.tar";
  write_file(
      path,
      tar_archive(
          {{"a.jpg", "<html>"}, {"a.cls", "1"}, {"b.jpg", image_file("gray.jpg")}, {"b.cls", "x"}, {"c.cls", "1"}}));
  const auto text = [&](std::int64_t skipped) {
    auto stream = data::make_stream(data::tar_shards(path.string()));
    stream->reset(0);
    stream->skip(skipped);
    return error_of<danling::DataError>([&] { stream->next(1); });
  };
  const std::string file = concat("file ", danling::detail::quote(path.string()));
  CHECK(text(0) == concat("[formats.image] expected a JPEG or PNG image, got HTML or XML (member 'jpg', key 'a', ",
                          file, ", offset 0); while reading record 0"));
  CHECK(text(1) == concat("[data.tar_shards] expected an integer, got 'x' (member 'cls', key 'b', ", file,
                          ", offset 2048); while reading record 0"));
  CHECK(text(2).starts_with("[data.tar_shards] expected a member 'jpg;jpeg;png', got [cls] (key 'c', "));
}

#endif

TEST_CASE("tar_records: every order holds every record once, and depends on seed and epoch only", "[data]") {
  const Numbers numbers;
  REQUIRE(numbers.count == 13);
  data::TarRecords plain({numbers.pattern()});
  CHECK(drain(plain) == counted(13));
  CHECK_FALSE(plain.next());
  std::set<std::vector<std::int64_t>> orders;
  for (const std::int64_t buffer : {0, 2, 5, 100}) {
    for (const bool shuffle_shards : {false, true}) {
      const data::TarRecordsOptions options{.shuffle_shards = shuffle_shards, .shuffle_buffer = buffer, .seed = 3};
      data::TarRecords records({numbers.pattern()}, options);
      for (const std::int64_t epoch : {0, 1, 0}) {
        records.reset(epoch);
        const auto order = drain(records);
        orders.insert(order);
        auto sorted = order;
        std::sort(sorted.begin(), sorted.end());
        CHECK(sorted == counted(13));
        data::TarRecords again({numbers.pattern()}, options);
        again.reset(epoch);
        CHECK(drain(again) == order);
      }
    }
  }
  // Each combination that shuffles has an order of its own in both epochs; the plain one has one.
  CHECK(orders.size() == 1 + 2 * 7);
}

TEST_CASE("tar_records: shuffled shards come whole, in another order", "[data]") {
  const Numbers numbers;
  data::TarRecords records({numbers.pattern()}, {.shuffle_shards = true, .seed = 1});
  std::set<std::vector<fs::path>> orders;
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    records.reset(epoch);
    std::vector<fs::path> order;
    while (const auto record = records.next()) {
      if (order.empty() || order.back() != record->shard()) {
        order.push_back(record->shard());
      }
    }
    CHECK(order.size() == 4);  // one of the five is empty
    orders.insert(order);
  }
  CHECK(orders.size() > 10);
}

TEST_CASE("tar_records: a state taken anywhere goes on with the same records, and skipping is reading", "[data]") {
  const Numbers numbers;
  for (const std::int64_t buffer : {0, 4, 100}) {
    const data::TarRecordsOptions options{.shuffle_shards = buffer != 0, .shuffle_buffer = buffer, .seed = 5};
    data::TarRecords whole({numbers.pattern()}, options);
    whole.reset(2);
    const auto expected = drain(whole);
    for (std::int64_t at = 0; at <= 13; ++at) {
      data::TarRecords before({numbers.pattern()}, options);
      before.reset(2);
      CHECK(before.skip(at) == at);
      const State state = before.state_dict();
      auto other = options;
      other.seed = 99;  // the state's seed is taken over
      data::TarRecords after({numbers.pattern()}, other);
      after.load_state_dict(state);
      CHECK(danling::bitwise_equal(after.state_dict(), state));
      const std::vector<std::int64_t> rest(expected.begin() + at, expected.end());
      CHECK(drain(after) == rest);
      CHECK(drain(before) == rest);
      after.reset(3);
      before.reset(3);
      CHECK(drain(after) == drain(before));
    }
    whole.reset(2);
    CHECK(whole.skip(100) == 13);
  }
}

/// What `ranks` processes deliver from batch `from` of the epoch on, by position in the stream.
std::vector<std::int64_t> delivered(const Numbers& numbers, const data::TarRecordsOptions& records, std::int64_t ranks,
                                    std::int64_t batch_size, std::int64_t workers, const std::optional<State>& state,
                                    std::int64_t batches, State* end = nullptr) {
  std::vector<std::vector<std::vector<std::int64_t>>> by_rank;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    data::Loader<Batch> loader(
        data::tar_shards(numbers.pattern(), numbers_only(records)),
        {.batch_size = batch_size, .num_workers = workers, .shard = {.rank = rank, .world_size = ranks}});
    if (state) {
      loader.load_state_dict(*state);
    }
    loader.start_epoch(1);
    by_rank.emplace_back();
    for (std::int64_t i = 0; i < batches && loader.next(); ++i) {
      const at::Tensor input = loader.batch().input;
      const std::int64_t size = input.defined() ? input.numel() : 0;
      const auto* values = size > 0 ? input.const_data_ptr<std::int64_t>() : nullptr;
      by_rank.back().emplace_back(values, values + size);
    }
    if (end != nullptr && rank == 0) {
      *end = loader.state_dict();
    }
  }
  std::vector<std::int64_t> out;
  for (std::size_t step = 0; step < by_rank.front().size(); ++step) {
    for (const auto& of_rank : by_rank) {
      if (step < of_rank.size()) {
        out.insert(out.end(), of_rank[step].begin(), of_rank[step].end());
      }
    }
  }
  return out;
}

TEST_CASE("tar_shards: any number of ranks and workers shares the order and resumes it", "[data]") {
  const Numbers numbers;
  const data::TarRecordsOptions options{.shuffle_shards = true, .shuffle_buffer = 4, .seed = 7};
  data::TarRecords whole({numbers.pattern()}, options);
  whole.reset(1);
  const auto expected = drain(whole);
  for (const auto& [ranks, batch_size, workers] :
       std::vector<std::array<std::int64_t, 3>>{{1, 1, 0}, {1, 4, 2}, {2, 2, 0}, {2, 3, 1}, {3, 1, 2}}) {
    INFO(ranks << " ranks, batches of " << batch_size << ", " << workers << " workers");
    CHECK(delivered(numbers, options, ranks, batch_size, workers, std::nullopt, 100) == expected);
    State state;
    auto found = delivered(numbers, options, ranks, batch_size, workers, std::nullopt, 2, &state);
    CHECK(static_cast<std::int64_t>(found.size()) == 2 * ranks * batch_size);
    for (const std::int64_t other_ranks : {1, 2}) {
      auto all = found;
      const auto rest = delivered(numbers, options, other_ranks, 3, 1, state, 100);
      all.insert(all.end(), rest.begin(), rest.end());
      CHECK(all == expected);
    }
  }
}

TEST_CASE("tar_records: a function of one's own makes the samples", "[data]") {
  const Numbers numbers;
  auto stream =
      data::map(data::tar_records(numbers.pattern()), [](const data::TarRecord& record, const data::SampleInfo& info) {
        return data::Sample{.input = at::scalar_tensor(record.value(record.at("cls")).integer() * 2, at::kLong),
                            .target = at::scalar_tensor(info.index(), at::kLong)};
      });
  data::Loader<Batch> loader(std::move(stream), {.batch_size = 5, .num_workers = 2});
  loader.start_epoch(0);
  REQUIRE(loader.next());
  CHECK(at::equal(loader.batch().input, at::tensor({0, 2, 4, 6, 8}, at::kLong)));
  CHECK(at::equal(loader.batch().target, at::tensor({0, 1, 2, 3, 4}, at::kLong)));
}

TEST_CASE("tar_records: shards that are missing, empty, cut off or hold a name twice", "[data]") {
  const TempDir dir;
  const auto text = [&](const std::string& pattern) {
    return error_of<danling::DataError>([&] {
      data::TarRecords records({(dir.path() / pattern).string()});
      drain(records);
    });
  };
  const auto named = [&](const char* name) { return danling::detail::quote((dir.path() / name).string()); };
  write_file(dir / "0.tar", tar_archive({{"a.cls", "1"}}));
  write_file(dir / "1.tar", tar_archive({}));
  CHECK(text("{0..5}.tar") == concat("[data.tar_shards] expected 6 shards, got 2: there is no ", named("2.tar"), ", ",
                                     named("3.tar"), ", ", named("4.tar"), " and 1 others"));
  data::TarRecords sound({(dir.path() / "{1..1}.tar").string(), (dir / "0.tar").string()});
  CHECK(drain(sound) == std::vector<std::int64_t>{1});
  CHECK(error_of<danling::DataError>([] { data::TarRecords(std::vector<std::string>()); }) ==
        "[data.tar_shards] expected at least one shard, got none");

  write_file(dir / "2.tar", tar_archive({{"a.cls", "1"}, {"b.cls", "2"}, {"b.CLS", "3"}}));
  CHECK(text("2.tar") == concat("[data.tar_shards] expected one member 'cls' of a key, got two (key 'b', file ",
                                named("2.tar"), ", offset 1024)"));
  write_file(dir / "3.tar", tar_archive({{"a.cls", "1"}, {"b.cls", "2"}}).substr(0, 1500));
  data::TarRecords cut({(dir / "3.tar").string()});
  const auto once = [&] { return error_of<danling::DataError>([&] { (void)cut.next(); }); };
  const std::string expected = concat(
      "[formats.tar] expected a header of 512 bytes, got 476 bytes: the file is "
      "truncated (file ",
      named("3.tar"), ", offset 1024)");
  CHECK(once() == expected);
  CHECK(once() == expected);  // the position stays
}

std::size_t num_descriptors() {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

TEST_CASE("tar_records: a resumed shuffle buffer opens each shard once", "[data]") {
  const TempDir dir;
  for (int shard = 0; shard < 40; ++shard) {
    std::vector<std::pair<std::string, std::string>> members;
    for (int i = 0; i < 60; ++i) {
      members.emplace_back(concat(shard * 60 + i, ".cls"), concat(shard * 60 + i));
    }
    write_file(dir / concat("s", shard, ".tar"), tar_archive(members));
  }
  const std::vector<std::string> shards = {(dir.path() / "s{0..39}.tar").string()};
  const data::TarRecordsOptions options{.shuffle_shards = true, .shuffle_buffer = 2000, .seed = 1};
  State state;
  std::vector<std::int64_t> expected;
  {
    data::TarRecords records(shards, options);
    CHECK(records.skip(380) == 380);
    state = records.state_dict();
    expected = drain(records);
    CHECK(expected.size() == 2020);
  }
  const std::size_t before = num_descriptors();
  data::TarRecords resumed(shards, options);
  resumed.load_state_dict(state);
  CHECK(num_descriptors() <= before + 40);
  CHECK(drain(resumed) == expected);
  CHECK(num_descriptors() <= before + 40);
}

TEST_CASE("tar_records: a name that a record of many members holds twice is found", "[data]") {
  const TempDir dir;
  std::vector<std::pair<std::string, std::string>> members;
  for (int i = 0; i < 200; ++i) {
    members.emplace_back(concat("a.", i), "");
  }
  write_file(dir / "0.tar", tar_archive(members));
  data::TarRecords sound({(dir / "0.tar").string()});
  const auto record = sound.next();
  REQUIRE(record);
  CHECK(record->members().size() == 200);
  for (const int twice : {0, 31, 32, 150, 199}) {
    auto more = members;
    more.emplace_back(concat("a.", twice), "");
    write_file(dir / "1.tar", tar_archive(more));
    data::TarRecords records({(dir / "1.tar").string()});
    CHECK(error_of<danling::DataError>([&] {
            records.next();
          }).starts_with(concat("[data.tar_shards] expected one member '", twice, "' of a key, got two (key 'a', ")));
  }
}

TEST_CASE("tar_records: a state of other shards or options is refused and changes nothing", "[data]") {
  const Numbers numbers;
  const data::TarRecordsOptions options{.shuffle_buffer = 3};
  data::TarRecords records({numbers.pattern()}, options);
  records.skip(6);
  const State state = records.state_dict();
  const auto text = [&](data::TarRecords& other, const State& changed) {
    const State before = other.state_dict();
    const std::string what = error_of<danling::StateError>([&] { other.load_state_dict(changed); });
    CHECK(danling::bitwise_equal(before, other.state_dict()));
    return what;
  };
  data::TarRecords fewer({(numbers.dir.path() / "s{0..3}.tar").string()}, options);
  CHECK(text(fewer, state) == "[data.tar_shards] expected the state of these 4 shards, got one of others");
  data::TarRecords plain({numbers.pattern()});
  CHECK(text(plain, state) == "[data.tar_shards] expected a state with a shuffle_buffer of 0, got 3");
  data::TarRecords shuffled({numbers.pattern()}, {.shuffle_shards = true, .shuffle_buffer = 3});
  CHECK(text(shuffled, state) == "[data.tar_shards] expected a state with shuffle_shards true, got false");
  CHECK(text(records, State()) == "[data.tar_shards] expected the state of a stream of shards, got another kind");
  State far = state;
  far["shard"] = 9;
  CHECK(text(records, far).starts_with("[data.tar_shards] expected a position in 5 shards, got shard 9, offset "));
  far = state;
  far["buffer"] = at::tensor({9, 0}, at::kLong).view({1, 2});
  CHECK(text(records, far) == "[data.tar_shards] expected a place in 5 shards, got shard 9, offset 0");
  // The same shards elsewhere are the same.
  const TempDir elsewhere;
  for (int i = 0; i < 5; ++i) {
    fs::copy_file(numbers.dir / concat("s", i, ".tar"), elsewhere / concat("s", i, ".tar"));
  }
  data::TarRecords moved({(elsewhere.path() / "s{0..4}.tar").string()}, options);
  moved.load_state_dict(state);
  CHECK(drain(moved) == drain(records));
}

}  // namespace tar_shards_test

}  // namespace
