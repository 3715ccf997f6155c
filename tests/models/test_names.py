"""Valid model names, and the message for each kind of invalid name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from remit import UsageError
from remit.models import Shelf

SRC = Path(__file__).parents[2] / "src"


def refused(name: str, **aliases: str) -> str:
    with pytest.raises(UsageError) as caught:
        Shelf(aliases).find(name)
    return str(caught.value)


def test_a_name_without_a_provider() -> None:
    """The message shows the correct form and suggests an alias."""
    said = refused("gpt-5")
    assert said.startswith("The model name 'gpt-5' lacks a provider. Write it as \"anthropic:")
    assert refused("fats", fast="openai:gpt-5").endswith("Did you mean the alias 'fast'?")
    assert "lacks a model after the colon" in refused("openai:")


@pytest.mark.parametrize("name", ["", "  ", None, 7])
def test_an_invalid_name(name: object) -> None:
    """Only non-empty strings are accepted."""
    with pytest.raises(UsageError, match="A model name must be a non-empty string"):
        Shelf().find(name)  # pyright: ignore[reportArgumentType]


def test_a_misspelled_provider() -> None:
    """The message suggests the probable provider."""
    assert refused("antropic:claude-sonnet-5") == (
        "Unknown provider 'antropic' in the model name 'antropic:claude-sonnet-5'."
        ' Did you mean "anthropic:claude-sonnet-5"?'
    )
    assert refused("zzz:x").endswith(
        "Known providers: anthropic, openai, google, groq, mistral, cohere and others."
    )


@pytest.mark.parametrize(
    ("name", "extra"), [("groq:llama", "groq"), ("mistral:large", "mistral"), ("cohere:r", "cohere")]
)
def test_a_missing_package(name: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to install."""
    monkeypatch.setitem(sys.modules, {"mistral": "mistralai"}.get(extra, extra), None)
    wanted = f"needs a package that is not installed. Run: pip install 'remit[{extra}]'"
    assert refused(name) == f"The model {name!r} {wanted}"


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("anthropic:x", "Run: pip install 'remit[anthropic]'"),
        ("ollama:x", "Run: pip install 'remit[openai]'"),
        ("antropic:x", 'Did you mean "anthropic:x"?'),
    ],
)
def test_nothing_is_installed(name: str, end: str) -> None:
    """Without any extra installed the messages are the same."""
    program = (
        "import sys; sys.modules['pydantic_ai'] = None\n"
        "import remit.models\n"
        f"try: remit.models.Shelf().find({name!r})\n"
        "except remit.UsageError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(SRC)},
        check=True,
    )
    assert done.stdout.strip().endswith(end)


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("anthropic:claude-sonnet-5", "ANTHROPIC_API_KEY"),
        ("openai:gpt-5", "OPENAI_API_KEY"),
        ("openai-chat:gpt-5", "OPENAI_API_KEY"),
        ("google:gemini-2.5-pro", "GOOGLE_API_KEY"),
        ("openrouter:some/model", "OPENROUTER_API_KEY"),
        ("deepseek:chat", "DEEPSEEK_API_KEY"),
    ],
)
def test_a_missing_key(name: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the exact variable."""
    for each in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(each, raising=False)
    assert refused(name) == f"The model {name!r} needs a key: set the environment variable {variable}."


@pytest.mark.parametrize(
    "address", ["ftp://host/v1#m", "http://#m", "http:///v1#m", "http://host:99999/v1#m"]
)
def test_an_invalid_address(address: str) -> None:
    """An invalid address is refused before any connection."""
    assert "is not a valid address" in refused(address)


def test_addresses_need_a_model_and_no_password() -> None:
    """An address needs a model after the hash and may not contain a password."""
    assert 'Write it as "http://localhost:8000/v1#model".' in refused("http://localhost:8000/v1")
    assert "Put the key into OPENAI_COMPATIBLE_API_KEY" in refused("http://me:secret@localhost/v1#m")


def test_an_invalid_base_url(monkeypatch: pytest.MonkeyPatch) -> None:
    """A base URL without a scheme is reported before the run, with its variable."""
    monkeypatch.setenv("OPENAI_BASE_URL", "localhost:8000/v1")
    said = refused("openai:gpt-5")
    assert said.startswith("The base URL of 'openai:gpt-5' (OPENAI_BASE_URL) is not a valid address")


def test_aliases() -> None:
    """An alias may refer to another alias; every name of a model finds the same object."""
    shelf = Shelf({"fast": "small", "small": "openai-chat:gpt-4o-mini"})
    found = shelf.find("fast")
    assert found is shelf.find("small") is shelf.find("openai-chat:gpt-4o-mini") is shelf.find(" fast ")
    assert found.name == "openai-chat:gpt-4o-mini"


def test_invalid_aliases() -> None:
    """Cyclic aliases and targets that are not names are refused when the shelf is created."""
    with pytest.raises(UsageError, match="refers to itself: a -> b -> a"):
        Shelf({"a": "b", "b": "a"})
    with pytest.raises(UsageError, match="must map a name to a name"):
        Shelf({"a": 7})  # pyright: ignore[reportArgumentType]
    assert "Unknown provider" in refused("fast", fast="nobody:x")


def test_prices_and_windows() -> None:
    """The worst case uses the highest input price; an unknown price is unknown, not zero."""
    shelf = Shelf()
    claude = shelf.find("anthropic:claude-haiku-4-5")
    assert claude.price is not None
    assert (claude.price.input, claude.price.output) == (1.25, 5.0), (
        "writing to the cache is the dearest input"
    )
    tiered = shelf.find("google:gemini-2.5-pro").price
    assert tiered is not None
    assert (tiered.input, tiered.output) == (2.5, 15.0), "the highest tier"
    assert claude.context_window == 200_000
    for name in ("ollama:llama3", "http://localhost:1/v1#m", "openai:no-such-model"):
        found = shelf.find(name)
        assert (found.price, found.context_window) == (None, None)


def test_lanes() -> None:
    """Models that share a provider's rate limits share a lane, under every name."""
    shelf = Shelf()
    assert shelf.find("openai:gpt-5").lane == shelf.find("openai-chat:gpt-5").lane == "openai:gpt-5"
    assert shelf.find("http://localhost:1/v1#m").lane != shelf.find("http://localhost:2/v1#m").lane


def test_nothing_is_imported_before_it_is_used() -> None:
    """Importing remit and its shelf imports no provider; finding a model imports only its provider."""
    program = (
        "import sys, os, remit, remit.models\n"
        "shelf = remit.models.Shelf({'fast': 'anthropic:claude-sonnet-5'})\n"
        "heavy = ('pydantic_ai', 'httpx2', 'anthropic', 'openai', 'google.genai', 'genai_prices')\n"
        "print([name for name in heavy if name in sys.modules])\n"
        "shelf.find('fast')\n"
        "print([name for name in ('anthropic', 'openai', 'google.genai') if name in sys.modules])"
    )
    env = {"PYTHONPATH": str(SRC), "ANTHROPIC_API_KEY": "none"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=env, check=True
    )
    assert done.stdout.split("\n")[:2] == ["[]", "['anthropic']"]
