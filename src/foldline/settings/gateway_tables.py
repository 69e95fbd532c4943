"""The operator's tables `[gateway]` and `[gateway.tenants.NAME]`, as typed values.

    tables = read_gateway_tables(load_settings(Path.cwd()))
    tables.find_tenant("acme").settings.policy

A tenant's table has the settings that differ most often; all others go into a profile, which the
table names. The weakest first: the settings for everybody, the tenant's profile, its table, the
command line. `layers` merges them; a tenant without a table has the settings for everybody.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, cast

from foldline.settings.kinds import Settings
from foldline.settings.limit_rules import LimitRule

OnStoreFailure: TypeAlias = Literal["open", "closed"]
"""What happens to a request while its conversation cannot be kept: it is relayed as it came, or
refused, so that no conversation grows past what is recorded."""
GATEWAY, TENANTS = "gateway.", "gateway.tenants."
ON_STORE_FAILURE = "on_store_failure"
PREPARE_FOLDS = f"{GATEWAY}prepare_folds"
LIMITS = f"{GATEWAY}limits"
BOUNDS: Final = {
    "messages": (f"{GATEWAY}max_messages", 10_000),
    "values": (f"{GATEWAY}max_values", 250_000),
    "held": (f"{GATEWAY}max_memory", 1_000_000_000),
}
"""The bounds of every request and of a process: the setting of each, and its default."""
OF_TENANT = (
    "profile",
    "policy",
    "start",
    "summarizer",
    "compact_threshold",
    "model.max_input_tokens",
    "model.max_output_tokens",
    "retention.days",
    "retention.sessions",
)
"""The settings that a tenant's table may have, beside `on_store_failure`."""


@dataclass(frozen=True, slots=True)
class TenantSettings:
    """What applies to one tenant of a gateway."""

    settings: Settings
    on_store_failure: OnStoreFailure = "closed"


@dataclass(frozen=True, slots=True)
class GatewayTables:
    """What the operator's tables say."""

    general: TenantSettings
    """For tenants without a table of their own."""
    tenants: Mapping[str, TenantSettings]
    prepare_folds: Literal["gateway", "worker"] = "gateway"
    """Which process asks the summarizers of relayed conversations."""
    limits: tuple[LimitRule, ...] = ()
    """What clients may use at most, of all tenants."""
    bounds: Mapping[str, int] = field(default_factory=dict[str, int])
    """By the names in `BOUNDS`."""

    def find_tenant(self, tenant: str) -> TenantSettings:
        """Return what applies to a tenant."""
        return self.tenants.get(tenant, self.general)


def read_gateway_tables(settings: Settings) -> GatewayTables:
    """Read the operator's tables from settings that were loaded."""
    usual = cast("OnStoreFailure", settings.said.get(f"{GATEWAY}{ON_STORE_FAILURE}", "closed"))
    tenants: dict[str, TenantSettings] = {}
    for name, own in settings.tenants.items():
        said = settings.said.get(f"{TENANTS}{name}.{ON_STORE_FAILURE}", usual)
        tenants[name] = TenantSettings(own, cast("OnStoreFailure", said))
    who = cast('Literal["gateway", "worker"]', settings.said.get(PREPARE_FOLDS, "gateway"))
    limits = cast("tuple[LimitRule, ...]", settings.said.get(LIMITS, ()))
    bounds = {one: settings.said.get(*named) for one, named in BOUNDS.items()}
    return GatewayTables(TenantSettings(settings, usual), tenants, who, limits, bounds)
