#include <danling/data/datasets/image_folder.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>
#include <danling/data/loader.hpp>

#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

namespace image_folder_test {

namespace data = danling::data;
namespace fs = std::filesystem;
using danling::detail::concat;
using danling_test::error_of;
using danling_test::TempDir;
using danling_test::write_file;
using nlohmann::json;

#ifdef DANLING_WITH_IMAGES

std::string from_hex(const std::string& digits) {
  std::string out;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    out.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return out;
}

/// One image of tests/golden/images.py, with what PIL makes of it.
const json& golden(const std::string& name) {
  static const json cases =
      json::parse(danling_test::read_file(std::string(DANLING_SOURCE_DIR) + "/tests/golden/data/images.json"));
  for (const auto& item : cases) {
    if (item["name"] == name) {
      return item;
    }
  }
  FAIL("no image " << name);
  return cases;
}

std::string file(const std::string& name) { return from_hex(golden(name)["file"]); }

/// [C, H, W] of pixels row by row.
at::Tensor tensor(const std::string& pixels, std::int64_t height, std::int64_t width) {
  const auto channels = static_cast<std::int64_t>(pixels.size()) / (height * width);
  return at::from_blob(const_cast<char*>(pixels.data()), {height, width, channels}, at::kByte)
      .permute({2, 0, 1})
      .contiguous();
}

int most_different(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  return (a.to(at::kInt) - b.to(at::kInt)).abs().max().item<int>();
}

data::BatchInfo info_of(std::vector<std::int64_t> indices, std::uint64_t seed = 0) {
  data::BatchInfo info;
  info.indices = std::move(indices);
  info.epoch_key = data::RandomKey::of(seed);
  return info;
}

TEST_CASE("image_tensor: pixels of the file as [C, H, W]", "[data]") {
  const auto& item = golden("rgb8.png");
  CHECK(at::equal(data::image_tensor(file("rgb8.png")), tensor(from_hex(item["rgb"]), 11, 18)));
  CHECK(data::image_tensor(file("gray_alpha8.png")).sizes() == at::IntArrayRef({2, 11, 18}));
  CHECK(data::image_tensor(file("gray.jpg"), {.channels = danling::formats::ImageChannels::rgb}).size(0) == 3);
}

TEST_CASE("resize_image: equals PIL's antialiased bilinear within one level, larger and smaller", "[data]") {
  const at::Tensor image = data::image_tensor(file("rgb8.png"));
  const auto& resized = golden("rgb8.png")["resized"];
  for (const auto& item : resized) {
    const std::int64_t height = item["height"];
    const std::int64_t width = item["width"];
    INFO(height << "x" << width);
    const at::Tensor expected = tensor(from_hex(item["pixels"]), height, width);
    CHECK(most_different(data::resize_image(image, data::ImageSize{height, width}), expected) <= 1);
    CHECK(most_different(data::resize_image(image.contiguous(), data::ImageSize{height, width}), expected) <= 1);
  }
  // The longer edge is cut off: 6 * 18 / 11 = 9.8.
  CHECK(at::equal(data::resize_image(image, 6), data::resize_image(image, data::ImageSize{6, 9})));
  CHECK(data::resize_image(image.transpose(1, 2), 6).sizes() == at::IntArrayRef({3, 9, 6}));
  CHECK(data::resize_image(image, 11).is_same(image));
}

TEST_CASE("center_crop_image: rounds halves to even as torchvision, and pads what is too small", "[data]") {
  const at::Tensor image = at::arange(5 * 7, at::kByte).view({1, 5, 7});
  const auto corner = [&](std::int64_t height, std::int64_t width) {
    return data::center_crop_image(image, {height, width})[0][0][0].item<int>();
  };
  CHECK(corner(5, 7) == 0);
  CHECK(corner(4, 7) == 0);      // (5 - 4) / 2 = 0.5 -> 0
  CHECK(corner(2, 7) == 2 * 7);  // 1.5 -> 2
  CHECK(corner(5, 2) == 2);      // 2.5 -> 2
  CHECK(corner(3, 3) == 1 * 7 + 2);
  const at::Tensor padded = data::center_crop_image(image, {8, 7});
  CHECK(padded.sizes() == at::IntArrayRef({1, 8, 7}));
  CHECK(at::equal(padded.narrow(1, 1, 5), image));  // 3 / 2 rows above, the rest below
  CHECK(padded.narrow(1, 6, 2).sum().item<int>() == 0);
}

TEST_CASE("random_resized_crop_image: depends on the key only, and keeps to area and ratio", "[data]") {
  // A pixel's value is its place, so that the crop can be read off its corners.
  const at::Tensor rows = at::arange(40, at::kByte).view({1, 40, 1}).expand({1, 40, 50});
  const at::Tensor columns = at::arange(50, at::kByte).view({1, 1, 50}).expand({1, 40, 50});
  const data::RandomResizedCrop crop{.size = {64, 64}, .min_scale = 0.2, .max_scale = 0.5};
  std::set<std::pair<int, int>> corners;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const data::Random random(data::RandomKey::of(seed));
    const at::Tensor down = data::random_resized_crop_image(rows, crop, random);
    const at::Tensor across = data::random_resized_crop_image(columns, crop, random);
    CHECK(down.sizes() == at::IntArrayRef({1, 64, 64}));
    CHECK(at::equal(down, data::random_resized_crop_image(rows, crop, random)));
    const int top = down[0][0][0].item<int>();
    const int left = across[0][0][0].item<int>();
    const double height = down[0][63][0].item<int>() - top + 1;
    const double width = across[0][0][63].item<int>() - left + 1;
    const double area = height * width / (40 * 50);
    CHECK(area > 0.2 - 0.05);
    CHECK(area < 0.5 + 0.05);
    CHECK(width / height > 0.75 - 0.1);
    CHECK(width / height < 4.0 / 3.0 + 0.1);
    corners.emplace(top, left);
  }
  CHECK(corners.size() > 100);
  // No part of this ratio fits: the largest one in the middle.
  const at::Tensor wide = at::arange(90, at::kByte).view({1, 1, 90}).expand({1, 3, 90});
  const at::Tensor middle = data::random_resized_crop_image(wide, {.size = {3, 4}, .min_scale = 0.9, .max_scale = 1},
                                                            data::Random(data::RandomKey::of(0)));
  CHECK(at::equal(middle, wide.narrow(2, 43, 4)));
}

