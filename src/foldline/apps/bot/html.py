r"""Markdown to Telegram's HTML, and long texts split into messages.

    html("**bold** & `x < y`")     →  "<b>bold</b> &amp; <code>x &lt; y</code>"

Every tag that is opened is closed: whatever a model writes, the HTML is valid for Telegram.
"""

import re
from collections.abc import Iterator
from html import escape
from itertools import groupby
from typing import NamedTuple

MOST = 4_096
"""The longest message, in UTF-16 units, as Telegram counts."""
_ROOM = 8  # units for closing a block of code
_FENCE = re.compile(r"^\s{0,3}(```+|~~~+)([^`]*)$")
_LANGUAGE = re.compile(r"[A-Za-z][A-Za-z0-9_+#.-]{0,23}")
_HEAD = re.compile(r"^\s{0,3}#{1,6}\s+(.+?)(?:\s+#+)?\s*$")
_BULLET = re.compile(r"^(\s*)[-*+]\s+")
_RULE = re.compile(r"^\s{0,3}([-*_])(?:\s*\1){2,}\s*$")
_INLINE = re.compile(
    r"(?P<ticks>`+)(?P<code>.{1,800}?)(?P=ticks)(?!`)"
    r"|\[(?P<label>[^\]\n]{1,800})\]\((?P<link>https?://[^\s()<>\"]{1,800})\)"
    r"|\*\*(?=\S)(?P<b>.{1,800}?)(?<=\S)\*\*"
    r"|__(?=\S)(?P<b2>.{1,800}?)(?<=\S)__"
    r"|~~(?=\S)(?P<s>.{1,800}?)(?<=\S)~~"
    r"|(?<![\w*])\*(?=[^\s*])(?P<i>[^*\n]{1,800}?)(?<=[^\s*])\*(?![\w*])"
    r"|(?<!\w)_(?=[^\s_])(?P<i2>[^_\n]{1,800}?)(?<=[^\s_])_(?!\w)"
)
_TAGS = {"b": "b", "b2": "b", "s": "s", "i": "i", "i2": "i"}


class HtmlText(NamedTuple):
    """A text as HTML, and plain for when the API refuses the HTML."""

    html: str
    plain: str


def render_model_text(markdown: str) -> HtmlText:
    """Render a model's Markdown."""
    return HtmlText(html(markdown), markdown)


def render_plain_text(text: str) -> HtmlText:
    """Render a text without markup."""
    return HtmlText(escape(text, quote=False), text)


def render_framed_text(head: str, body: str) -> HtmlText:
    """Render a line, and below it a preformatted text."""
    framed = escape(body, quote=False)
    return HtmlText(f"{escape(head, quote=False)}\n<pre>{framed}</pre>", f"{head}\n{body}")


def format_usage(tokens: int, window: int) -> str:
    """Format how full a window is."""
    return f"{tokens:,}/{window:,} ({100 * tokens / window:.1f}%)"


def render_usage_footer(tokens: int, window: int) -> str:
    """Render the footer of an answer: how full the window is."""
    return f"📊 Context: {format_usage(tokens, window)}"


def count_utf16_units(text: str) -> int:
    """Return a text's length as Telegram counts it."""
    return len(text) + sum(letter > "\uffff" for letter in text)


def html(markdown: str) -> str:
    """Convert Markdown to Telegram's HTML."""
    return "\n".join(_iterate_blocks(markdown.split("\n")))


def _iterate_blocks(lines: list[str]) -> Iterator[str]:
    at = 0
    while at < len(lines):
        if fence := _FENCE.match(lines[at]):
            end = next(
                (n for n in range(at + 1, len(lines)) if _is_closing_fence(lines[n], fence[1])),
                None,
            )
            yield from _render_fenced(lines[at + 1 : end], fence[2].strip())
            at = len(lines) if end is None else end + 1
            continue
        stop = next((n for n in range(at, len(lines)) if _FENCE.match(lines[n])), len(lines))
        for kind, some in groupby(lines[at:stop], key=_classify_line):
            yield _render_block(kind, [*some])
        at = stop


def _render_fenced(lines: list[str], info: str) -> Iterator[str]:
    """Render a block of code; words on its fence that name no language are shown above it."""
    has_code = any(map(str.strip, lines))
    language = _find_language(info) if has_code else ""
    if info and not language:
        yield _render_inline(info)
    if has_code or not info:
        yield _render_code(lines, language)


