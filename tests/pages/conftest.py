"""Which store the pages are tried with: tests that take `kind` run once for each."""

import browsing
import pytest

REAL = [pytest.mark.real]
PARAMS = [
    pytest.param(kind, marks=REAL if kind.endswith("postgresql") else []) for kind in browsing.KINDS
]


@pytest.fixture(params=PARAMS)
def kind(request, monkeypatch):
    """The kind of store that `browsing.opened` opens."""
    monkeypatch.setitem(browsing.chosen, "kind", request.param)
    return request.param
