"""Agent files and remit.toml, read into `Agent`s and settings.

Call `load_settings`, then `settings.load_agents()`, then `build`. Imports nothing heavy and runs no code from the
files.
"""

from __future__ import annotations

from remit.definitions.agent_files.definition import Definition
from remit.definitions.agent_files.limit_values import parse_limits
from remit.definitions.agent_files.loading import Given, Loaded, load, load_agents
from remit.definitions.agent_files.model_names import Unusable
from remit.definitions.building import Surroundings, build, build_all, check
from remit.definitions.causes import CauseLine, by_cause
from remit.definitions.project_trust.trusted_versions import distrust, trusted_folders
from remit.definitions.project_trust.untrusted_settings import SetAside
from remit.definitions.settings import Settings, SettingsError, is_trusted, load_settings, trust
from remit.definitions.syntax.nodes import Problem

__all__ = [
    "CauseLine",
    "Definition",
    "Given",
    "Loaded",
    "Problem",
    "SetAside",
    "Settings",
    "SettingsError",
    "Surroundings",
    "Unusable",
    "build",
    "build_all",
    "by_cause",
    "check",
    "distrust",
    "is_trusted",
    "load",
    "load_agents",
    "load_settings",
    "parse_limits",
    "trust",
    "trusted_folders",
]
