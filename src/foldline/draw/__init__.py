"""Draw what a model sees now, and a session over time, for a terminal and as SVG.

    change_svg       what the model sees before and after an edit, as SVG
    course           a session over time, as one value, and its sentences
    course_svg       a session over time as SVG: tokens against the window, edits, money
    course_terminal  a session over time for a terminal
    picture          what the model sees now, as one value
    svg              the picture as SVG, and the shapes that all SVGs use
    terminal         the picture for a terminal
    wording          text made safe and measured in columns; the picture's words

Drawings are strings; nothing is written to files.
"""

from foldline.draw.picture import Picture, build_picture, encode_picture
from foldline.draw.svg import draw_picture_svg
from foldline.draw.terminal import draw_picture_terminal

__all__ = [
    "Picture",
    "build_picture",
    "draw_picture_svg",
    "draw_picture_terminal",
    "encode_picture",
]
