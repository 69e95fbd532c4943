"""The chat's slash commands, and how a line becomes one of them.

`TABLE` has them in the order of /help: to look (`/tokens`, `/context`, …), to edit (`/compact`,
`/undo`, …), the past (`/recall`, `/search`, …), and what comes next (`/model`, `/new`, …). Each is
a function of the talk and of the text after the command's name.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from foldline.agent.checkpoints import describe_change, describe_path
from foldline.apps.chat.approval_prompt import SPAN_WORDS
from foldline.apps.chat.look_commands import (
    show_context,
    show_cost,
    show_fold_status,
    show_instructions,
    show_token_usage,
    show_tools,
)
from foldline.apps.chat.safe import clean_text
from foldline.apps.cli.fold import (
    excluded_lines,
    list_excluded_items,
    lost_lines,
    summary_lines,
)
from foldline.apps.cli.output import (
    apply_style,
    format_size,
    measure_terminal,
    truncate_line,
    wrap_text,
)
from foldline.apps.cli.show_history import (
    build_outline,
    fold_table,
    render_hits,
    render_totals,
    turn_table,
)
from foldline.core import log
from foldline.core.log import by_user
from foldline.core.names import format_count, format_handle
from foldline.core.parts import render_parts, replace_surrogates
from foldline.core.spine import Range
from foldline.draw.wording import clean_line, escape_line, truncate_to_width
from foldline.errors import FoldlineError, Overflow
from foldline.session.carry import PARTS, read_parts
from foldline.session.export_log import Format, export_session
from foldline.session.fold_records import read_fold_records
from foldline.session.model_facts import build_facts

if TYPE_CHECKING:
    from foldline.apps.chat.chat_loop import Talk

__all__ = ["TABLE", "ChatCommand", "Misused", "iterate_completions", "parse_chat_command"]


Work: TypeAlias = "Callable[[Talk, str], Awaitable[None]]"


@dataclass(frozen=True, slots=True)
class ChatCommand:
    """A command that the terminal does itself; the model never sees it."""

    name: str
    help: str
    work: Work
    arguments: str = ""
    choices: "Choices | None" = None
    also: tuple[str, ...] = ()

    @property
    def usage(self) -> str:
        """The command as it is typed."""
        return f"/{self.name} {self.arguments}".rstrip()


_PREVIEW = "--preview"
_CHOICES = 20
_FILES = "files"
_REVOKE = "revoke"
_PLAN_BEGINS = "[Planning: look, and say what you would do. Change nothing until you are told to.]"
_PLAN_ENDS = "[Planning is over: you may change things again.]"
_LOOK = 200  # events read at a time


async def _run_compact(talk: "Talk", given: str) -> None:
    words = given.split()
    focus = " ".join(word for word in words if word != _PREVIEW)
    if _PREVIEW in words:
        lost = await talk.session.fold(focus=focus, preview=True)
        if lost is None:
            talk.show_lines(*_render_nothing_to_fold())
            return
        talk.show_lines(
            *wrap_text("a fold now would do this; nothing was written:"), *lost_lines(lost)
        )
        return
    drawn = talk.update_picture()
    share = 100 * drawn.total / drawn.window
    asked = f"Context: {drawn.total:,}/{drawn.window:,} ({share:.0f}%). Compact conversation? [y/N]"
    if await talk.ask_yes_no(asked):
        await fold_and_report(talk, focus=focus)
    else:
        talk.show_lines(apply_style("nothing was folded", "dim"))


async def fold_and_report(talk: "Talk", *, focus: str = "") -> None:
    """Fold now, and show what left the model's sight and how full the window is."""
    before = talk.update_picture().total
    narrator = talk.session.live.narrator
    talk.hearing.start_activity(
        "folding" if narrator is None else "having it written by the summarizer"
    )
    talk.hearing.quiet = True
    try:
        lost = await talk.session.fold(focus=focus)
    finally:
        talk.hearing.quiet = False
        talk.hearing.stop_activity()
    if lost is None:
        talk.show_lines(*_render_nothing_to_fold())
        return
    talk.reset_picture()
    then = talk.update_picture()
    edit = talk.session.edits[-1]
    text = f"{before:,} tokens became {then.total:,}, edit {edit}:"
    talk.hearing.hide_record()
    record = f"/recall log:{edit} shows the record that now stands, and so does {talk.face.expands}"
    talk.show_lines(
        *summary_lines(lost, rest=record),
        apply_style(text, "strong"),
        *lost_lines(lost),
        *wrap_text(f"{record}; /undo takes it back"),
    )
    talk.show_usage()


