"""Checkpoint files are replaced as a whole, and errors name damage."""

import pytest
import torch
from safetensors.torch import save_file

from toporo.errors import DataError
from toporo.training.checkpoint import read_checkpoint, write_checkpoint

ABOUT = {"epoch": 2, "note": "ü"}


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "run.safetensors"
    write_checkpoint(path, {"weight": torch.arange(6.0).reshape(2, 3), "steps": torch.tensor(3)}, ABOUT)
    return path


def test_tensors_and_description_are_read_back(saved, tmp_path):
    """Another checkpoint replaces the file; tensors may share memory, as tied weights do."""
    tensors, about = read_checkpoint(saved)
    assert about == ABOUT
    assert tensors["weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert tensors["steps"].dtype == torch.int64
    tied = torch.ones(2)
    write_checkpoint(saved, {"one": tied, "other": tied, "part": tied[1:]}, {})
    assert read_checkpoint(saved)[0].keys() == {"one", "other", "part"}
    write_checkpoint(tmp_path / "new" / "folder" / "c", {}, {})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new", saved.name]


def test_a_changed_byte_is_noticed_wherever_it_is(saved):
    """In the header and in the numbers."""
    whole = saved.read_bytes()
    for position in range(0, len(whole), 7):
        saved.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(DataError, match=r"run\.safetensors"):
            read_checkpoint(saved)


@pytest.mark.parametrize("length", [0, -1])
def test_a_truncated_file_is_named(saved, length):
    saved.write_bytes(saved.read_bytes()[:length])
    with pytest.raises(DataError, match=r"run\.safetensors is not a readable safetensors file"):
        read_checkpoint(saved)


@pytest.mark.parametrize("metadata", [None, {"schema": "toporo.checkpoint/0"}], ids=["none", "older"])
def test_a_foreign_safetensors_file_is_refused(saved, metadata):
    save_file({"weight": torch.ones(2)}, saved, metadata=metadata)
    with pytest.raises(DataError, match=r"has schema .*, expected 'toporo\.checkpoint/"):
        read_checkpoint(saved)
