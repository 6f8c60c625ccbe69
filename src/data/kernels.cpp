// Compiled with -ffp-contract=off: otherwise the compiler may fuse a product and a sum, which rounds only once.
#include <data/kernels.hpp>

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#define DANLING_TARGET(name) __attribute__((target(name)))
#else
#define DANLING_TARGET(name)
#endif

namespace danling::inline v0::data::kernels {

namespace {

// The loops are compiled for several instruction sets and selected at run time: a build for any x86-64 has only vectors
// of 16 bytes, which convert bytes three times slower.
template <class From>
[[gnu::always_inline]] inline void affine_loop(const From* __restrict from, float* __restrict to, std::size_t count,
                                               float scale, float shift) {
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = static_cast<float>(from[i]) * scale + shift;
  }
}

[[gnu::always_inline]] inline void normalize_loop(const std::uint8_t* __restrict from, float* __restrict to,
                                                  std::size_t count, float scale, float mean, float std) {
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = (static_cast<float>(from[i]) * scale - mean) / std;
  }
}

[[gnu::always_inline]] inline void normalize_loop(const float* __restrict from, float* __restrict to, std::size_t count,
                                                  float mean, float std) {
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = (from[i] - mean) / std;
  }
}

template <class T>
[[gnu::always_inline]] inline void reverse_row(const T* __restrict from, T* __restrict to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = from[count - 1 - i];
  }
}

template <class T>
[[gnu::always_inline]] inline void reverse_loop(const Block& block) {
  const std::byte* from = block.from - static_cast<std::ptrdiff_t>((block.count - 1) * sizeof(T));
  std::byte* to = block.to;
  for (std::size_t row = 0; row < block.rows; ++row, from += block.from_stride, to += block.to_stride) {
    reverse_row(reinterpret_cast<const T*>(from), reinterpret_cast<T*>(to), block.count);
  }
}

template <class T>
[[gnu::always_inline]] inline void repeat_loop(const Block& block) {
  const std::byte* from = block.from;
  std::byte* to = block.to;
  for (std::size_t row = 0; row < block.rows; ++row, from += block.from_stride, to += block.to_stride) {
    std::fill_n(reinterpret_cast<T*>(to), block.count, *reinterpret_cast<const T*>(from));
  }
}

// Rows of a shuffled order are scattered: prefetches a few kilobytes ahead, so that the loop does not wait for the
// first lines of each row. This also helps with rows in order.
constexpr std::size_t piece_bytes = 1024;
constexpr std::size_t pieces_ahead = 8;

// Calls `copy(from, count, to)` for the rows of `indices` in pieces: copies `count` numbers at `from` to position `to`.
template <class T, class Copy>
[[gnu::always_inline]] inline void each_piece(const T* base, std::size_t row_size,
                                              std::span<const std::int64_t> indices, const Copy& copy) {
  const std::size_t piece = std::min(row_size, piece_bytes / sizeof(T));
  struct Place {
    std::size_t row = 0;
    std::size_t begin = 0;
  };
  const auto at = [&](Place place) __attribute__((always_inline)) {
    return base + static_cast<std::size_t>(indices[place.row]) * row_size + place.begin;
  };
  const auto count = [&](Place place)
                         __attribute__((always_inline)) { return std::min(piece, row_size - place.begin); };
  const auto advance = [&](Place& place) __attribute__((always_inline)) {
    place.begin += piece;
    if (place.begin >= row_size) {
      place = {place.row + 1, 0};
    }
  };
  const auto prefetch = [&](Place& place) __attribute__((always_inline)) {
    if (place.row < indices.size()) {
      const auto* bytes = reinterpret_cast<const char*>(at(place));
      for (std::size_t i = 0; i < count(place) * sizeof(T); i += 64) {
        __builtin_prefetch(bytes + i);
      }
      advance(place);
    }
  };
  Place ahead;
  for (std::size_t i = 0; i < pieces_ahead; ++i) {
    prefetch(ahead);
  }
  for (Place place; place.row < indices.size(); advance(place)) {
    prefetch(ahead);
    copy(at(place), count(place), place.row * row_size + place.begin);
  }
}

template <class From>
[[gnu::always_inline]] inline void gather_affine_loop(const From* base, std::size_t row_size,
                                                      std::span<const std::int64_t> indices, float* to, float scale,
                                                      float shift) {
  each_piece(base, row_size, indices,
             [&](const From* from, std::size_t count, std::size_t place)
                 __attribute__((always_inline)) { affine_loop(from, to + place, count, scale, shift); });
}

enum class Level { any, avx2, avx512 };

Level detect() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    return Level::avx512;
  }
  return __builtin_cpu_supports("avx2") ? Level::avx2 : Level::any;
