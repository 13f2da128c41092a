"""Images on a page: what is drawn is what was given, and every byte of it is in the page."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image as Pillow

from madamoo.presentation.images import (
    SCALE,
    Gallery,
    Image,
    colours,
    compared,
    error_map,
    gallery_html,
    outlined,
    png,
    telling_box,
)
from madamoo.presentation.page import Page, Section, render

RNG = np.random.default_rng(0)


def read(content):
    with Pillow.open(io.BytesIO(content)) as image:
        return np.asarray(image)


def test_a_png_is_read_by_others_as_it_was_written():
    pixels = RNG.integers(0, 256, (7, 11, 3), dtype=np.uint8)
    assert np.array_equal(read(png(pixels)), pixels)


def test_values_become_grey_or_colour_and_what_is_beyond_is_cut():
    grey = colours([[0.0, 0.5], [2.0, float("nan")]])
    assert grey[:, :, 0].tolist() == [[0, 128], [255, 0]] and (grey == grey[:, :, :1]).all()
    assert colours(np.ones((2, 3, 3))).shape == (2, 3, 3)


def test_outlines_are_in_their_colour_around_the_mask_and_nowhere_else():
    mask = np.zeros((12, 12), dtype=bool)
    mask[3:9, 4:10] = True
    photo = np.full((12, 12, 3), 90, dtype=np.uint8)
    drawn = outlined(photo, {0: mask})
    blue = (drawn == (0x00, 0x72, 0xB2)).all(2)
    assert drawn.shape == (12 * SCALE, 12 * SCALE, 3)
    assert blue[3 * SCALE, 5 * SCALE] and blue[9 * SCALE - 1, 5 * SCALE] and blue[5 * SCALE, 4 * SCALE]
    assert not blue[6 * SCALE, 7 * SCALE] and not blue[: 3 * SCALE].any()
    assert (drawn[0, 0] == 90).all() and (drawn[6 * SCALE, 7 * SCALE] == 90).all()
    assert np.array_equal(outlined(photo, {}), np.full((36, 36, 3), 90))
    outlined(photo, {0: np.zeros((12, 12))})  # an empty mask has no outline


def test_errors_grow_from_black_to_white():
    levels = error_map(np.array([[0.0, -0.1, 0.2, 0.3, 0.4, 9.0]]), 0.4)[0].astype(int).sum(1)
    assert levels[0] == 0 and levels[-1] == 3 * 255 and (np.diff(levels[:5]) > 0).all()


def test_the_zoom_is_where_there_is_most_to_recover():
    truth = np.zeros((30, 30))
    truth[20:26, 3:9] = 1
    low = np.zeros((30, 30))
    rows, columns = telling_box(low - truth)
    assert rows.start <= 20 and rows.stop >= 26 and columns.start <= 3 and columns.stop >= 9
    gallery = compared("a", low, 0.5 * truth, truth)
    names = [image.caption for image in gallery.images]
    assert names[:4] == ["input", "prediction", "truth", "error"] and names[4] == "input, zoom"
    zoomed = gallery.images[names.index("truth, zoom")].pixels
    assert zoomed.mean() == pytest.approx(255 * 36 / 100, rel=0.01)  # 6x6 of the window's 10x10 are white


def test_a_gallery_is_part_of_the_page_and_its_words_are_text():
    evil = '<img src=x onerror="alert(1)">'
    image = Image(evil, RNG.integers(0, 256, (4, 5, 3), dtype=np.uint8))
    text = render(Page("p", sections=[Section("s", [Gallery(evil, [image], evil)])]))
    assert evil not in text and "&lt;img src=x" in text
    (data,) = re.findall(r'<img alt="[^"]*" src="data:image/png;base64,([^"]+)">', gallery_html(Gallery("t", [image])))
    assert data in text and np.array_equal(read(base64.b64decode(data)), image.pixels)
