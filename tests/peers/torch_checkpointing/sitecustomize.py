"""Imported by each Python of torch_checkpointing's tests, its writing processes too: where
HEADRACE_TORCH_CHECKPOINTING_STORAGE says so, files of this machine are written and read by Headrace's
storage."""

import importlib
import os

from torch_checkpointing.storage import filesystem

from headrace.checkpoint.torch_checkpointing import Storage, StorageConfig


def create_storage(_: filesystem.LocalFileSystemStorageConfig) -> Storage:
    return Storage(StorageConfig("/"))


# torch interrupts what it has spawned when the thread that did it ends: here, before the process has ended
# itself. (torch.multiprocessing.spawn is a function, which hides the module.)
importlib.import_module("torch.multiprocessing.spawn")._prctl_pr_set_pdeathsig = lambda signal: None
if os.environ["HEADRACE_TORCH_CHECKPOINTING_STORAGE"] == "headrace":
    filesystem.LocalFileSystemStorageConfig.create_storage = create_storage
else:  # O_DIRECT, the default, fails where a file system wants whole blocks.
    filesystem.LocalFileSystemStorageConfig.__init__.__defaults__ = (False,)
