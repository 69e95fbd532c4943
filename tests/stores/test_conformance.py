"""Every backend keeps the store's promises."""

import pytest

from foldline.stores.encryption import CryptStore
from foldline.stores.sqlite import SqliteStore
from foldline.testing.stores import Conformance


class TestMemory(Conformance):
    """SQLite in memory."""

    @pytest.fixture
    async def store(self):
        """A new store."""
        store = SqliteStore(":memory:")
        yield store
        await store.close()


class TestFile(Conformance):
    """SQLite in a file."""

    @pytest.fixture
    async def store(self, tmp_path):
        """A new store."""
        store = SqliteStore(str(tmp_path / "talks.db"))
        yield store
        await store.close()


class TestCrypt(Conformance):
    """SQLite under encryption, in memory and in a file."""

    searches_tenants = False

    @pytest.fixture(params=["memory", "file"])
    async def store(self, request, tmp_path):
        """A new store."""
        path = ":memory:" if request.param == "memory" else str(tmp_path / "talks.db")
        store = CryptStore(SqliteStore(path), bytes(32))
        yield store
        await store.close()
