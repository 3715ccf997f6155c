"""Redaction removes secrets, keeps other text, and keeps JSON valid."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from enum import Enum

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remit.history.redaction import HELD_CHARS, REDACTED, Redactor
from remit.types.event_json import decode, encode
from remit.types.events import VERSION, CallEnded, RunStarted, Where
from remit.types.limits import Usage
from remit.types.messages import ImagePart, TextPart, Thinking, UserMessage

REDACTOR = Redactor(environment={})

R36 = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
KEY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7"

SECRETS = {
    "openai": f"sk-{R36}",
    "openai project": f"sk-proj-{R36}_{R36}",
    "anthropic": f"sk-ant-api03-{R36}-{R36}_AA",
    "stripe": "sk_live_" + R36[:24],
    "github": f"ghp_{R36}",
    "github app": f"ghs_{R36}",
    "github oauth": f"gho_{R36}",
    "github fine": f"github_pat_{R36[:22]}_{R36}",
    "slack": "xoxb-123456789012-1234567890123-AbCdEfGhIjKlMnOp",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "aws session": "ASIAIOSFODNN7EXAMPLE",
    "google": "AIza" + (R36 * 2)[:35],
    "gitlab": "glpat-a1b2C3d4_5f6g7h8i9j0",
    "hugging face": f"hf_{R36[:34]}",
    "hugging face, letters": "hf_abCDefGHijKLmnOPqrSTuvWXyzABcdEFgh",
    "npm": f"npm_{R36}",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
}

MORE_SECRETS = SECRETS | {
    "groq": f"gsk_{R36}",
    "xai": f"xai-{R36}",
    "perplexity": f"pplx-{R36}",
    "replicate": f"r8_{R36}",
    "digital ocean": f"dop_v1_{R36}",
    "vault": f"hvs.{R36}",
    "pypi": f"pypi-{R36}",
    "slack app": f"xapp-1-A02-{R36}",
    "tavily": f"tvly-dev-{R36}",
    "langsmith": "lsv2_pt_" + "0a1b2c3d" * 4 + "_0a1b2c3d4e",
    "hexadecimal": "sk_" + "0a1b2c3d" * 4,
    "databricks": "dapi" + "0a1b2c3d" * 4,
    "google oauth": f"ya29.{R36}",
    "google client": f"GOCSPX-{R36[:28]}",
    "sendgrid": f"SG.{R36[:22]}.{R36}",
}
"""Not for texts in which one secret directly follows another: the start of the second cannot be recognised there."""

FRAMES = (
    "{}",
    "the key is {}, use it",
    "KEY={}\nnext",
    "first\n{}\nlast",
    "\t{}",
    "\x01{}",
    '{{"key": "{}"}}',
    "'{}'",
    "https://host/{}",
    "ä{}€",
    "a\\n{}",
    "-{}",
    " _{}",
    "\x1b[32m{}\x1b[0m",
    "\x1b[1;32m{}\x1b[0m",
    "https://host/?k%3D{}",
    "aB3c/" * 60 + "{}",
)

AROUND = {
    "bearer": ("Authorization: Bearer {}", "abcdef0123456789abcdef"),
    "bearer, lower case": ("curl -H 'authorization: bearer {}'", "abcdef0123456789abcdef"),
    "basic": ("Authorization: Basic {}", base64.b64encode(b"user:pass").decode()),
    "basic in JSON": ('{{"Authorization": "Basic {}"}}', base64.b64encode(b"user:pass").decode()),
    "url": ("postgresql://user:{}@host/db", "hunter2"),
    "url without user": ("redis://:{}@host", "hunter2"),
    "api key": ("api_key={}", "0a1b2c3d4e5f60718293"),
    "api key in JSON": ('{{"api_key": "{}"}}', "0a1b2c3d4e5f60718293"),
    "api key in JSON in JSON": (
        json.dumps(json.dumps({"apiKey": "{}"})).replace("{", "{{").replace("}", "}}").replace("{{}}", "{}"),
        "0a1b2c3d4e5f60718293",
    ),
    "header": ("X-Api-Key: {}", "0a1b2c3d4e5f60718293"),
    "token": ("token: {}", "0a1b2c3d4e5f60718293"),
    "uuid": ("access_token={}&x=1", "123e4567-e89b-12d3-a456-426614174000"),
    "aws secret": ("aws_secret_access_key = {}", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    "password": ("password={}", "hunter2!"),
    "password between tabs": ("password\t=\t{}", "hunter2!x9abc"),
    "key between tabs": ("API_KEY\t: '{}'", "0a1b2c3d4e5f60718293"),
    "basic between tabs": ("Authorization\t:\tBasic {}", base64.b64encode(b"user:pass").decode()),
    "key in JSON five deep": ("api_key" + "\\" * 15 + '":' + "\\" * 15 + '"{}', "0a1b2c3d4e5f60718293"),
    "short password as an argument": ("mysql --password {} db", "hunter2xyz"),
    "short password as an argument, with an equals sign": ("--password={}", "Tr0ub4dor"),
    "token behind a backslash": ("HKCU\\Software\\App\\Token = {}", "0a1b2c3d4e5f60718293"),
    "token behind a backslash, and a tab": ("Env:\\token\t= {}", "0a1b2c3d4e5f60718293"),
    "password in yaml": ("  Password: {}", "Tr0ub4dor"),
    "password in a colour": ("password=\x0e{}", "Tr0ub4dor"),
    "environment of a process": (
        "DEPLOY_TOKEN={}\0PATH=/usr/bin:./node_modules/.bin\0",
        "q7Gd82hsKQ01mvPz55xW",
    ),
    "slack hook": ("https://hooks.slack.com/services/{}", "T0AB1CD2E/B0AB1CD2E/a1B2c3D4e5F6g7H8i9J0k1L2"),
    "argument of a command": ("deploy --api-key {} --now", "q7Gd82hsKQ01mvPz55xW"),
    "password as an argument": ("deploy --password {} --now", "q7Gd82hsKQ01mvPz55xW"),
    "passphrase": ("passphrase: '{}'", "q7Gd82hsKQ01mvPz55xW"),
    "credentials": ("credentials={}", "q7Gd82hsKQ01mvPz55xW"),
    "bearer in pieces": ("Authorization: Bearer {}", "q7G/82h+sKQ01m/vPz55xW=="),
    "argument in pieces": ("deploy --token {}", "q7G/82h+sKQ01m/vPz55xW=="),
    "in short pieces": ("API_KEY={}", "q7G/82h+sKQ01m/vPz55xW=="),
    "in pieces": ("auth_token: {}", "q7Gd/82hsK+Q01mvPz55xW01mv9"),
    "telegram": ("the bot's: {}", f"123456789:AA{R36[:33]}"),
    "two in one": ("A_TOKEN=./a/b.c\0B_TOKEN={}\0", "q7Gd82hsKQ01mvPz55xW"),
    "arguments of a process": ("--token={}\0./configure\0", "q7Gd82hsKQ01mvPz55xW"),
}

ORDINARY = (
    "the task-list of the desk-jockey, a risk-averse sk-learn user",
    "sk-learn-contrib-package-names and sk-2024-road-map-items",
    "pip install scikit-learn; mask-rcnn-resnet50-fpn-coco-2017",
    '{"tokens":123456789,"input_tokens":1000,"cache_read_tokens":17,"max_tokens":200000}',
    "total tokens: 123456789012345678901234567890",
    "token=os.environ['MY_TOKEN']; password=getpass()",
    "password: string, required",
    "the bearer of this letter-of-recommendation",
    "a key: the-cache-key-of-2024-entries; key=0123456789abcdef0123456789abcdef",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
    "https://example.com:8080/path@2x.png and mail@example.com",
    "see src/remit/stores/postgres.py:120 and 123e4567-e89b-12d3-a456-426614174000",
    "AKIA is a prefix, AIza another, ghp_ and eyJ too",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "A key begins with -----BEGIN RSA PRIVATE KEY----- and ends with -----END RSA PRIVATE KEY-----.",
    "abcdefghjk.12.3 abcdefghjkmnpqrstuvw.1",
)


def both(text: str) -> tuple[str, str]:
    """The text redacted as it is, and as a string in JSON."""
    in_json = msgspec.json.decode(REDACTOR.redact(msgspec.json.encode(text)), type=str)
    return REDACTOR.redact_text(text), in_json


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("name", MORE_SECRETS)
def test_keys_of_known_form_are_redacted(name: str, frame: str) -> None:
    """A key of a known form is redacted, whatever text surrounds it, and nothing else is."""
    for result in both(frame.format(MORE_SECRETS[name])):
        assert MORE_SECRETS[name][8:] not in result
        assert REDACTED in result
        assert result == frame.format(REDACTED)


@pytest.mark.parametrize("name", AROUND)
def test_values_of_secret_names_are_redacted(name: str) -> None:
    """A value is redacted because of the name before it; the name stays."""
    frame, secret = AROUND[name]
    for result in both(frame.format(secret)):
        assert result == frame.format(REDACTED)


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays(text: str) -> None:
    """Prose, code, numbers, hashes and our own field names do not change."""
    assert both(text) == (text, text)


@pytest.mark.parametrize("indent", ["", "    "])
@pytest.mark.parametrize("ending", ["\n-----END RSA PRIVATE KEY-----", ""])
def test_private_keys_are_redacted(indent: str, ending: str) -> None:
    """The whole block is redacted, even if its end is missing; text after the block stays."""
    body = f"\n{indent}".join(["-----BEGIN RSA PRIVATE KEY-----", *[KEY] * 20]) + ending.replace(
        "\n", f"\n{indent}"
    )
    for result in both(f"key:\n{indent}{body}\n\nThat was it (really)."):
        assert "MII" not in result
        assert result.startswith(f"key:\n{indent}{REDACTED}")
        assert result.endswith("(really).")


@pytest.mark.parametrize("line_break", ["\\n", "\\\\n", "\\r\\n"])
def test_private_keys_in_one_line_are_redacted(line_break: str) -> None:
    """Also with escaped line breaks, as in service accounts and settings, escaped once or several times."""
    body = line_break.join(["-----BEGIN PRIVATE KEY-----", *[KEY] * 20, "-----END PRIVATE KEY-----", ""])
    text = f'{{"type": "service_account", "private_key": "{body}", "client_id": "1"}}'
    for result in both(text):
        assert KEY not in result
        assert result.endswith('"client_id": "1"}')


@pytest.mark.parametrize(
    ("before", "line"),
    [
        ("", "{}"),
        ("Version: GnuPG v2.0.22 (GNU/Linux)\n\n", "{}"),
        ("Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0123456789ABCDEF0123456789ABCDEF\n\n", "{}"),
        ("", " " * 80 + "{}"),
        ("", "    12\t      {}"),
    ],
    ids=["plain", "pgp", "encrypted", "far in", "as read shows it"],
)
def test_private_keys_in_files_are_redacted(before: str, line: str) -> None:
    """Also with headers between the first line and the key, and with a prefix before each line."""
    lines = [*before.splitlines(), *[KEY] * 20, "-----END RSA PRIVATE KEY-----"]
    text = "\n".join(
        ["-----BEGIN RSA PRIVATE KEY-----", *(line.format(one) if one else one for one in lines)]
    )
    for result in both(f"apiVersion: v1\n{text}\nkind: Secret"):
        assert KEY not in result
        assert result.endswith("kind: Secret")


def test_base64_stays() -> None:
    """Images and the providers' signatures do not change."""
    data = bytes(range(256)) * 50
    signature = base64.b64encode(data).decode() + base64.urlsafe_b64encode(data[::-1]).decode()
    for value in (ImagePart(data=data), Thinking("hm", signature)):
        encoded = msgspec.json.encode(value)
        assert REDACTOR.redact(encoded) == encoded


