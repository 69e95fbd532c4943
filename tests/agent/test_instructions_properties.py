"""Instructions, for all budgets and all graphs of imports."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from foldline.agent.instructions import instruction_files
from foldline.agent.instructions.instruction_files import Boundary, read_units
from foldline.agent.instructions.standing import NOTICE, FilePiece, RoomLeft, fit_pieces
from foldline.core.tokens import count_tokens

WORDS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=300),
    st.text("abc de\n", min_size=200, max_size=2_000),
    st.text("é日👩‍🚀e\u0301 ", max_size=400),
)


@st.composite
def some_pieces(draw):
    texts = draw(st.lists(WORDS, min_size=1, max_size=6))
    near = draw(st.permutations(range(len(texts))))
    newest = draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts)))
    return [
        FilePiece(f"[instructions: {at}.md]", text, len(text.encode()), (near[at],), newest[at])
        for at, text in enumerate(texts)
    ]


@settings(deadline=None)
@given(some_pieces(), st.integers(0, 1_200), st.integers(0, 6_000))
def test_r59_a_budget_is_never_exceeded_the_nearest_has_room_first_and_order_is_kept(
    pieces, tokens, size
):
    fits = fit_pieces(pieces, RoomLeft(tokens, size))
    told = [fit.text for fit in fits if fit.text is not None]
    assert sum(map(count_tokens, told)) <= tokens
    assert sum(len(text.encode()) for text in told) <= size
    assert len(fits) == len(pieces)
    for piece, fit in zip(pieces, fits, strict=True):
        if fit.text is None:
            assert not fit.whole
            assert fit.tokens == 0
            continue
        assert fit.text.startswith(piece.head)  # each in its own place
        assert fit.tokens == count_tokens(fit.text)
        if fit.whole:
            assert fit.text == f"{piece.head}\n{piece.text}"
        else:
            assert NOTICE in fit.text
            kept = kept_of(piece, fit.text)
            assert (
                piece.text.strip("\n").startswith(kept.strip("\n"))
                or piece.newest
                or kept in piece.text
            )
            assert kept in piece.text
            assert f"{len(kept.encode()):,} of {piece.size:,} bytes" in fit.text
    nearest_first = sorted(zip(pieces, fits, strict=True), key=lambda both: both[0].near)
    room = RoomLeft(tokens, size)
    for piece, fit in nearest_first:  # each as if nothing farther were there
        assert fit == fit_pieces([piece], room)[0]
        room = room.reduce_by(fit.text) if fit.text is not None else room


def kept_of(piece, text):
    rest = text.removeprefix(piece.head).removeprefix("\n")
    if piece.newest:
        return rest.split("\n", 2)[2] if rest.count("\n") > 1 else ""
    at = rest.rindex(NOTICE)
    return rest[:at].removesuffix("\n")


def test_r59_the_nearest_wins_room_whatever_the_order_of_display():
    far = FilePiece("[instructions: AGENTS.md]", "far " * 400, 1_600, (2,))
    near = FilePiece("[instructions: a/AGENTS.md]", "near " * 400, 2_000, (0,))
    room = RoomLeft(count_tokens(f"{near.head}\n{near.text}") + 60, 100_000)
    first, second = fit_pieces([far, near], room)
    assert second.whole
    assert not first.whole
    assert first.text
    assert first.text.splitlines()[-2] == "[instructions truncated to fit limit]"
    assert first.text.splitlines()[-1].endswith(" of 1,600 bytes")


@pytest.mark.parametrize("letter", ["e\u0301", "👩‍🚀", "👍🏽", "日"])
def test_r59_a_cut_falls_between_characters_and_not_inside_of_one(letter):
    piece = FilePiece("[instructions: x.md]", letter * 500, len(letter.encode()) * 500)
    for size in range(120, 180):
        (fit,) = fit_pieces([piece], RoomLeft(10_000, size))
        kept = kept_of(piece, fit.text)
        assert kept == letter * (len(kept) // len(letter))


GRAPHS = st.dictionaries(
    st.integers(0, 7),
    st.lists(
        st.one_of(
            st.integers(0, 7).map(lambda n: f"@{n}.md"),
            st.integers(0, 7).map(lambda n: f"@d/../{n}.md"),
            st.sampled_from(
                [
                    "@../out.md",
                    "@/out.md",
                    "@~/home.md",
                    "@link.md",
                    "@dir/out.md",
                    "@.",
                    "@./",
                    "@a/\x00b.md",
                ]
            ),
        ),
        max_size=6,
    ),
    max_size=8,
)


@settings(deadline=None, max_examples=150)
@given(GRAPHS)
@example({0: ["@0.md"]})
def test_imports_of_any_graph_end_once_each_and_inside(graph):
    with tempfile.TemporaryDirectory() as name:
        top = Path(name).resolve()
        root, home = top / "root", top / "home"
        for folder in (root / "d", home, top / "aside"):
            folder.mkdir(parents=True)
        for path in (top / "out.md", home / "home.md", top / "aside/out.md"):
            path.write_text("OUTSIDE")
        (root / "link.md").symlink_to(top / "out.md")
        (root / "dir").symlink_to(top / "aside")
        for node in range(8):
            (root / f"{node}.md").write_text("\n".join([f"node {node}", *graph.get(node, [])]))
        units = read_units(Boundary(root, home=home), ("0.md",), scope="root", most=10_000)
        paths = [source.path for source in units[0].sources]
        assert len(paths) == len({*paths})
        assert len(paths) <= instruction_files.FILES + 1
        for source in units[0].sources:
            assert b"OUTSIDE" not in source.body
            assert source.why or source.path.is_relative_to(root)
        assert {one.path for one in units[1:]} <= {home / "home.md"}  # asked about by itself
        reached, edge = {0}, [0]
        for _ in range(instruction_files.DEPTH):
            edge = [int(t[-4]) for n in edge for t in graph.get(n, []) if t[-4:-3].isdigit()]
            reached |= {*edge}
        assert {int(one.path.stem) for one in units[0].sources if not one.why} == reached


def test_imports_without_end_stop_at_a_number(tmp_path):
    (tmp_path / "AGENTS.md").write_text("".join(f"@{n}.md\n" for n in range(500)))
    for n in range(500):
        (tmp_path / f"{n}.md").write_text("x")
    (one,) = read_units(Boundary(tmp_path), ("AGENTS.md",), scope="root", most=10_000)
    assert sum(not source.why for source in one.sources) == instruction_files.FILES + 1
