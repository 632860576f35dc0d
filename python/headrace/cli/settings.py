"""What cp and sync say of the objects that they write: type, metadata, storage class and the like."""

from __future__ import annotations

from typing import Annotated, Any

from headrace.cli.declare import OptionSet, option
from headrace.errors import InvalidArgumentError
from headrace.store.settings import ObjectSettings

__all__ = ["ObjectOptions"]

PANEL = "Objects that are written"


class ObjectOptions(OptionSet):
    """One option for each of headrace.ObjectSettings."""

    content_type: Annotated[
        str | None,
        option(
            "--content-type",
            metavar="TYPE",
            help="Such as text/csv; default: that of the source, of a local file that of its name.",
            panel=PANEL,
        ),
    ] = None
    content_encoding: Annotated[
        str | None,
        option(
            "--content-encoding", metavar="NAME", help="How the bytes are packed: gzip, zstd.", panel=PANEL
        ),
    ] = None
    content_disposition: Annotated[
        str | None,
        option("--content-disposition", metavar="TEXT", help="What browsers do with it.", panel=PANEL),
    ] = None
    cache_control: Annotated[
        str | None,
        option("--cache-control", metavar="TEXT", help="How long caches may keep it.", panel=PANEL),
    ] = None
    metadata: Annotated[
        list[str] | None,
        option(
            "--metadata",
            metavar="NAME=VALUE",
            help="User metadata, instead of the source's; may be repeated.",
            panel=PANEL,
        ),
    ] = None
    storage_class: Annotated[
        str | None,
        option(
            "--storage-class",
            metavar="NAME",
            help="STANDARD_IA, GLACIER_IR (S3), NEARLINE (GCS), Cool (Azure).",
            panel=PANEL,
        ),
    ] = None
    sse: Annotated[
        str | None,
        option(
            "--sse", metavar="NAME", help="Encryption by S3: AES256, aws:kms or aws:kms:dsse.", panel=PANEL
        ),
    ] = None
    sse_kms_key_id: Annotated[
        str | None,
        option(
            "--sse-kms-key-id",
            metavar="KEY",
            help="Key for --sse aws:kms; of GCS the name of the key, without --sse.",
            panel=PANEL,
        ),
    ] = None
    acl: Annotated[
        str | None,
        option("--acl", metavar="NAME", help="Canned access list: bucket-owner-full-control.", panel=PANEL),
    ] = None

    def settings(self) -> ObjectSettings:
        """Those that were given."""
        given: Any = {name: value for name, value in self.as_dict().items() if value is not None}
        if "metadata" in given:
            given["metadata"] = _pairs(given["metadata"])
        found: ObjectSettings = given
        return found

    def flags(self) -> str:
        """Those that were given, for messages."""
        return ", ".join("--" + name.replace("_", "-") for name in self.settings())


def _pairs(texts: list[str]) -> dict[str, str]:
    """{name: value} of NAME=VALUE."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise InvalidArgumentError(f"--metadata {text}: expected NAME=VALUE")
        if name in pairs:
            raise InvalidArgumentError(f"--metadata {text}: {name} was given before")
        pairs[name] = value
    return pairs
