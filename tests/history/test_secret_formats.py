"""Realistic secrets are redacted, and ordinary texts are not."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
from secret_formats import BY_PLACE, BY_PREFIX, FRAMES, make, ordinary_texts

from remit.errors import UsageError
from remit.history.redaction import REDACTED, Redactor
from remit.stores import SecretPattern
from remit.stores.sqlite import SqliteStore
from remit.testing.samples import new_tree, started, warned

REDACTOR = Redactor(environment={})
ORDINARY = ordinary_texts()
MOSTLY = ("svix webhook",)
"""Secrets in base64, a few percent of which have no 15 letters and digits in a row."""


def both(text: str) -> tuple[str, str]:
    """The text redacted as it is, and as a string in JSON."""
    in_json = msgspec.json.decode(REDACTOR.redact(msgspec.json.encode(text)), type=str)
    return REDACTOR.redact_text(text), in_json


def is_gone(text: str, secret: str) -> bool:
    return all(
        REDACTED in result and secret[-14:] not in result and secret[14:28] not in result
        for result in both(text)
    )


def files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


def test_there_are_enough_formats() -> None:
    """The number of formats must not shrink."""
    assert len(BY_PREFIX) + len(BY_PLACE) >= 88


@pytest.mark.parametrize("name", [name for name in BY_PREFIX if name not in MOSTLY])
def test_a_secret_is_recognised_by_its_fixed_part(name: str) -> None:
    """Keys and tokens with a published format are redacted anywhere in a text."""
    chance = random.Random(name)
    for frame in FRAMES:
        secret = make(BY_PREFIX[name], chance)
        assert is_gone(frame.format(secret), secret), frame


@pytest.mark.parametrize("name", MOSTLY)
def test_a_secret_in_base64_is_recognised_if_it_has_a_long_run(name: str) -> None:
    """More than nine of ten are redacted."""
    chance = random.Random(name)
    made = [make(BY_PREFIX[name], chance) for _ in range(200)]
    assert sum(is_gone(f"it is {secret}.", secret) for secret in made) > 180


@pytest.mark.parametrize("name", BY_PLACE)
def test_a_secret_is_recognised_by_the_text_before_it(name: str) -> None:
    """A value is redacted because of the name or URL before it, which stays."""
    frame, shape = BY_PLACE[name]
    chance = random.Random(name)
    for _ in range(5):
        secret = make(shape, chance)
        for result in both(f"first\n{frame.format(secret)}\nlast"):
            assert result.startswith("first\n" + frame.partition("{}")[0].replace("{{", "{"))
            assert secret not in result
            assert REDACTED in result
            assert result.endswith("\nlast")


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_texts_do_not_change(name: str) -> None:
    """Hashes, ids, images, source code, logs and lock files do not change."""
    assert both(ORDINARY[name]) == (ORDINARY[name], ORDINARY[name])


async def test_no_secret_of_any_format_is_on_the_disk(tmp_path: Path) -> None:
    """Secrets in a task, a warning or an artifact are in none of the files."""
    chance = random.Random(3)
    made = [make(shape, chance) for name, shape in BY_PREFIX.items() if name not in MOSTLY]
    said = "\n".join(f"- {secret}" for secret in made)
    store = SqliteStore(tmp_path / "runs.db", secrets=[SecretPattern("acme_", 20)])
    own = make("acme_{W24}1", chance)
    root = await new_tree(store)
    store.append(started(root, 1, task=f"{said}\n{own}"))
    store.append(warned(root, 2, f"{own}\n{said}"))
    await store.save_artifact(root, "a", f"{said}\n{own}")
    await store.flush()
    on_disk = files(tmp_path)
    await store.close()
    assert REDACTED.encode() in on_disk
    assert [secret for secret in (*made, own) if secret[-14:].encode() in on_disk] == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"prefix": "ab"}, "prefix must be 3 to 32 letters"),
        ({"prefix": "a" * 33}, "prefix must be 3 to 32 letters"),
        ({"prefix": "(a+)+$"}, "prefix must be"),
        ({"prefix": "the word"}, "prefix must be"),
        ({"prefix": "_abc"}, "begin with a letter or a digit"),
        ({"prefix": "a.bcdef"}, "prefix must be"),
        ({"prefix": 7}, "prefix must be"),
        ({"prefix": "acme_", "least": 4}, "least must be a number from 16 to 512, not 4"),
        ({"prefix": "acme_", "least": 10_000}, "least must be"),
        ({"prefix": "acme_", "least": True}, "least must be"),
        ({"prefix": "acme_", "chars": "[a-z]+"}, "chars must be one of hex, upper"),
        ({"prefix": "acme_", "exact": "yes"}, "exact must be true or false, not 'yes'"),
        (
            {"prefix": "acme_", "chars": "base64", "random": True},
            "random=true does not work with chars='base64'",
        ),
    ],
)
def test_a_pattern_that_would_match_too_much_is_refused(given: dict[str, object], words: str) -> None:
    """A pattern is a prefix, a set of characters and a length within bounds; the message names the wrong part."""
    with pytest.raises(UsageError, match=words):
        SecretPattern(**given)  # pyright: ignore[reportArgumentType]  # settings may contain anything
