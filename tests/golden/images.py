#!/usr/bin/env python3
"""Writes tests/golden/data/images.json: small JPEG and PNG files of every kind and what PIL decodes them to.

Usage: images.py (needs Pillow and numpy). Files and pixels are hexadecimal digits; pixels are rows of 8 bit numbers.
`as_is` is PIL's image as it opens, palettes and CMYK excepted, which become RGB(A) as the library gives them.
"""

import io
import json
import pathlib
import struct
import zlib

import numpy as np
from PIL import Image

OUT = pathlib.Path(__file__).parent / "data" / "images.json"
HEIGHT, WIDTH = 11, 18
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def pattern(channels, top=256):
    """Smooth in each channel, with one bright spot; [HEIGHT, WIDTH, channels]."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    planes = [(x * (7 + 3 * c) + y * (11 - 2 * c) + 40 * c) % 256 * top // 256 for c in range(channels)]
    image = np.stack(planes, -1)
    image[4:6, 5:8] = top - 1
    return image


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def scanlines(pixels, depth):
    """Rows of a PNG with filter 0; pixels of [height, width, channels]."""
    out = b""
    for row in pixels:
        numbers = row.reshape(-1)
        if depth == 16:
            packed = numbers.astype(">u2").tobytes()
        else:
            bits = "".join(format(int(n), f"0{depth}b") for n in numbers)
            bits += "0" * (-len(bits) % 8)
            packed = bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))
        out += b"\0" + packed
    return out


def png(color, depth, pixels, interlaced=False, chunks=()):
    data = b""
    if interlaced:
        for x, y, step_x, step_y in ADAM7:
            part = pixels[y::step_y, x::step_x]
            data += scanlines(part, depth) if part.size else b""
    else:
        data = scanlines(pixels, depth)
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, depth, color, 0, 0, int(interlaced))
    between = b"".join(chunk(kind, content) for kind, content in chunks)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + between + chunk(b"IDAT", zlib.compress(data, 9))
            + chunk(b"IEND", b""))  # fmt: skip


def jpeg(mode, **options):
    channels = {"L": 1, "RGB": 3, "CMYK": 4}[mode]
    array = pattern(channels).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(array[..., 0] if channels == 1 else array, mode).save(out, "JPEG", quality=90, **options)
    return out.getvalue()


def exif(orientation):
    out = Image.Exif()
    out[0x0112] = orientation
    return out.tobytes()


def files():
    for depth in (1, 2, 4, 8, 16):
        yield f"gray{depth}.png", png(0, depth, pattern(1, 1 << depth))
    yield "gray8_interlaced.png", png(0, 8, pattern(1), interlaced=True)
    yield "gray8_transparent.png", png(0, 8, pattern(1), chunks=[(b"tRNS", struct.pack(">H", 255))])
    yield "gray_alpha8.png", png(4, 8, pattern(2))
    for depth in (8, 16):
        yield f"rgb{depth}.png", png(2, depth, pattern(3, 1 << depth))
        yield f"rgba{depth}.png", png(6, depth, pattern(4, 1 << depth))
    yield "rgb8_interlaced.png", png(2, 8, pattern(3), interlaced=True)
    yield "rgba8_interlaced.png", png(6, 8, pattern(4), interlaced=True)
    yield "rgb8_transparent.png", png(2, 8, pattern(3), chunks=[(b"tRNS", struct.pack(">HHH", 255, 255, 255))])
    for depth in (1, 2, 4, 8):
        palette = bytes((37 * i + 5) % 256 for i in range(3 << depth))
        yield f"palette{depth}.png", png(3, depth, pattern(1, 1 << depth), chunks=[(b"PLTE", palette)])
    alpha = bytes(range(0, 256, 16))
    yield "palette4_transparent.png", png(3, 4, pattern(1, 16), chunks=[(b"PLTE", palette[:48]), (b"tRNS", alpha)])
    profile = b"name\0\0" + zlib.compress(bytes(200))
    yield "rgb8_profile.png", png(2, 8, pattern(3), chunks=[(b"iCCP", profile), (b"tEXt", b"Comment\0x")])
    yield "rgb8_turned.png", png(2, 8, pattern(3), chunks=[(b"eXIf", exif(6)[6:])])
    yield "gray.jpg", jpeg("L")
    for subsampling in ("4:4:4", "4:2:2", "4:2:0"):
        yield f"rgb_{subsampling.replace(':', '')}.jpg", jpeg("RGB", subsampling=subsampling)
    yield "rgb_progressive.jpg", jpeg("RGB", progressive=True)
    yield "rgb_restarts.jpg", jpeg("RGB", restart_marker_blocks=1)
    yield "rgb_as_rgb.jpg", jpeg("RGB", keep_rgb=True)
    for orientation in range(1, 9):
        yield f"gray_exif{orientation}.jpg", jpeg("L", exif=exif(orientation))
    cmyk = jpeg("CMYK")
    yield "cmyk.jpg", cmyk
    adobe = cmyk.index(b"Adobe") + 11  # the transform: 0 is CMYK, 2 is YCCK
    yield "ycck.jpg", cmyk[:adobe] + b"\2" + cmyk[adobe + 1 :]
    yield "cmyk_unknown_adobe.jpg", cmyk[:adobe] + b"\7" + cmyk[adobe + 1 :]
    gray = jpeg("L")
    yield "gray_extra_bytes.jpg", gray[:-2] + b"\x11" * 5 + gray[-2:]
    revision = gray.index(b"JFIF\0") + 5
    yield "gray_unknown_jfif.jpg", gray[:revision] + b"\7" + gray[revision + 1 :]


def as_is(image):
    if image.mode == "P":
        return image.convert("RGBA" if "transparency" in image.info else "RGB")
    if "transparency" in image.info:
        return image.convert("LA" if image.mode == "L" else "RGBA")
    return {"CMYK": lambda: image.convert("RGB"), "1": lambda: image.convert("L")}.get(image.mode, lambda: image)()


def cases():
    for name, content in files():
        image = Image.open(io.BytesIO(content))
        image.load()
        if image.mode.startswith("I"):  # PIL keeps 16 bit gray as such: its upper half is what other 16 bits become
            upper = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        else:
            upper = image
        case = {"name": name, "file": content.hex(), "width": image.width, "height": image.height}
        turned = image.getexif().get(0x0112, 1)
        case["orientation"] = turned
        for key, converted in (("as_is", as_is(upper)), ("gray", as_is(upper).convert("L")),
                               ("rgb", as_is(upper).convert("RGB")), ("rgba", as_is(upper).convert("RGBA"))):  # fmt: skip
            case[key] = np.asarray(converted).astype(np.uint8).tobytes().hex()
        if name.endswith(".jpg"):  # a JPEG's luminance itself, where it has one
            draft = Image.open(io.BytesIO(content))
            draft.draft("L", None)
            if draft.mode == "L":
                case["gray"] = draft.tobytes().hex()
        if turned != 1:
            from PIL import ImageOps

            straight = ImageOps.exif_transpose(image)
            case["turned"] = {"width": straight.width, "height": straight.height,
                              "pixels": np.asarray(straight).tobytes().hex()}  # fmt: skip
        if name == "rgb8.png":
            case["resized"] = [
                {"height": height, "width": width,
                 "pixels": np.asarray(image.resize((width, height), Image.Resampling.BILINEAR)).tobytes().hex()}
                for height, width in ((6, 9), (7, 12), (22, 40), (11, 5))
            ]  # fmt: skip
        yield case


def main():
    OUT.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases()) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
