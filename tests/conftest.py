"""How tests run here: async ones in virtual time, unless they are marked `real_time`."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Coroutine
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