def _render_nothing_to_fold() -> list[str]:
    return wrap_text("nothing to fold: what is there is in use, or too little")


async def _undo_edit(talk: "Talk", given: str) -> None:
    if given.strip().lower() == _FILES:
        await _restore_files(talk, again=False)
        return
    if (
        not given
        and not talk.session.edits
        and talk.seat.checkpoints
        and talk.seat.checkpoints.points
    ):
        raise Misused("there is no fold to take back; /undo files takes back what changed on disk")
    edit = parse_number(given, "edit") if given else None
    before = talk.update_picture().total
    which = edit if edit is not None else (talk.session.edits[-1] if talk.session.edits else None)
    try:
        talk.redo = await talk.session.undo(edit)
    except Overflow as fault:
        raise Misused(_explain_lasting_edit(talk, which)) from fault
    talk.reset_picture()
    text = f"edit {which} taken back: {before:,} tokens became {talk.update_picture().total:,}"
    talk.show_text(f"{text}; /redo makes it again")


def _explain_lasting_edit(talk: "Talk", edit: int | None) -> str:
    """Say why an edit cannot be taken back, and where what it hides is."""
    spans = {fold.at: fold.span for fold in talk.update_picture().folds}
    place = format_handle(edit or 0)
    if edit in spans:
        place = format_handle(spans[edit].lo, spans[edit].hi)
    return (
        f"edit {edit} stays: without it the conversation does not fit into the window; "
        f"/recall {place} shows what it hides"
    )


async def _restore_files(talk: "Talk", *, again: bool) -> None:
    """Take back what the newest turn changed on disk, or make it again."""
    files = talk.seat.checkpoints
    if files is None:
        raise Misused("nothing on disk is kept here: this agent has no tools")
    plan = files.plan_redo() if again else files.plan_undo()
    if plan is None:
        raise Misused("no turn of this session has changed files here that were not restored")
    shown = [describe_change(one, files.root) for one in plan.changes]
    rest = [f"… and {len(shown) - _CHOICES:,} more"] if len(shown) > _CHOICES else []
    talk.show_lines(*(truncate_line("  ", line) for line in [*shown[:_CHOICES], *rest]))
    for one in plan.lost:
        talk.show_text(f"not kept, and stays as it is: {describe_path(one, files.root)}")
    if plan.point.partial or files.fault:
        talk.show_text(
            f"a command may have changed more: {files.fault or 'the folder is too large'}"
        )
    if plan.conflicts:
        names = ", ".join(clean_line(describe_path(one, files.root)) for one in plan.conflicts[:5])
        more = f" and {len(plan.conflicts) - 5:,} more" if len(plan.conflicts) > 5 else ""  # noqa: PLR2004
        talk.show_text(f"changed by somebody else since, or in between: {names}{more}")
        if not await talk.ask_yes_no("Restore all the same, and lose these changes? [y/N]"):
            talk.show_lines(apply_style("nothing was restored", "dim"))
            return
    faults = files.restore_files(plan)
    for fault in faults:
        talk.show_text(f"not restored: {clean_line(fault)}")
    done = "made again" if again else "taken back"
    if talk.session.live.view.items:
        names = ", ".join(describe_path(one.path, files.root) for one in plan.changes[:_CHOICES])
        notice = f"[The person has {done} on disk what a turn changed. Read anew: {names}]"
        await talk.session.add(replace_surrogates(notice), speaker="notice")
    other = "/undo files takes it back" if again else "/redo files makes it again"
    talk.show_text(f"{format_count(len(plan.changes) - len(faults), 'path')} {done}; {other}")


