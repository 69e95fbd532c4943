"""Checked settings → the typed value, and the policy they change.

Knows which part of a preset each of the papers' names is. Refuses to check: `parse` has.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from foldline.core.policy import Clipping, Masking, Policy, named
from foldline.settings.parse import servers, slots
from foldline.settings.schema import KNOWN
from foldline.settings.values import (
    ApprovalSettings,
    InstructionSettings,
    Limit,
    ModelSettings,
    ServerSettings,
    Settings,
    ShellSettings,
    TelegramSettings,
)

_DEFAULTS = {one.name: one.default for one in KNOWN}
_CONTEXT = "session.context."
_SERVER = ("command", "env", "url", "headers", "trusted", "tools", "seconds")
_TELEGRAM = ("allowed", "admins", "sessions", "notices", "base_url", "webhook", "listen")
_SHARES = ("compact_threshold", "compaction.safety_ratio")


def made(said: Mapping[str, Any], *, outranked: Collection[str] = ()) -> Settings:
    """The settings in force, by what was said; of what is outranked the policy is not told."""

    def of(name: str) -> Any:
        return said.get(name, _DEFAULTS[name])

    model = _model(said)
    heard = {name: value for name, value in said.items() if name not in outranked}
    return Settings(
        policy=policy(heard, provider=model.provider),
        model=model,
        on_disconnect=of("session.on_disconnect"),
        max_tool_iterations=of("session.max_tool_iterations"),
        prompt_template=of("compaction.prompt_template"),
        summarizer=of("summarizer"),
        limits={
            whose: Limit(of(f"caps.{whose}.tokens"), of(f"caps.{whose}.dollars"))
            for whose in ("call", "turn", "session", "user", "day")
        },
        store=of("store"),
        tenant=of("tenant"),
        instructions=InstructionSettings(
            of("instructions.text"),
            of("instructions.max_tokens"),
            of("instructions.names"),
            of("instructions.roots"),
            of("instructions.memory"),
        ),
        approval=ApprovalSettings(of("approval.mode"), of("approval.allow"), of("approval.deny")),
        shell=ShellSettings(of("shell.enabled"), of("shell.timeout")),
        servers=tuple(_server(name, said) for name in servers(said)),
        telegram=TelegramSettings(**{one: of(f"telegram.{one}") for one in _TELEGRAM}),
        profile=of("profile"),
        said=said,
    )


def _model(said: Mapping[str, Any]) -> ModelSettings:
    parts = (said.get("model.provider", ""), said.get("model.name", ""))
    name = "/".join(part for part in parts if part) or None
    return ModelSettings(
        name,
        name.partition("/")[0] if name and "/" in name else "",
        said.get("model.max_input_tokens"),
        said.get("model.max_output_tokens"),
        said.get("model.base_url"),
        said.get("model.key_env"),
    )


def _server(name: str, said: Mapping[str, Any]) -> ServerSettings:
    names = {part: f"mcp.servers.{name}.{part}" for part in _SERVER}
    return ServerSettings(name, **{part: said[one] for part, one in names.items() if one in said})


def policy(said: Mapping[str, Any], *, provider: str = "") -> Policy:
    """The preset, with what was changed of it."""
    changed = _clipped(named(said.get("policy", "steady")), said)
    first, last = (said.get(f"{_CONTEXT}tool_result_keep_{end}") for end in ("first", "last"))
    if first is not None or last is not None:
        own = changed.mask or Masking(first=0, last=0)
        mask = Masking(own.first if first is None else first, own.last if last is None else last)
        changed = replace(changed, mask=mask)
    names = {
        f"{_CONTEXT}max_history_tokens": "fill",
        "compaction.invocation_threshold": "turns",
    }
    zeroed = {field: said[name] or None for name, field in names.items() if name in said}
    changed = replace(changed, **zeroed)
    if "compaction.overlap_size" in said:
        changed = replace(changed, overlap=said["compaction.overlap_size"])
    return _started(_due(changed, said, provider), said)


def _clipped(preset: Policy, said: Mapping[str, Any]) -> Policy:
    clip = _clipping(preset.clip, said, _CONTEXT)
    clips: dict[str, Clipping] = {**preset.clips}
    for tool in slots(said, "context.tools."):
        own = replace(preset, clip=clip).clipping(tool)
        clips[tool] = _clipping(own, said, f"context.tools.{tool}.")
    return replace(preset, clip=clip, clips=clips)


def _clipping(own: Clipping, said: Mapping[str, Any], before: str) -> Clipping:
    return Clipping(
        said.get(f"{before}max_tool_result_tokens", own.tokens),
        said.get(f"{before}tool_result_truncation", own.how),
    )


def _due(changed: Policy, said: Mapping[str, Any], provider: str) -> Policy:
    """From which share of the window: a provider's own before everybody's; and which number."""
    names = (f"providers.{provider}.compact_threshold", *_SHARES)
    share = next((said[name] for name in names if name in said), None)
    if share is not None:
        changed = replace(changed, soft=share, soft_of="window")
    if "compaction.token_threshold" in said:
        most = said["compaction.token_threshold"]
        changed = replace(changed, soft=changed.soft or 1.0, soft_tokens=most)
    return changed


def _started(changed: Policy, said: Mapping[str, Any]) -> Policy:
    """Who starts folds; one that nobody may start because it pays is not looked for."""
    start = said.get("start", changed.start)
    if not said.get("compaction.enabled", True):
        start = "off"
    if start == changed.start:
        return changed
    changed = replace(changed, start=start, priced=changed.priced if start == "auto" else None)
    due = changed.soft, changed.turns, changed.fill
    if start == "ask" and due == (None, None, None):
        return replace(changed, soft=changed.warn)  # else nothing would ever be asked
    return changed