def _find_language(info: str) -> str:
    """Return the language that a fence names, or "": a name has no spaces."""
    return info if _LANGUAGE.fullmatch(info) else ""


def _is_closing_fence(line: str, fence: str) -> bool:
    found = line.strip()
    return len(found) >= len(fence) and {*found} == {fence[0]}


def _classify_line(line: str) -> str:
    return "quote" if line.startswith(">") else "table" if line.startswith("|") else ""


def _render_block(kind: str, lines: list[str]) -> str:
    match kind:
        case "quote":
            said = "\n".join(_render_inline(line[1:].removeprefix(" ")) for line in lines)
            return f"<blockquote>{said}</blockquote>"
        case "table":
            return _render_code(lines, "")
        case _:
            return "\n".join(map(_render_line, lines))


def _render_code(lines: list[str], language: str) -> str:
    body = escape("\n".join(lines), quote=False)
    if language:
        return f'<pre><code class="language-{escape(language)}">{body}</code></pre>'
    return f"<pre>{body}</pre>"


def _render_line(line: str) -> str:
    if _RULE.match(line):
        return "———"
    if head := _HEAD.match(line):
        return f"<b>{_render_inline(head[1])}</b>"
    if bullet := _BULLET.match(line):
        return f"{bullet[1]}• {_render_inline(line[bullet.end() :])}"
    return _render_inline(line)


def _render_inline(text: str) -> str:
    rendered: list[str] = []
    at = 0
    for mark in _INLINE.finditer(text):
        rendered.append(escape(text[at : mark.start()], quote=False))
        rendered.append(_render_mark(mark))
        at = mark.end()
    return "".join([*rendered, escape(text[at:], quote=False)])


def _render_mark(mark: "re.Match[str]") -> str:
    if mark["code"] is not None:
        return f"<code>{escape(mark['code'], quote=False)}</code>"
    if mark["link"] is not None:
        return f'<a href="{escape(mark["link"])}">{_render_inline(mark["label"])}</a>'
    name = next(name for name in _TAGS if mark[name] is not None)
    return f"<{_TAGS[name]}>{_render_inline(mark[name])}</{_TAGS[name]}>"


def split_message_text(text: str, most: int = MOST) -> list[str]:
    """Split a text into messages: between paragraphs, else lines, else words.

    A code block that is cut is closed in one part and opened again in the next.
    """
    parts: list[str] = []
    rest = text.strip("\n")
    while count_utf16_units(rest) > most:
        at = _find_cut(rest, most - _ROOM)
        head, rest = rest[:at], rest[at:]
        fence = _find_open_fence(head)
        if fence:
            behind = rest.removeprefix("\n")
            head, rest = f"{head.rstrip()}\n```", f"{fence}\n{behind}"
        else:
            rest = rest.lstrip("\n")
        parts.append(head.rstrip())
    return [part for part in (*parts, rest) if part.strip()]


def split_text_exactly(text: str, most: int) -> list[str]:
    """Split a text after line breaks, else anywhere; joined, the parts are the text again."""
    parts: list[str] = []
    rest = text
    while count_utf16_units(rest) > most:
        far = _measure_prefix(rest, most)
        at = rest.rfind("\n", 0, far) + 1 or far
        parts.append(rest[:at])
        rest = rest[at:]
    return [*parts, rest]


def _measure_prefix(text: str, most: int) -> int:
    """Count the letters of a text's beginning that fit into `most` units."""
    far, size = 0, 0
    for letter in text:
        size += 1 + (letter > "\uffff")
        if size > most:
            break
        far += 1
    return far


def _find_open_fence(text: str) -> str:
    """Return the line that opened the code block in which a text ends, or ""."""
    opened = ""
    for line in text.split("\n"):
        fence = _FENCE.match(line)
        if opened and _is_closing_fence(line, opened[:3]):
            opened = ""
        elif fence and not opened:
            opened = f"{fence[1][:3]}{_find_language(fence[2].strip())}"
    return opened and f"```{opened[3:]}"


def _find_cut(text: str, most: int) -> int:
    """Find the best place to cut a text within `most` units, as late as possible."""
    far = _measure_prefix(text, most)
    early = far // 3
    ends = [one.start() for one in re.finditer("\n\n", text[:far]) if one.start() > early]
    for end in reversed(ends[-20:]):
        if not _find_open_fence(text[:end]):
            return end
    line = text.rfind("\n", early, far)
    if line > early:
        return line
    space = text.rfind(" ", early, far)
    return space + 1 if space > early else far