struct Folder {
  TempDir dir;
  Folder() {
    write_file(dir / "cat" / "b.PNG", file("rgb8.png"));
    write_file(dir / "cat" / "a.jpg", file("rgb_420.jpg"));
    write_file(dir / "cat" / "deep" / "er" / "c.jpeg", file("gray.jpg"));
    write_file(dir / "cat" / "deep-1" / "d.png", file("gray8.png"));
    write_file(dir / "cat" / "notes.txt", "no image");
    write_file(dir / "cat" / ".hidden.png", "no image");
    write_file(dir / "bird" / "z.png", file("rgba8.png"));
    write_file(dir / ".git" / "z.png", "no class");
    write_file(dir / "top.png", "in no class");
  }
};

TEST_CASE("image_folder: classes, files and targets in torchvision's order", "[data]") {
  const Folder folder;
  const auto images = data::image_folder(folder.dir.path(), {.split = "train"});
  CHECK(images->classes() == std::vector<std::string>{"bird", "cat"});
  CHECK(images->class_to_idx() == std::map<std::string, std::int64_t>{{"bird", 0}, {"cat", 1}});
  CHECK(images->split() == "train");
  CHECK(images->train());
  // Directories by their whole paths, where '-' comes before '/': deep-1, then deep/er.
  const std::vector<std::string> expected = {"bird/z.png", "cat/a.jpg", "cat/b.PNG", "cat/deep-1/d.png",
                                             "cat/deep/er/c.jpeg"};
  REQUIRE(images->size() == 5);
  for (std::int64_t i = 0; i < 5; ++i) {
    CHECK(images->path(i) == folder.dir / expected[static_cast<std::size_t>(i)]);
    CHECK(images->target(i) == (i == 0 ? 0 : 1));
  }
  CHECK(at::equal(images->targets(), at::arange(5, at::kLong).clamp_max(1)));
  CHECK(images->source_info(3).at("path").string() == (folder.dir / "cat/deep-1/d.png").string());
  CHECK(images->source_info(3).at("class").string() == "cat");
  CHECK(images->entry_key(3) == "cat/deep-1/d.png");
  CHECK(error_of<danling::DataError>([&] { images->path(5); }) ==
        "[data.image_folder] expected an index in [0, 5), got 5");
}

TEST_CASE("image_folder: batches of decoded images through a loader, whatever their kind", "[data]") {
  const Folder folder;
  data::Loader<data::Batch> loader(data::image_folder(folder.dir.path()), {.batch_size = 5});
  loader.start_epoch(0);
  REQUIRE(loader.next());
  const data::Batch& batch = loader.batch();
  CHECK(batch.input.sizes() == at::IntArrayRef({5, 3, 11, 18}));
  CHECK(batch.input.scalar_type() == at::kByte);
  CHECK(batch.input.is_contiguous());
  CHECK(batch.target.scalar_type() == at::kLong);
  CHECK(batch.target.sum().item<int>() == 4);
  CHECK(at::equal(batch.input[0], tensor(from_hex(golden("rgba8.png")["rgb"]), 11, 18)));
  CHECK(at::equal(batch.input[2], tensor(from_hex(golden("rgb8.png")["rgb"]), 11, 18)));
  CHECK(most_different(batch.input[1], tensor(from_hex(golden("rgb_420.jpg")["rgb"]), 11, 18)) <= 2);
}

