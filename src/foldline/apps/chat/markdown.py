r"""Render an answer as it comes: each markdown block is written once, when it is finished.

    said = MarkdownStream(columns)
    said.feed("# Title\n\nSome wo")     →  the lines of the title, for good
    said.render_rest(20)                 →  the lines of what may still change
    said.finish_answer()                 →  those lines, for good

The input is cleaned before it is parsed, and again after: entities and addresses may decode to what
steers a terminal. Nothing in it is markup to `rich`; links are shown as text, never as links of the
terminal.
"""

import io
from collections.abc import Iterable
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments.token import Comment, Error, Generic, Keyword, Name, Number, String
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, TableElement
from rich.padding import Padding
from rich.style import Style
from rich.syntax import ANSISyntaxTheme, Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from foldline.apps.chat.safe import Safe, clean_text

_WIDEST = 100  # columns: longer lines are hard to read
_LONG, _GROWN = 4_000, 1.1  # a block of more letters is parsed again only when it has grown so
_NARROWEST = 6  # columns of the terminal for each of a table
_THEME = Theme(
    {
        "markdown.h1": "bold underline",
        "markdown.h2": "bold",
        "markdown.h3": "bold",
        "markdown.h4": "bold italic",
        "markdown.code": "cyan",
        "markdown.code_block": "none",
        "markdown.block_quote": "italic bright_black",
        "markdown.item.bullet": "bright_black",
        "markdown.item.number": "bright_black",
        "markdown.hr": "bright_black",
        "markdown.link": "underline",
        "markdown.link_url": "underline bright_black",
        "markdown.table.border": "bright_black",
        "markdown.table.header": "bold",
    }
)


# Neither bright colours nor blue: the first cannot be read on white, the second not on black.
_CODE = ANSISyntaxTheme(
    {
        Comment: Style(dim=True),
        Keyword: Style(color="magenta"),
        Name.Function: Style(color="cyan"),
        Name.Class: Style(color="cyan"),
        Name.Decorator: Style(color="cyan"),
        Number: Style(color="red"),
        String: Style(color="green"),
        Generic.Deleted: Style(color="red"),
        Generic.Inserted: Style(color="green"),
        Error: Style(color="red"),
    }
)


class _Heading(Heading):
    """A heading that is not centred."""

    LEVEL_ALIGN: ClassVar[dict[str, Any]] = {}


class _Code(CodeBlock):
    """Code in the terminal's own colours, indented, without a box."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = Syntax(
            str(self.text).rstrip(),
            self.lexer_name,
            theme=_CODE,
            background_color="default",
            word_wrap=True,
        )
        yield Padding(code, (0, 0, 0, 2))


class _Table(TableElement):
    """A table of which nothing is cut: long words break, and many columns become lines."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = [self.header.row] if self.header and self.header.row else []
        rows += self.body.rows if self.body else []
        if any(len(row.cells) * _NARROWEST > options.max_width for row in rows):
            yield from (Text(" | ").join(cell.content for cell in row.cells) for row in rows)
            return
        for shown in super().__rich_console__(console, options):
            if isinstance(shown, Table):
                for column in shown.columns:
                    column.overflow = "fold"
            yield shown


class _AnswerMarkdown(Markdown):
    """Markdown in which HTML tags are text, so that nothing a model says is left out."""

    elements: ClassVar[dict[str, Any]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "table_open": _Table,
    }

    def __init__(self, source: str) -> None:
        super().__init__("", hyperlinks=False)
        self.parsed = _make_parser().parse(source)
        for token in self.parsed:
            _clean_words(token.children or ())


def _clean_words(tokens: Iterable[Token]) -> None:
    for token in tokens:
        token.content = clean_text(token.content)
        _clean_words(token.children or ())


@cache
def _make_parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("strikethrough").enable("table")


class MarkdownStream:
    """One answer, block by block."""

    def __init__(self, columns: int, *, colour: bool = True) -> None:
        self._columns, self._colour = columns, colour
        self._clean = Safe()
        self._open = ""
        self._begun = False
        self._next = 0  # letters from which the open block is parsed again
        self._drawn: tuple[str, str] = ("", "")

    def feed(self, piece: str) -> str:
        """Add a piece; return the lines of the blocks that it finished."""
        self._open += self._clean.feed(piece).expandtabs(4)
        if "\n" not in piece or len(self._open) < self._next:
            return ""
        done, self._open = _split_finished(self._open)
        self._next = int(len(self._open) * _GROWN) if len(self._open) > _LONG else 0
        return self._render_finished(done)

    def render_rest(self, most: int) -> str:
        """Render what may still change: at most its last `most` lines."""
        source, text = self._drawn
        tail = _select_tail(self._open, most, self._columns)
        if source != tail:
            text = self._render_source(tail)
            self._drawn = (tail, text)
        lines = text.rstrip("\n").split("\n")
        shown = lines[-most:] if most > 0 else []
        return "\n".join(["", *shown] if self._begun and text else shown)

    def finish_answer(self) -> str:
        """Render all that is left, for good."""
        done, self._open = self._open, ""
        return self._render_finished(done)

    def _render_finished(self, source: str) -> str:
        text = self._render_source(source)
        if not text:
            return ""
        before, self._begun = "\n" if self._begun else "", True
        return f"{before}{text}"

    def _render_source(self, source: str) -> str:
        if not source.strip():
            return ""
        return render_markdown(source, self._columns, colour=self._colour)


def render_markdown(source: str, columns: int, *, colour: bool = True) -> str:
    """Render clean markdown for a terminal, with an empty line between blocks."""
    console = _make_console(max(min(columns, _WIDEST), 10), colour=colour)
    shown = (_render_block(console, block) for block in _split_blocks(source))
    return "\n".join(one for one in shown if one.strip())


@lru_cache(maxsize=8)
def _make_console(width: int, *, colour: bool) -> Console:
    return Console(
        file=io.StringIO(),
        width=width,
        force_terminal=colour,
        color_system="256" if colour else None,
        no_color=not colour,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
        theme=_THEME,
    )


def _render_block(console: Console, block: str) -> str:
    with console.capture() as written:
        console.print(_AnswerMarkdown(block))
    lines = (line.rstrip() for line in written.get().split("\n"))
    return "\n".join(lines).strip("\n") + "\n"


def _select_tail(source: str, lines: int, columns: int) -> str:
    """Return the end of a block that so many lines can show: it is rendered at every word."""
    room = lines * columns
    if len(source) <= room and source.count("\n") <= lines:
        return source
    first, _, body = source.partition("\n")
    fence = first if first.lstrip().startswith(("```", "~~~")) else ""
    last = "\n".join((body if fence else source)[-room:].split("\n")[-lines:])
    return f"{fence}\n{last}" if fence else last


def _split_finished(source: str) -> tuple[str, str]:
    """Split into what can no longer change, and the block that may go on."""
    *done, last = _split_blocks(source)
    return "".join(done), last


def _split_blocks(source: str) -> list[str]:
    tokens = _make_parser().parse(source)
    starts = [token.map[0] for token in tokens if token.level == 0 and token.map]
    lines = source.split("\n")
    cuts = [0, *starts[1:], len(lines)]
    blocks = ["\n".join(lines[lo:hi]) for lo, hi in pairwise(cuts)]
    return [f"{one}\n" for one in blocks[:-1]] + blocks[-1:]
