"""Settings that a project may not make before the user trusts it. `untrusted_agents.py` has the same rules for agent
files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from msgspec import UNSET

from remit.definitions.agent_files.model_names import is_address, means_something, read_model
from remit.definitions.project_trust.untrusted_agents import CONSENT, NUMBERS, allows
from remit.definitions.syntax.nodes import fit
from remit.errors import UsageError
from remit.types.limits import ROOT_DEFAULTS, Limits
from remit.types.sandbox import OPEN, Sandbox

if TYPE_CHECKING:
    from remit.definitions.settings import Settings
    from remit.definitions.settings_layer import Layer

_Models: TypeAlias = "str | tuple[str, ...]"


@dataclass(frozen=True, slots=True)
class SetAside:
    """A setting of a project that is ignored until the user trusts the project."""

    key: str
    origin: str
    why: str

    def __str__(self) -> str:
        return fit(f"{self.origin}: {self.key} was ignored: {self.why}; {CONSENT}.")


def set_aside(layer: Layer, settings: Settings) -> None:
    """Remove the settings that an untrusted layer may not make, and list them. `settings` are those of the layers
    below.
    """
    # The model last: its meaning depends on the remaining aliases.
    for key in sorted(layer.values, key=lambda key: key == "model"):
        setting = layer.values[key]
        why = _other_place(layer, settings) if key == "model" else _too_wide(key, setting.value, settings)
        if why:
            del layer.values[key]
            settings.untrusted.append(SetAside(key, setting.origin, why))
    rules, layer.rules = layer.rules, []
    for rule, setting in rules:
        if allows(rule):
            why = "it would allow without asking"
            settings.untrusted.append(SetAside(f"policy {rule!r}", setting.origin, why))
        else:
            layer.rules.append((rule, setting))


def _too_wide(key: str, value: object, settings: Settings) -> str:
    """Why an untrusted file may not set this; empty if it may."""
    if key.startswith("models."):
        return _other_name(key.removeprefix("models."), cast(str, value), settings)
    if key.startswith("limits."):
        return _wider_limit(key.removeprefix("limits."), value, settings.limits)
    if key == "sandbox":
        outer = settings.sandbox or OPEN
        wider = cast(Sandbox, value).within(outer) != value
        return f"it is wider than yours, {outer}" if wider else ""
    if key == "journal":
        return "it chooses where conversations are stored"
    if key.startswith("secrets."):
        return "it chooses what the journal leaves out"
    if key.startswith("mcp."):
        return "it would start a program or send data to a server"
    if key == "workspace":
        return "" if _inside(cast(Path, value), settings.project) else "it is outside the project"
    if key == "agents.paths":
        paths = cast("tuple[Path, ...]", value)
        return "" if all(_inside(path, settings.project) for path in paths) else "it leads out of the project"
    return ""


def _other_place(layer: Layer, settings: Settings) -> str:
    """Why a project may not choose this model. It may choose among the user's providers, but not where conversations
    go.
    """
    wanted, own = cast("_Models", layer.values["model"].value), settings.model
    beginning = "models."
    aliases = {
        key.removeprefix(beginning): cast(str, setting.value)
        for key, setting in layer.values.items()
        if key.startswith(beginning)
    }
    try:
        places = _places(wanted, aliases | settings.models)
        chosen = _places(own, settings.models)
    except UsageError:
        # Cyclic aliases are reported separately, and nothing is run.
        return ""
    if any(map(is_address, _names(wanted))):
        return "it chooses where conversations are sent"
    return "your own model is at another provider" if chosen and places - chosen else ""


def _places(models: _Models | None, aliases: Mapping[str, str]) -> set[str]:
    """The providers and addresses of the models."""
    meant = [read_model(name, aliases) for name in _names(models)]
    return {one.name if is_address(one.name) else one.name.partition(":")[0] for one in meant if one}


def _names(models: _Models | None) -> tuple[str, ...]:
    return models if isinstance(models, tuple) else () if models is None else (models,)


def _other_name(name: str, value: str, settings: Settings) -> str:
    """Why a project may not define this alias. It may only define new names, not replace the user's or a model's."""
    if is_address(value):
        return "it chooses where conversations are sent"
    own = settings.models
    if name.lower() in {known.lower() for known in (*own, *own.values())}:
        return "you use this name for a model yourself"
    return "it is already the name of a model" if means_something(name) else ""


def _wider_limit(name: str, value: object, outer: Limits) -> str:
    if name not in NUMBERS:
        return ""
    most = cast(object, getattr(outer.over(ROOT_DEFAULTS), name))
    if most is UNSET or most is None:
        return ""
    if value is None or cast(float, value) > cast(float, most):
        return f"it is above {most:g}" if isinstance(most, (int, float)) else "it is wider than yours"
    return ""


def _inside(path: Path, folder: Path) -> bool:
    try:
        return path.resolve().is_relative_to(folder)
    except (OSError, RuntimeError):
        return False
