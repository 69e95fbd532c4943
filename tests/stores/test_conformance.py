"""Every backend keeps the store's promises."""

import pytest

from foldline.store.sqlite import SqliteStore
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
