"""A model's own tokenizer: exact counts where it matters, and nowhere else."""

import builtins

import pytest

import foldline
from foldline.errors import BadInput

LAO = "ມະນຸດທຸກຄົນເກີດມາມີກຽດສັກສີ ສິດທິ ເສລີພາບ ແລະ ຄວາມສະເໝີພາບເທົ່າທຽມກັນ "
PROSE = "Most of the tests pass when the file is read in one piece, and nobody complained. "


@pytest.fixture
def ranks(shared, monkeypatch):
    pytest.importorskip("tiktoken")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(shared / "data" / "tiktoken"))


def send(text, **given):
    with foldline.open(":memory:", model="gpt-4o", window=8_192, reserve=64, **given) as s:
        s.add(text)
        (sent,) = s.request()["messages"]
        return sent["content"]


@pytest.mark.usefixtures("ranks")
@pytest.mark.parametrize("name", ["o200k_base", "cl100k_base"])
def test_more_of_a_text_is_sent_where_it_is_counted(name):
    import tiktoken  # noqa: PLC0415 - it looks for its ranks when it is first used

    encoding = tiktoken.get_encoding(name)
    bounded, counted = send(LAO * 600), send(LAO * 600, tokenizer=name)
    assert len(counted) > 1.1 * len(bounded)
    assert 0.75 * 8_192 < len(encoding.encode_ordinary(counted)) < 8_192 - 64


def test_a_function_of_ones_own():
    """Of a server that counts each letter."""
    asked = []

    def count(text):
        asked.append(text)
        return len(text)

    sent = send(PROSE * 400, tokenizer=count)
    assert asked
    assert 0.8 * 8_192 < len(sent) < 8_192 - 64


def test_it_is_not_asked_far_from_the_limit():
    def count(text):
        raise AssertionError(f"asked for {text!r}")

    with foldline.open(":memory:", model="m", window=131_072, tokenizer=count) as s:
        for turn in range(10):
            s.add(f"{turn} {PROSE * 5}")
            s.request()
            s.add({"role": "assistant", "content": "So they do."})


def test_each_message_is_counted_once():
    asked = []

    def count(text):
        asked.append(text)
        return len(text) // 3

    with foldline.open(":memory:", model="m", window=4_096, tokenizer=count) as s:
        for turn in range(40):
            s.add(f"{turn} {PROSE * 6}")
            s.request()
            s.add({"role": "assistant", "content": f"So they do {turn}."})
        assert s.edits
    whole = [text for text in asked if text.startswith("30 ")]
    assert 1 <= len(whole) <= 2, "on arrival and in view"


@pytest.mark.parametrize(
    ("wrong", "told"), [("o9000", "o200k_base"), (5, "function"), ("", "not known")]
)
def test_what_is_no_tokenizer(wrong, told):
    with pytest.raises(BadInput, match=told):
        foldline.open(":memory:", model="m", tokenizer=wrong)


def test_ranks_are_never_downloaded(tmp_path, monkeypatch):
    pytest.importorskip("tiktoken")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with pytest.raises(BadInput, match="get_encoding"):
        foldline.open(":memory:", model="m", tokenizer="o200k_base")


def test_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "other"))
    real = builtins.__import__

    def without(name, *rest):
        if name == "tiktoken":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(BadInput, match=r"foldline\[tokenizers\]"):
        foldline.open(":memory:", model="m", tokenizer="o200k_base")