async def _plan_first(talk: "Talk", given: str) -> None:
    approvals = talk.seat.approvals
    if approvals is None:
        raise Misused("this agent only talks: it can change nothing")
    if given:
        raise Misused("/plan begins to plan, and /plan again ends it")
    if talk.planning is None:
        talk.planning, approvals.mode = approvals.mode, "none"
        await talk.session.add(_PLAN_BEGINS, speaker="notice")
        talk.show_text("planning: it may look, and changes nothing; /plan again lets it work")
    else:
        approvals.mode, talk.planning = talk.planning, None
        await talk.session.add(_PLAN_ENDS, speaker="notice")
        talk.show_text("it may change things again, as before")


async def _show_permissions(talk: "Talk", given: str) -> None:
    """List what was allowed for longer than once, or revoke one of it."""
    approvals = talk.seat.approvals
    if approvals is None:
        raise Misused("this agent only talks: there is nothing to allow")
    rules = [*reversed(await approvals.list_remembered_rules())]  # what is new gets a new number
    word, _, number = given.partition(" ")
    if word == _REVOKE:
        at = parse_number(number, "permission")
        if not 0 < at <= len(rules):
            raise Misused(f"there is no permission {at}; /permissions lists them")
        await approvals.revoke(rules[at - 1].rule)
        talk.show_text(f"revoked: {escape_line(rules[at - 1].rule)}")
        return
    if given:
        raise Misused("/permissions lists what is allowed, /permissions revoke N takes it back")
    for at, one in enumerate(rules, 1):
        said = f"{SPAN_WORDS[one.span]}: {escape_line(one.rule)}"
        talk.show_lines(*wrap_text(said, title=f"  {at:3} "))
    for rule in approvals.allow:
        talk.show_lines(*wrap_text(f"by the settings: {escape_line(rule)}", title="      "))
    if not rules and not approvals.allow:
        talk.show_text("nothing was allowed for longer than once")
    if rules:
        talk.show_text("/permissions revoke N takes one back")


async def _redo_edit(talk: "Talk", given: str) -> None:
    if given.strip().lower() == _FILES:
        await _restore_files(talk, again=True)
        return
    place = talk.redo if talk.redo is not None else await talk.session.history.taken_back()
    if place is None:
        raise Misused("there is nothing to make again: no edit was taken back last")
    before = talk.update_picture().total
    await talk.session.undo(place)
    talk.redo = None
    talk.reset_picture()
    talk.show_text(f"made again: {before:,} tokens became {talk.update_picture().total:,}")


async def _pin_message(talk: "Talk", given: str) -> None:
    if given:
        await talk.session.pin(await _parse_place(talk, given))
        talk.reset_picture()
    _show_pins(talk)


async def _unpin_message(talk: "Talk", given: str) -> None:
    if not given:
        raise Misused("say what: /unpin 12, /unpin log:12 or /unpin last")
    await talk.session.pin(await _parse_place(talk, given), on=False)
    talk.reset_picture()
    _show_pins(talk)


async def _exclude_messages(talk: "Talk", given: str) -> None:
    if not given:
        raise Misused("say what: /exclude 12, /exclude log:12 log:14 or /exclude last")
    places = [await _parse_place(talk, one) for one in given.replace(",", " ").split()]
    items, before = list_excluded_items(talk.session, places), talk.update_picture().total
    edit = await talk.session.history.exclude(*places)
    talk.reset_picture()
    text = f"edit {edit}: {before:,} tokens became {talk.update_picture().total:,}"
    talk.show_lines(*excluded_lines(items))
    talk.show_text(f"{text}; /undo {edit} brings it back")


async def _parse_place(talk: "Talk", given: str) -> int | str:
    if given.strip().lower() != "last":
        return given.strip() if "(" in given or "-" in given else parse_number(given, "place")
    live = talk.session.live
    if said := [seq for seq, event in live.view.held.items() if by_user(event)]:
        return max(said)
    for high in range(live.view.head, -1, -_LOOK):  # after a fold it is in the log alone
        found = await live.read_events(Range(max(high - _LOOK + 1, 0), high))
        if said := [seq for seq, event in found if by_user(event)]:
            return max(said)
    raise Misused("you have said nothing yet")


