"""`[[gateway.limits]]`: what operators may write, and which limits hold for whom."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.errors import BadInput
from foldline.settings.kinds import SettingError
from foldline.settings.layers import list_problems, load_settings
from foldline.settings.limit_rules import choose_limits, parse_limit_rules

CALL = {"tenant": "acme", "owner": "alice", "key": "laptop", "model": "claude-opus-4-6"}
FILE = """
[[gateway.limits]]
tenant = "acme"
owner = "*"
dollars_per_day = 20
soft = 0.8

[[gateway.limits]]
model = "claude-opus-*"
tokens_per_minute = 1_000_000
"""


def write(folder, text):
    (folder / "foldline").mkdir(exist_ok=True)
    file = folder / "foldline" / "foldline.toml"
    file.write_text(text)
    return file


def test_tables_of_the_file_are_read(tmp_path):
    write(tmp_path, FILE)
    rules = load_settings(tmp_path, env={"XDG_CONFIG_HOME": str(tmp_path)}).gateway.limits
    found = {(one.describe_subject(), one.measure): one.limit for one in choose_limits(rules, CALL)}
    assert found == {
        ("tenant acme, owner alice", "dollars_per_day"): 20 * 10**12,
        ("model claude-opus-*", "tokens_per_minute"): 1_000_000,
    }
    assert choose_limits(rules, CALL)[0].soft == 0.8


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("dollars_per_week = 5", "there is no"),
        ('owner = "*"', "it limits nothing"),
        ('owner = ""\nconcurrent_calls = 1', "owner is a name or a pattern"),
        ("dollars_per_day = -1", "dollars_per_day are dollars"),
        ("requests_per_minute = 1.5", "is a whole number"),
        ("requests_per_minute = true", "is a whole number"),
        ("concurrent_calls = 1\nsoft = 2", "soft is a share"),
        ('key = "a"\nstored_bytes = 1', "stored_bytes are those of"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path, line, told):
    file = write(tmp_path, f"[[gateway.limits]]\n{line}\n")
    with pytest.raises(BadInput, match=told):
        load_settings(tmp_path, env={"XDG_CONFIG_HOME": str(tmp_path)})
    (problem,) = list_problems(tmp_path, alone=file)
    assert problem.startswith(f"{file}:1: gateway.limits")


@pytest.mark.parametrize("value", ["x", 5, [5], {"owner": "*"}])
def test_what_is_no_list_of_tables_is_refused(value):
    with pytest.raises(SettingError):
        parse_limit_rules(value)


NAMES = st.sampled_from(["alice", "bob", "ci-1", "*", "ci-*", "a*", "alice*"])


@given(st.lists(st.tuples(NAMES, st.integers(0, 9)), max_size=6))
def test_of_rules_for_the_same_thing_exactly_one_sets_the_limit_and_none_fits_better(written):
    rules = parse_limit_rules([{"owner": owner, "concurrent_calls": n} for owner, n in written])
    found = choose_limits(rules, CALL)
    fitting = [rule for rule in rules if rule.find_subject(CALL) is not None]
    assert len(found) == bool(fitting)
    if found:
        best = max(rule.find_rank() for rule in fitting)
        last = [rule for rule in fitting if rule.find_rank() == best][-1]
        assert found[0].limit == last.limits["concurrent_calls"]


def test_a_rule_is_shown_in_one_line():
    table = {"tenant": "acme", "owner": "*", "dollars_per_day": 20, "concurrent_calls": "unlimited", "soft": 0.8}  # fmt: skip
    (rule,) = parse_limit_rules([table])
    assert str(rule) == "tenant=acme owner=* concurrent_calls=unlimited dollars_per_day=20 soft=0.8"


def test_config_show_shows_limits(tmp_path):
    write(tmp_path, FILE)
    (tmp_path / "here").mkdir()
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "foldline", "config", "show"]
    shown = subprocess.run(command, cwd=tmp_path / "here", env=env, capture_output=True, text=True, check=False)  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert "tenant=acme owner=*" in shown.stdout
