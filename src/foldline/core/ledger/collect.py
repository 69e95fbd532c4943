"""Collect facts from calls and results.

Facts are read in the order things happened: a file created and then removed, a test that failed
and then passed, a relative path whose folder was stated before. Goals and rules are not facts: they
are the user's words, and stay verbatim.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from foldline.core.item import Item
from foldline.core.ledger import shell_commands
from foldline.core.ledger.entries import Act, Outcome, classify_call, list_links, parse_outcome
from foldline.core.ledger.fact_pages import Facts, merge_facts
from foldline.core.ledger.shell_commands import Touch
from foldline.core.log import Event, ModelSaid, ToolReturned
from foldline.core.names import count_names
from foldline.core.own_words import strip_frames
from foldline.core.parts import Call, Fact, FactKind, calls_of, spoken_text_of, text_of
from foldline.core.passages import Passage, split_passages, weigh_passages

_WIDTH = 110  # characters of one line
_TASK = re.compile(r"^[ \t]*[-*] \[([ xX~-])\] (\S.*)$", re.MULTILINE)
_RUNNERS = re.compile(r"\b(?:pytest|unittest|go test|cargo test|jest|vitest|npm test|tox|mocha)\b")
_CHOOSES = re.compile(r"-(?:k|m|t|run|-lf|-last-failed|-only|-grep|-testNamePattern)(?:=|$)")
_OTHER = re.compile(r"(?!discover$|run$)[\w:]{2,}")  # neither an option nor a path: names of tests
_ESCAPED = re.compile(r"\\[nrt\"]")  # in JSON: the letter is not part of the name behind it
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_MOVING = re.compile(r"(?:^|[;&|\n]\s?)(?:cd|pushd|popd)\b")
_EDITING = ("edit", "insert", "append", "replace")  # commands that change the open file
_NAMED = 1_200  # newest items whose names are collected: older names would fade anyway
_LOOK = 65_536  # characters of one text that are read for names
_PASSAGES, _ENDS = 400, 200  # passages of one text that are weighed, and of each end if it has more
_LEAST_WEIGHT = 0.06  # of what is worth a line


def collect_facts(
    items: Iterable[Item],
    events: Mapping[int, Event],
    *,
    older: Sequence[Fact] = (),
    standing: Sequence[str] = (),
) -> Facts:
    """Collect the facts of items whose originals are in `events`.

    `older` facts and the handoffs that are `standing` are context.
    """
    collector = _Collector(older, standing)
    every = list(items)
    for place, item in enumerate(every):
        collector.naming = place >= len(every) - _NAMED
        event = events.get(item.seq)
        if item.role == "model" and isinstance(event, ModelSaid):
            collector.record_answer(item, event)
        elif item.role == "user":
            collector.record_passages(item.seq, None, split_passages(text_of(item.parts)))
        elif item.role == "result":
            text = text_of(event.parts) if isinstance(event, ToolReturned) else ""
            collector.record_result(item, text)
    return collector.list_facts()


class _Collector:
    """The facts found so far, and the calls that wait for their results."""

    def __init__(self, older: Sequence[Fact], standing: Sequence[str]) -> None:
        self._older = {(fact.kind, fact.key): fact for fact in older}
        self._found: dict[tuple[FactKind, str], Fact] = {}
        self._calls: dict[str, tuple[int, Call]] = {}
        self._names: dict[str, Fact] = {}
        self._passages: list[tuple[int, FactKind | None, str]] = []
        for text in standing:
            self.record_passages(0, None, split_passages(text))
        self._shown = len(self._passages)
        self._opened = ""  # the newest relative path
        self.naming = True  # whether names are collected now

    def list_facts(self) -> Facts:
        """List what was found, newest last, without passed tests that no older fold mentions."""
        known = [
            fact
            for thing, fact in self._found.items()
            if not (fact.kind == "test" and fact.text == "passed" and thing not in self._older)
        ]
        return merge_facts((), [*known, *self._list_weighed_facts(), *self._names.values()])

    def _list_weighed_facts(self) -> Iterator[Fact]:
        """Yield what was said and found, weighed among all that was said."""
        weights = weigh_passages([text for _, _, text in self._passages], shown=self._shown)
        for (seq, kind, text), weight in zip(self._passages, weights, strict=True):
            is_told = ("error", text) in self._found
            if kind is not None and weight > _LEAST_WEIGHT and not is_told:
                yield Fact(seq, kind, text, weight=round(weight, 4))

    def record_passages(self, seq: int, kind: FactKind | None, passages: Sequence[Passage]) -> None:
        """Record what a text says; without a kind only to weigh the others among it."""
        some = passages if len(passages) <= _PASSAGES else (*passages[:_ENDS], *passages[-_ENDS:])
        for one in some:
            self._passages.append((seq, kind, " ".join(one.text.split())))

    def record_answer(self, item: Item, event: ModelSaid) -> None:
        words = spoken_text_of(event.parts)
        self.record_passages(item.seq, "said", split_passages(words))
        if tasks := _TASK.findall(words[:_LOOK]):
            lines = "\n".join(f"[{mark}] {task}" for mark, task in tasks)
            self._add_fact(item.seq, "todo", "list", lines)
        self._record_names(item.seq, words, wrote=True)
        self._calls = {call.id: (item.seq, call) for call in calls_of(item.parts)}
        for call in calls_of(item.parts):
            self._record_names(item.seq, _ESCAPED.sub(" ", call.arguments), wrote=True)

    def record_result(self, item: Item, text: str) -> None:
        if item.call_id not in self._calls:
            return
        at, call = self._calls.pop(item.call_id)
        if item.state == "interrupted":
            key = f"{call.name} {_truncate_line(call.arguments)}"
            self._add_fact(item.seq, "call", key, f"since {at}")
            return
        doing = classify_call(call)
        outcome = parse_outcome(text, ok=item.ok, shell=bool(doing.command))
        here = text.strip() if doing.command.strip() == "pwd" else ""
        if outcome.where or (here.startswith("/") and "\n" not in here):
            self._add_fact(item.seq, "where", "folder", outcome.where or here)
        elif _MOVING.search(doing.command):
            self._add_fact(item.seq, "where", "folder", "")  # nobody knows where it went
        if doing.todos is not None and outcome.ok:
            self._add_fact(item.seq, "todo", "list", doing.todos)
        self._record_touches(item.seq, doing, outcome)
        self._record_run(item.seq, doing, outcome)
        for url in list_links(f"{call.arguments}\n{text[:_LOOK]}")[:20]:
            self._add_fact(item.seq, "link", url)
        plain = strip_frames(_COLOURS.sub("", text[:_LOOK]))
        self.record_passages(item.seq, "found", split_passages(plain))
        self._record_names(item.seq, plain, wrote=False)

    def _record_touches(self, seq: int, doing: Act, outcome: Outcome) -> None:
        hashes = {**dict(doing.hashes), **outcome.hashes}
        for path, digest in outcome.hashes.items():
            if path not in [touch.path for touch in doing.touches]:
                self._record_file(seq, Touch("read", self._resolve_path(path)), digest)
        # A command that failed in its last step has still done the steps before.
        done = doing.touches if outcome.ok else () if outcome.missed else doing.before
        for touch in done:
            stated = outcome.stated.endswith(f"/{touch.path}") and not touch.path.startswith("/")
            if stated and outcome.stated.startswith("/"):
                folder = outcome.stated.removesuffix(touch.path).rstrip("/") or "/"
                self._add_fact(seq, "where", "folder", folder)
            path = outcome.stated if stated else self._resolve_path(touch.path)
            self._record_file(seq, Touch(touch.state, path, touch.to), hashes.get(touch.path, ""))
        if outcome.ok and outcome.stated and not doing.touches:
            verb = doing.command.split(maxsplit=1)[0] if doing.command.strip() else ""
            state = "written" if verb in _EDITING else "read"
            self._record_file(seq, Touch(state, self._resolve_edited_path(seq, outcome.stated)), "")

    def _resolve_edited_path(self, seq: int, stated: str) -> str:
        """Resolve the file that an editor shows; a relative path just opened is the same file."""
        short = self._opened
        if short and stated.startswith("/") and stated.endswith(f"/{short}"):
            self._opened = ""
            self._add_fact(seq, "where", "folder", stated.removesuffix(short).rstrip("/"))
            old = self._found.pop(("file", short), None)
            if old is not None:
                self._found["file", stated] = msgspec.structs.replace(old, key=stated)
            return stated
        path = self._resolve_path(stated)
        if not path.startswith("/"):
            self._opened = path
        return path

    def _record_file(self, seq: int, touch: Touch, digest: str) -> None:
        state = f"moved to {touch.to or '?'}" if touch.state == "moved" else touch.state
        self._add_fact(seq, "file", touch.path, f"{state} {digest}" if digest else state)
        if not touch.path.startswith("/"):
            self._opened = touch.path
        if touch.to:
            self._add_fact(seq, "file", touch.to, "written")

    def _record_run(self, seq: int, doing: Act, outcome: Outcome) -> None:
        if doing.command:
            word = "ok" if outcome.ok else "error"
            status = word if outcome.exit is None else f"exit {outcome.exit}"
            self._add_fact(seq, "command", _truncate_line(doing.command), status)
        for line in outcome.faults:
            self._add_fact(seq, "error", line)
        for test in outcome.failed:
            self._add_fact(seq, "test", test, "failed")
        passed = {*outcome.passed} - {*outcome.failed}
        if outcome.all_passed and not outcome.selected and _RUNNERS.search(doing.command):
            passed |= self._list_covered_tests(doing.command)
        for test in sorted(passed):
            if self._find_fact("test", test):
                self._add_fact(seq, "test", test, "passed")

    def _list_covered_tests(self, command: str) -> set[str]:
        """List the known tests that a run covered: all, unless it selected some by name."""
        known = {key for kind, key in (*self._older, *self._found) if kind == "test"}
        texts = (" ".join(step.words) for step in shell_commands.parse_commands(command))
        runs = [text[run.end() :].split() for text in texts if (run := _RUNNERS.search(text))]
        words = [word for run in runs for word in run if word not in (".", "./...")]
        paths = [word.removeprefix("./") for word in words if "/" in word or ".py" in word]
        if any(_CHOOSES.match(word) or _OTHER.fullmatch(word) for word in {*words} - {*paths}):
            return set()
        return {test for test in known if not paths or any(test.startswith(p) for p in paths)}

    def _resolve_path(self, path: str) -> str:
        """Join a relative path to the current folder, where that is known."""
        folder = self._find_fact("where", "folder")
        if not path or path.startswith(("/", "~")) or not folder or not folder.text:
            return path
        return posixpath.normpath(posixpath.join(folder.text, path))

    def _find_fact(self, kind: FactKind, key: str) -> Fact | None:
        return self._found.get((kind, key)) or self._older.get((kind, key))

    def _add_fact(self, seq: int, kind: FactKind, key: str, text: str = "") -> None:
        # One line each, whatever counts as a line end: a tool's words must not forge a heading.
        key = " ".join(key.split())
        text = "\n".join(" ".join(line.split()) for line in text.split("\n"))
        new = Fact(seq, kind, key, text if kind == "todo" else " ".join(text.split()))
        old = self._found.pop((kind, key), None)
        self._found[kind, key] = merge_facts((old,), (new,))[0] if old else new

    def _record_names(self, seq: int, text: str, *, wrote: bool) -> None:
        for name, times in count_names(text[:_LOOK]).items() if self.naming else ():
            new = Fact(seq, "name", name, "" if wrote else "seen", times)
            old = self._names.get(name)
            self._names[name] = merge_facts((old,), (new,))[0] if old else new


def _truncate_line(text: str) -> str:
    flat = " ".join(text[: 4 * _WIDTH].split())
    return flat if len(flat) <= _WIDTH else flat[: _WIDTH - 1] + "…"
