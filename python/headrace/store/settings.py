"""What a store keeps with an object besides its bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from headrace.base.option_names import OptionNames

__all__ = ["ObjectSettings", "given_settings"]


class ObjectSettings(TypedDict, total=False):
    """Keyword arguments of :meth:`Store.put` and :meth:`Store.copy`, and ``settings`` of StoreOptions for all
    that is written. What is left out, or None, is the store's choice. One that a store cannot keep is an
    UnsupportedError (docs/stores.md). Values are one line of printable ASCII."""

    content_type: str | None
    """ "application/json"."""
    content_encoding: str | None
    content_language: str | None
    content_disposition: str | None
    cache_control: str | None
    metadata: Mapping[str, str] | None
    """The user's own, at most 64. Upper and lower case of names are the same; Azure takes letters, digits and
    underscores only."""
    storage_class: str | None
    """The vendor's word: "STANDARD_IA", "GLACIER_IR" (S3), "NEARLINE" (GCS), "Cool" (Azure's access tier)."""
    sse: str | None
    """Encryption on the server, S3: "AES256", "aws:kms" or "aws:kms:dsse"."""
    sse_kms_key_id: str | None
    """S3: id or ARN of the KMS key, with sse="aws:kms". GCS: name of the Cloud KMS key."""
    acl: str | None
    """A canned one, S3 and GCS: "bucket-owner-full-control". No store tells it back."""


# boto3, google-cloud-storage, azure-storage-blob
_PEERS = {
    "ContentType": "use content_type=",
    "ContentEncoding": "use content_encoding=",
    "ContentLanguage": "use content_language=",
    "ContentDisposition": "use content_disposition=",
    "CacheControl": "use cache_control=",
    "Metadata": "use metadata=",
    "StorageClass": "use storage_class=",
    "ServerSideEncryption": "use sse=",
    "SSEKMSKeyId": "use sse_kms_key_id=",
    "ACL": "use acl=",
    "kms_key_name": "use sse_kms_key_id=",
    "predefined_acl": "use acl=",
    "content_settings": "use content_type=, content_encoding=, cache_control=, ...",
    "standard_blob_tier": "use storage_class=",
}
_NAMES = OptionNames("An object", {"": ObjectSettings.__annotations__}, _PEERS)


def given_settings(settings: ObjectSettings | None) -> dict[str, Any]:
    """Those of a call, for the engine. Raises InvalidArgumentError for names that do not exist."""
    given: dict[str, Any] = dict(settings or {})
    _NAMES.check(given)
    return given
