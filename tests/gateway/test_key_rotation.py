"""Keys that are rotated every second while fifty conversations go on, by several processes at one port."""

import pytest
from key_rotation import rotate_under_load
from serving import address_of, an_empty_schema

pytestmark = pytest.mark.real


def test_no_call_fails_and_no_cache_goes_cold(tmp_path, capsys):
    """G-6: and once the keys are revoked, every process refuses them within two seconds."""
    with an_empty_schema() as schema:
        seen = rotate_under_load(address_of(schema), tmp_path, seconds=4, processes=2)
    with capsys.disabled():
        print(f"\n{seen}")
    assert not seen.failed
    assert not seen.moved
    assert not seen.cold
    assert seen.keys > 3
    assert seen.folds > 0
    assert seen.revoked < 2.0
