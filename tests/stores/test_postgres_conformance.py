"""PostgreSQL keeps the store's promises: the suite of every backend, unchanged."""

import pytest
from serving import address_of, an_empty_schema

from foldline.stores.encryption import CryptStore
from foldline.stores.postgres import PostgresStore
from foldline.testing.stores import Conformance

pytestmark = pytest.mark.real


class TestPostgres(Conformance):
    """PostgreSQL."""

    @pytest.fixture
    async def store(self):
        """An empty schema."""
        with an_empty_schema() as schema:
            store = PostgresStore(address_of(schema))
            yield store
            await store.close()


class TestCrypt(Conformance):
    """PostgreSQL under encryption."""

    searches_tenants = False

    @pytest.fixture
    async def store(self):
        """An empty schema."""
        with an_empty_schema() as schema:
            store = CryptStore(PostgresStore(address_of(schema)), bytes(32))
            yield store
            await store.close()
