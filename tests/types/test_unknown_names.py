"""Names that an agent or limits do not have: which was probably meant, and nothing else about them changes."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import msgspec
import pytest

import remit.types.spelling as spelling
from remit import Agent, Limits, UsageError

# Without a type checker's eye, as most people write.
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
def test_a_limit_that_there_is_not(written: str, meant: str) -> None:
    """A name that is no limit is told with the one that was probably meant, and with all there are."""
    with pytest.raises(UsageError) as caught:
        L(**{written: 3})
    assert str(caught.value).startswith(f"Limits has no {written!r}. Did you mean {meant!r}? It has depth, ")
    assert caught.value.__suppress_context__


def test_a_limit_that_is_like_no_other() -> None:
    """Where nothing is near, nothing is suggested."""
    with pytest.raises(UsageError, match=r"^Limits has no 'xyz'\. It has depth, delegations"):
        L(xyz=3, turns=3)


def test_limits_without_names() -> None:
    """Limits are always named."""
    with pytest.raises(UsageError, match=r"Limits\(turns=\.\.\.\)"):
        L(5)


def test_a_value_is_told_before_a_name_could_be() -> None:
    """A wrong value has its own words still."""
    with pytest.raises(UsageError, match=r"Limits\.turns must be a whole number"):
        L(turns="3")


def test_limits_are_copied_and_written_down_as_before() -> None:
    """Right limits can be copied, pickled, encoded, decoded and looked at."""
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
def test_a_field_that_agents_do_not_have(written: str, meant: str) -> None:
    """A field that there is not is told with the agent, the one that was probably meant, and all there are."""
    with pytest.raises(UsageError) as caught:
        A("lead", **{written: "x"})
    said = f"Agent 'lead' has no {written!r}. Did you mean {meant!r}? It has name, nickname, "
    assert str(caught.value).startswith(said)
    assert caught.value.__suppress_context__


def test_a_wrong_field_without_a_name() -> None:
    """Before the missing name, the field that there is not is told."""
    with pytest.raises(UsageError, match=r"^Agent has no 'system_prompt'\. Did you mean 'instructions'"):
        A(system_prompt="Be brief.")


def test_an_agent_with_two_values_without_names() -> None:
    """Only the name goes without one."""
    with pytest.raises(UsageError, match=r"Agent 'a'.*'do it'.*Agent\(name, instructions=\.\.\.\)"):
        A("a", "do it")


def test_other_mistakes_stay_what_they_are() -> None:
    """What is missing is still Python's to say, and so is a TypeError from within."""
    with pytest.raises(TypeError, match="name"):
        A()

    class Sly(str):
        __slots__ = ()

        def isascii(self) -> bool:
            raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        Agent("lead", instructions=Sly("x"))


def test_an_agent_is_looked_at_as_before() -> None:
    """Its signature is still there to be read."""
    names = list(inspect.signature(Agent).parameters)
    assert names[:4] == ["name", "nickname", "description", "instructions"]
    assert Agent.__init__.__name__ == "__init__"


def test_letters_that_changed_places_are_put_back() -> None:
    """The name with the same letters is meant, not a shorter one that is as near."""
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
def test_a_name_like_another_is_no_slip(one: str, other: str) -> None:
    """Rules for several agents name such tools side by side: they are none that is surely misspelt."""
    assert spelling.slip_of(one, [other]) is None
    assert spelling.slip_of(other, [one]) is None
