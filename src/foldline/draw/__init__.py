"""What a model sees now, drawn: one picture, for a terminal and as SVG.

    change_svg       What the model sees before and after an edit, as SVG
    course           A session over time, as one value
    course_svg       A session over time as SVG: tokens against the window, edits, money
    course_terminal  A session over time for a terminal
    course_words     A session over time in words: what was found, and how its numbers came about
    paper            The paper that every SVG is drawn on: a light card, its inks, its letters
    picture          What the model sees now, as one value
    prefix           How much of a view stands as it was last sent
    svg              The picture as SVG
    terminal         The picture for a terminal
    text             Text that strangers wrote, made fit to be drawn, and measured in columns
    words            The picture in words

Knows how it looks. Refuses to decide, and to write files.
"""

from foldline.draw.picture import Picture, picture, pictured
from foldline.draw.svg import svg
from foldline.draw.terminal import terminal

__all__ = ["Picture", "picture", "pictured", "svg", "terminal"]