def test_given_secrets_are_found_in_their_json_form() -> None:
    """A given secret is found even if JSON escapes its characters; the longest secret is replaced first."""
    redactor = Redactor(['pa"ss\\w\n', "abcdefgh", "abcdefghijkl"], environment={})
    text = 'x pa"ss\\w\n y abcdefghijkl z abcdefgh'
    wanted = f"x {REDACTED} y {REDACTED} z {REDACTED}"
    assert redactor.redact_text(text) == wanted
    assert msgspec.json.decode(redactor.redact(msgspec.json.encode(text))) == wanted


@pytest.mark.parametrize("secret", ['zz"91\\yy-82', "first\nsecond line 7", "pässw0rt-91"])
@pytest.mark.parametrize("dumps", [json.dumps, lambda text: json.dumps(text, ensure_ascii=False)])
def test_given_secrets_are_found_in_json_inside_a_text(secret: str, dumps: Callable[[str], str]) -> None:
    """A tool that prints JSON escapes the characters; the journal escapes them once more."""
    redactor = Redactor([secret], environment={})
    text = f"it said {dumps(secret)}, twice"
    assert redactor.redact_text(text) == f'it said "{REDACTED}", twice'
    assert msgspec.json.decode(redactor.redact(msgspec.json.encode(text))) == f'it said "{REDACTED}", twice'