def _show_pins(talk: "Talk") -> None:
    pins = ", ".join(f"log:{one}" for one in sorted(talk.session.live.view.pins))
    talk.show_text(f"pinned: {pins}" if pins else "nothing is pinned; /pin last pins your words")


def _list_undoable(talk: "Talk") -> Iterable[tuple[str, str]]:
    if talk.seat.checkpoints is not None:
        yield _FILES, "what the last turn changed on disk"
    yield from _list_edits(talk)


def _list_edits(talk: "Talk") -> Iterable[tuple[str, str]]:
    for edit in reversed(talk.session.edits[-_CHOICES:]):
        event = talk.session.live.view.held.get(edit)
        yield str(edit), log.event_kind_of(event) if event is not None else "edit"


def _list_messages(talk: "Talk") -> Iterable[tuple[str, str]]:
    yield "last", "your last message"
    newest = talk.session.live.view.iterate_newest(log.UserSaid, log.ModelSaid)
    for seq, event in islice(newest, _CHOICES):
        yield f"log:{seq}", truncate_to_width(clean_line(render_parts(event.parts)[:200]), 50)


def _list_pins(talk: "Talk") -> Iterable[tuple[str, str]]:
    return ((f"log:{one}", "pinned") for one in sorted(talk.session.live.view.pins))


class Misused(FoldlineError):  # noqa: N818 - named for what happened
    """A command that does not exist, or that was written wrong; nothing was done."""


def parse_number(text: str, what: str) -> int:
    """Parse a place in the log or a size: 12, or log:12."""
    plain = text.strip().removeprefix("log:").replace(",", "").replace("_", "")
    if not plain.isdecimal() or len(plain) > 15:  # noqa: PLR2004 - no log is so long
        raise Misused(f"{clean_line(text)!r} is no {what}; write a number")
    return int(plain)


_EVERYWHERE, _FOLDS = "--everywhere", "--folds"
_LIMIT = 20
_PAGE = 4_000  # tokens of an original shown at once
_FORMS: dict[str, Format] = {".md": "markdown", ".json": "openai"}
_TURNS = 30
_SHOWN = 40  # models listed


async def _recall_original(talk: "Talk", given: str) -> None:
    if not given:
        raise Misused("say what: /recall log:12; /search finds places")
    handle = f"log:{given}" if given.isdecimal() else given
    talk.show_lines(clean_text(await talk.session.recall(handle, most=_PAGE)).rstrip("\n"))


async def _search_history(talk: "Talk", given: str) -> None:
    words = " ".join(word for word in given.split() if word != _EVERYWHERE)
    if not words:
        raise Misused("say what: /search WORDS; --everywhere looks in all sessions")
    found = await talk.session.history.search(
        replace_surrogates(words), everywhere=_EVERYWHERE in given.split(), limit=_LIMIT
    )
    talk.show_lines(*render_hits(found, words, _LIMIT, way="/recall log:N gives the whole one"))


async def _show_history(talk: "Talk", given: str) -> None:
    turns = await talk.session.history.turns()
    folds = await read_fold_records(talk.session.live, turns)
    if given == _FOLDS:
        talk.show_lines(*fold_table(folds))
        return
    body = build_outline(talk.session, turns, folds)
    if len(turns) > _TURNS:
        talk.show_lines(
            apply_style(f"… {format_count(len(turns) - _TURNS, 'earlier turn')}", "dim")
        )
    talk.show_lines(*turn_table(turns[-_TURNS:]), *render_totals(body))


async def _export_session(talk: "Talk", given: str) -> None:
    name = talk.session.live.name.session
    file = Path(given or f"{name.replace('/', '-')}.md").expanduser()  # noqa: ASYNC240 - a moment
    if file.exists() and not await talk.ask_yes_no(
        f"{file} is there already. Write over it? [y/N]"
    ):
        talk.show_lines(apply_style("nothing was written", "dim"))
        return
    form = _FORMS.get(file.suffix, "jsonl")
    events = await talk.session.history.events()
    body = export_session(talk.session, events, form, sight=False)
    file.write_bytes(body)
    talk.show_text(
        f"wrote {file}: {format_count(len(events), 'event')} as {form}, {format_size(len(body))}"
    )


