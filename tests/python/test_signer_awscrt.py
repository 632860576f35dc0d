"""Our signer says what aws-c-auth says: the signer of AWS's C SDK, which PyPI's awscrt carries.

Random requests from a fixed seed, with the names that break signers: keys of all bytes, empty and
missing query values, repeated parameters, unicode, "//", "." and "..".
"""

from __future__ import annotations

import datetime
import json
import os
import random
import subprocess
from pathlib import Path
from urllib.parse import quote

import pytest

awscrt_auth = pytest.importorskip("awscrt.auth")
awscrt_http = pytest.importorskip("awscrt.http")

ROOT = Path(__file__).resolve().parents[2]
REQUEST_COUNT = 10_000
EMPTY_HASH = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def signer_program() -> Path | None:
    if path := os.environ.get("HEADRACE_SIGN_REQUESTS"):
        return Path(path)
    found = sorted(ROOT.glob("build/*/tests/sign_requests"), key=lambda p: p.stat().st_mtime)
    return found[-1] if found else None


def random_text(rng: random.Random, longest: int) -> bytes:
    kind = rng.randrange(4)
    count = rng.randrange(longest + 1)
    if kind == 0:
        return bytes(rng.randrange(1, 256) for _ in range(count))
    if kind == 1:
        return "".join(rng.choice("aé漢😀 +%&=~*'()") for _ in range(count)).encode()
    return "".join(rng.choice("abcXYZ019-._~") for _ in range(count)).encode()


def random_path(rng: random.Random) -> str:
    pieces = [rng.choice([b"", b".", b"..", random_text(rng, 12)]) for _ in range(rng.randrange(6))]
    return "/bucket/" + "/".join(quote(piece, safe="-._~") for piece in pieces)


def random_query(rng: random.Random) -> str:
    pieces = []
    for _ in range(rng.choice([0, 0, 1, 2, 5])):
        name = quote(rng.choice([b"prefix", b"a", b"A", b"a", random_text(rng, 6)]) or b"x", safe="-._~")
        value = quote(random_text(rng, 8), safe="-._~")
        pieces.append(rng.choice([f"{name}={value}", f"{name}={value}", f"{name}=", name]))
    return "&".join(pieces)


def random_request(rng: random.Random) -> dict:
    kind = rng.choice(["header", "header", "query"])
    service = rng.choice(["s3", "s3", "s3express"])
    token = "" if service == "s3" and rng.random() < 0.5 else "tok/" + "Ab+=" * rng.randrange(1, 30)
    headers = {"host": "bucket.example:9000"}
    if kind == "header":
        if rng.random() < 0.6:
            headers["range"] = f"bytes={rng.randrange(1 << 40)}-{rng.randrange(1 << 40)}"
        if rng.random() < 0.3:
            headers["if-match"] = f'"{rng.randrange(1 << 64):x}"'
        if rng.random() < 0.3:
            headers["x-amz-meta-words"] = rng.choice(["", "a b", "x,y;z", "a=b"])
    payload = rng.choice(["UNSIGNED-PAYLOAD", EMPTY_HASH, f"{rng.randrange(1 << 256):064x}"])
    return {
        "kind": kind,
        "method": rng.choice(["GET", "PUT", "HEAD", "DELETE", "POST"]),
        "path": random_path(rng),
        "query": random_query(rng),
        "headers": headers,
        "access_key": "AKIA" + "".join(rng.choice("ABCDEFGH23456789") for _ in range(16)),
        "secret_key": "".join(rng.choice("abcXYZ019/+") for _ in range(rng.choice([20, 40, 80]))),
        "token": token,
        "region": rng.choice(["us-east-1", "eu-central-1", "cn-north-1"]),
        "service": service,
        "unix_s": rng.randrange(1_000_000_000, 2_000_000_000),
        "lifetime_s": rng.randrange(1, 604_801),
        "payload": payload,
    }


def by_aws_c_auth(case: dict) -> str:
    """The Authorization value, or the signed query, that aws-c-auth makes."""
    is_query = case["kind"] == "query"
    kinds = awscrt_auth.AwsSignatureType
    algorithms = awscrt_auth.AwsSigningAlgorithm
    config = awscrt_auth.AwsSigningConfig(
        algorithm=algorithms.V4_S3EXPRESS if case["service"] == "s3express" else algorithms.V4,
        signature_type=kinds.HTTP_REQUEST_QUERY_PARAMS if is_query else kinds.HTTP_REQUEST_HEADERS,
        credentials_provider=awscrt_auth.AwsCredentialsProvider.new_static(
            case["access_key"], case["secret_key"], case["token"] or None
        ),
        region=case["region"],
        service=case["service"],
        date=datetime.datetime.fromtimestamp(case["unix_s"], tz=datetime.timezone.utc),
        use_double_uri_encode=False,
        should_normalize_uri_path=False,
        signed_body_value=case["payload"],
        signed_body_header_type=awscrt_auth.AwsSignedBodyHeaderType.NONE
        if is_query
        else awscrt_auth.AwsSignedBodyHeaderType.X_AMZ_CONTENT_SHA_256,
        expiration_in_seconds=case["lifetime_s"] if is_query else None,
    )
    path = case["path"] + ("?" + case["query"] if case["query"] else "")
    request = awscrt_http.HttpRequest(case["method"], path)
    for name, value in case["headers"].items():
        request.headers.add(name, value)
    awscrt_auth.aws_sign_request(request, config).result(60)
    if is_query:
        return request.path.partition("?")[2]
    return request.headers.get("Authorization")


def for_us(case: dict) -> dict:
    """The case with the fields that aws-c-auth adds by itself."""
    if case["kind"] == "query":
        return case
    date = datetime.datetime.fromtimestamp(case["unix_s"], tz=datetime.timezone.utc)
    headers = dict(case["headers"])
    headers["x-amz-date"] = date.strftime("%Y%m%dT%H%M%SZ")
    headers["x-amz-content-sha256"] = case["payload"]
    if case["token"]:
        name = "x-amz-s3session-token" if case["service"] == "s3express" else "x-amz-security-token"
        headers[name] = case["token"]
    return {**case, "headers": headers}


def pieces(query: str) -> dict[str, str]:
    return {p.partition("=")[0]: p.partition("=")[2] for p in query.split("&") if p.startswith("X-Amz-")}


def agree(case: dict, theirs: str, mine: str) -> bool:
    if case["kind"] == "header":
        return theirs == mine
    # The order of the parameters on the wire is free, their values are not.
    return pieces(theirs) == pieces(mine) and "X-Amz-Signature" in pieces(mine)


def test_ten_thousand_requests_are_signed_as_aws_c_auth_signs_them() -> None:
    program = signer_program()
    if program is None:
        pytest.skip("build the target sign_requests first")
    rng = random.Random(20)
    cases = [random_request(rng) for _ in range(REQUEST_COUNT)]
    ours = subprocess.run(
        [program],
        input="".join(json.dumps(for_us(case)) + "\n" for case in cases),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout.splitlines()
    assert len(ours) == len(cases)
    wrong = 0
    for case, mine in zip(cases, ours, strict=True):
        theirs = by_aws_c_auth(case)
        is_same = agree(case, theirs, mine)
        wrong += not is_same
        assert is_same or wrong < 3, f"{json.dumps(case)}\naws-c-auth {theirs}\nours       {mine}"
    assert wrong == 0
