"""A scene as a PNG image, drawn with Pillow (the extra `plot`); smooth edges by drawing large and shrinking."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from loadpath.rendering.scene import Dot, Scene, Shape, Stroke, Words

if TYPE_CHECKING:
    from PIL import Image, ImageDraw

LARGE = 4
"""The image is drawn so many times larger, then shrunk to twice its size in pixels."""
SHOWN = 2
_ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}


class NoPillow(RuntimeError):
    """Pillow is not installed."""


def to_png(scene: Scene) -> bytes:
    """The file's bytes, at twice the scene's size; raises `NoPillow` where the library is missing."""
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise NoPillow(
            "PNG needs Pillow: pip install 'loadpath[plot]' (or write --svg, which needs nothing)"
        ) from error
    page = Image.new("RGB", (scene.width * LARGE, scene.height * LARGE), "#ffffff")
    pen = ImageDraw.Draw(page)
    for shape in scene.shapes:
        _draw(page, pen, shape)
    small = page.resize((scene.width * SHOWN, scene.height * SHOWN), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    small.save(out, "PNG", optimize=True)
    return out.getvalue()


def _draw(page: Image.Image, pen: ImageDraw.ImageDraw, shape: Shape) -> None:
    match shape:
        case Stroke():
            ends = [(shape.x0 * LARGE, shape.y0 * LARGE), (shape.x1 * LARGE, shape.y1 * LARGE)]
            pen.line(ends, fill=shape.colour, width=round(shape.width * LARGE))
        case Dot():
            x, y, radius = shape.x * LARGE, shape.y * LARGE, shape.radius * LARGE
            pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=shape.colour)
        case Words():
            _write(page, pen, shape)


def _write(page: Image.Image, pen: ImageDraw.ImageDraw, words: Words) -> None:
    """Text with its base line at y; turned text is drawn apart and pasted."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(words.size * LARGE)
    x, y = words.x * LARGE, words.y * LARGE
    if words.upright:
        pen.text((x, y), words.text, fill=words.colour, font=font, anchor=_ANCHORS[words.anchor])
        return
    left, top, right, bottom = font.getbbox(words.text)
    strip = Image.new("RGB", (round(right - left), round(bottom - top)), "#ffffff")
    ImageDraw.Draw(strip).text((-left, -top), words.text, fill=words.colour, font=font)
    turned = strip.rotate(90, expand=True)
    page.paste(turned, (round(x - turned.width), round(y - turned.height / 2)))
