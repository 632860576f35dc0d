#!/usr/bin/env bash
# MinIO with a certificate that nobody has signed but ourselves: what clients need is AWS_CA_BUNDLE, or ca_bundle=.
# examples/minio_tls.sh DIRECTORY        (without a program minio, the simulator takes its place: headrace sim --tls)
set -euo pipefail
directory=$1 port=${PORT:-9443}
mkdir -p "$directory/certs" "$directory/buckets/demo"

# Names by which clients reach the server must stand in it.
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=minio \
  -addext "subjectAltName=DNS:localhost,IP:127.0.0.1" \
  -keyout "$directory/certs/private.key" -out "$directory/certs/public.crt" 2>/dev/null

export AWS_ENDPOINT_URL_S3=https://127.0.0.1:$port AWS_CA_BUNDLE=$directory/certs/public.crt
export AWS_ACCESS_KEY_ID=headrace AWS_SECRET_ACCESS_KEY=headrace-secret
if command -v minio >/dev/null; then
  MINIO_ROOT_USER=$AWS_ACCESS_KEY_ID MINIO_ROOT_PASSWORD=$AWS_SECRET_ACCESS_KEY \
    minio server "$directory/buckets" --address "127.0.0.1:$port" --certs-dir "$directory/certs" --quiet &
else
  headrace sim "$directory/buckets" --port "$port" --tls \
    --certificate "$directory/certs/public.crt" --private-key "$directory/certs/private.key" &
fi
trap 'kill %1' EXIT
for _ in $(seq 100); do
  headrace ls s3://demo >/dev/null 2>&1 && break
  sleep 0.1
done

headrace pack "$(dirname "$0")" s3://demo/examples --tokens 257
headrace inspect s3://demo/examples
headrace verify s3://demo/examples
headrace store whoami s3://demo --check
# Without the authority's certificate nothing is read: the error names it.
if AWS_CA_BUNDLE='' headrace ls s3://demo; then echo "a certificate that nobody knows was trusted" >&2; exit 1; fi
