"""The user's own file wins over the catalogue; whose word goes first (R-07)."""

import pytest

import foldline
from foldline.errors import BadInput
from foldline.models.catalog import find, resolve_model, resolve_overrides_path, said_of
from foldline.models.servers import Reported
from foldline.session.model_facts import build_facts


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Write the file, where it is looked for."""
    monkeypatch.delenv("FOLDLINE_MODELS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def write(text: str):
        resolve_overrides_path().parent.mkdir(exist_ok=True)
        resolve_overrides_path().write_text(text)

    return write


def test_the_file_wins_field_by_field(file):
    assert resolve_model("gpt-5") == find("gpt-5")  # no file, no change
    file('["gpt-5"]\nmax_output = 9\n["my.model"]\nwindow = 5_000\ninput = 2\nread = 0.5\n')
    gpt = resolve_model("openai/gpt-5")
    assert (gpt.window, gpt.max_output, gpt.source) == (400_000, 9, "catalogue")
    assert gpt.prices == find("gpt-5").prices
    mine = resolve_model("somebody/my.model")
    assert (mine.window, mine.source, mine.prices.input, mine.prices.read) == (
        5_000,
        "user",
        2,
        0.5,
    )
    assert said_of("my.model") == ("window", "input", "read")
    file('["gpt-5"]\nread = 0.01\n')  # read again when it changes
    assert resolve_model("gpt-5").prices.read == 0.01
    assert resolve_model("gpt-5").prices.output == find("gpt-5").prices.output


def test_a_session_believes_the_file(file):
    file('["gpt-5"]\nwindow = 50_000\n')
    report = foldline.open(":memory:", model="openai/gpt-5").report
    assert (report.window, report.window_source) == (50_000, "user")


def test_whose_word_goes_first(file):
    said = Reported(8_192, None, None, "/props n_ctx")
    plain = {"reserve": None, "policy": "steady"}

    def of(**given):
        limits = build_facts("gpt-5", **{"window": None, **plain, **given}).limits
        return limits.window, limits.source

    assert of() == (400_000, "catalogue")
    file('["gpt-5"]\nwindow = 50_000\n')
    assert of() == (50_000, "user")
    assert of(reported=said) == (8_192, "provider")
    assert of(reported=said, window=9_000) == (9_000, "user")
    assert of(reported=Reported(None, 7, None, "")) == (50_000, "user")
    assert build_facts("x-y-z", window=None, **plain).limits.source == "default"


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("window = 7", 'write ["window"] and below it window = 32768'),
        ("[", "is no TOML"),
        ('["m"]\nwindow = -1', "write tokens, as in window = 32768"),
        ('["m"]\nwindow = "8k"', "write tokens, as in window = 32768"),
        ('["m"]\nwindow = true', "write tokens"),
        ('["m"]\ninput = "free"', "write dollars for a million tokens, as in input = 0.25"),
        ('["m"]\ncontext = 7', "has 'context'; write window, max_input"),
        ("[gpt-5.5]\nwindow = 7", "names with dots in quotes"),
    ],
)
def test_a_broken_file_says_what_to_write(file, text, advice):
    file(text)
    with pytest.raises(BadInput) as raised:
        resolve_model("m")
    assert advice in str(raised.value)


def test_a_named_file_must_be_there(monkeypatch, tmp_path):
    monkeypatch.setenv("FOLDLINE_MODELS", str(tmp_path / "none.toml"))
    with pytest.raises(BadInput, match="unset it, or write the file"):
        resolve_model("m")
