"""How tests run here: async ones in virtual time, unless they are marked `real_time`."""

from __future__ import annotations

import asyncio
import inspect
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import cast

import pytest

from remit.testing import run_virtual

# What tests of several files tell their stories with.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    test = cast(Callable[..., Coroutine[object, object, None]], pyfuncitem.obj)
    named = inspect.signature(test).parameters
    fixtures = {name: value for name, value in pyfuncitem.funcargs.items() if name in named}
    if pyfuncitem.get_closest_marker("real_time"):
        asyncio.run(test(**fixtures))
    else:
        run_virtual(test(**fixtures))
    return True


@pytest.fixture
def shown_path() -> Iterator[Path]:
    """A new folder that is there in a sandbox, as one below /tmp is not."""
    caches = Path(__file__).parent.parent / ".pytest_cache"
    if caches.is_relative_to("/tmp") or caches.is_relative_to("/var/tmp"):
        pytest.skip("the project is below /tmp, which no sandbox shows")
    caches.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=caches) as folder:
        yield Path(folder)
