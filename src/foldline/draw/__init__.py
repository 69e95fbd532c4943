"""What a model sees now, drawn: one picture, for a terminal and as SVG."""

from foldline.draw.picture import Picture, picture, pictured
from foldline.draw.svg import svg
from foldline.draw.terminal import terminal

__all__ = ["Picture", "picture", "pictured", "svg", "terminal"]
