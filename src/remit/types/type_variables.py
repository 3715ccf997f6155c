"""The type variables of the public API: `Agent[Deps, Output]`, `Outcome[Output]`, `ToolContext[Deps]`.

Their defaults make a bare `Agent` or `ToolContext` valid in strict type checking. Python has such defaults since 3.13, so
only type checkers read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Deps = TypeVar("Deps", default=Any)
    DepsIn = TypeVar("DepsIn", contravariant=True, default=Any)
    DepsOut = TypeVar("DepsOut", covariant=True, default=object)
    Output = TypeVar("Output", default=Any)
    OutputOut = TypeVar("OutputOut", covariant=True, default=Any)
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")
    DepsIn = TypeVar("DepsIn", contravariant=True)
    DepsOut = TypeVar("DepsOut", covariant=True)
    Output = TypeVar("Output")
    OutputOut = TypeVar("OutputOut", covariant=True)