@pytest.mark.parametrize("secret", ["nabcdefg", "0001abcd", "\\nabcdefg"])
def test_an_escape_sequence_stays_whole(secret: str) -> None:
    """A secret that equals the end of an escape sequence does not break the sequence."""
    redactor = Redactor([secret], environment={})
    for text in ("\nabcdefg", "\x01abcd", f"{secret}\n{secret}", f"\\{secret}"):
        redacted: str = msgspec.json.decode(redactor.redact(msgspec.json.encode(text)))
        as_json = json.dumps(secret)[1:-1]
        assert redacted == text.replace(as_json, REDACTED).replace(secret, REDACTED)


def test_a_secret_of_digits_does_not_change_numbers() -> None:
    """JSON stays valid: a secret of digits is redacted in texts, not in numbers."""
    redacted = Redactor(["12345678"], environment={}).redact(b'{"at":12345678.5,"text":"pin 12345678"}')
    assert msgspec.json.decode(redacted) == {"at": 12345678.5, "text": f"pin {REDACTED}"}


def test_secret_environment_variables_are_redacted() -> None:
    """Values of variables with secret names are redacted, except words, numbers and paths."""
    redactor = Redactor(
        environment={
            "SOME_API_KEY": "zz-91-yy-82",
            "DB_PASSWORD": "correct7horse",
            "TOKENS": "tok99tok99",
            "BACKUP_SECRET": "correct horse battery staple",
            "SECRET_HINT": "ask the office",
            "KEY_FILE": "/etc/ssl/key.pem",
            "SECRET_MODE": "disabled",
            "TOKEN_SECONDS": "86400000",
            "HOME_TOKEN": "ab1",
            "EDITOR": "vim-9.1.zz",
        }
    )
    text = "zz-91-yy-82 correct7horse tok99tok99 /etc/ssl/key.pem disabled 86400000 ab1 vim-9.1.zz"
    assert redactor.redact_text(text) == (
        f"{REDACTED} {REDACTED} {REDACTED} /etc/ssl/key.pem disabled 86400000 ab1 vim-9.1.zz"
    )
    phrases = "correct horse battery staple; ask the office"
    assert redactor.redact_text(phrases) == f"{REDACTED}; ask the office"


