"""Settings as the papers name them → a policy and limits.

Knows every name that may stand in a settings file, in TOML or YAML alike, and what to write instead
of a wrong one. Refuses to know files: whoever reads one gives its content here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias, cast

from foldline.core.policy import Clipping, How, Masking, Policy, named
from foldline.errors import BadInput

Value: TypeAlias = str | int | float | bool | None
_HOWS: tuple[How, ...] = ("head", "tail", "both", "lines", "ends")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a settings file says, checked."""

    policy: Policy
    model: str | None = None
    window: int | None = None
    """`model.max_input_tokens`: wins over whatever else is known."""
    reserve: int | None = None
    """The turns before its span that a fold reads again."""
    prompt_template: str = ""
    max_tool_iterations: int = 25
    on_disconnect: Literal["pause", "continue"] = "pause"


Change: TypeAlias = Callable[[Settings, Any], Settings]


def read(given: Mapping[str, Any]) -> Settings:
    """Settings from a file's content; tables may be nested or written with dots."""
    flat = _flat(given)
    names = [_text(key, flat.pop(key, "")) for key in ("model.provider", "model.name")]
    settings = Settings(
        policy=named(_text("policy", flat.pop("policy", "steady"))),
        model="/".join(name for name in names if name) or None,
    )
    for name, value in flat.items():
        settings = _change(name)(settings, value)
    return settings


def _flat(given: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in given.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= _flat(cast("Mapping[str, Any]", value), f"{name}.")
        else:
            flat[name] = value
    return flat


def _change(name: str) -> Change:
    if name.startswith("context.tools."):
        _, _, tool, *rest = name.split(".")
        if rest == ["max_tool_result_tokens"]:
            return lambda s, v: _tool(s, tool, tokens=_positive(name, v))
        if rest == ["tool_result_truncation"]:
            return lambda s, v: _tool(s, tool, how=_how(name, v))
    if name in _NAMES:
        return _NAMES[name]
    near = get_close_matches(name, _NAMES, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(_NAMES))}"
    raise BadInput(f"there is no setting {name!r}; {hint}")


def _policy(settings: Settings, **changes: Any) -> Settings:
    return replace(settings, policy=replace(settings.policy, **changes))


def _clip(settings: Settings, **changes: Any) -> Settings:
    return _policy(settings, clip=replace(settings.policy.clip, **changes))


def _tool(settings: Settings, tool: str, **changes: Any) -> Settings:
    own = replace(settings.policy.clipping(tool), **changes)
    clips: dict[str, Clipping] = {**settings.policy.clips, tool: own}
    return _policy(settings, clips=clips)


def _keep(settings: Settings, **changes: int) -> Settings:
    kept = replace(settings.policy.mask or Masking(first=0, last=0), **changes)
    return _policy(settings, mask=kept)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise BadInput(f"{name} = {value!r}: write it in quotes")
    return value


def _yes(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise BadInput(f"{name} = {value!r}: write true or false")
    return value


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadInput(f"{name} = {value!r}: write a whole number, 0 for none")
    return value


def _positive(name: str, value: Any) -> int:
    if _count(name, value) == 0:
        raise BadInput(f"{name} = 0: write a number above 0; to clip nothing, a very large one")
    return value


def _share(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise BadInput(f"{name} = {value!r}: write a share of the window between 0 and 1, like 0.7")
    return float(value)


def _how(name: str, value: Any) -> How:
    for how in _HOWS:
        if value == how:
            return how
    raise BadInput(f"{name} = {value!r}: write one of {', '.join(_HOWS)}")


def _disconnect(settings: Settings, value: Any) -> Settings:
    if value not in ("pause", "continue"):
        raise BadInput(f"session.on_disconnect = {value!r}: write pause or continue")
    return replace(settings, on_disconnect=value)


def _threshold(name: str) -> Change:
    return lambda s, v: _policy(s, soft=_share(name, v), soft_of="window")


_CONTEXT = "session.context."
_NAMES: dict[str, Change] = {
    "model.provider": lambda s, _: s,  # read together with the name
    "model.name": lambda s, _: s,
    "model.max_input_tokens": lambda s, v: replace(
        s, window=_positive("model.max_input_tokens", v)
    ),
    "model.max_output_tokens": lambda s, v: replace(
        s, reserve=_positive("model.max_output_tokens", v)
    ),
    "session.on_disconnect": _disconnect,
    "session.max_tool_iterations": lambda s, v: replace(
        s, max_tool_iterations=_positive("session.max_tool_iterations", v)
    ),
    f"{_CONTEXT}max_history_tokens": lambda s, v: _policy(
        s, fill=_count(f"{_CONTEXT}max_history_tokens", v) or None
    ),
    f"{_CONTEXT}max_tool_result_tokens": lambda s, v: _clip(
        s, tokens=_positive(f"{_CONTEXT}max_tool_result_tokens", v)
    ),
    f"{_CONTEXT}tool_result_truncation": lambda s, v: _clip(
        s, how=_how(f"{_CONTEXT}tool_result_truncation", v)
    ),
    f"{_CONTEXT}tool_result_keep_first": lambda s, v: _keep(
        s, first=_count(f"{_CONTEXT}tool_result_keep_first", v)
    ),
    f"{_CONTEXT}tool_result_keep_last": lambda s, v: _keep(
        s, last=_count(f"{_CONTEXT}tool_result_keep_last", v)
    ),
    "compaction.enabled": lambda s, v: (
        s if _yes("compaction.enabled", v) else _policy(s, start="off", priced=None)
    ),
    "compaction.invocation_threshold": lambda s, v: _policy(
        s, turns=_count("compaction.invocation_threshold", v) or None
    ),
    "compaction.overlap_size": lambda s, v: _policy(
        s, overlap=_count("compaction.overlap_size", v)
    ),
    "compaction.token_threshold": lambda s, v: _policy(
        s, soft=s.policy.soft or 1.0, soft_tokens=_positive("compaction.token_threshold", v)
    ),
    "compaction.safety_ratio": _threshold("compaction.safety_ratio"),
    "compaction.prompt_template": lambda s, v: replace(
        s, prompt_template=_text("compaction.prompt_template", v)
    ),
    "compact_threshold": _threshold("compact_threshold"),
}
