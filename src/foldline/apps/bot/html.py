r"""Words as Telegram shows them: Markdown to its HTML, long ones in parts, the footer.

    html("**bold** & `x < y`")     →  "<b>bold</b> &amp; <code>x &lt; y</code>"

Knows the few tags that Telegram takes, and that every one that is opened is closed: whatever a
model writes, what comes out is valid. Refuses to know chats.
"""

import re
from collections.abc import Iterator
from html import escape
from itertools import groupby
from typing import NamedTuple

MOST = 4_096
"""UTF-16 units of one message: as Telegram counts."""
_ROOM = 8  # units for closing a block of code
_LANGUAGE = 24
_FENCE = re.compile(r"^\s{0,3}(```+|~~~+)\s*([\w+#.-]*)[^`]*$")
_HEAD = re.compile(r"^\s{0,3}#{1,6}\s+(.+?)\s*#*$")
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
    """A text as it is to be shown, and the same without marks, where the API refuses those."""

    html: str
    plain: str


def words(markdown: str) -> HtmlText:
    """A model's text."""
    return HtmlText(html(markdown), markdown)


def plainly(text: str) -> HtmlText:
    """A text that has no marks."""
    return HtmlText(escape(text, quote=False), text)


def framed(head: str, body: str) -> HtmlText:
    """A line, and under it something that is shown letter by letter."""
    shown = escape(body, quote=False)
    return HtmlText(f"{escape(head, quote=False)}\n<pre>{shown}</pre>", f"{head}\n{body}")


def footer(tokens: int, window: int) -> str:
    """How full the window is, under an answer: A-44."""
    return f"📊 Context: {tokens:,}/{window:,} ({100 * tokens / window:.1f}%)"


def units(text: str) -> int:
    """How long Telegram finds a text."""
    return len(text) + sum(letter > "\uffff" for letter in text)


def html(markdown: str) -> str:
    """Markdown in Telegram's HTML."""
    return "\n".join(_blocks(markdown.split("\n")))


def _blocks(lines: list[str]) -> Iterator[str]:
    at = 0
    while at < len(lines):
        if fence := _FENCE.match(lines[at]):
            end = next((n for n in range(at + 1, len(lines)) if _closes(lines[n], fence[1])), None)
            yield _code(lines[at + 1 : end], fence[2])
            at = len(lines) if end is None else end + 1
            continue
        stop = next((n for n in range(at, len(lines)) if _FENCE.match(lines[n])), len(lines))
        for kind, some in groupby(lines[at:stop], key=_kind):
            yield _block(kind, [*some])
        at = stop


def _closes(line: str, fence: str) -> bool:
    found = line.strip()
    return len(found) >= len(fence) and {*found} == {fence[0]}


def _kind(line: str) -> str:
    return "quote" if line.startswith(">") else "table" if line.startswith("|") else ""


def _block(kind: str, lines: list[str]) -> str:
    match kind:
        case "quote":
            said = "\n".join(_inline(line[1:].removeprefix(" ")) for line in lines)
            return f"<blockquote>{said}</blockquote>"
        case "table":
            return _code(lines, "")
        case _:
            return "\n".join(map(_line, lines))


def _code(lines: list[str], language: str) -> str:
    body = escape("\n".join(lines), quote=False)
    if language:
        return f'<pre><code class="language-{escape(language)}">{body}</code></pre>'
    return f"<pre>{body}</pre>"


def _line(line: str) -> str:
    if _RULE.match(line):
        return "———"
    if head := _HEAD.match(line):
        return f"<b>{_inline(head[1])}</b>"
    if bullet := _BULLET.match(line):
        return f"{bullet[1]}• {_inline(line[bullet.end() :])}"
    return _inline(line)


def _inline(text: str) -> str:
    found: list[str] = []
    at = 0
    for one in _INLINE.finditer(text):
        found.append(escape(text[at : one.start()], quote=False))
        found.append(_marked(one))
        at = one.end()
    return "".join([*found, escape(text[at:], quote=False)])


def _marked(one: "re.Match[str]") -> str:
    if one["code"] is not None:
        return f"<code>{escape(one['code'], quote=False)}</code>"
    if one["link"] is not None:
        return f'<a href="{escape(one["link"])}">{_inline(one["label"])}</a>'
    name = next(name for name in _TAGS if one[name] is not None)
    return f"<{_TAGS[name]}>{_inline(one[name])}</{_TAGS[name]}>"


def split(text: str, most: int = MOST) -> list[str]:
    """A text in parts that fit a message each: cut between paragraphs, else lines, else words.

    A block of code that is cut is closed in one part and opened again in the next.
    """
    parts: list[str] = []
    rest = text.strip("\n")
    while units(rest) > most:
        at = _cut(rest, most - _ROOM)
        head, rest = rest[:at], rest[at:]
        fence = _open(head)
        if fence:
            behind = rest.removeprefix("\n")
            head, rest = f"{head.rstrip()}\n```", f"{fence}\n{behind}"
        else:
            rest = rest.lstrip("\n")
        parts.append(head.rstrip())
    return [part for part in (*parts, rest) if part.strip()]


def _open(text: str) -> str:
    """The line that opened the block of code in which a text ends, or nothing."""
    opened = ""
    for line in text.split("\n"):
        fence = _FENCE.match(line)
        if opened and _closes(line, opened[:3]):
            opened = ""
        elif fence and not opened:
            opened = f"{fence[1][:3]}{fence[2][:_LANGUAGE]}"
    return opened and f"```{opened[3:]}"


def _cut(text: str, most: int) -> int:
    """Where to cut: as far behind as it fits, at the best place there is."""
    far, size = 0, 0
    for letter in text:
        size += 1 + (letter > "\uffff")
        if size > most:
            break
        far += 1
    early = far // 3
    ends = [one.start() for one in re.finditer("\n\n", text[:far]) if one.start() > early]
    for end in reversed(ends[-20:]):
        if not _open(text[:end]):
            return end
    line = text.rfind("\n", early, far)
    if line > early:
        return line
    space = text.rfind(" ", early, far)
    return space + 1 if space > early else far
