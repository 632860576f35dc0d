#!/usr/bin/env python3
"""Writes botocore_s3_vectors.jsonl: S3 requests as botocore signs them, the reference for src/auth and
src/store/s3.

Usage: tests/data/make_botocore_vectors.py > tests/data/botocore_s3_vectors.jsonl   (seeded: the same botocore gives the same file)
Two kinds of line: "client" is a call of the boto3 client as it would go on the wire; "raw" is an arbitrary
path and query signed by botocore's S3 signer, by header and as a presigned URL.
"""

from __future__ import annotations

import datetime
import json
import random
from typing import Any
from urllib.parse import quote

import botocore.auth
import botocore.session
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest, AWSResponse
from botocore.config import Config
from botocore.credentials import Credentials
from odd_pieces import ODD_EVERYWHERE

RANDOM = random.Random(20150830)
EVERY_CHARACTER = "".join(chr(c) for c in range(1, 256))
ODD_PIECES = [
    "//",
    "/./",
    "/../",
    *ODD_EVERYWHERE,
    '"',
    "<",
    ";",
    ":",
    "@",
    "*",
    "\x7f",
    "\t",
]
FIXED_KEYS = ["a", ".", "..", "a/../b", "./a", "a//b", "/a", "//", "a/", "a b", "a+b", "a%20b", "é", EVERY_CHARACTER]


def random_key() -> str:
    parts = [RANDOM.choice(ODD_PIECES + ["x", "data", "0001.tar", "/"]) for _ in range(RANDOM.randint(1, 8))]
    return "".join(parts)


def random_word(choices: str, longest: int) -> str:
    return "".join(RANDOM.choice(choices) for _ in range(RANDOM.randint(1, longest)))


def credentials() -> Credentials:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    token = random_word(letters + "=", 200) if RANDOM.random() < 0.4 else None
    return Credentials("AKIA" + random_word(letters[:26], 16), random_word(letters, 40), token)


def freeze() -> datetime.datetime:
    now = datetime.datetime(2000, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(seconds=RANDOM.randint(0, 10**9))
    botocore.auth.get_current_datetime = lambda *_, **__: now.replace(tzinfo=None)
    return now


def base(kind: str, cred: Credentials, region: str, now: datetime.datetime) -> dict[str, Any]:
    return {
        "kind": kind,
        "access_key": cred.access_key,
        "secret_key": cred.secret_key,
        "token": cred.token or "",
        "region": region,
        "unix_s": int(now.timestamp()),
    }


def raw_vector(key: str) -> dict[str, Any]:
    cred, region, now = credentials(), RANDOM.choice(["us-east-1", "eu-central-1", "auto"]), freeze()
    method = RANDOM.choice(["GET", "PUT", "HEAD", "DELETE", "POST"])
    names = RANDOM.sample(
        ["uploads", "uploadId", "partNumber", "prefix", "list-type", "A", "a", "é", "x y", "-", "a.b", "a~b"],
        RANDOM.randint(0, 5),
    )
    query = "&".join(
        quote(n, safe="-_.~")
        + ("" if RANDOM.random() < 0.2 else "=" + quote(RANDOM.choice(["", "1", random_key()]), safe="-_.~"))
        for n in names
    )
    url = f"http://127.0.0.1:9000/bucket/{quote(key, safe='/~')}" + ("?" + query if query else "")
    headers = {}
    if RANDOM.random() < 0.5:
        headers["Range"] = f"bytes={RANDOM.randint(0, 10**12)}-{10**13}"
    if RANDOM.random() < 0.3:
        headers["If-Match"] = '"abc  def"'
    if RANDOM.random() < 0.3:
        headers["x-amz-meta-note"] = "  two   words "
    body = RANDOM.randbytes(RANDOM.randint(0, 40)) if method in ("PUT", "POST") else b""
    out = base("raw", cred, region, now) | {"method": method, "url": url, "headers": headers, "body_hex": body.hex()}
    request = AWSRequest(method=method, url=url, headers=dict(headers), data=body)
    request.context["payload_signing_enabled"] = True
    S3SigV4Auth(cred, "s3", region).add_auth(request)
    out["signed_headers"] = signed_headers(request.headers)
    presigned = AWSRequest(method=method, url=url, headers={})
    S3SigV4QueryAuth(cred, "s3", region, expires=3600).add_auth(presigned)
    out["presigned_url"] = presigned.url
    return out


def signed_headers(headers: Any) -> dict[str, str]:
    text = {k: v.decode("utf-8") if isinstance(v, bytes) else v for k, v in headers.items()}
    return {k: v for k, v in text.items() if k.lower() != "user-agent" and not k.lower().startswith("amz-sdk")}


def client_vector(key: str) -> dict[str, Any]:
    cred, region, now = credentials(), RANDOM.choice(["us-east-1", "eu-central-1"]), freeze()
    caught: list[Any] = []

    def catch(request: Any, **_: Any) -> AWSResponse:
        caught.append(request)
        raise InterruptedError

    client = botocore.session.Session().create_client(
        "s3",
        region_name=region,
        endpoint_url="http://127.0.0.1:9000",
        aws_access_key_id=cred.access_key,
        aws_secret_access_key=cred.secret_key,
        aws_session_token=cred.token,
        config=Config(s3={"addressing_style": "path"}, response_checksum_validation="when_required"),
    )
    client.meta.events.register("before-send.s3", catch)
    op = RANDOM.choice(["get", "head", "list"])
    offset, length = RANDOM.randint(0, 10**12), RANDOM.randint(1, 10**9)
    out = base("client", cred, region, now) | {"op": op, "key": key, "offset": offset, "length": length}
    try:
        if op == "get":
            client.get_object(Bucket="bucket", Key=key, Range=f"bytes={offset}-{offset + length - 1}")
        elif op == "head":
            client.head_object(Bucket="bucket", Key=key)
        else:
            client.list_objects_v2(Bucket="bucket", Prefix=key, Delimiter="/", MaxKeys=1000, EncodingType="url")
    except InterruptedError:
        pass
    sent = caught[0]
    return out | {"method": sent.method, "url": sent.url, "signed_headers": signed_headers(sent.headers)}


def main() -> None:
    keys = FIXED_KEYS + [random_key() for _ in range(150 - len(FIXED_KEYS))]
    for key in keys:
        print(json.dumps(raw_vector(key), sort_keys=True))
    for key in keys:
        if key not in (".", "..") and not key.startswith("/"):
            print(json.dumps(client_vector(key), sort_keys=True))


if __name__ == "__main__":
    main()
