"""What a model sees now, drawn: one picture, for a terminal and as SVG.

    picture    the window now, as one value         terminal, svg, words
      prefix     what of it a cache can give back     change_svg  before and after an edit
    course     a session over time, as one value    course_terminal, course_svg, course_words
    paper      what every SVG is drawn on           text        strangers' words made fit

Knows how it looks. Refuses to decide, and to write files.
"""

from foldline.draw.picture import Picture, picture, pictured
from foldline.draw.svg import svg
from foldline.draw.terminal import terminal

__all__ = ["Picture", "picture", "pictured", "svg", "terminal"]
