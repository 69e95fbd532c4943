"""The models that sessions over HTTP are answered by: at the operator's upstream, with its key.

Knows which upstream a model's name is asked at. Refuses to take a key from a client: who posts only
what is new is answered for the operator's money, and the operator says who may.
"""

from collections import OrderedDict

from foldline.apps.gateway.settings import ANTHROPIC, OPENAI, GatewaySettings
from foldline.dialects import base
from foldline.errors import BadInput
from foldline.models.clients import client
from foldline.models.port import Model

_MOST = 64  # clients that are held open: names are clients' to choose


class Models:
    """Clients of models, by their names; made when they are asked for."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._made: OrderedDict[str, Model] = OrderedDict()
        self._left: list[Model] = []  # a turn may still be asking one

    def of(self, name: str, _tenant: str) -> Model:
        """The model of a name."""
        if name not in self._made:
            self._made[name] = self._client(name)
            if len(self._made) > _MOST:
                self._left.append(self._made.popitem(last=False)[1])
        self._made.move_to_end(name)
        return self._made[name]

    async def close(self) -> None:
        """Let go of all connections."""
        for model in (*self._made.values(), *self._left):
            await model.close()

    def _client(self, name: str) -> Model:
        speaks = OPENAI if base.speaking(name) is base.OPENAI else ANTHROPIC
        upstream = self._settings.upstream(speaks)
        if upstream is None:
            raise BadInput(f"this gateway has no upstream that speaks {speaks}, for {name!r}")
        key = upstream.key.reveal() if upstream.key else None
        tls = self._settings.network.tls
        return client(name, base_url=upstream.base(speaks), api_key=key, tls=tls)
