"""Local files that are there as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import headrace as hr
from headrace.base.new_file import new_file
from headrace.data.index import write_index


def test_others_see_the_old_content_or_the_new(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with new_file(path) as first, new_file(path) as second:
        for file, content in ((first, b"one"), (second, b"two")):
            file.write(content)
            file.flush()
        assert path.read_bytes() == b"old"
        (hidden,) = {p.name[:6] for p in tmp_path.iterdir()} - {"file"}
        assert hidden == ".file.", "readers of a folder see no half of a file"
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("file", b"one")]


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError), new_file(tmp_path / "file") as file:
        file.writelines([b"half", 0])  # type: ignore[list-item]
    assert not list(tmp_path.iterdir())


def test_a_file_follows_the_umask(tmp_path: Path) -> None:
    with new_file(tmp_path / "file"):
        pass
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_file_keeps_its_permissions_and_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "file").chmod(0o600)
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("new")
    for name in ("link", "dangling"):
        with new_file(tmp_path / name) as file:
            file.write(name.encode())
            assert name != "link" or os.fstat(file.fileno()).st_mode & 0o777 == 0o600, "before it has a name"
        assert (tmp_path / name).is_symlink()
    assert (tmp_path / "file").read_bytes() == b"link"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "new").read_bytes() == b"dangling"


def test_a_name_without_a_folder_is_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with new_file("file") as file:
        file.write(b"x")
    assert (tmp_path / "file").read_bytes() == b"x"


def test_an_index_that_cannot_take_its_name_leaves_nothing(tmp_path: Path, few_numbers: Path) -> None:
    taken = tmp_path / "out" / "taken"
    taken.mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        write_index(few_numbers, taken)
    with hr.Dataset(few_numbers) as dataset, pytest.raises(IsADirectoryError):
        dataset.write_index(taken)
    assert [p.name for p in taken.parent.iterdir()] == ["taken"]
