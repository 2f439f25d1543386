"""A scene as a small SVG file: no scripts, no fonts of its own, readable by every browser."""

from __future__ import annotations

from html import escape

from loadpath.rendering.scene import Dot, Scene, Shape, Stroke, Words


def to_svg(scene: Scene) -> str:
    """The file's text."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {scene.width} {scene.height}" width="{scene.width}" '
        f'height="{scene.height}" role="img" font-family="sans-serif">'
    )
    title = f"<title>{escape(scene.title)}</title>"
    paper = f'<rect width="{scene.width}" height="{scene.height}" fill="#ffffff"/>'
    return "\n".join((head, title, paper, *(_element(shape) for shape in scene.shapes), "</svg>", ""))


def _element(shape: Shape) -> str:
    match shape:
        case Stroke():
            return (
                f'<line x1="{shape.x0:.1f}" y1="{shape.y0:.1f}" x2="{shape.x1:.1f}" y2="{shape.y1:.1f}" '
                f'stroke="{shape.colour}" stroke-width="{shape.width}" stroke-linecap="round"/>'
            )
        case Dot():
            return f'<circle cx="{shape.x:.1f}" cy="{shape.y:.1f}" r="{shape.radius}" fill="{shape.colour}"/>'
        case Words():
            turned = "" if shape.upright else f' transform="rotate(-90 {shape.x:.1f} {shape.y:.1f})"'
            return (
                f'<text x="{shape.x:.1f}" y="{shape.y:.1f}" font-size="{shape.size}" fill="{shape.colour}" '
                f'text-anchor="{shape.anchor}"{turned}>{escape(shape.text)}</text>'
            )