#else
  return Level::any;
#endif
}

const Level level = detect();

// Runs the variant of `Loop` for this machine.
struct Affine {
  template <class... A>
  [[gnu::always_inline]] static void run(A... a) {
    affine_loop(a...);
  }
};
struct GatherAffine {
  template <class... A>
  [[gnu::always_inline]] static void run(A... a) {
    gather_affine_loop(a...);
  }
};
struct Normalize {
  template <class... A>
  [[gnu::always_inline]] static void run(A... a) {
    normalize_loop(a...);
  }
};
template <class T>
struct Reverse {
  [[gnu::always_inline]] static void run(const Block* block) { reverse_loop<T>(*block); }
};
template <class T>
struct Repeat {
  [[gnu::always_inline]] static void run(const Block* block) { repeat_loop<T>(*block); }
};

template <class Loop, class... A>
DANLING_TARGET("avx512f,avx512bw,avx512vl,prefer-vector-width=512")
void run_avx512(A... a) {
  Loop::run(a...);
}
template <class Loop, class... A>
DANLING_TARGET("avx2")
void run_avx2(A... a) {
  Loop::run(a...);
}
template <class Loop, class... A>
[[gnu::always_inline]] inline void dispatch(A... a) {
  switch (level) {
    case Level::avx512:
      return run_avx512<Loop>(a...);
    case Level::avx2:
      return run_avx2<Loop>(a...);
    case Level::any:
      return Loop::run(a...);
  }
}

template <class T>
void gather_items(const std::byte* base, std::span<const std::int64_t> indices, std::byte* to) {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    std::memcpy(to + i * sizeof(T), base + static_cast<std::size_t>(indices[i]) * sizeof(T), sizeof(T));
  }
}

struct Wide {
  std::uint64_t low;
  std::uint64_t high;
};

template <template <class> class Loop>
void for_item(const Block& block) {
  switch (block.item) {
    case 1:
      return dispatch<Loop<std::uint8_t>>(&block);
    case 2:
      return dispatch<Loop<std::uint16_t>>(&block);
    case 4:
      return dispatch<Loop<std::uint32_t>>(&block);
    case 8:
      return dispatch<Loop<std::uint64_t>>(&block);
    default:
      return dispatch<Loop<Wide>>(&block);
  }
}

}  // namespace

void affine(const std::uint8_t* from, float* to, std::size_t count, float scale, float shift) {
  dispatch<Affine>(from, to, count, scale, shift);
}
void affine(const float* from, float* to, std::size_t count, float scale, float shift) {
  dispatch<Affine>(from, to, count, scale, shift);
}

void normalize(const std::uint8_t* from, float* to, std::size_t count, float scale, float mean, float std) {
  dispatch<Normalize>(from, to, count, scale, mean, std);
}
void normalize(const float* from, float* to, std::size_t count, float mean, float std) {
  dispatch<Normalize>(from, to, count, mean, std);
}

void gather_affine(const std::uint8_t* base, std::size_t row_size, std::span<const std::int64_t> indices, float* to,
                   float scale, float shift) {
  dispatch<GatherAffine>(base, row_size, indices, to, scale, shift);
}
void gather_affine(const float* base, std::size_t row_size, std::span<const std::int64_t> indices, float* to,
                   float scale, float shift) {
  dispatch<GatherAffine>(base, row_size, indices, to, scale, shift);
}

void gather(const std::byte* base, std::size_t row_bytes, std::span<const std::int64_t> indices, std::byte* to) {
  switch (row_bytes) {
    case 1:
      return gather_items<std::uint8_t>(base, indices, to);
    case 4:
      return gather_items<std::uint32_t>(base, indices, to);
    case 8:
      return gather_items<std::uint64_t>(base, indices, to);
    default:
      each_piece(base, row_bytes, indices, [&](const std::byte* from, std::size_t count, std::size_t place) {
        std::memcpy(to + place, from, count);
      });
  }
}

void copy(const Block& block) {
  if (block.step == 0) {
    return for_item<Repeat>(block);
  }
  if (block.step < 0) {
    return for_item<Reverse>(block);
  }
  const std::size_t bytes = block.count * block.item;
  if (static_cast<std::ptrdiff_t>(bytes) == block.from_stride && block.from_stride == block.to_stride) {
    std::memcpy(block.to, block.from, block.rows * bytes);
    return;
  }
  for (std::size_t row = 0; row < block.rows; ++row) {
    const auto offset = static_cast<std::ptrdiff_t>(row);
    std::memcpy(block.to + offset * block.to_stride, block.from + offset * block.from_stride, bytes);
  }
}

}  // namespace danling::inline v0::data::kernels
