// Copies pixels between images: crops, margins, flips.
#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/where.h>

#include <data/kernels.hpp>
#include <data/transforms/images.hpp>

namespace danling::inline v0::data::transforms::detail {

namespace {

using Bytes = std::byte;

// One plane of an image, with rows `row_bytes` apart.
struct Plane {
  const Bytes* pixels;
  std::int64_t row_bytes;
  std::int64_t item;  // in bytes
  const Bytes* fill;
};

bool fills(const Runs& runs) {
  return std::any_of(runs.begin(), runs.end(), [](const Run& run) { return run.from < 0; });
}

void write_plane(const Plane& plane, const Window& window, Size size, Bytes* out) {
  const std::int64_t row_bytes = size.width * plane.item;
  kernels::Block block = {};
  block.to_stride = row_bytes;
  block.item = static_cast<std::size_t>(plane.item);
  const auto fill = [&](std::int64_t to, std::int64_t rows) {
    block.from = plane.fill;
    block.to = out + to * row_bytes;
    block.rows = 1;
    block.count = static_cast<std::size_t>(rows * size.width);
    block.step = 0;
    kernels::copy(block);
  };
  const bool margins = fills(window.columns);
  if (margins) {  // one pass over the image costs less than a few pixels in each row
    fill(0, size.height);
  }
  for (const Run& rows : window.rows) {
    if (rows.from < 0) {
      if (!margins) {
        fill(rows.to, rows.count);
      }
      continue;
    }
    for (const Run& columns : window.columns) {
      if (columns.from >= 0) {
        block.from = plane.pixels + rows.from * plane.row_bytes + columns.from * plane.item;
        block.from_stride = rows.step * plane.row_bytes;
        block.to = out + rows.to * row_bytes + columns.to * plane.item;
        block.rows = static_cast<std::size_t>(rows.count);
        block.count = static_cast<std::size_t>(columns.count);
        block.step = columns.step;
        kernels::copy(block);
      }
    }
  }
}

void write_indices(const Runs& runs, std::int64_t* out) {
  for (const Run& run : runs) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      out[run.to + i] = run.from < 0 ? -1 : run.from + i * run.step;
    }
  }
}

}  // namespace

Runs window(std::int64_t size, std::int64_t begin, std::int64_t count, PaddingMode mode) {
  const std::int64_t inside = std::clamp<std::int64_t>(-begin, 0, count);
  const std::int64_t after = std::clamp<std::int64_t>(size - begin, inside, count);
  // Returns the first pixel outside the line on either side by `mode`, and the direction from there.
  const auto outside = [&](std::int64_t at, std::int64_t end, bool left) -> Run {
    switch (mode) {
      case PaddingMode::edge:
        return {at, end - at, left ? 0 : size - 1, 0};
      case PaddingMode::reflect:
        return {at, end - at, left ? -(begin + at) : 2 * (size - 1) - (begin + at), -1};
      case PaddingMode::symmetric:
        return {at, end - at, left ? -(begin + at) - 1 : 2 * size - 1 - (begin + at), -1};
      case PaddingMode::constant:
        break;
    }
    return {at, end - at, -1, 0};
  };
  Runs runs;
  if (inside > 0) {
    runs.push_back(outside(0, inside, true));
  }
  if (after > inside) {
    runs.push_back({inside, after - inside, begin + inside, 1});
  }
  if (count > after) {
    runs.push_back(outside(after, count, false));
  }
  return runs;
}

Runs reversed(const Runs& runs, std::int64_t count) {
  Runs out;
  for (const Run& run : runs) {
    const std::int64_t last = run.from < 0 ? -1 : run.from + run.step * (run.count - 1);
    out.push_back({count - run.to - run.count, run.count, last, -run.step});
  }
  return out;
}

at::Tensor remap(const at::Tensor& images, Size size, std::span<const Window> windows, const at::Tensor& fill) {
  const auto item = static_cast<std::int64_t>(images.itemsize());
  if (!images.is_cpu()) {
    return remap_on_device(images, size, windows, fill);
  }
  const at::Tensor from = images.stride(3) == 1 || images.size(3) == 1 ? images : images.contiguous();
  at::Tensor out = at::empty({images.size(0), images.size(1), size.height, size.width}, images.options());
  const auto* pixels = static_cast<const Bytes*>(from.const_data_ptr());
  const auto* fills_from = static_cast<const Bytes*>(fill.const_data_ptr());
  auto* to = static_cast<Bytes*>(out.mutable_data_ptr());
  const std::int64_t plane_bytes = size.height * size.width * item;
  for (std::int64_t n = 0; n < from.size(0); ++n) {
    const Window& taken = windows[windows.size() == 1 ? 0 : static_cast<std::size_t>(n)];
    for (std::int64_t c = 0; c < from.size(1); ++c) {
      const Plane plane = {pixels + (n * from.stride(0) + c * from.stride(1)) * item, from.stride(2) * item, item,
                           fills_from + (fill.numel() == 1 ? 0 : c) * item};
      write_plane(plane, taken, size, to);
      to += plane_bytes;
    }
  }
  return out;
}

at::Tensor remap_on_device(const at::Tensor& images, Size size, std::span<const Window> windows,
                           const at::Tensor& fill) {
  if (images.numel() == 0) {
    return at::empty({images.size(0), images.size(1), size.height, size.width}, images.options());
  }
  const auto count = static_cast<std::int64_t>(windows.size());
  at::Tensor lines = empty_for({count, size.height + size.width}, at::kLong, images.device());
  bool filled = false;
  for (std::int64_t i = 0; i < count; ++i) {
    const Window& taken = windows[static_cast<std::size_t>(i)];
    auto* line = lines.mutable_data_ptr<std::int64_t>() + i * (size.height + size.width);
    write_indices(taken.rows, line);
    write_indices(taken.columns, line + size.height);
    filled = filled || fills(taken.rows) || fills(taken.columns);
  }
  lines = lines.to(images.device(), /*non_blocking=*/true);
  const at::Tensor rows = lines.narrow(1, 0, size.height).unsqueeze(2);
  const at::Tensor columns = lines.narrow(1, size.height, size.width).unsqueeze(1);
  at::Tensor pixels = (rows.clamp_min(0) * images.size(3) + columns.clamp_min(0)).view({count, 1, -1});
  pixels = pixels.expand({images.size(0), images.size(1), -1});
  at::Tensor out = at::gather(images.flatten(2), 2, pixels);
  out = out.view({images.size(0), images.size(1), size.height, size.width});
  if (filled) {
    at::Tensor value = empty_for({1, fill.numel(), 1, 1}, images.scalar_type(), images.device());
    value.copy_(fill.view({1, -1, 1, 1}));
    out = at::where(((rows >= 0) & (columns >= 0)).unsqueeze(1), out, value.to(images.device(), true));
  }
  return out;
}

}  // namespace danling::inline v0::data::transforms::detail
