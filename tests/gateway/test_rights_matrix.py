"""Who may do what: each cell asked of a gateway process, on both stores. `rights_table` says what is right."""

import shutil
from pathlib import Path

import pytest
from rights_matrix import WrongCell, run_matrix
from serving import address_of, an_empty_schema

import foldline

pytestmark = pytest.mark.real
SOURCE = Path(foldline.__file__).parent
API, PAGES = "apps/gateway/api/", "apps/pages/"
MUTANTS = {
    "a session is anybody's": (f"{API}pool.py", "if head.owner == owner or (", "if True or ("),
    "what is shared is changed": (f"{API}pool.py", "(only_reads and await is_shared(", "(await is_shared("),
    "a reader reads words": (f"{API}sessions_api.py", 'if not words and route.access != "figures":', "if False:"),
    "a reader changes what is shared": (f"{API}sessions_api.py", 'if route.access == "words" and name', "if name"),
    "a list is of all": (f"{API}read_routes.py", "limit=query.limit, owner=call.sees)", "limit=query.limit)"),
    "a search is of all": (f"{API}read_routes.py", "owner=call.sees if everywhere else None", "owner=None"),
    "a reader's search is of all": (f"{API}read_routes.py", "query.everywhere and call.words", "query.everywhere"),
    "what is carried is anybody's": (f"{API}edit_routes.py", "        await _check_carried(call, carry)", "        pass"),
    "anybody names a tenant": ("apps/gateway/asgi.py", 'if client.rights.reaches != "all":', "if False:"),
    "a reader relays": ("apps/gateway/asgi.py", "if not client.rights.relays:", "if False:"),
    "metrics are everybody's": ("apps/gateway/asgi.py", 'if client.rights.metrics == "none":', "if False:"),
    "every route passes": ("apps/gateway/provider_routes.py", "if self.is_open or EVERY_ROUTE in routes:", "if True:"),
    "every method passes": ("apps/gateway/provider_routes.py", "if any(method in methods and one.", "if any(methods and one."),
    "operations pass": ("apps/gateway/provider_routes.py", "(?!operations(?:/|$))", ""),
    "keys do not end": ("apps/gateway/key_store.py", "if found is None or not found.is_valid(now := time()):", "if (now := time()) and found is None:"),
    "revocations are not seen": ("apps/gateway/key_store.py", "if before.get(one) != generation.get(one)]", "if not before]"),
    "a reader reads pages": (f"{PAGES}page_call.py", "has_it = visitor.words and (", "has_it = ("),
    "pages are anybody's": (f"{PAGES}page_call.py", "visitor.sees is None or head.owner == visitor.sees", "True"),
    "pages change what is shared": (f"{PAGES}page_call.py", "if not has_it and (to_change or not", "if not has_it and (not"),
    "pages search all": (f"{PAGES}session_pages.py", "owner = call.visitor, None if name else call.visitor.sees", "owner = call.visitor, None"),
    "a reader searches pages": (f"{PAGES}session_pages.py", "        call.must_read_words()", "        pass"),
    "anybody signs in anywhere": (f"{PAGES}access.py", 'if client.rights.reaches != "all" or ', "if "),
    "cookies outlive keys": (f"{PAGES}pages_app.py", "        return await keys.identify(digest, anew=True)", "        found = await keys.identify(digest, anew=True)\n        known[digest] = found or known.get(digest)\n        return known[digest]"),
    "a relayed name is anybody's": ("proxy/conversations.py", "if not scope.owner or await self.store.claim(name, scope.owner) == scope.owner:", "if True:"),
}  # fmt: skip
"""Checks that are taken out of the code, each by itself; those of the fleet are in tests/pages."""


def test_every_cell_on_sqlite(tmp_path, capsys):
    """G-1, G-3, G-6: each role, route, own, shared and foreign session, own and foreign tenant."""
    check_every_cell(str(tmp_path / "s.db"), tmp_path, capsys)


def test_every_cell_on_postgresql(tmp_path, capsys):
    """The same on the other store."""
    with an_empty_schema() as schema:
        check_every_cell(address_of(schema), tmp_path, capsys)


def check_every_cell(address, folder, capsys):
    """Fill the matrix, and say how many cells it has."""
    matrix = run_matrix(address, folder)
    with capsys.disabled():
        print(f"\n{matrix.cells.total()} cells: {dict(matrix.cells)}")
    assert not matrix.faults, "\n".join(matrix.faults[:40]) + f"\n{len(matrix.faults)} in all"
    assert matrix.cells.total() > 3_000


def test_each_mutant_takes_out_a_check_that_stands():
    counts = {
        name: (SOURCE / file).read_text().count(line) for name, (file, line, _) in MUTANTS.items()
    }
    assert {name for name, count in counts.items() if count != 1} == set()


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_check_that_is_taken_out_is_missed(mutant, tmp_path):
    """The same matrix over the code without one check: a cell is wrong."""
    file, line, instead = MUTANTS[mutant]
    code = tmp_path / "code"
    shutil.copytree(SOURCE, code / "foldline", ignore=shutil.ignore_patterns("__pycache__"))
    text = (code / "foldline" / file).read_text()
    assert text.count(line) == 1, (file, line)
    text = text.replace(line, instead)
    if "known[digest]" in instead:
        text = text.replace(
            "    async def check(digest: str) -> Client | None:\n        found",
            "    known = {}\n\n    async def check(digest: str) -> Client | None:\n        found",
        )
    (code / "foldline" / file).write_text(text)
    with pytest.raises((WrongCell, AssertionError)) as told:
        run_matrix(str(tmp_path / "s.db"), tmp_path, whole=False, PYTHONPATH=str(code))
    print(f"{mutant}: {str(told.value)[:150]}")
