"""A small Hugging Face hub on loopback: repositories with commits, listings in pages, private and gated ones,
small files from the hub itself and large ones by signed links to another server, which end."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

TOKEN = "hf_fake0token0of0tests"
NAME = r"[^/]+(?:/[^/]+)??"
"""Of a repository: with or without organisation."""
LARGE = 1000
"""Files of this many bytes and more lie in large file storage."""


@dataclass
class Repository:
    private: bool = False
    gated: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, files: Mapping[str, bytes], branch: str = "main") -> str:
        """A new commit with these files alone; its id."""
        seed = f"{len(self.commits)}{sorted((k, hashlib.sha1(v).hexdigest()) for k, v in files.items())}"
        sha = hashlib.sha1(seed.encode()).hexdigest()
        self.commits[sha] = dict(files)
        self.branches[branch] = sha
        return sha


@dataclass
class Seen:
    server: str  # "hub", "storage"
    path: str
    authorization: str | None


def oid(content: bytes) -> str:
    if len(content) >= LARGE:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


class FakeHub:
    def __init__(self, page_size: int = 3) -> None:
        self.repositories: dict[str, Repository] = {}  # by "datasets/org/name"
        self.moved: dict[str, str] = {}  # renamed repositories: old -> new
        self.page_size = page_size
        self.seen: list[Seen] = []
        self.throttled = 0  # so many requests to the hub are refused
        self.failing = 0  # so many end with 500
        self.refuses_links = False
        self.epoch = 0  # links of another epoch have expired
        self.lock = threading.Lock()
        self._servers = [
            ThreadingHTTPServer(("127.0.0.1", 0), self._handler(name)) for name in ("hub", "storage")
        ]
        for server in self._servers:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        hub, storage = self._servers
        self.endpoint = f"http://127.0.0.1:{hub.server_address[1]}"
        # Another name of this machine: another host, for everybody who looks at names.
        self.storage = f"http://localhost:{storage.server_address[1]}"

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def add(self, name: str, **options: Any) -> Repository:
        return self.repositories.setdefault(name, Repository(**options))

    def expire_links(self) -> None:
        self.epoch += 1

    def paths(self, server: str, part: str = "") -> list[str]:
        with self.lock:
            return [seen.path for seen in self.seen if seen.server == server and part in seen.path]

    def _handler(self, name: str) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                size = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(size)
                with hub.lock:
                    hub.seen.append(Seen(name, self.path, self.headers.get("authorization")))
                (HubAnswer if name == "hub" else StorageAnswer)(hub, self, body).give()

            do_POST = do_HEAD = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        return Handler


class Answer:
    def __init__(self, hub: FakeHub, request: BaseHTTPRequestHandler, body: bytes) -> None:
        self.hub, self.request, self.body = hub, request, body

    def send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.request.send_response(status)
        self.request.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.request.send_header(name.replace("_", "-"), value)
        self.request.end_headers()
        if self.request.command != "HEAD":
            with contextlib.suppress(ConnectionError):
                self.request.wfile.write(body)

    def send_bytes(self, content: bytes, **headers: str) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.request.headers.get("range") or "")
        if not asked:
            return self.send(200, content, **headers)
        first, last = int(asked[1]), min(int(asked[2] or len(content)), len(content) - 1)
        if first > last:
            return self.send(416, content_range=f"bytes */{len(content)}")
        return self.send(
            206, content[first : last + 1], content_range=f"bytes {first}-{last}/{len(content)}", **headers
        )


class HubAnswer(Answer):
    def fail(self, status: int, code: str, words: str) -> None:
        self.send(status, json.dumps({"error": words}).encode(), x_error_code=code, x_error_message=words)

    def give(self) -> None:
        url = urlsplit(self.request.path)
        self.query = {k: v[0] for k, v in parse_qs(url.query, keep_blank_values=True).items()}
        with self.hub.lock:
            if self.hub.throttled > 0:
                self.hub.throttled -= 1
                return self.send(429, b"slow down", RateLimit='"api";r=0;t=0')
            if self.hub.failing > 0:
                self.hub.failing -= 1
                return self.send(500, b"oops")
        for old, new in self.hub.moved.items():
            moved = re.sub(f"/{old}(?=/|$)", f"/{new}", url.path)
            if moved != url.path:
                return self.send(307, location=moved + (f"?{url.query}" if url.query else ""))
        cached = re.fullmatch(
            r"/api/resolve-cache/((?:datasets|models|spaces)/.+?)/([0-9a-f]{40})/(.+)", url.path
        )
        if cached:
            content = self.hub.repositories[cached[1]].commits[cached[2]][unquote(cached[3])]
            return self.send_bytes(content, etag=f'W/"{oid(content)}"', x_repo_commit=cached[2])
        api = re.fullmatch(
            rf"/api/((?:datasets|models|spaces)/{NAME})(?:/(revision|tree|paths-info)/([^/]+)(?:/(.*))?)?",
            url.path,
        )
        file = re.fullmatch(rf"/((?:(?:datasets|spaces)/)?{NAME})/resolve/([^/]+)/(.+)", url.path)
        found = api or file
        if not found:
            return self.fail(404, "", "no such page")
        name = found[1] if api or found[1].startswith(("datasets/", "spaces/")) else f"models/{found[1]}"
        repository = self.repository(name, is_file=file is not None)
        if repository is None:
            return None
        revision = unquote((found[3] if api else found[2]) or "main")
        sha = repository.branches.get(revision, revision)
        if sha not in repository.commits:
            return self.fail(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if file:
            return self.give_file(name, sha, repository.commits[sha], unquote(file[3]))
        if api[2] == "tree":  # type: ignore[index]
            return self.give_tree(repository.commits[sha], unquote(api[4] or ""))  # type: ignore[index]
        if api[2] == "paths-info":  # type: ignore[index]
            return self.give_paths(repository.commits[sha])
        return self.give_facts(name, sha, repository)

    def repository(self, name: str, *, is_file: bool) -> Repository | None:
        """None: refused."""
        token = (self.request.headers.get("authorization") or "").removeprefix("Bearer ")
        repository = self.hub.repositories.get(name)
        if token and token != TOKEN:
            self.fail(401, "", "Invalid credentials in Authorization header")
        elif repository is None or (repository.private and not token):
            self.fail(404 if token else 401, "RepoNotFound", "Repository not found")
        elif is_file and repository.gated:
            self.fail(403 if token else 401, "GatedRepo", "Access to this dataset is restricted")
        else:
            return repository
        return None

    def give_facts(self, name: str, sha: str, repository: Repository) -> None:
        facts: dict[str, Any] = {"_id": "0" * 24, "id": name.partition("/")[2], "sha": sha}
        if "expand" not in self.query:
            siblings = [{"rfilename": path} for path in repository.commits[sha]]
            facts |= {"private": repository.private, "gated": "auto" if repository.gated else False}
            facts |= {"disabled": False, "tags": [], "downloads": 0, "likes": 0, "siblings": siblings}
            facts |= {"lastModified": "2026-01-31T23:59:59.000Z", "createdAt": "2026-01-01T00:00:00.000Z"}
        self.send(200, json.dumps(facts).encode(), content_type="application/json")

    def give_paths(self, files: dict[str, bytes]) -> None:
        """The hub's Python client sends a form, its JavaScript client JSON."""
        is_json = self.request.headers.get("content-type") == "application/json"
        wanted = json.loads(self.body)["paths"] if is_json else parse_qs(self.body.decode())["paths"]
        entries = [self.entry(path, files[path]) for path in wanted if path in files]
        entries += [self.folder(p) for p in wanted if any(name.startswith(f"{p}/") for name in files)]
        self.send(200, json.dumps(entries).encode(), content_type="application/json")

    def give_tree(self, files: dict[str, bytes], path: str) -> None:
        start = path + "/" if path else ""
        below = {name: content for name, content in files.items() if name.startswith(start)}
        if not below:
            return self.fail(404, "EntryNotFound", f"{path} does not exist")
        folders = {
            name[: at.start()] for name in below for at in re.finditer("/", name) if at.start() >= len(start)
        }
        is_deep = self.query.get("recursive", "").lower() == "true"  # The hub's Python client sends "True".
        if not is_deep:
            below = {name: content for name, content in below.items() if "/" not in name[len(start) :]}
            folders = {folder for folder in folders if "/" not in folder[len(start) :]}
        entries = [self.folder(folder) for folder in folders]
        entries += [self.entry(name, content) for name, content in below.items()]
        # An order that is none of ours.
        entries.sort(key=lambda entry: hashlib.md5(entry["path"].encode()).digest())
        first = int(self.query.get("cursor", "0"))
        headers = {"content_type": "application/json"}
        if first + self.hub.page_size < len(entries):
            url = f"{self.hub.endpoint}{urlsplit(self.request.path).path}"
            recursive = "recursive=true&" if is_deep else ""
            headers["link"] = f'<{url}?{recursive}cursor={first + self.hub.page_size}>; rel="next"'
        return self.send(200, json.dumps(entries[first : first + self.hub.page_size]).encode(), **headers)

    @staticmethod
    def folder(path: str) -> dict[str, Any]:
        return {"type": "directory", "oid": "0" * 40, "size": 0, "path": path}

    @staticmethod
    def entry(name: str, content: bytes) -> dict[str, Any]:
        entry: dict[str, Any] = {"type": "file", "path": name, "oid": oid(content), "size": len(content)}
        if len(content) >= LARGE:
            entry["lfs"] = {"oid": oid(content), "size": len(content), "pointerSize": 130}
            entry["oid"] = "1" * 40  # of the pointer
        return entry

    def give_file(self, name: str, sha: str, files: dict[str, bytes], path: str) -> None:
        if path not in files:
            return self.fail(404, "EntryNotFound", "Entry not found")
        content = files[path]
        told = {
            "x_repo_commit": sha,
            "x_linked_size": str(len(content)),
            "x_linked_etag": f'"{oid(content)}"',
        }
        if len(content) < LARGE:
            # Names that start with "cached" go by way of another path of the hub.
            if path.startswith("cached"):
                return self.send(307, location=f"/api/resolve-cache/{name}/{sha}/{quote(path)}", **told)
            return self.send_bytes(content, etag=f'"{oid(content)}"', x_repo_commit=sha)
        link = f"{self.hub.storage}/{name}/{sha}/{quote(path)}?Expires={self.hub.epoch}&Signature=abc"
        return self.send(302, location=link, **told)


class StorageAnswer(Answer):
    def give(self) -> None:
        url = urlsplit(self.request.path)
        if self.request.headers.get("authorization"):
            return self.send(400, b"<Error><Code>InvalidArgument</Code></Error>")
        if self.hub.refuses_links or parse_qs(url.query) != {
            "Expires": [str(self.hub.epoch)],
            "Signature": ["abc"],
        }:
            return self.send(
                403, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"
            )
        name, sha, path = re.fullmatch(r"/(.+?)/([0-9a-f]{40})/(.+)", url.path).groups()  # type: ignore[union-attr]
        content = self.hub.repositories[name].commits[sha][unquote(path)]
        # Not the content's id, as storage has it.
        return self.send_bytes(content, etag='"d41d8cd98f00b204e9800998ecf8427e-7"')


@contextlib.contextmanager
def running(page_size: int = 3) -> Iterator[FakeHub]:
    hub = FakeHub(page_size)
    try:
        yield hub
    finally:
        hub.close()