def _list_handles(talk: "Talk") -> Iterable[tuple[str, str]]:
    for fold in reversed(talk.update_picture().folds):
        text = f"what a fold covers: {format_count(fold.messages, 'message')}"
        yield f"log:{fold.span.lo}-{fold.span.hi}", text


async def _pick_model(talk: "Talk") -> str:
    """Show what the server has, and let a person choose; "" if they do not."""
    drawn = talk.update_picture()
    talk.show_text(f"{clean_line(drawn.model)}, window {drawn.window:,}")
    ask = talk.seat.list_models
    names = [] if ask is None else [*await ask()]
    if not names:
        talk.show_text("its server lists no models; /model NAME [WINDOW] takes another")
        return ""
    for at, name in enumerate(names[:_SHOWN], 1):
        talk.show_lines(truncate_line(f"  {at:3} ", name))
    if len(names) > _SHOWN:
        talk.show_text(f"and {len(names) - _SHOWN:,} more: write a part of the name")
    said = replace_surrogates((await talk.face.ask("Which? [number or name] ") or "").strip())
    if said.isdecimal() and 0 < int(said) <= len(names):
        return names[int(said) - 1]
    if len(said.split()) > 2:  # noqa: PLR2004 - a name and a window at most
        talk.face.put_back(said)
        talk.show_text("that names no model; what you wrote is kept for afterwards")
        return ""
    near = [name for name in names if said.lower() in name.lower()]
    if not said or said in names or len(near) != 1:
        return said
    return near[0]


async def _switch_model(talk: "Talk", given: str) -> None:
    session, drawn = talk.session, talk.update_picture()
    if not given:
        given = await _pick_model(talk)
    if not given:
        return
    name, _, size = replace_surrogates(given).partition(" ")
    window = parse_number(size, "window") if size.strip() else None
    facts = build_facts(name, window=window, reserve=None, policy=session.live.facts.policy)
    limits = facts.limits
    source = "assumed" if limits.source == "default" else limits.source
    text = (
        f"{clean_line(name)}: a window of {limits.window:,} ({source}); {drawn.total:,} "
        f"tokens stand"
    )
    if drawn.total > limits.window - limits.reserve:
        text += ", too many: what is old is folded first"
    else:
        text += " and fit"
    new = talk.seat.models(name)  # raises before the question, if it is another provider's model
    talk.show_text(text)
    if not await talk.ask_yes_no("Switch? What the provider had cached is written anew. [y/N]"):
        await new.close()
        talk.show_lines(apply_style("nothing was changed", "dim"))
        return
    try:
        await session.switch(name, window=window)
    except BaseException:
        await new.close()
        raise
    talk.seat.agent.model = new  # the old one may still write narratives: the talk closes it
    talk.reset_picture()
    talk.show_text(f"{clean_line(name)} answers from here on")
    talk.show_usage()


async def _expand_hidden(talk: "Talk", given: str) -> None:
    number = parse_number(given, "number") if given else 1
    if not talk.hearing.open_hidden(number):
        raise Misused("nothing was folded away here; /recall HANDLE shows what the log has")


def _list_hidden(talk: "Talk") -> Iterable[tuple[str, str]]:
    for at, one in enumerate(reversed(talk.hearing.hidden), 1):
        yield str(at), truncate_to_width(clean_line(one.title), 60)


async def _remember_text(talk: "Talk", given: str) -> None:
    if talk.seat.instructions is None:
        raise Misused("there is no memory file here; write it into AGENTS.md")
    if not given:
        raise Misused("say what: /remember The tests need Python 3.12")
    line = talk.seat.instructions.remember_line(replace_surrogates(given))
    talk.show_text(f"kept in {clean_line(str(talk.seat.instructions.memory))}: {clean_line(line)}")


