"""The fixture that the tests of settings share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.settings.loader import Loader


@pytest.fixture
def loader(tmp_path: Path) -> Loader:
    return Loader(tmp_path)
