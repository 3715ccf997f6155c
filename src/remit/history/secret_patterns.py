"""A table of secrets that are recognised by their prefix. Users can add entries.

An entry is a prefix, a set of characters and a length, not a regular expression: the settings of a project are
untrusted, and a regular expression can take exponential time. `secret_tokens.py` does the search.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, cast, get_args

from msgspec import Struct

from remit.errors import UsageError

Chars = Literal["hex", "upper", "uuid", "word", "name", "dotted", "base64"]

CLASSES: dict[Chars, bytes] = {
    "hex": rb"0-9a-fA-F",
    "upper": rb"A-Z0-9",
    "uuid": rb"0-9a-fA-F-",
    "word": rb"A-Za-z0-9",
    "name": rb"A-Za-z0-9_-",
    "dotted": rb"A-Za-z0-9_.=-",
    "base64": rb"A-Za-z0-9_+/=-",
}
"""The characters of each set, as inside the brackets of a regular expression."""

LEAST, MOST = 16, 512
"""Bounds of `least`: shorter secrets would match ordinary text."""

_PREFIX = re.compile(r"[A-Za-z0-9](?=.{2})[A-Za-z0-9_-]*(?:(?<=..)[.:~=][A-Za-z0-9_-]*)*")
_PREFIX_CHARS = 32


class SecretPattern(Struct, frozen=True):
    """A kind of secret: a prefix and the characters after it. Raises UsageError if it would match too much or nothing."""

    prefix: str
    """3 to 32 letters, digits, `_`, `-`, `.`, `:`, `~` and `=`. Upper and lower case differ."""
    least: int = LEAST
    """Least number of characters after the prefix, 16 to 512. At least one must be a digit or a capital letter."""
    chars: Chars = "name"
    """The characters after the prefix: `hex`, `upper` (capitals and digits), `uuid`, `word` (letters and digits), `name`
    (also `_` and `-`), `dotted` (also `.` and `=`) or `base64` (also `+`, `/` and `=`)."""
    exact: bool = False
    """Whether exactly `least` characters follow."""
    random: bool = False
    """Whether the characters must look random: for a prefix that also starts ordinary words."""

    def __str__(self) -> str:
        return f"{self.prefix} and {'exactly' if self.exact else 'at least'} {self.least} of {self.chars}"

    def __post_init__(self) -> None:
        # Patterns also come from settings, so the types are not guaranteed.
        prefix, least = cast(object, self.prefix), cast(object, self.least)
        if not isinstance(prefix, str) or len(prefix) > _PREFIX_CHARS or not _PREFIX.fullmatch(prefix):
            raise UsageError(
                f"prefix must be 3 to {_PREFIX_CHARS} letters, digits, _ - . : ~ or =, and begin with a letter or a digit,"
                f" not {prefix!r}."
            )
        if isinstance(least, bool) or not isinstance(least, int) or not LEAST <= least <= MOST:
            raise UsageError(f"least must be a number from {LEAST} to {MOST}, not {least!r}.")
        if self.chars not in get_args(Chars):
            raise UsageError(f"chars must be one of {', '.join(get_args(Chars))}, not {self.chars!r}.")
        for name, value in (("exact", self.exact), ("random", self.random)):
            if cast(object, value) not in (True, False):
                raise UsageError(f"{name} must be true or false, not {value!r}.")
        if self.random and self.chars in ("dotted", "base64"):
            raise UsageError(
                f"random=true does not work with chars={self.chars!r}. Choose another set of chars."
            )


def _all(
    prefixes: str, least: int, chars: Chars = "name", *, exact: bool = False, random: bool = False
) -> Iterator[SecretPattern]:
    for prefix in prefixes.split():
        yield SecretPattern(prefix, least, chars, exact, random)


PATTERNS = (
    # Source code, packages and builds.
    *_all("ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", 20),
    *_all(
        "glpat- glrt- gldt- glft- glimt- glagent- glsoat- glffct- glcbt- gloas- glptt- GR1348941",
        16,
        "dotted",
    ),
    *_all("npm_", 36, "word", exact=True),
    *_all("npm_", 30, "word", random=True),
    *_all("pypi-", 20, random=True),
    *_all("rubygems_ sgp_ squ_ sqp_ sqa_ bkua_ pul-", 40),
    *_all("CLOJARS_ rdme_", 50, "word"),
    *_all("CCIPAT_ CCIPRJ_ CFPAT-", 40),
    *_all("dckr_pat_ dckr_oat_", 20),
    *_all("AKCp", 69, "word", exact=True),
    *_all("cmVmdGtuO", 55, "word", exact=True),
    *_all("API-", 26, "upper", exact=True),
    *_all("ico-", 32, "word", exact=True),
    *_all("dp.pt. dp.ct. dp.sa. dp.scim. dp.audit. dp.st. dp.st.dev. dp.st.stg. dp.st.prd.", 40, "word"),
    *_all("pat.", 60, "dotted"),
    # Clouds, hosting and databases.
    *_all("AKIA ASIA ABIA ACCA", 16, "upper", exact=True),
    *_all("ABSK", 100, "base64"),
    *_all("X-Amz-Signature=", 64, "hex"),
    *_all("sig=", 40, "word", random=True),
    *_all("AIza", 35, exact=True),
    *_all("ya29. GOCSPX-", 20),
    *_all("LTAI", 20, "word", exact=True),
    *_all("AQVN", 36, exact=True),
    *_all("dop_v1_ doo_v1_ dor_v1_ hvs. hvb. hvr.", 20, random=True),
    *_all("dapi", 32, "hex", exact=True),
    *_all("cfut_ cfat_ cfk_ nfp_ ddp_ ddo_ pnu_", 36, "word"),
    *_all("v1.0-", 150),
    *_all("fo1_", 40),
    *_all("fm1a_ fm1r_ fm2_", 80, "base64"),
    *_all("HRKU-AA sha256~", 40),
    *_all("rnd_ rpa_", 28, "word", random=True),
    *_all("napi_", 60, "word"),
    *_all("pscale_tkn_ pscale_pw_ pscale_oauth_", 32, "dotted"),
    *_all("sbp_ e2b_", 40, "hex"),
    *_all("sb_secret_ tskey-", 20),
    *_all("ops_eyJ", 100, "base64"),
    *_all("AGE-SECRET-KEY-1", 50, "upper"),
    # Models and services around them.
    *_all("sk-", 16, random=True),
    *_all("gsk_ xai- pplx- r8_ tvly-", 20, random=True),
    *_all("hf_ api_org_", 32, "word"),
    *_all("hf_", 20, "word", random=True),
    *_all("lsv2_pt_ lsv2_sk_ nvapi- pcsk_ jina_", 40),
    *_all("apify_api_", 30, "word"),
    *_all("pa-", 43, exact=True, random=True),
    *_all("fc-", 32, "hex", exact=True),
    *_all("sk_", 32, "hex"),
    # Payments and shops.
    *_all("sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_", 16, "word"),
    *_all("whsec_", 24, "base64"),
    *_all("shpat_ shpca_ shppa_ shpss_", 32, "hex"),
    *_all("shippo_live_ shippo_test_", 40, "hex"),
    *_all("EZAK EZTK", 54, "word", exact=True),
    *_all("sq0atp- sq0csp-", 20),
    *_all("EAAA", 60, exact=True),
    *_all("duffel_live_ duffel_test_", 40),
    *_all("FLWSECK- FLWSECK_TEST-", 30),
    *_all("access-sandbox- access-development- access-production-", 36, "uuid", exact=True),
    # Messages and mail.
    *_all("xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs-", 16),
    *_all("xapp-", 20, random=True),
    *_all("EAA", 100, "word"),
    *_all("APA91b", 100),
    *_all("xkeysib- xsmtpsib-", 60),
    *_all("key-", 32, "hex", exact=True),
    *_all("sec-c-", 40),
    # Teams, documents and watching.
    *_all("ATATT3 ATCTT3", 60, "dotted"),
    *_all("ATBB", 32, "word", exact=True),
    *_all("lin_api_ lin_oauth_", 32, "word"),
    *_all("ntn_", 40, "word"),
    *_all("secret_", 43, "word", exact=True, random=True),
    *_all("figd_ figp_ tfp_", 36),
    *_all("PMAK-", 50),
    *_all("sntrys_", 60, "base64"),
    *_all("sntryu_ rootly_", 40, "hex"),
    *_all("NRAK- NRII- NRIQ-", 20),
    *_all("glsa_", 32),
    *_all("glc_eyJ", 40, "base64"),
    *_all("dt0c01. dt0s16.", 60, "dotted"),
    *_all("phx_", 40, "word"),
    *_all("pat-na1- pat-na2- pat-eu1- sdk-", 36, "uuid", exact=True),
    *_all("fio-u- tk-us-", 40),
    *_all("p8e-", 32, "word", exact=True),
    *_all("sm_pat_ sm_aat_ sm_sat_", 16, "word", exact=True),
)
"""Formats of keys and tokens, as published by the providers."""
