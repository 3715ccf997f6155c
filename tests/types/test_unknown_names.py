"""Unknown argument names of agents and limits: the error suggests the intended name; valid calls do not change."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import msgspec
import pytest

import remit.types.spelling as spelling
from remit import Agent, Limits, UsageError

# Typed as Any, so that the type checker accepts wrong names.
A: Any = Agent
L: Any = Limits

LIMITS = [
    ("max_turns", "turns"),
    ("turn", "turns"),
    ("max_steps", "turns"),
    ("Tokens", "tokens"),
    ("max_tokens", "tokens"),
    ("max_depth", "depth"),
    ("timeout", "seconds"),
    ("budget", "usd"),
    ("tool_calls", "calls"),
    ("max_concurrency", "concurrency"),
]


@pytest.mark.parametrize(("written", "meant"), LIMITS)
def test_an_unknown_limit_suggests_a_known_one(written: str, meant: str) -> None:
    """The error for an unknown limit suggests the nearest one and lists all."""
    with pytest.raises(UsageError) as caught:
        L(**{written: 3})
    assert str(caught.value).startswith(
        f"Limits has no argument {written!r}. Did you mean {meant!r}? Known arguments: depth, "
    )
    assert caught.value.__suppress_context__


def test_an_unknown_limit_without_a_near_name() -> None:
    """If no name is near, nothing is suggested."""
    with pytest.raises(
        UsageError, match=r"^Limits has no argument 'xyz'\. Known arguments: depth, delegations"
    ):
        L(xyz=3, turns=3)


def test_limits_must_be_passed_by_name() -> None:
    """Positional arguments are refused with an example."""
    with pytest.raises(UsageError, match=r"Limits\(turns=\.\.\.\)"):
        L(5)


def test_a_wrong_value_keeps_its_own_message() -> None:
    """A wrong value of a known limit is reported as such."""
    with pytest.raises(UsageError, match=r"Limits\.turns must be a whole number"):
        L(turns="3")


def test_valid_limits_can_be_copied_and_encoded() -> None:
    """Valid limits can be copied, pickled, encoded, decoded and inspected."""
    limits = Limits(turns=3, usd=None)
    assert copy.copy(limits) == copy.deepcopy(limits) == pickle.loads(pickle.dumps(limits)) == limits
    assert hash(pickle.loads(pickle.dumps(limits))) == hash(limits)
    encoded = msgspec.json.encode(limits)
    assert encoded == b'{"usd":null,"turns":3}'
    assert msgspec.json.decode(encoded, type=Limits) == msgspec.convert({"turns": 3, "usd": None}, Limits)
    assert msgspec.structs.replace(limits, turns=4) == Limits(turns=4, usd=None)
    assert list(inspect.signature(Limits).parameters) == list(Limits.__struct_fields__)
    with pytest.raises(UsageError):
        msgspec.structs.replace(limits, turns=-1)


AGENTS = [
    ("system_prompt", "instructions"),
    ("instruction", "instructions"),
    ("prompt", "instructions"),
    ("llm", "model"),
    ("tool", "tools"),
    ("agents", "subagents"),
    ("handoffs", "subagents"),
    ("output_type", "output"),
    ("model_settings", "settings"),
    ("max_turns", "limits"),
]


@pytest.mark.parametrize(("written", "meant"), AGENTS)
def test_an_unknown_agent_field_suggests_a_known_one(written: str, meant: str) -> None:
    """The error for an unknown field names the agent, suggests the nearest field and lists all."""
    with pytest.raises(UsageError) as caught:
        A("lead", **{written: "x"})
    said = (
        f"Agent 'lead' has no argument {written!r}. Did you mean {meant!r}? Known arguments: name, nickname, "
    )
    assert str(caught.value).startswith(said)
    assert caught.value.__suppress_context__


def test_an_unknown_field_is_reported_before_a_missing_name() -> None:
    """An unknown field is reported even if the agent's name is missing."""
    with pytest.raises(
        UsageError, match=r"^Agent has no argument 'system_prompt'\. Did you mean 'instructions'"
    ):
        A(system_prompt="Be brief.")


def test_only_the_agents_name_is_positional() -> None:
    """A second positional argument is refused with an example."""
    with pytest.raises(UsageError, match=r"Agent 'a'.*'do it'.*Agent\(name, instructions=\.\.\.\)"):
        A("a", "do it")


def test_other_type_errors_stay_unchanged() -> None:
    """A missing argument and a TypeError from inside keep Python's own error."""
    with pytest.raises(TypeError, match="name"):
        A()

    class Sly(str):
        __slots__ = ()

        def isascii(self) -> bool:
            raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        Agent("lead", instructions=Sly("x"))


def test_the_signature_of_agent_can_be_inspected() -> None:
    """`inspect.signature` still works."""
    names = list(inspect.signature(Agent).parameters)
    assert names[:4] == ["name", "nickname", "description", "instructions"]
    assert Agent.__init__.__name__ == "__init__"


def test_a_name_with_the_same_letters_is_suggested() -> None:
    """A name with the same letters in another order is preferred to a shorter name."""
    assert spelling.nearest("modle", ["mode", "model"]) == "model"
    assert spelling.slip_of("grpe", ["read", "grep"]) == "grep"
    assert spelling.slip_of("grep", ["read", "grep"]) is None
    assert spelling.slip_of("toutch", ["read", "touch"]) == "touch"
    assert spelling.slip_of("tuch", ["read", "touch"]) == "touch"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("publish", "push"),
        ("publish_a", "publish_b"),
        ("deploy", "deploy2"),
        ("read_file", "read_files"),
        ("to_eu_1", "to_au_1"),
        ("step_12", "step_21"),
        ("sh", "ssh"),
        ("cat", "chat"),
        ("deploy_v1_prod", "deploy_v10_prod"),
        ("web_search", "websearch"),
        ("get_user_list", "get_users_list"),
    ],
)
def test_similar_tool_names_do_not_count_as_misspelt(one: str, other: str) -> None:
    """Rules name similar tools side by side, so such names do not count as misspelt."""
    assert spelling.slip_of(one, [other]) is None
    assert spelling.slip_of(other, [one]) is None
