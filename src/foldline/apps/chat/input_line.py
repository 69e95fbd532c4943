"""The input line, with keys, history and completion.

    (the answer as it comes)
    > what the person writes
      the status bar

The line is there from start to end, also while a model answers: what is entered then is queued.
Finished text is written above it and scrolls with the terminal. This module imports little, so that
the line is there before the rest of foldline is loaded.
"""

import asyncio
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TypeAlias

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_completions
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.formatted_text.utils import split_lines
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import (
    ConditionalContainer,
    Dimension,
    Float,
    FloatContainer,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.controls import (
    BufferControl,
    GetLinePrefixCallable,
    UIContent,
    UIControl,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import (
    BeforeInput,
    ConditionalProcessor,
    PasswordProcessor,
)
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

Words: TypeAlias = Callable[[str], Iterable[tuple[str, str]]]
"""Completes a line: gives (the whole last word, its meaning) for each choice."""
MARK = "❯ "  # noqa: RUF001 - as shells show it
_AGAIN = 2.0  # seconds in which a second Ctrl-C leaves
_MOST_LINES = 10  # rows of the input that are visible at once
_MENU = 8
_MOST_QUEUED = 4  # of what is queued, that is visible
_REDRAW = 0.05  # seconds between redraws of what changes by itself; keys are drawn at once
_TYPING, _SLOWER = 0.5, 3  # seconds after a key in which that happens so many times less often
_PRIVATE = 0o600
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"  # synchronized output: no flicker, where supported
_STYLE = Style.from_dict(
    {
        "mark": "bold ansicyan",
        "mark.busy": "ansibrightblack",
        "question": "bold",
        "hint": "ansibrightblack",
        "completion-menu": "bg:default fg:default noreverse",
        "completion-menu.completion": "bg:default fg:default",
        "completion-menu.completion.current": "bold reverse",
        "completion-menu.meta.completion": "bg:default fg:ansibrightblack",
        "completion-menu.meta.completion.current": "bg:default fg:ansibrightblack",
        "scrollbar.background": "bg:default",
        "scrollbar.button": "bg:default",
    }
)


class _Completing(Completer):
    """Completes a line that begins with a slash, and a file's name after `@`."""

    def __init__(self, words: Callable[[], Words | None]) -> None:
        self._words = words

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        del complete_event
        text, words = document.text_before_cursor, self._words()
        if words is None or (text.startswith("/") and "\n" in document.text):
            return
        last = text.rpartition(" ")[2]
        if not text.startswith("/"):
            at = text.rfind("@")
            if at < 0:
                return
            last = text[at:]
        for word, meaning in words(text):
            yield Completion(word, start_position=-len(last), display_meta=meaning)


class _LinesControl(UIControl):
    """Shows lines that are ready: prompt_toolkit's own control splits its text at every key."""

    def __init__(self, lines: Callable[[], list[StyleAndTextTuples]]) -> None:
        self._lines = lines

    def preferred_height(
        self,
        width: int,
        max_available_height: int,
        wrap_lines: bool,  # noqa: FBT001 - as prompt_toolkit calls it
        get_line_prefix: GetLinePrefixCallable | None,
    ) -> int | None:
        del width, max_available_height, wrap_lines, get_line_prefix
        return len(self._lines())

    def create_content(self, width: int, height: int) -> UIContent:
        del width, height
        lines = self._lines()
        return UIContent(lines.__getitem__, line_count=len(lines), show_cursor=False)


class InputLine:
    """The input line, and the lines around it."""

    def __init__(
        self,
        *,
        history: Path | None = None,
        input: Input | None = None,  # noqa: A002 - as prompt_toolkit says it
        output: Output | None = None,
    ) -> None:
        self.bar: Callable[[int], list[tuple[str, str]]] = lambda _: []
        """Draws the status bar in so many columns."""
        self.words: Words | None = None
        """Completes a line that begins with a slash."""
        self.stop: Callable[[], object] | None = None
        """Cancels the work under way; None if there is none."""
        self.expand: Callable[[], object] | None = None
        """Shows what was folded away last."""
        self.expands = "Ctrl-O"
        self.stops_at_question = False
        """Whether Ctrl-C at a question also stops the work under way."""
        self._live: str | Callable[[], str] = ""
        # The columns, and the unfinished text as it was drawn for them.
        self._drawn_live: tuple[int, list[StyleAndTextTuples]] | None = None
        self._refreshing: asyncio.TimerHandle | None = None
        self._hint = ""
        self._pressed = 0.0  # when Ctrl-C was last pressed
        self._typed = 0.0  # when the input was last changed
        self._said: deque[str] = deque()
        self._left = False
        self._more = asyncio.Event()
        self._question: tuple[str, asyncio.Future[str | None], Document] | None = None
        self._asking = asyncio.Lock()
        self._secret = False
        self._drawing = False
        self.buffer = Buffer(
            completer=_Completing(lambda: None if self._question else self.words),
            complete_while_typing=Condition(
                lambda: self.buffer.text.startswith("/") or _is_naming_file(self.buffer.document)
            ),
            history=_open_history(history),
            multiline=True,
            on_text_changed=lambda _: self._handle_typing(),
        )
        search = SearchToolbar(ignore_case=True)
        self.app: Application[None] = Application(
            layout=self._build_layout(search),
            key_bindings=self._build_key_bindings(),
            style=_STYLE,
            erase_when_done=True,
            input=input or create_input(always_prefer_tty=False),
            output=output or _make_output(),
            color_depth=ColorDepth.DEPTH_1_BIT if os.environ.get("NO_COLOR") else None,
            after_render=lambda _: self._finish_drawing(),
        )

    async def run(self) -> None:
        """Run until `close`."""
        await self.app.run_async()

    def close(self) -> None:
        """Remove the line; the text above it stays."""
        if self.app.is_running and not self.app.is_done:
            self.app.exit()

    async def said(self) -> str | None:
        """Return what the person enters next, or None if they leave."""
        while not self._said:
            if self._left:
                return None
            self._more.clear()
            await self._more.wait()
        return self._said.popleft()

    async def ask(self, question: str, *, secret: bool = False) -> str | None:
        """Return the answer to a question, or None; then restore the unfinished input.

        A `secret` answer is not shown.
        """
        async with self._asking:  # one at a time: tools run in parallel
            self._secret = secret
            try:
                return None if self._left else await self._ask_question(question)
            finally:
                self._secret = False

    async def _ask_question(self, question: str) -> str | None:
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._question = (question, answer, self.buffer.document)
        self.buffer.reset()
        self._request_redraw()
        try:
            return await answer
        finally:
            self.buffer.reset(self._question[2])
            self._question = None
            self._request_redraw()

    def put_back(self, text: str) -> None:
        """Put a text on the line that answered no question; a question under way hides it."""
        kept = self.buffer.text if self._question is None else self._question[2].text
        text = f"{kept}\n{text}" if kept else text
        self._set_unfinished(Document(text, len(text)))

    def _set_unfinished(self, document: Document) -> None:
        """Set what is on the line, or what will be when the question is over."""
        if self._question is None:
            self.buffer.reset(document)
        else:
            self._question = (*self._question[:2], document)

    def above(self, text: str) -> None:
        """Write finished text above the line."""
        if not text:
            return
        text = text if text.endswith("\n") else f"{text}\n"
        output = self.app.output
        if self.app.is_running and not self.app.is_done:
            if not self._drawing:
                self._drawing = True
                output.write_raw(_BEGIN)
            self.app.renderer.erase(leave_alternate_screen=False)
            output.write_raw(text.replace("\n", "\r\n"))
            output.flush()
            self._request_redraw()
        else:
            output.write_raw(text)
            output.flush()

    def live(self, text: "str | Callable[[], str]") -> None:
        """Show unfinished text directly above the line."""
        self._live, self._drawn_live = text, None
        self._request_redraw()

    def refresh(self) -> None:
        """Redraw what changes by itself, soon: words come faster than a person reads."""
        if self._refreshing is None and self.app.is_running:
            loop = asyncio.get_running_loop()
            typing = time.monotonic() - self._typed < _TYPING
            pause = _REDRAW * (_SLOWER if typing else 1)
            self._refreshing = loop.call_later(pause, self._draw_refresh)

    def renew_completions(self) -> None:
        """Complete again where nothing was chosen yet: there may be more to offer by now."""
        state = self.buffer.complete_state
        if state is not None and state.complete_index is None:
            self.buffer.cancel_completion()
            self.buffer.start_completion()

    @property
    def columns(self) -> int:
        """The terminal's width."""
        return self.app.output.get_size().columns

    @property
    def rows(self) -> int:
        """The terminal's height, without the queue and all lines of the input but one."""
        queued = min(len(self._said), _MOST_QUEUED + 1) if self.stop else 0
        written = min(self.buffer.document.line_count, _MOST_LINES) - 1
        return self.app.output.get_size().rows - queued - written

    @property
    def waiting(self) -> int:
        """How many entered lines are queued."""
        return len(self._said)

    def _draw_refresh(self) -> None:
        self._refreshing = self._drawn_live = None
        self._build_live_lines()  # apart from the drawing: a key gets in between
        self._request_redraw()

    def _request_redraw(self) -> None:
        if self.app.is_running:
            self.app.invalidate()

    def _finish_drawing(self) -> None:
        if self._drawing:
            self._drawing = False
            self.app.output.write_raw(_END)
            self.app.output.flush()

    def _handle_typing(self) -> None:
        self._hint, self._pressed, self._typed = "", 0.0, time.monotonic()

    def _build_layout(self, search: SearchToolbar) -> Layout:
        writing = BufferControl(
            self.buffer,
            input_processors=[
                ConditionalProcessor(PasswordProcessor(), Condition(lambda: self._secret)),
                BeforeInput(self._render_prompt),
            ],
            search_buffer_control=search.control,
        )
        body = HSplit(
            [
                ConditionalContainer(
                    Window(_LinesControl(self._build_live_lines), dont_extend_height=True),
                    Condition(lambda: bool(self._build_live_lines())),
                ),
                ConditionalContainer(
                    Window(FormattedTextControl(self._render_queue), dont_extend_height=True),
                    Condition(lambda: bool(self._render_queue())),
                ),
                Window(height=1),
                Window(
                    writing,
                    height=lambda: Dimension(min=1, max=_MOST_LINES),
                    dont_extend_height=True,
                    wrap_lines=True,
                    get_line_prefix=lambda number, wraps: "  " if number or wraps else "",
                ),
                ConditionalContainer(search, Condition(lambda: bool(search.control.buffer.text))),
                # Room for the menu: it floats over what is there.
                ConditionalContainer(
                    Window(height=lambda: min(_MENU, self._count_completions())), has_completions
                ),
                Window(FormattedTextControl(self._render_bar), height=1, dont_extend_height=True),
            ]
        )
        menu = Float(
            xcursor=True,
            ycursor=True,
            content=CompletionsMenu(max_height=_MENU, scroll_offset=1),
        )
        return Layout(FloatContainer(body, [menu]), focused_element=writing)

    def _count_completions(self) -> int:
        state = self.buffer.complete_state
        return len(state.completions) if state else 0

    def _render_prompt(self) -> StyleAndTextTuples:
        if self._question is not None:
            return [("class:question", self._question[0])]
        return [("class:mark.busy" if self.stop else "class:mark", MARK)]

    def _build_live_lines(self) -> list[StyleAndTextTuples]:
        """Build the unfinished text once for each refresh: no key waits for markdown."""
        columns, drawn = self.columns, self._drawn_live
        if drawn is None or drawn[0] != columns:
            text = self._live if isinstance(self._live, str) else self._live()
            drawn = self._drawn_live = (columns, parse_lines(text.rstrip("\n")))
        return drawn[1]

    def _render_queue(self) -> StyleAndTextTuples:
        if not self.stop:
            return []
        room = max(self.columns - 12, 8)
        waiting = [one.split("\n", 1)[0] for one in [*self._said][:_MOST_QUEUED]]
        cut = [f"  next: {one if len(one) <= room else f'{one[: room - 1]}…'}" for one in waiting]
        more = len(self._said) - len(cut)
        rows = [*cut, *([f"  and {more:,} more"] if more else [])]
        return [("class:hint", "\n".join(rows))] if rows else []

    def _render_bar(self) -> StyleAndTextTuples:
        if self._hint:
            return [("class:hint", f"  {self._hint}")]
        return [*self.bar(self.columns)]

    def _build_key_bindings(self) -> KeyBindings:
        keys = KeyBindings()
        asked = Condition(lambda: self._question is not None)

        @keys.add("enter", filter=~Condition(lambda: self.app.layout.is_searching))
        def _(event: KeyPressEvent) -> None:
            del event
            self._handle_enter()

        @keys.add("escape", "enter")
        @keys.add("c-j")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("escape", filter=asked, eager=True)
        def _(event: KeyPressEvent) -> None:
            del event
            self._answer_question(None)

        @keys.add("c-c")
        @keys.add("<sigint>")
        def _(event: KeyPressEvent) -> None:
            del event
            self._handle_interrupt()

        @keys.add("c-d", filter=Condition(lambda: not self.buffer.text))
        def _(event: KeyPressEvent) -> None:
            del event
            self.leave()

        @keys.add("c-o")
        def _(event: KeyPressEvent) -> None:
            del event
            if self.expand is not None:
                self.expand()

        @keys.add("c-z")
        def _(event: KeyPressEvent) -> None:
            event.app.suspend_to_background()

        return keys

    def _handle_enter(self) -> None:
        buffer = self.buffer
        text = buffer.text
        if self._question is not None:
            self._answer_question(text)
            return
        if text.endswith("\\") and buffer.document.is_cursor_at_the_end:
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
            return
        if not text.strip():
            buffer.reset()
            return
        buffer.append_to_history()
        buffer.reset()
        self._said.append(text.rstrip())
        self._more.set()
        self._request_redraw()

    def _answer_question(self, text: str | None) -> None:
        if self._question is not None and not self._question[1].done():
            self._question[1].set_result(text)

    def _handle_interrupt(self) -> None:
        if self._question is not None and not (self.stops_at_question and self.stop):
            self._answer_question(None)
        elif self.stop is not None:
            self._take_back_queue()
            self.stop()
        elif self.buffer.text:
            self.buffer.reset()
        elif time.monotonic() - self._pressed < _AGAIN:
            self.leave()
        else:
            self._hint, self._pressed = "Ctrl-C again leaves; so does Ctrl-D", time.monotonic()
            self._request_redraw()

    def _take_back_queue(self) -> None:
        """Put what is queued back on the line: it is neither lost nor sent unasked."""
        if self._said:
            written = self.buffer.text if self._question is None else self._question[2].text
            lines = [*self._said, *([written] if written else [])]
            self._said.clear()
            text = "\n".join(lines)
            self._set_unfinished(Document(text, len(text)))

    def leave(self) -> None:
        """Leave: cancel the work under way and drop the queue."""
        self._left = True
        self._said.clear()
        self._answer_question(None)
        if self.stop is not None:
            self.stop()
        self._more.set()


def _is_naming_file(document: Document) -> bool:
    """Whether the word at the cursor begins with `@`."""
    word = document.current_line_before_cursor.rpartition(" ")[2]
    return word.startswith("@")


def parse_lines(text: str) -> list[StyleAndTextTuples]:
    """Parse text with escape codes into lines, with one piece for neighbours of one style."""
    if not text:
        return []
    lines: list[StyleAndTextTuples] = []
    for line in split_lines(to_formatted_text(ANSI(text))):
        runs = groupby(line, key=itemgetter(0))
        lines.append([(style, "".join(one[1] for one in run)) for style, run in runs])
    return lines


def _open_history(path: Path | None) -> History:
    """Open the history in a file that only its owner reads; in memory if that fails."""
    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, _PRIVATE))
        path.chmod(_PRIVATE)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


def _make_output() -> Output:
    output = Vt100_Output.from_pty(sys.stdout, term=os.environ.get("TERM"))
    output.enable_cpr = False  # a late answer to a cursor query would be typed into the line
    return output
