"""One list of secret names: variables hidden from commands are also redacted in the journal."""

from __future__ import annotations

import pytest

from remit.history.redaction import REDACTED, Redactor
from remit.history.secret_names import is_secret_name, names_its_value
from remit.tools.builtin.terminal.environment import scrub

VALUE = "Tr0ub4dor-and-3"

SECRET = (
    *(
        "DB_PASS",
        "PASS",
        "PGPASS",
        "SMTP_PASS2",
        "MYSQL_PWD",
        "ROOT_PW",
        "SSH_PASSPHRASE",
        "GITHUB_PAT",
        "PAT",
    ),
    *(
        "JWT",
        "SESSION_JWT",
        "AUTH_COOKIE",
        "COOKIES",
        "SLACK_WEBHOOK",
        "DEPLOY_WEBHOOKS",
        "SENTRY_DSN",
        "BLOB_SAS",
    ),
    *(
        "APP_SALT",
        "CARD_PIN",
        "GCP_CREDS",
        "MY_CRED",
        "WALLET_MNEMONIC",
        "SEED_PHRASE",
        "STORAGE_CONNECTION_STRING",
    ),
    *(
        "API_KEY",
        "apikey",
        "TOKENS",
        "GITHUB_TOKEN_2",
        "CLIENT_SECRET",
        "DbPassword",
        "DB-PASSWORD",
        "GOOGLE_CREDENTIALS",
    ),
    *("TOKEN_GITHUB", "HTTP_BEARER"),
)
OTHER = (
    *(
        "PATH",
        "HOME",
        "COMPAT",
        "BYPASS_CACHE",
        "COMPASS_HOME",
        "SALTED",
        "PINNED",
        "AUTHOR",
        "GIT_AUTHOR_NAME",
        "PASSED",
    ),
    *("LANG", "PATTERN", "DSN_HELP", "JWTS", "REPAT"),
)


@pytest.mark.parametrize("name", SECRET)
def test_the_value_of_a_hidden_variable_is_redacted(name: str) -> None:
    """The terminal and the journal agree on the names of secret variables."""
    assert scrub({name: VALUE}).get(name) is None
    text = f"it printed {VALUE}, twice: {VALUE}"
    assert Redactor(environment={name: VALUE}).redact_text(text) == text.replace(VALUE, REDACTED)


@pytest.mark.parametrize("name", OTHER)
def test_other_names_are_not_secret(name: str) -> None:
    """A secret word inside another word does not count."""
    assert not is_secret_name(name)
    assert not names_its_value(name)
    assert Redactor(environment={name: VALUE}).redact_text(VALUE) == VALUE


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AUTH_PROVIDER", "google-oauth2"),
        ("GOPRIVATE", "example.com/acme1/*"),
        ("TOKENIZERS_KIND", "fast-v2-small"),
        ("KEYCLOAK_REALM", "realm-1-of-acme"),
        ("AWS_REGION", "us-east-1"),
        ("SLACK_WEBHOOK", "https://example.com/hooks/deploy"),
        ("AUTH_URL", "https://login.example.com/realms/acme-1"),
        ("SSH_AUTH_SOCK", "/tmp/ssh-XXabc123/agent.1"),
        ("SESSION_COOKIE_NAME", "sessionid"),
        ("COOKIE_SECURE", "true"),
    ],
)
def test_a_value_about_a_secret_is_not_redacted(name: str, value: str) -> None:
    """Names of providers, regions, URLs and paths stay in the journal: they occur in many texts."""
    assert Redactor(environment={name: value}).redact_text(f"see {value}") == f"see {value}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLACK_WEBHOOK", "https://hooks.example.com/services/T0AB1CD2E/a1B2c3D4e5F6g7H8i9J0"),
        ("DOCKER_AUTH", "dXNlcjpwYXNzd29yZDEyMw=="),
        ("PRIVATE_FEED", "a1B2c3D4e5F6g7H8i9J0"),
        ("SESSION_COOKIE", "sid=8c1f9a2b; Path=/"),
    ],
)
def test_a_random_value_of_any_secret_name_is_redacted(name: str, value: str) -> None:
    """Also a URL, and also if the name only describes a setting about a secret."""
    assert Redactor(environment={name: value}).redact_text(f"see {value}.") == f"see {REDACTED}."
