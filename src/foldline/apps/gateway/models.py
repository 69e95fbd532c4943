"""The models that answer sessions over HTTP: at the operator's upstream, with the operator's key.

No key is taken from a client: the operator pays for these answers, and decides who may ask.
"""

from collections import OrderedDict

from foldline.apps.gateway.settings import GatewaySettings
from foldline.dialects import base
from foldline.errors import BadInput
from foldline.models.clients import client
from foldline.models.port import Model
from foldline.session.host import make_teller

_MOST = 64  # open model clients: HTTP clients choose the names, so there must be an end


class Models:
    """Model clients by name, made when first used."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._made: OrderedDict[str, Model] = OrderedDict()
        self._left: list[Model] = []  # a turn may still be asking one

    def open_model(self, name: str, _tenant: str = "") -> Model:
        """Return the client of a model, and make it if there is none."""
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
        if "@http" in name:  # a summarizer elsewhere, which the operator's settings name
            return make_teller(name, None)
        vendor = base.choose_model_dialect(name).vendor
        upstream = self._settings.find_upstream(vendor)
        if upstream is None:
            raise BadInput(f"this gateway has no upstream that speaks {vendor.name}, for {name!r}")
        key = upstream.key.reveal() if upstream.key else None
        tls = self._settings.network.tls
        return client(name, base_url=upstream.build_base_url(vendor), api_key=key, tls=tls)
