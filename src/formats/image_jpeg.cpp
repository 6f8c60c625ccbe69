// Decodes JPEG images by the interface that libjpeg and libjpeg-turbo share.
#ifdef DANLING_WITH_IMAGES

#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <vector>

#include <jpeglib.h>
// Must follow jpeglib.h.
#include <jerror.h>

#include <formats/image_codec.hpp>

namespace danling::inline v0::formats {
namespace {

// A Huffman code has at least one bit; each 8x8 block of the full-resolution component has at least one code.
constexpr std::uint64_t most_pixels_per_byte = std::uint64_t{8} * 64;
// A progressive image has about ten scans. Each costs a pass over all blocks, even if it has few bytes.
constexpr int max_scans = 200;
constexpr int exif_marker = JPEG_APP0 + 1;
constexpr std::string_view exif_head("Exif\0\0", 6);

/// libjpeg's objects. Errors store their text in `message` and jump to `jump`; functions that set `jump` own no
/// resources.
struct JpegState {
  jpeg_decompress_struct decompress{};
  jpeg_error_mgr errors{};
  jpeg_source_mgr source{};
  jpeg_progress_mgr progress{};
  std::jmp_buf jump{};
  std::array<char, JMSG_LENGTH_MAX> message{};
  bool accept_damaged = false;
  bool at_end = false;