async def _retry_answer(talk: "Talk", _: str) -> None:
    """Ask again; an answer that is there, whole or cut, leaves the model's sight first."""
    if (place := await talk.session.history.withdraw_answer()) is not None:
        talk.reset_picture()
        talk.show_text(f"the model no longer sees its earlier answer; /recall log:{place} shows it")
    await talk.go_on()


async def _carry_session(talk: "Talk", given: str) -> None:
    name, _, words = replace_surrogates(given).partition(" ")
    if not name:
        raise Misused(f"say which: /carry NAME [PARTS]; the parts are {', '.join(PARTS)}")
    chosen = read_parts(words) if words.strip() else None
    seen = await talk.session.carry(name, parts=chosen, preview=True)
    talk.show_text(clean_line(str(seen)))
    if not await talk.ask_yes_no("Carry it into this session? [y/N]"):
        talk.show_lines(apply_style("nothing was carried", "dim"))
        return
    await talk.session.carry(name, parts=chosen)
    talk.reset_picture()
    talk.show_text(f"carried, as log:{talk.session.live.view.head}; the next message goes on")
    talk.show_usage()


async def _start_session(talk: "Talk", given: str) -> None:
    talk.switch_session(replace_surrogates(given))


async def _open_session(talk: "Talk", given: str) -> None:
    if not given:
        raise Misused("say which: /open NAME; `foldline sessions` lists them")
    talk.switch_session(replace_surrogates(given), known=True)


async def _show_help(talk: "Talk", _: str) -> None:
    wide = max(len(one.usage) for one in TABLE)
    if measure_terminal() < wide + 20:
        wide = 18
    for one in TABLE:
        line = f"  {one.usage:{wide}}  {one.help}"
        talk.show_lines(truncate_to_width(line, measure_terminal()))
    talk.show_lines(
        "",
        *(
            apply_style(truncate_to_width(f"  {line}", measure_terminal()), "dim")
            for line in (
                "Enter sends · Alt-Enter, Ctrl-J or \\ at the end begins a new line",
                "Ctrl-C stops an answer, clears the line, and twice leaves · Ctrl-D leaves",
                "Ctrl-O shows in full what was folded away: output, changes, reasoning, records",
                "what you enter while an answer comes is sent after it",
                "@file goes along with a message · !command runs here, and may go along",
                "//text says something that begins with a slash",
            )
        ),
    )


async def _leave_talk(talk: "Talk", _: str) -> None:
    talk.face.leave()


def _list_models(talk: "Talk") -> Iterable[tuple[str, str]]:
    from foldline.models import catalog  # noqa: PLC0415 - only completion needs it

    served = talk.model_names
    yield from ((name, "of this server") for name in served)
    yield from ((name, "") for name in catalog.list_model_names() if name not in served)


def _list_carried(talk: "Talk") -> Iterable[tuple[str, str]]:
    return (*_list_sessions(talk), *((part, "a part of its record") for part in PARTS))


def _list_sessions(talk: "Talk") -> Iterable[tuple[str, str]]:
    return ((name, "a session") for name in talk.names)