TEXTS = st.lists(
    st.one_of(
        st.text(max_size=20),
        st.sampled_from([*SECRETS.values(), "\n", "\\", '"', "password=", "Bearer ", KEY]),
    ),
    max_size=8,
).map("".join)


def test_a_secret_in_a_name_is_found_when_values_are_redacted_singly() -> None:
    """Replacing the text after `password=` would break an escape sequence here, so each value is redacted by itself."""
    key = SECRETS["openai"]
    data = msgspec.json.encode({"content": f"PASSWORD=\x1f{key}", "details": {key: "x", "pin-4711-x": 1}})
    redacted = Redactor(["content", "pin-4711-x"], environment={}).redact(data)
    assert R36.encode() not in redacted
    assert b"4711" not in redacted
    assert b'{"content":' in redacted


@given(TEXTS, TEXTS, st.binary(max_size=60))
@example(f"PASSWORD=\x1f{SECRETS['openai']}", SECRETS["openai"], b"")
@example("", SECRETS["aws"] + SECRETS["openai"], b"")
def test_redacted_events_are_valid_events(one: str, other: str, data: bytes) -> None:
    """The redacted JSON of any event is a valid event; redacting it again changes nothing."""
    head = {"seq": 1, "at": 0.5, "where": Where("r", None, "r", 0, (), "a"), "v": VERSION}
    task = UserMessage((TextPart(one), ImagePart(data=data)))
    events = (
        RunStarted(task=task, instructions=other, **head),
        CallEnded(call="c", tool="t", success=True, content=one, details={other: [one, 12345678]}, **head),
    )
    for event in events:
        redacted = REDACTOR.redact(encode(event))
        again = decode(redacted)
        assert (again.seq, again.kind) == (event.seq, event.kind)
        assert REDACTOR.redact(redacted) == redacted