TEST_CASE("image_folder: sizes, crops and transforms are applied, keyed to the sample", "[data]") {
  const Folder folder;
  std::atomic<int> calls = 0;
  data::ImageFolderOptions options;
  options.image.resize = 6;
  options.image.center_crop = data::ImageSize{6, 6};
  options.image.transform = [&](const at::Tensor& image, const data::SampleInfo& info) {
    ++calls;
    return image.to(at::kFloat) + static_cast<double>(info.index());
  };
  const auto images = data::image_folder(folder.dir.path(), options);
  const data::Batch batch = images->get_batch(std::vector<std::int64_t>{2, 0});
  CHECK(calls == 2);
  const at::Tensor expected =
      data::center_crop_image(data::resize_image(data::image_tensor(file("rgb8.png")), 6), {6, 6}).to(at::kFloat) + 2;
  CHECK(at::equal(batch.input[0], expected));

  options = {};
  options.image.random_resized_crop = data::RandomResizedCrop{.size = {8, 8}, .min_scale = 0.3};
  const auto crops = data::image_folder(folder.dir.path(), options);
  const auto read = [&](std::vector<std::int64_t> indices, std::uint64_t seed) {
    const auto info = info_of(indices, seed);
    return crops->read(indices, info).input;
  };
  CHECK(at::equal(read({1, 2}, 7)[1], read({2}, 7)[0]));
  CHECK_FALSE(at::equal(read({2}, 7), read({2}, 8)));
}

TEST_CASE("image_folder: several threads read at a time", "[data]") {
  const Folder folder;
  const auto images = data::image_folder(folder.dir.path());
  const std::vector<std::int64_t> all = {0, 1, 2, 3, 4};
  const at::Tensor expected = images->get_batch(all).input;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 30; ++i) {
        wrong += !at::equal(images->read(all, info_of(all)).input, expected);
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  CHECK(wrong == 0);
}

TEST_CASE("image_folder: images of several sizes in a batch are an error that says what to do", "[data]") {
  const TempDir dir;
  write_file(dir / "a" / "1.png", file("rgb8.png"));
  write_file(dir / "a" / "2.png", file("rgb8_turned.png"));
  data::ImageFolderOptions options;
  options.image.decode.apply_orientation = true;
  const auto images = data::image_folder(dir.path(), options);
  CHECK(
      error_of<danling::DataError>([&] { images->get_batch(std::vector<std::int64_t>{0, 1}); }) ==
      "[data.image] expected images of one size in a batch, got [3, 11, 18] in sample 0 and [3, 18, 11] in sample 1: "
      "set resize_to, random_resized_crop, or resize with center_crop in the options of images, which is record 1 with "
      "uuid 'a/2.png'");
}

TEST_CASE("image_folder: a file that is no image, cannot be read or is gone is named with its record", "[data]") {
  const TempDir dir;
  write_file(dir / "a" / "1.png", "<html>");
  write_file(dir / "a" / "2.jpg", file("gray.jpg").substr(0, 400));
  REQUIRE(::mkfifo((dir / "a/3.png").c_str(), 0600) == 0);
  fs::create_symlink(dir / "nowhere", dir / "a/4.png");
  const auto images = data::image_folder(dir.path());
  REQUIRE(images->size() == 4);
  const auto text = [&](std::int64_t index) {
    return error_of<danling::DataError>([&] { images->get_batch(std::vector<std::int64_t>{index}); });
  };
  const auto named = [&](const std::string& name) { return danling::detail::quote((dir / "a" / name).string()); };
  CHECK(text(0) == concat("[formats.image] expected a JPEG or PNG image, got HTML or XML (file ", named("1.png"),
                          "); while reading record 0"));
  CHECK(text(1) == concat("[formats.image] expected a sound JPEG, got: it ends early (near byte 400 of 400) (file ",
                          named("2.jpg"), "); while reading record 1"));
  CHECK(text(2) == concat("[data.image_folder] expected a readable file, got ", named("3.png"),
                          ": it is not a regular file; while reading record 2"));
  CHECK(text(3) == concat("[data.image_folder] expected a readable file, got ", named("4.png"),
                          ": No such file or directory; while reading record 3"));
}

#endif

std::string refusal(const fs::path& root, const data::ImageFolderOptions& options = {}) {
  return error_of<danling::DataError>([&] { data::image_folder(root, options); });
}