TABLE: tuple[ChatCommand, ...] = (
    ChatCommand("tokens", "how full the window is, and how long it will do", show_token_usage),
    ChatCommand("context", "what the model sees now, drawn", show_context),
    ChatCommand("cost", "what was spent", show_cost),
    ChatCommand("compaction-status", "when folding happens, and how it went", show_fold_status),
    ChatCommand("tools", "what the model may have done", show_tools),
    ChatCommand("instructions", "what the model is told first", show_instructions),
    ChatCommand(
        "compact",
        "fold what is old now; FOCUS is kept above all",
        _run_compact,
        "[FOCUS] [--preview]",
        choices=lambda _: ((_PREVIEW, "only say what would leave the model's sight"),),
        also=("fold",),
    ),
    ChatCommand(
        "undo",
        "take back the last fold, or what changed on disk",
        _undo_edit,
        "[EDIT|files]",
        choices=_list_undoable,
    ),
    ChatCommand(
        "redo",
        "make again what was taken back",
        _redo_edit,
        "[files]",
        choices=lambda _: ((_FILES, "what was taken back on disk"),),
    ),
    ChatCommand(
        "permissions",
        "what you have allowed for longer than once",
        _show_permissions,
        "[revoke N]",
        choices=lambda _: ((_REVOKE, "no longer allow it; the list has the number"),),
    ),
    ChatCommand("plan", "let it look only, until /plan again", _plan_first),
    ChatCommand(
        "pin",
        "keep a message word for word through every fold",
        _pin_message,
        "[last|N|HANDLE]",
        choices=_list_messages,
    ),
    ChatCommand("unpin", "no longer", _unpin_message, "last|N|HANDLE", choices=_list_pins),
    ChatCommand(
        "exclude",
        "take messages out of the model's sight",
        _exclude_messages,
        "PLACE...",
        choices=_list_messages,
    ),
    ChatCommand(
        "recall",
        "the original of anything, by its handle",
        _recall_original,
        "HANDLE",
        choices=_list_handles,
    ),
    ChatCommand(
        "expand",
        "all of an output, a change or a reasoning; N is how far back",
        _expand_hidden,
        "[N]",
        choices=_list_hidden,
    ),
    ChatCommand(
        "search",
        "find what was said",
        _search_history,
        "WORDS [--everywhere]",
        choices=lambda _: ((_EVERYWHERE, "in all sessions"),),
    ),
    ChatCommand(
        "history",
        "the turns of this session, or its folds",
        _show_history,
        "[--folds]",
        choices=lambda _: ((_FOLDS, "turns, tokens and cost of each fold"),),
    ),
    ChatCommand(
        "export",
        "write it out: .md to read, .json for OpenAI, else the log",
        _export_session,
        "[FILE]",
    ),
    ChatCommand(
        "model", "go on with another model", _switch_model, "[NAME [WINDOW]]", choices=_list_models
    ),
    ChatCommand("retry", "ask again; the answer so far goes out of sight", _retry_answer),
    ChatCommand("remember", "keep it for all later sessions", _remember_text, "TEXT"),
    ChatCommand("new", "begin another session", _start_session, "[NAME]"),
    ChatCommand(
        "carry",
        "take in the record of another session, or parts of it",
        _carry_session,
        "NAME [PARTS]",
        choices=_list_carried,
    ),
    ChatCommand(
        "open", "go on with another session", _open_session, "NAME", choices=_list_sessions
    ),
    ChatCommand("help", "this", _show_help, also=("?",)),
    ChatCommand("quit", "leave; the session stays", _leave_talk, also=("exit", "q")),
)
"""Every command, in the order of /help."""
Choices: TypeAlias = "Callable[[Talk], Iterable[tuple[str, str]]]"
"""Lists the words that may follow a command, as (word, meaning)."""


def parse_chat_command(table: Sequence[ChatCommand], text: str) -> tuple[ChatCommand, str]:
    """Find the command of a line that begins with a slash; return it and the rest of the line."""
    name, _, rest = text[1:].partition(" ")
    wanted = name.strip().lower()
    for one in table:
        if wanted in (one.name, *one.also):
            return one, rest.strip()
    every = [word for one in table for word in (one.name, *one.also)]
    begun = [one for one in every if wanted and one.startswith(wanted)]
    near = begun[:3] or get_close_matches(wanted, every, n=2)
    hint = f"did you mean {' or '.join(f'/{one}' for one in near)}?" if near else "/help lists all"
    raise Misused(f"there is no command /{clean_line(name)}; {hint} (//… says it to the model)")


def iterate_completions(
    table: Sequence[ChatCommand], talk: "Talk", text: str
) -> Iterable[tuple[str, str]]:
    """Yield completions of a line that begins with a slash, as (word, meaning)."""
    name, space, rest = text[1:].partition(" ")
    if not space:
        for one in table:
            if one.name.startswith(name.lower()):
                yield f"/{one.name}", one.help
        return
    for one in table:
        if name in (one.name, *one.also) and one.choices is not None:
            last = rest.rpartition(" ")[2]
            for word, meaning in one.choices(talk):
                if word.lower().startswith(last.lower()) and word != last:
                    yield word, meaning