@given(TEXTS, TEXTS)
def test_a_long_text_is_cut_between_secrets(one: str, other: str) -> None:
    """A text redacted in two parts, split at `cut`, equals the text redacted whole."""
    filler = "all quiet here \n" * (HELD_CHARS // 4)
    text = filler + one + " \n" + filler[: HELD_CHARS - 40] + other + filler[:40]
    end = REDACTOR.cut(text)
    assert 0 < end < len(text)
    assert REDACTOR.redact_text(text[:end]) + REDACTOR.redact_text(text[end:]) == REDACTOR.redact_text(text)


def test_usage_is_not_a_secret() -> None:
    """Counts of tokens stay numbers."""
    data = msgspec.json.encode(Usage(1, 123456789012, 2, 3, 4, 0.5))
    assert REDACTOR.redact(data) is data


@pytest.mark.parametrize(
    "unit",
    [
        "sk-",
        "-eyJ",
        "token=",
        "eyJ",
        "-----BEGIN PRIVATE KEY-----",
        "://a:",
        "bearer ",
        "\\",
        "A",
        "key a1b2c3d4e5f6g7h8 ",
        "glpat-aaaaaaaaaaaaaaaaaaaa.",
        "/AIzaAIzaAIzaAIza",
        "whsec_aaaaaaaaaaaaaaa/",
        "/api/webhooks/aaaaaaaaaaaaaaaaa",
        "eyJaaaaaaaaaaaaaa.",
        "\nsk-aaaaaaaaaaaaaaa",
        "12345678:AAaaaaaaaaaaaaaaaa",
        "abc8Q~",
        "~",
        "-----------------",
        '"""""""""""""""""""""""""""""""""":',
    ],
)
def test_adversarial_text_takes_linear_time(unit: str) -> None:
    """Megabytes made to confuse the patterns are read once, not once for each character."""
    text = unit * (2_000_000 // len(unit)) + ".eyJ @"
    assert len(REDACTOR.redact_text(text)) <= len(text) + len(REDACTED)


def test_an_enum_member_is_searched_by_its_value() -> None:
    """JSON contains the value of an enum member; `str` would give its name."""

    class Named(str, Enum):  # noqa: UP042 - str() of a `StrEnum` is its value
        ONE = "sk-a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"

    data = msgspec.json.encode([Named.ONE, 5, None])
    assert Named.ONE.value.encode() in data
    assert REDACTOR.redact(data) == b'["[redacted]",5,null]'
