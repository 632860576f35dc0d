"""What other libraries call the options of a store."""

from __future__ import annotations

__all__ = ["STORE_PEERS"]

_KEYS = (
    "access_key=, secret_key= and session_token= give credentials; without them they are found as the "
    "vendor's tools find them"
)
_AZURE = (
    "Azure's credentials come from the environment (AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, ...; "
    "docs/stores.md)"
)
_GOOGLE = "Google's credentials come from GOOGLE_APPLICATION_CREDENTIALS or the machine (docs/stores.md)"
_PARALLEL = "max_in_flight= is the most requests at once; the store finds by itself how many are best"
_SPREAD = (
    "the options of a store are keyword arguments themselves: endpoint=, region=, access_key=, secret_key=, "
    "anonymous=, ..."
)

STORE_PEERS: dict[str, str] = {
    # s3fs, boto3, pyarrow, obstore
    "storage_options": _SPREAD,
    "client_kwargs": _SPREAD,
    "client_options": _SPREAD,
    "config_kwargs": _SPREAD,
    "s3_config": _SPREAD,
    "endpoint_url": "use endpoint=",
    "endpoint_override": "use endpoint=",
    "region_name": "use region=",
    "aws_region": "use region=",
    "key": _KEYS,
    "secret": _KEYS,
    "token": _KEYS,
    "aws_access_key_id": _KEYS,
    "aws_secret_access_key": _KEYS,
    "aws_session_token": _KEYS,
    "credentials": _KEYS,
    "profile_name": "use profile=",
    "aws_profile": "use profile=",
    "anon": "use anonymous=True",
    "no_sign_request": "use anonymous=True",
    "skip_signature": "use anonymous=True",
    "use_ssl": "the endpoint's URL says so: endpoint='http://...' or 'https://...'",
    "verify": "use tls_verify=False, or ca_bundle=FILE for certificate authorities of your own",
    "addressing_style": "use path_style=True or False",
    "force_path_style": "use path_style=True",
    "virtual_hosted_style_request": "use path_style=False",
    "request_payer": "use requester_pays=True",
    "account_name": "it stands in the URL: az://account/container",
    "account_key": _AZURE,
    "sas_token": _AZURE,
    "connection_string": _AZURE,
    "service_account": _GOOGLE,
    "project": "GOOGLE_CLOUD_PROJECT in the environment names the project",
    "retries": "use max_attempts=",
    "num_retries": "use max_attempts=",
    "max_retries": "use max_attempts=",
    "max_pool_connections": _PARALLEL,
    "max_workers": _PARALLEL,
    "max_concurrency": _PARALLEL,
    "concurrency": _PARALLEL,
    "cache_dir": "use cache=DIRECTORY",
    "cache_size": "use cache_limit=",
    "max_cache_size": "use cache_limit=",
}
"""What to write instead, by their names."""
