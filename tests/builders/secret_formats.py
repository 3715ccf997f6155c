"""Realistic secrets and ordinary texts, made when a test runs: no real-looking key stands in this repository.

A format is written as what is fixed and what is random: `{W36}` is 36 letters and digits. The fixed parts are public
facts from the providers' documentation.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import string
import uuid

ALPHABETS = {
    "a": string.ascii_lowercase + string.digits,
    "W": string.ascii_letters + string.digits,
    "N": string.ascii_letters + string.digits + "_-",
    "H": "0123456789abcdef",
    "U": string.ascii_uppercase + string.digits,
    "L": string.ascii_letters,
    "D": string.digits,
    "B": string.ascii_letters + string.digits + "+/",
    "Q": string.ascii_letters + string.digits + "_~.-",
}

BY_PREFIX = {
    "1password secret key": "A3-{U6}-{U6}-{U5}-{U5}-{U5}-{U5}",
    "1password service account": "ops_eyJ{W260}",
    "adobe client": "p8e-{a32}",
    "age": "AGE-SECRET-KEY-1{U58}",
    "airtable": "pat{W14}.{H64}",
    "alibaba": "LTAI{W20}",
    "anthropic": "sk-ant-api03-{N93}AA",
    "anthropic admin": "sk-ant-admin01-{N93}AA",
    "anthropic oauth": "sk-ant-oat01-{N93}AA",
    "apify": "apify_api_{W36}",
    "artifactory": "AKCp{W69}",
    "artifactory reference": "cmVmdGtuO{W55}",
    "atlassian": "ATATT3xFfGF0{N170}={U8}",
    "atlassian admin": "ATCTT3xFfGN0{N170}={U8}",
    "aws": "AKIA{U16}",
    "aws bedrock": "ABSK{W120}=",
    "aws session": "ASIA{U16}",
    "azure client": "{W3}8Q~{Q34}",
    "bitbucket app": "ATBB{W32}",
    "brevo": "xkeysib-{H64}-{W16}",
    "buildkite": "bkua_{H40}",
    "circleci": "CCIPAT_{W22}_{H40}",
    "clojars": "CLOJARS_{a60}",
    "cloudflare": "cfut_{W40}{H8}",
    "cloudflare origin": "v1.0-{H24}-{H146}",
    "contentful": "CFPAT-{N43}",
    "databricks": "dapi{H32}",
    "deno deploy": "ddp_{W36}",
    "digital ocean": "dop_v1_{H64}",
    "digital ocean oauth": "doo_v1_{H64}",
    "digital ocean refresh": "dor_v1_{H64}",
    "discord bot": "{discord}.{N6}.{N38}",
    "docker": "dckr_pat_{N27}",
    "docker organisation": "dckr_oat_{N32}",
    "doppler": "dp.pt.{W43}",
    "doppler service": "dp.st.dev.{W43}",
    "duffel": "duffel_live_{N43}",
    "dynatrace": "dt0c01.{U24}.{U64}",
    "e2b": "e2b_{H40}",
    "easypost": "EZAK{W54}",
    "elevenlabs": "sk_{H48}",
    "facebook": "EAAC{W160}",
    "figma": "figd_{N40}",
    "firebase": "AAAA{N7}:APA91b{N134}",
    "firecrawl": "fc-{H32}",
    "flutterwave": "FLWSECK-{H32}-X",
    "fly": "fo1_{N43}",
    "fly macaroon": "fm2_{W140}",
    "frame.io": "fio-u-{N64}",
    "github": "ghp_{W36}",
    "github app": "ghs_{W36}",
    "github fine": "github_pat_{W22}_{W59}",
    "github oauth": "gho_{W36}",
    "github refresh": "ghr_{W36}",
    "github user": "ghu_{W36}",
    "gitlab": "glpat-{N20}",
    "gitlab agent": "glagent-{N50}",
    "gitlab application": "gloas-{H64}",
    "gitlab deploy": "gldt-{N20}",
    "gitlab feature flags": "glffct-{N20}",
    "gitlab feed": "glft-{N20}",
    "gitlab job": "glcbt-64_{N20}",
    "gitlab mail": "glimt-{N25}",
    "gitlab routable": "glpat-{N27}.01.{a9}",
    "gitlab runner": "glrt-{N20}",
    "gitlab runner registration": "GR1348941{N20}",
    "gitlab runner routable": "glrt-t3_{N27}.01.{a9}",
    "gitlab scim": "glsoat-{N20}",
    "gitlab trigger": "glptt-{H40}",
    "google": "AIza{N35}",
    "google client": "GOCSPX-{N28}",
    "google oauth": "ya29.{N180}",
    "grafana cloud": "glc_eyJ{W140}",
    "grafana service account": "glsa_{W32}_{H8}",
    "groq": "gsk_{W52}",
    "harness": "pat.{N22}.{H24}.{W20}",
    "heroku": "HRKU-AA{N58}",
    "hubspot": "pat-na1-{uuid}",
    "hugging face": "hf_{L34}",
    "hugging face organisation": "api_org_{L34}",
    "infracost": "ico-{W32}",
    "jina": "jina_{H32}{N28}",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJ{N60}.{N43}",
    "langfuse": "sk-lf-{uuid}",
    "langsmith": "lsv2_pt_{H32}_{H10}",
    "launchdarkly": "sdk-{uuid}",
    "linear": "lin_api_{W40}",
    "mailgun": "key-{H32}",
    "neon": "napi_{a64}",
    "netlify": "nfp_{W36}",
    "new relic": "NRAK-{U27}",
    "new relic insert": "NRII-{N32}",
    "notion": "ntn_{D11}{W35}",
    "notion, older": "secret_{W43}",
    "npm": "npm_{W36}",
    "nvidia": "nvapi-{N64}",
    "octopus": "API-{U26}",
    "openai": "sk-{W20}T3BlbkFJ{W20}",
    "openai project": "sk-proj-{N74}T3BlbkFJ{N74}",
    "openrouter": "sk-or-v1-{H64}",
    "openshift": "sha256~{N43}",
    "perplexity": "pplx-{W48}",
    "pinecone": "pcsk_{W6}_{W63}",
    "plaid": "access-production-{uuid}",
    "planetscale": "pscale_tkn_{N43}",
    "planetscale password": "pscale_pw_{N43}",
    "posthog": "phx_{W43}",
    "postman": "PMAK-{H24}-{H34}",
    "prefect": "pnu_{W36}",
    "pubnub": "sec-c-{W48}",
    "pulumi": "pul-{H40}",
    "pypi": "pypi-AgEIcHlwaS5vcmc{N120}",
    "readme": "rdme_{a70}",
    "render": "rnd_{W32}",
    "replicate": "r8_{W37}",
    "resend": "re_{W8}_{W24}",
    "rootly": "rootly_{H64}",
    "rubygems": "rubygems_{H48}",
    "scalingo": "tk-us-{N48}",
    "sendgrid": "SG.{N22}.{N43}",
    "sentry organisation": "sntrys_eyJpYXQiOjE3{W150}=_{B43}",
    "sentry user": "sntryu_{H64}",
    "settlemint": "sm_pat_{W16}",
    "shippo": "shippo_live_{H40}",
    "shopify": "shpat_{H32}",
    "shopify custom": "shpca_{H32}",
    "shopify private": "shppa_{H32}",
    "shopify shared": "shpss_{H32}",
    "slack app": "xapp-1-A{U10}-{D13}-{H64}",
    "slack bot": "xoxb-{D12}-{D13}-{W24}",
    "slack configuration": "xoxe.xoxp-1-{U163}",
    "slack user": "xoxp-{D12}-{D12}-{D13}-{H32}",
    "sonar": "squ_{H40}",
    "sourcegraph": "sgp_{H16}_{H40}",
    "square": "sq0atp-{N22}",
    "square, newer": "EAAA{N60}",
    "square secret": "sq0csp-{N43}",
    "stripe": "sk_live_{W24}",
    "stripe restricted": "rk_live_{W24}",
    "stripe webhook": "whsec_{W32}",
    "supabase": "sbp_{H40}",
    "supabase secret": "sb_secret_{N31}",
    "svix webhook": "whsec_{B32}",
    "tailscale": "tskey-auth-{W12}CNTRL-{W32}",
    "tavily": "tvly-dev-{W32}",
    "telegram": "{D10}:AA{N33}",
    "terraform": "{W14}.atlasv1.{N67}",
    "typeform": "tfp_{N59}",
    "vault": "hvs.{N95}",
    "vault batch": "hvb.{N140}",
    "voyage": "pa-{N43}",
    "xai": "xai-{W80}",
    "yandex": "AQVN{N36}",
}
"""Keys and tokens that are recognised by their fixed parts."""

BY_PLACE = {
    "aws signature": ("https://b.s3.amazonaws.com/k?X-Amz-Expires=60&X-Amz-Signature={}", "{H64}"),
    "azure signature": ("https://a.blob.core.windows.net/c?sv=2025-01-05&sig={}", "{W43}%3D"),
    "azure storage": ("AccountName=acme;AccountKey={};EndpointSuffix=core.windows.net", "{B86}=="),
    "discord hook": ("https://discord.com/api/webhooks/{}", "{D19}/{N68}"),
    "slack hook": ("https://hooks.slack.com/services/{}", "T{U10}/B{U10}/{W24}"),
    "teams hook": (
        "https://acme.webhook.office.com/webhookb2/{}",
        "{uuid}@{uuid}/IncomingWebhook/{H32}/{uuid}",
    ),
    "named: pass": ("DB_PASS={}", "{W14}9"),
    "named: pass in yaml": ("  db_pass: {}", "{W14}9"),
    "named: pass in json": ('{{"smtp_pass": "{}"}}', "{W14}9"),
    "named: pwd": ("export MYSQL_PWD={}", "{W10}7"),
    "named: pwd in a connection string": ("Server=db;Uid=sa;Pwd={};", "{W10}7"),
    "named: passphrase": ("SSH_PASSPHRASE={}", "{W20}5"),
    "named: pat": ("AZURE_DEVOPS_PAT={}", "{a52}"),
    "named: cookie": ("AUTH_COOKIE={}", "{W40}3"),
    "named: api key": ("DD_API_KEY={}", "{H32}"),
    "named: auth token": ("TWILIO_AUTH_TOKEN={}", "{H32}"),
    "named: client secret": ('"client_secret": "{}"', "{N40}1x"),
    "named: bearer": ("Authorization: Bearer {}", "{W43}2b"),
    "named: basic": ("Authorization: Basic {}", "{W32}"),
    "named: url": ("postgresql://app:{}@db.example.com/app", "{W12}"),
}
"""Secrets that are recognised by the text before them; the rest of the text stays."""

FRAMES = (
    "{}",
    "the value is {}, keep it",
    "- {}\n- next",
    '{{"result": "{}"}}',
    "curl https://api.example.com/{}/me",
    "echo '{}' | tee out.txt",
    "first\n{}\nlast",
)


def make(shape: str, chance: random.Random) -> str:
    """A secret of a format."""

    def fill(found: re.Match[str]) -> str:
        kind = found[1]
        if kind == "uuid":
            return str(uuid.UUID(int=chance.getrandbits(128), version=4))
        if kind == "discord":
            number = "".join(chance.choices("123456789", k=1) + chance.choices("0123456789", k=18))
            return base64.b64encode(number.encode()).decode().rstrip("=")
        return "".join(chance.choices(ALPHABETS[kind[0]], k=int(kind[1:])))

    return re.sub(r"\{(\w+)\}", fill, shape)


def ordinary_texts() -> dict[str, str]:
    """Texts that tools read and print, without any secret."""
    chance = random.Random(8)
    words = [
        "the",
        "quick",
        "brown",
        "fox",
        "jumps",
        "over",
        "the",
        "lazy",
        "dog",
        "while",
        "nobody",
        "is",
        "looking",
        "at",
        "it",
    ]

    def some(count: int) -> str:
        return " ".join(chance.choices(words, k=count))

    def digest(kind: str) -> str:
        return hashlib.new(kind, chance.randbytes(20)).hexdigest()

    image = base64.b64encode(b"\x89PNG\r\n\x1a\n" + chance.randbytes(6_000)).decode()
    wrapped = "\n".join(image[at : at + 76] for at in range(0, len(image), 76))
    uuids = [str(uuid.UUID(int=chance.getrandbits(128), version=4)) for _ in range(200)]
    packages = {
        f"node_modules/pkg-{n}": {
            "version": f"1.{n}.0",
            "resolved": f"https://registry.example.org/pkg-{n}/-/pkg-{n}-1.{n}.0.tgz",
            "integrity": "sha512-" + base64.b64encode(chance.randbytes(64)).decode(),
        }
        for n in range(60)
    }
    identifiers = (
        "github_pat_token_for_the_release_bot",
        "sk-learn-contrib-package-names",
        "pypi-publish-action-for-packages",
        "npm_config_user_agent_of_the_package",
        "key-value-store-of-the-whole-application",
        "pat-matching-over-many-lines-2024-01-01",
        "api-gateway-production-eu-west-1-2024",
        "access-production-database-cluster-replica-0012",
        "secret_sharing_scheme_of_shamir_v2",
        "re_compile_pattern_with_flags_v2",
        "sdk-generator-for-typescript-v20240101",
        "pa-system-announcement-queue-2024-worker-1",
        "fc-match-font-configuration-2024",
        "gsk_gobject_scene_kit_renderer_new",
        "hf_transformers_cache_directory",
        "tk-us-east-1-cluster-of-machines",
        "xai-explainable-models-of-2024-survey",
        "dp.pt.translation_of_the_page",
        "ops_per_second_of_the_benchmark_run_20240101",
        "rnd_seed_of_the_generator_of_numbers",
    )
    return {
        "prose": some(3_000),
        "names": "\n".join(identifiers),
        "commits": "\n".join(f"commit {digest('sha1')}\n\n    {some(8)}\n" for _ in range(120)),
        "hashes": "\n".join(f"{digest(kind)}  a.tar.gz" for kind in ("md5", "sha1", "sha256", "sha512") * 40),
        "uuids": "\n".join(uuids),
        "ids": " ".join(make("toolu_{W24} call_{W24} msg_{W22} chatcmpl-{W29}", chance) for _ in range(60)),
        "image": image,
        "image in lines": wrapped,
        "data url": f'<img src="data:image/png;base64,{image}">',
        "lock file": json.dumps(packages, indent=1),
        "go.sum": "\n".join(
            f"golang.org/x/m{n} v0.{n}.0/go.mod h1:{base64.b64encode(chance.randbytes(32)).decode()}"
            for n in range(80)
        ),
        "requirements": "\n".join(f"pkg-{n}==1.{n} --hash=sha256:{digest('sha256')}" for n in range(60)),
        "certificate": f"-----BEGIN CERTIFICATE-----\n{wrapped}\n-----END CERTIFICATE-----",
        "minified": ";".join(
            f'function a{n}(e,t){{var n=e.getElementsByTagName("div"),o=t.prototype.addEventListenerOnce{n};'
            'return n[0].classList.add("is-active"),o}'
            for n in range(120)
        ),
        "source": "\n".join(
            f"def test_the_parser_reads_{w}_{n}(tokenizer: Tokenizer) -> None:\n    key = tokenizer.next_token(pos={n})\n"
            f"    assert parse_password_field(key) == Expected_{n}\n"
            for n, w in enumerate(words)
        ),
        "tests": "\n".join(
            f"--- PASS: TestParse{n}Values (0.0{n}s)\nPASS: libtest{n}.sh\nok  \tpkg/mod{n}\t0.0{n}s"
            for n in range(9)
        ),
        "environment": "PWD=/home/user1/project2\nOLDPWD=/home/user1\nHOME=/home/user1\nSSH_AUTH_SOCK=/tmp/ssh-1/agent.1\n"
        "AWS_REGION=us-east-1\nKEYBOARD=pc105\nCOOKIE_DOMAIN=example.com\nAUTHOR=somebody99 else",
        "settings": "cookie: secure\nwebhook: https://example.com/hooks/deploy\npat: none\npass: 12 tests\nsalt: true\n"
        "compat: ES2022_and_later_20240101x\nbypass=cache2024x\nformat: A1b2C3d4E5f6G7h8_pattern_x\nauth: required",
        "addresses": "\n".join(
            f"https://example.com/Issues/A1b2C3d4E5f6G7h8/{one}?page=2&sort=asc" for one in uuids[:40]
        ),
        "diff": "\n".join(
            f"-    value_{n} = old_name_of_it{n}\n+    value_{n} = NewNameOfIt{n}LongEnough"
            for n in range(60)
        ),
        "colours": "\n".join(
            f"\x1b[32mPASSED\x1b[0m tests/test_{n}.py::test_ItWorks{n}AsExpected" for n in range(40)
        ),
    }
