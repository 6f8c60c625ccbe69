// The images: a directory per class. Where there are none, the program draws shapes to begin with.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <danling/data/datasets/image_folder.hpp>
#include <danling/formats/image.hpp>
#include <danling/workspace/files.hpp>

/// Writes `count` gray images of 32 x 32 pixels per class to `folder`/disc, `folder`/square and `folder`/triangle.
inline void draw_shapes(const std::filesystem::path& folder, int count, unsigned seed) {
  std::mt19937 random(seed);
  const auto draw = [&](int from, int to) {
    return from + static_cast<int>(random() % static_cast<unsigned>(to - from));
  };
  for (const std::string name : {"disc", "square", "triangle"}) {
    std::filesystem::create_directories(folder / name);
    for (int i = 0; i < count; ++i) {
      const int radius = draw(6, 11), left = draw(11, 21), top = draw(11, 21), light = draw(150, 256);
      std::vector<std::byte> pixels;
      for (int y = -top; y < 32 - top; ++y) {
        for (int x = -left; x < 32 - left; ++x) {
          const bool inside = name == "disc"     ? x * x + y * y < radius * radius
                              : name == "square" ? std::max(std::abs(x), std::abs(y)) < radius
                                                 : y < radius && 2 * std::abs(x) < y + radius;
          pixels.push_back(static_cast<std::byte>(inside ? light : draw(0, 100)));
        }
      }
      danling::write_atomic(folder / name / (std::to_string(i) + ".png"),
                            danling::formats::encode_png(pixels, 32, 32, 1));
    }
  }
}

/// Part "train" or "val" of the images in `root`, gray. Training images are cropped at random.
inline std::shared_ptr<danling::data::ImageFolder> images(const std::filesystem::path& root, const std::string& part,
                                                          std::int64_t size) {
  if (!std::filesystem::exists(root / part)) {
    draw_shapes(root / part, part == "train" ? 200 : 50, part == "train" ? 1 : 2);
  }
  danling::data::ImageOptions options{.decode = {.channels = danling::formats::ImageChannels::gray}};
  if (part == "train") {
    options.random_resized_crop = {.size = {size, size}, .min_scale = 0.8};
  } else {
    options.resize_to = {size, size};
  }
  return danling::data::image_folder(root / part, {.image = options});
}