  JpegState() = default;
  ~JpegState() { jpeg_destroy_decompress(&decompress); }
  JpegState(const JpegState&) = delete;
  JpegState& operator=(const JpegState&) = delete;
};

JpegState& state_of(j_common_ptr common) { return *static_cast<JpegState*>(common->client_data); }

extern "C" {

void jpeg_failed(j_common_ptr common) {
  JpegState& state = state_of(common);
  common->err->format_message(common, state.message.data());
  std::longjmp(state.jump, 1);
}

// Returns true for warnings that lose no pixels: stray bytes, and markers of unknown versions. Many cameras and
// programs write such files.
bool is_harmless(int warning) {
  return warning == JWRN_EXTRANEOUS_DATA || warning == JWRN_JFIF_MAJOR || warning == JWRN_ADOBE_XFORM ||
         warning == JWRN_NOT_SEQUENTIAL;
}

// Level -1 is a warning: libjpeg continues.
void jpeg_warned(j_common_ptr common, int level) {
  if (level < 0 && !state_of(common).accept_damaged && !is_harmless(common->err->msg_code)) {
    jpeg_failed(common);
  }
}
void jpeg_prints(j_common_ptr) {}

void source_begins(j_decompress_ptr) {}

// libjpeg got all bytes at the beginning; if it requests more, the file is truncated.
boolean source_has_no_more(j_decompress_ptr decompress) {
  static constexpr std::array<JOCTET, 2> end = {0xff, JPEG_EOI};
  JpegState& state = state_of(reinterpret_cast<j_common_ptr>(decompress));
  state.at_end = true;
  if (!state.accept_damaged) {
    std::snprintf(state.message.data(), state.message.size(), "it ends early");
    std::longjmp(state.jump, 1);
  }
  decompress->src->next_input_byte = end.data();
  decompress->src->bytes_in_buffer = end.size();
  return TRUE;
}

void source_skips(j_decompress_ptr decompress, long count) {
  if (count <= 0) {
    return;
  }
  jpeg_source_mgr& source = *decompress->src;
  if (static_cast<std::size_t>(count) > source.bytes_in_buffer) {
    source_has_no_more(decompress);
    return;
  }
  source.next_input_byte += count;
  source.bytes_in_buffer -= static_cast<std::size_t>(count);
}

void source_ends(j_decompress_ptr) {}

void progress_made(j_common_ptr common) {
  if (reinterpret_cast<j_decompress_ptr>(common)->input_scan_number > max_scans) {
    JpegState& state = state_of(common);
    std::snprintf(state.message.data(), state.message.size(), "more than %d scans", max_scans);
    std::longjmp(state.jump, 1);
  }
}
}  // extern "C"

// Each of the following functions returns false after an error.

bool read_header(JpegState& state, std::string_view bytes, bool save_exif) {
  if (setjmp(state.jump) != 0) {
    return false;
  }
  state.decompress.err = jpeg_std_error(&state.errors);
  state.errors.error_exit = jpeg_failed;
  state.errors.emit_message = jpeg_warned;
  state.errors.output_message = jpeg_prints;
  state.decompress.client_data = &state;
  jpeg_create_decompress(&state.decompress);
  state.source.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
  state.source.bytes_in_buffer = bytes.size();
  state.source.init_source = source_begins;
  state.source.fill_input_buffer = source_has_no_more;
  state.source.skip_input_data = source_skips;
  state.source.resync_to_restart = jpeg_resync_to_restart;
  state.source.term_source = source_ends;
  state.decompress.src = &state.source;
  state.progress.progress_monitor = progress_made;
  state.decompress.progress = &state.progress;
  if (save_exif) {
    jpeg_save_markers(&state.decompress, exif_marker, 0xffff);
  }
  jpeg_read_header(&state.decompress, TRUE);
  return true;
}

bool start(JpegState& state) {
  if (setjmp(state.jump) != 0) {
    return false;
  }
  jpeg_start_decompress(&state.decompress);
  return true;
}

/// Reads rows directly into `out`.
bool read_rows(JpegState& state, std::uint8_t* out, std::size_t row_bytes) {
  if (setjmp(state.jump) != 0) {
    return false;
  }
  while (state.decompress.output_scanline < state.decompress.output_height) {
    JSAMPROW row = out + state.decompress.output_scanline * row_bytes;
    jpeg_read_scanlines(&state.decompress, &row, 1);
  }
  return true;
}

/// Reads each row into `row` and converts it into `out`.
bool convert_rows(JpegState& state, std::uint8_t* row, PixelLayout layout, std::uint8_t* out, std::int64_t width,
                  std::int64_t channels) {
  if (setjmp(state.jump) != 0) {
    return false;
  }
  while (state.decompress.output_scanline < state.decompress.output_height) {
    std::uint8_t* const target =
        out + std::size_t{state.decompress.output_scanline} * static_cast<std::size_t>(width * channels);
    JSAMPROW rows = row;
    jpeg_read_scanlines(&state.decompress, &rows, 1);
    convert_row(row, layout, width, channels, target);
  }
  return true;
}

/// Reads to the end marker, to detect missing or damaged data behind the last row.
bool finish(JpegState& state) {
  if (setjmp(state.jump) != 0) {
    return false;
  }
  jpeg_finish_decompress(&state.decompress);
  return true;
}

[[noreturn]] void refuse(const JpegState& state, std::string_view bytes) {
  const std::size_t left = state.at_end ? 0 : state.source.bytes_in_buffer;
  fail<DataError>("formats.image", "expected a sound JPEG, got: ", std::string_view(state.message.data()),
                  " (near byte ", bytes.size() - left, " of ", bytes.size(), ")");
}

ImageInfo info_of(const JpegState& state) {
  const jpeg_decompress_struct& decompress = state.decompress;
  ImageInfo info;
  info.format = ImageFormat::jpeg;
  info.width = decompress.image_width;
  info.height = decompress.image_height;
  info.channels = decompress.num_components == 1 ? 1 : 3;
  for (jpeg_saved_marker_ptr marker = decompress.marker_list; marker != nullptr; marker = marker->next) {
    const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
    if (marker->marker == exif_marker && data.starts_with(exif_head)) {
      info.orientation = exif_orientation(data.substr(exif_head.size()));
      break;
    }
  }
  return info;
}

/// Chooses libjpeg's output format.
PixelLayout choose_layout(jpeg_decompress_struct& decompress, ImageChannels channels) {
  switch (decompress.jpeg_color_space) {
    case JCS_GRAYSCALE:
      decompress.out_color_space = JCS_GRAYSCALE;
      return PixelLayout::gray;
    case JCS_CMYK:
    case JCS_YCCK:
      decompress.out_color_space = JCS_CMYK;
      return PixelLayout::inverted_cmyk;  // all programs write inverted CMYK, with or without a marker
    case JCS_YCbCr:
      if (channels == ImageChannels::gray) {
        decompress.out_color_space = JCS_GRAYSCALE;
        return PixelLayout::gray;
      }
      [[fallthrough]];
    case JCS_RGB:
      decompress.out_color_space = JCS_RGB;
      return PixelLayout::rgb;
    default:
      fail<DataError>("formats.image", "expected a JPEG of 1, 3 or 4 components in a known colour space, got ",
                      decompress.num_components);
  }
}

}  // namespace

ImageInfo read_jpeg_info(std::string_view bytes, bool accept_damaged) {
  JpegState state;
  state.accept_damaged = accept_damaged;
  if (!read_header(state, bytes, /*save_exif=*/true)) {
    refuse(state, bytes);
  }
  return info_of(state);
}

void decode_jpeg(std::string_view bytes, const ImageDecodeOptions& options, const PixelAllocator& allocate) {
  JpegState state;
  state.accept_damaged = options.accept_damaged;
  if (!read_header(state, bytes, /*save_exif=*/false)) {
    refuse(state, bytes);
  }
  const ImageInfo info = info_of(state);
  check<DataError>(!state.decompress.arith_code, "formats.image",
                   "expected a JPEG with Huffman codes, got one with arithmetic coding, which is not supported");
  check_pixels(info, bytes.size(), most_pixels_per_byte, options, "JPEG");
  const PixelLayout layout = choose_layout(state.decompress, options.channels);
  if (!start(state)) {
    refuse(state, bytes);
  }
  const std::int64_t channels = num_channels(options.channels, info.channels);
  const std::span<std::uint8_t> out = allocate(info.height, info.width, channels);
  bool sound = false;
  if (layout != PixelLayout::inverted_cmyk && layout_channels(layout) == channels) {
    sound = read_rows(state, out.data(), static_cast<std::size_t>(info.width * channels));
  } else {
    std::vector<std::uint8_t> row(static_cast<std::size_t>(info.width * layout_channels(layout)));
    sound = convert_rows(state, row.data(), layout, out.data(), info.width, channels);
  }
  if (!sound || !finish(state)) {
    refuse(state, bytes);
  }
}

}  // namespace danling::inline v0::formats

#endif
