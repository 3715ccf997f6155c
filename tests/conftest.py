"""How tests run: async tests use virtual time unless they are marked `real_time`; also a PostgreSQL server."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import os
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from remit.testing import run_virtual

# Fixtures that several test files share.
sys.path.insert(0, str(Path(__file__).parent / "builders"))


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
    """A new folder that is visible in a sandbox, unlike folders below /tmp."""
    caches = Path(__file__).parent.parent / ".pytest_cache"
    if caches.is_relative_to("/tmp") or caches.is_relative_to("/var/tmp"):
        pytest.skip("the project is below /tmp, which no sandbox shows")
    caches.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=caches) as folder:
        yield Path(folder)


def load_postgres_server() -> ModuleType:
    """The module that starts a server, in a folder that is not a package."""
    name = "postgres_server"
    if name not in sys.modules:
        file = Path(__file__).parent / "builders" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def postgres_programs() -> Path:
    """The folder of PostgreSQL's programs. Without them the test is skipped, or fails if they are required."""
    postgres = load_postgres_server()
    programs = postgres.find_programs()
    if programs is None:
        if os.environ.get("REQUIRE_POSTGRES") == "1":
            pytest.fail(postgres.MISSING)
        pytest.skip(postgres.MISSING)
    return programs


@pytest.fixture(scope="session")
def postgres_server(postgres_programs: Path) -> Iterator[str]:
    """The address of a server that only these tests use."""
    with load_postgres_server().server(postgres_programs) as address:
        yield address


@pytest.fixture
def postgres_url(postgres_server: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a database that only this test uses."""
    import psycopg
    from psycopg import sql

    name = f"test_{abs(hash(request.node.nodeid))}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield postgres_server.rpartition("/")[0] + f"/{name}"
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