TEST_CASE("image_folder: directories that make no classes are refused by name", "[data]") {
  const TempDir dir;
  const auto quoted = [&](const std::string& name) { return danling::detail::quote((dir.path() / name).string()); };
  CHECK(refusal(dir / "missing") == concat("[data.image_folder] expected a readable directory, got ", quoted("missing"),
                                           ": No such file or directory"));
  CHECK(refusal(dir.path()) == concat("[data.image_folder] expected a directory for each class in ",
                                      danling::detail::quote(dir.path().string()), ", got none"));
  write_file(dir / "a" / "1.png", "");
  write_file(dir / "b" / "1.txt", "");
  CHECK(refusal(dir.path()) == concat("[data.image_folder] expected images (.jpg, .jpeg, .png) in each class, got none "
                                      "in ",
                                      quoted("b"), ": remove it, or set allow_empty"));
  CHECK(data::image_folder(dir.path(), {.allow_empty = true})->size() == 1);
  CHECK(data::image_folder(dir.path(), {.allow_empty = true})->classes().size() == 2);
  CHECK(data::image_folder(dir.path(), {.extensions = {{".TXT", ".png"}}})->size() == 2);
  write_file(dir / "b" / "x.WebP", "");
  CHECK(refusal(dir.path()) == concat("[data.image_folder] expected JPEG and PNG images, got ", quoted("b/x.WebP"),
                                      ": convert it, or list the extensions to read in `extensions`"));
}

#ifdef DANLING_WITH_IMAGES

TEST_CASE("image_folder: of a file that is no image only the first bytes are read", "[data]") {
  const TempDir dir;
  write_file(dir / "a" / "1.jpg", "");
  fs::resize_file(dir / "a" / "1.jpg", std::uintmax_t{1} << 40);  // sparse; no machine has memory for it
  const auto images = data::image_folder(dir.path());
  CHECK(error_of<danling::DataError>([&] { images->get_batch(std::vector<std::int64_t>{0}); })
            .starts_with(concat("[formats.image] expected a JPEG or PNG image, got bytes that begin with 00 00 00 00 "
                                "(file ",
                                danling::detail::quote((dir / "a" / "1.jpg").string()), ")")));
}

#endif

TEST_CASE("image_folder: links are followed, and one that leads back up is refused", "[data]") {
  const TempDir dir;
  write_file(dir / "elsewhere" / "1.png", "");
  fs::create_directories(dir / "root");
  fs::create_directory_symlink(dir / "elsewhere", dir / "root/a");
  fs::create_directory_symlink(dir / "elsewhere", dir / "root/b");
  CHECK(data::image_folder(dir / "root")->size() == 2);
  // A directory that is called like an image is a directory.
  write_file(dir / "elsewhere" / "dir.png" / "2.png", "");
  CHECK(data::image_folder(dir / "root")->size() == 4);
  fs::create_directory_symlink(dir / "root", dir / "elsewhere/dir.png/up");
  CHECK(refusal(dir / "root") == concat("[data.image_folder] expected directories without a cycle, got ",
                                        danling::detail::quote((dir / "root/a/dir.png/up/a").string()),
                                        ", a link to a directory that contains it"));
}

TEST_CASE("image_folder: options that exclude each other or make no sense are refused", "[data]") {
  const TempDir dir;
  write_file(dir / "a" / "1.png", "");
  const auto text = [&](const data::ImageFolderOptions& options) {
    return error_of<danling::ConfigError>([&] { data::image_folder(dir.path(), options); });
  };
  data::ImageFolderOptions options;
  options.image.resize = 4;
  options.image.resize_to = data::ImageSize{4, 4};
  CHECK(text(options) == "[data.image] expected resize or resize_to, got both");
  options.image = {.random_resized_crop = data::RandomResizedCrop{.size = {4, 0}}};
  CHECK(text(options) == "[data.image] expected random_resized_crop.size above 0, got 4x0");
  options.image.random_resized_crop->size = {4, 4};
  options.image.random_resized_crop->min_scale = 2;
  CHECK(text(options) == "[data.image] expected scales 0 < min_scale <= max_scale <= 1, got 2.0 and 1.0");
  options.image.center_crop = data::ImageSize{4, 4};
  CHECK(text(options) == "[data.image] expected random_resized_crop alone, got resize, resize_to or center_crop too");
  CHECK(text({.extensions = {{"png"}}}) ==
        "[data.image_folder] expected extensions that begin with a dot, such as '.jpg', got 'png'");
  CHECK(text({.extensions = std::vector<std::string>()}) ==
        "[data.image_folder] expected at least one extension, got none");
}

}  // namespace image_folder_test

}  // namespace
