#!/usr/bin/env python3
"""Writes azure_shared_key_vectors.jsonl: requests as the azure-storage-blob package signs them, the reference
for src/auth.

Usage: tests/data/make_azure_vectors.py > tests/data/azure_shared_key_vectors.jsonl   (seeded: the same package gives the same file)
Two kinds of line: "shared_key" has a request and its Authorization field; "sas" has a blob and the query of
its signed URL.
"""

from __future__ import annotations

import base64
import datetime
import json
import random
from types import SimpleNamespace
from urllib.parse import quote

import azure.storage.blob._shared_access_signature as sas_module
from azure.core.pipeline.transport import HttpRequest
from azure.storage.blob import BlobSasPermissions, generate_blob_sas
from azure.storage.blob._shared.authentication import SharedKeyCredentialPolicy
from odd_pieces import ODD_EVERYWHERE

sas_module.X_MS_VERSION = "2020-12-06"  # that of auth/azure_shared_key.cc; the package names its newest
RANDOM = random.Random(20261121)
ODD_PIECES = [
    "/",
    *ODD_EVERYWHERE,
    "(",
    "*",
    "$",
    ",",
    ":",
    "@",
    "\\",
    '"',
    "a",
    "B",
    "0",
    "-",
    "_",
    ".",
]
FIELDS = {
    "content-length": lambda: str(RANDOM.choice([0, 1, 1048576])),
    "content-md5": lambda: base64.b64encode(RANDOM.randbytes(16)).decode(),
    "content-type": lambda: "application/xml",
    "if-match": lambda: f'"0x8D{RANDOM.getrandbits(48):012X}"',
    "if-none-match": lambda: "*",
    "x-ms-blob-type": lambda: "BlockBlob",
    "x-ms-content-crc64": lambda: base64.b64encode(RANDOM.randbytes(8)).decode(),
    "x-ms-copy-source": lambda: "https://account.blob.core.windows.net/container/" + quote(odd_text(), safe="/"),
    "x-ms-range": lambda: f"bytes={RANDOM.randrange(1 << 30)}-{(1 << 30) + RANDOM.randrange(1 << 30)}",
    "x-ms-range-get-content-crc64": lambda: "true",
}
PARAMETERS = {
    "blockid": lambda: base64.b64encode(RANDOM.randbytes(30)).decode(),
    "comp": lambda: RANDOM.choice(["block", "blocklist", "list"]),
    "delimiter": lambda: "/",
    "marker": lambda: odd_text(),
    "prefix": lambda: odd_text(),
    "restype": lambda: "container",
}


def odd_text() -> str:
    return "".join(RANDOM.choice(ODD_PIECES) for _ in range(RANDOM.randint(1, 12)))


def chosen(makers: dict) -> dict[str, str]:
    return {name: make() for name, make in sorted(makers.items()) if RANDOM.random() < 0.4}


def shared_key_vector() -> dict:
    account = RANDOM.choice(["devstoreaccount1", "account", "a1b2c3"])
    key = base64.b64encode(RANDOM.randbytes(RANDOM.choice([64, 64, 32, 100]))).decode()
    path = "/" + quote("container/" + odd_text(), safe="/~")
    query, fields = chosen(PARAMETERS), chosen(FIELDS)
    fields["x-ms-date"] = "Sat, 21 Nov 2026 14:00:00 GMT"
    fields["x-ms-version"] = "2021-12-02"
    method = RANDOM.choice(["GET", "PUT", "HEAD", "DELETE", "POST"])
    url = f"https://{account}.blob.core.windows.net{path}"
    if query:
        url += "?" + "&".join(f"{name}={quote(value, safe='~')}" for name, value in query.items())
    request = HttpRequest(method, url, headers=fields)
    SharedKeyCredentialPolicy(account, key).on_request(SimpleNamespace(http_request=request, context=SimpleNamespace(transport=None)))
    authorization = request.headers["Authorization"]
    return {
        "kind": "shared_key",
        "account": account,
        "key": key,
        "method": method,
        "path": path,
        "query": query,
        "fields": dict(sorted(fields.items())),
        "authorization": authorization,
    }


def sas_vector() -> dict:
    account, key = "devstoreaccount1", base64.b64encode(RANDOM.randbytes(64)).decode()
    blob = odd_text().strip("/") or "a"
    expires = datetime.datetime(2026, 11, 21, tzinfo=datetime.timezone.utc) + datetime.timedelta(seconds=RANDOM.randrange(10**7))
    may_write = RANDOM.random() < 0.5
    permission = BlobSasPermissions(create=True, write=True) if may_write else BlobSasPermissions(read=True)
    protocol = RANDOM.choice(["", "https", "https,http"])
    query = generate_blob_sas(account, "container", blob, account_key=key, permission=permission, expiry=expires, protocol=protocol or None)
    return {
        "kind": "sas",
        "account": account,
        "key": key,
        "blob": blob,
        "permissions": "cw" if may_write else "r",
        "protocol": protocol,
        "expires": int(expires.timestamp()),
        "query": query,
    }


def main() -> None:
    for _ in range(300):
        print(json.dumps(shared_key_vector()))
    for _ in range(50):
        print(json.dumps(sas_vector()))


main()
