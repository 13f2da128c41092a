"""Images on a page: outlines over a photograph, slices side by side with a zoom and an error map."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .style import COLOURS
from .tables import caption_html

Pixels = NDArray[np.uint8]  # [height, width, 3]
SCALE = 3  # pixels of a page for each of an image, so that outlines are thin


@dataclass(frozen=True)
class Image:
    caption: str
    pixels: Pixels


@dataclass(frozen=True)
class Gallery:
    """Images in rows of ``columns``, or of as many as the page is wide."""

    title: str
    images: Sequence[Image]
    caption: str = ""
    columns: int | None = None


def gallery_html(gallery: Gallery) -> str:
    cells = "\n".join(
        f'<div><img alt="{escape(image.caption)}" src="data:image/png;base64,{b64encode(png(image.pixels)).decode()}">'
        f"<span>{escape(image.caption)}</span></div>"
        for image in gallery.images
    )
    style = f' style="grid-template-columns: repeat({gallery.columns}, 1fr)"' if gallery.columns else ""
    words = caption_html(gallery.title, gallery.caption)
    return f'<figure>{words}\n<div class="gallery"{style}>\n{cells}\n</div></figure>'


def png(pixels: Pixels) -> bytes:
    """The image as a PNG file: eight bits per channel, no filter."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(pixels))

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def colours(values: Any) -> Pixels:
    """Values between 0 and 1, [height, width] (grey) or [height, width, 3], as pixels."""
    array = np.asarray(values, dtype=np.float64)
    array = np.nan_to_num(np.clip(array, 0.0, 1.0))
    if array.ndim == 2:
        array = np.repeat(array[:, :, None], 3, axis=2)
    return np.round(255 * array).astype(np.uint8)


def outlined(image: Pixels, masks: Mapping[int, Any]) -> Pixels:
    """The image, enlarged, with the outlines of masks in colours of the palette, on white so that all can be seen."""
    large = _enlarged(image, SCALE)
    rims = {}
    for hue, mask in masks.items():
        inside = _enlarged(np.asarray(mask) > 0.5, SCALE)
        rims[hue] = inside & ~_shrunk(_shrunk(inside))
    for rim in rims.values():
        large[~_shrunk(~rim)] = 255
    for hue, rim in rims.items():
        large[rim] = _rgb(hue)
    return large


def _shrunk(mask: Any) -> Any:
    """A mask without its outermost pixels."""
    padded = np.pad(mask, 1, mode="edge")
    return mask & padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]


def error_map(difference: Any, most: float) -> Pixels:
    """Absolute differences from black (none) over orange to white (``most`` or more)."""
    level = np.clip(np.abs(np.asarray(difference, dtype=np.float64)) / (most or 1.0), 0.0, 1.0)[:, :, None]
    tint = np.array(_rgb(1)) / 255
    mixed = np.where(level < 0.5, 2 * level * tint, tint + (2 * level - 1) * (1 - tint))
    return np.round(255 * mixed).astype(np.uint8)


def telling_box(difference: Any, share: float = 0.33) -> tuple[slice, slice]:
    """The window, a part of the image along each axis, in which there is most difference."""
    values = np.abs(np.asarray(difference, dtype=np.float64))
    height, width = (max(1, round(share * n)) for n in values.shape)
    total = np.pad(values, ((1, 0), (1, 0))).cumsum(0).cumsum(1)
    sums = total[height:, width:] - total[:-height, width:] - total[height:, :-width] + total[:-height, :-width]
    top, left = np.unravel_index(int(sums.argmax()), sums.shape)
    return slice(int(top), int(top) + height), slice(int(left), int(left) + width)


def compared(title: str, low: Any, prediction: Any, truth: Any, caption: str = "") -> Gallery:
    """Input, prediction, truth and error in a row, and below each of them the window with most to recover."""
    low, prediction, truth = (np.asarray(values, dtype=np.float64) for values in (low, prediction, truth))
    most = float(np.quantile(np.abs(low - truth), 0.99))
    parts = {
        "input": colours(low),
        "prediction": colours(prediction),
        "truth": colours(truth),
        "error": error_map(prediction - truth, most),
    }
    box = telling_box(low - truth)
    window = np.zeros(truth.shape, dtype=bool)
    window[box] = True
    whole = [Image(name, outlined(pixels, {1: window} if name != "error" else {})) for name, pixels in parts.items()]
    zoomed = [Image(f"{name}, zoom", _enlarged(pixels[box], 2 * SCALE)) for name, pixels in parts.items()]
    return Gallery(title, [*whole, *zoomed], caption, columns=len(parts))


def _enlarged(array: Any, factor: int) -> Any:
    return np.repeat(np.repeat(array, factor, axis=0), factor, axis=1)


def _rgb(hue: int) -> tuple[int, int, int]:
    text = COLOURS[hue % len(COLOURS)]
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)
