"""The models that answer sessions over HTTP: at the operator's upstream, with the operator's key.

No key is taken from a client: the operator pays for these answers, and decides who may ask.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from urllib.parse import urlsplit

from foldline.apps.gateway.api_keys import Client
from foldline.apps.gateway.call_figures import CallFigures
from foldline.apps.gateway.call_limits import CallLimits
from foldline.apps.gateway.settings import GatewaySettings
from foldline.dialects import base
from foldline.errors import BadInput
from foldline.models.clients import client
from foldline.models.port import Model
from foldline.session.host import make_teller, names_address

_MOST = 64  # open model clients: HTTP clients choose the names, so there must be an end


class Models:
    """Model clients by name, made when first used."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._made: OrderedDict[str, Model] = OrderedDict()
        self._left: list[Model] = []  # a turn may still be asking one
        self.limits: CallLimits | None = None
        """The operator's limits, which also count what narrators ask."""
        self.record: Callable[[str, str, CallFigures], None] | None = None
        """Takes the figures of a narrator's call, with its tenant and the name of its upstream."""

    def open_narrator(self, name: str, tenant: str) -> Model:
        """Return the client of a model that tells folds, whose calls count to the tenant."""
        model = self.open_summarizer(name)
        if self.limits is None or self.record is None:
            return model
        own = self._settings.name_upstream(base.choose_model_dialect(name).vendor)
        record = partial(self.record, tenant, urlsplit(name.partition("@")[2]).netloc or own)
        return self.limits.limit_model(model, Client(tenant, ""), record)

    def open_model(self, name: str, _tenant: str = "") -> Model:
        """Return the client of a model that a client names: one at the operator's upstreams."""
        if names_address(name):  # a key of the environment would go there
            raise BadInput(f"{name[:80]!r} names an address; the gateway's operator sets those")
        return self.open_summarizer(name)

    def open_summarizer(self, name: str, _tenant: str = "") -> Model:
        """Return the client of a model that the operator's settings name, at any address."""
        if name not in self._made:
            self._made[name] = self._build_client(name)
            if len(self._made) > _MOST:
                self._left.append(self._made.popitem(last=False)[1])
        self._made.move_to_end(name)
        return self._made[name]

    async def close(self) -> None:
        """Close all connections."""
        for model in (*self._made.values(), *self._left):
            await model.close()

    def _build_client(self, name: str) -> Model:
        if names_address(name):
            return make_teller(name, None)
        vendor = base.choose_model_dialect(name).vendor
        upstream = self._settings.find_upstream(vendor)
        if upstream is None:
            raise BadInput(f"this gateway has no upstream that speaks {vendor.name}, for {name!r}")
        key = upstream.key.reveal() if upstream.key else None
        tls = self._settings.network.tls
        return client(name, base_url=upstream.build_base_url(vendor), api_key=key, tls=tls)
