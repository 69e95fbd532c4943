"""The real model server, asked what it says of itself."""

import pytest

from foldline.models.servers import fetch_report

pytestmark = pytest.mark.real


def test_a_real_server_says_its_window(model_server):
    said = fetch_report(f"{model_server.url}/v1", "any")
    assert said is not None
    assert said.window == model_server.window  # in force, not the larger one it was trained with
    assert said.source == "/props default_generation_settings.n_ctx"
