"""One rank of the kill -9 test: reads an epoch, leaving a record and its state after every batch.

argv: URL RANK WORLD_SIZE BATCH_SIZE DIRECTORY. DIRECTORY/state-<rank>.json is replaced atomically after each
batch; DIRECTORY/log-<rank>.jsonl gets one line a batch. If DIRECTORY/state.json exists, the run goes on from
there.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import headrace as hr


def main() -> None:
    url, rank, world_size, batch_size, directory = (
        sys.argv[1],
        int(sys.argv[2]),
        int(sys.argv[3]),
        int(sys.argv[4]),
        Path(sys.argv[5]),
    )
    loader = hr.Loader(
        url, batch_size=batch_size, rank=rank, world_size=world_size, shuffle=True, seed=3, memory="16MiB"
    )
    start = directory / "state.json"
    if start.exists():
        loader.load_state_dict(json.loads(start.read_text()))
    log = (directory / f"log-{rank}.jsonl").open("a", buffering=1)
    for batch in loader:
        ids = [int(i) for i, real in zip(batch.ids, batch.mask, strict=True) if real]
        right = all(int(batch["x"][slot]) == int(batch.ids[slot]) * 7 + 1 for slot in range(len(batch.ids)))
        state = loader.state_dict()
        log.write(json.dumps({"state": state, "ids": ids, "right": right}) + "\n")
        partial = directory / f"state-{rank}.partial"
        partial.write_text(json.dumps(state))
        os.replace(partial, directory / f"state-{rank}.json")
        sys.stdout.write(".")
        sys.stdout.flush()
    (directory / f"done-{rank}").touch()


if __name__ == "__main__":
    main()
