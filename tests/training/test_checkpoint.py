"""Checkpoints restore everything exactly, hold nothing executable, and say what is wrong with a bad file."""

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from toporo.errors import DataError
from toporo.objectives import ERM, IRM, TRO
from toporo.training import MLP, load_checkpoint, save_checkpoint

PRIOR = {"a": 0.5, "b": 0.3, "c": 0.2}


def parts(hidden=4, objective=None, optimizer=torch.optim.Adam):
    model = MLP(2, 2, (hidden,))
    return {"model": model, "objective": objective or TRO(PRIOR), "optimizer": optimizer(model.parameters(), lr=0.1)}


def advance(run, seed):
    """One training step."""
    generator = torch.Generator().manual_seed(seed)
    losses = run["model"](torch.randn(6, 2, generator=generator)).square().sum(dim=1)
    run["optimizer"].zero_grad()
    run["objective"](losses, torch.arange(6) % 3).backward()
    run["optimizer"].step()


@pytest.fixture
def saved(tmp_path):
    """A run of two steps and the checkpoint of it."""
    run, path = parts(), tmp_path / "run.safetensors"
    for seed in range(2):
        advance(run, seed)
    save_checkpoint(path, **run, about={"epoch": 2, "note": "ü"})
    return run, path


@pytest.mark.parametrize(
    "optimizer",
    [
        torch.optim.Adam,
        torch.optim.SGD,
        lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9),
        lambda p, lr: torch.optim.AdamW(p, lr, amsgrad=True),
    ],
    ids=["adam", "sgd", "momentum", "amsgrad"],
)
def test_a_restored_run_goes_on_with_the_same_bytes(tmp_path, optimizer):
    run, fresh = parts(optimizer=optimizer), parts(optimizer=optimizer)
    advance(run, 0)
    save_checkpoint(tmp_path / "c", **run, about={"epoch": 1})
    assert load_checkpoint(tmp_path / "c", **fresh) == {"epoch": 1}
    for seed in range(1, 4):
        advance(run, seed)
        advance(fresh, seed)
    for one, other in zip(run["model"].parameters(), fresh["model"].parameters(), strict=True):
        assert torch.equal(one, other)
    assert run["objective"].weights == fresh["objective"].weights


def test_about_comes_back_as_it_was(saved):
    assert load_checkpoint(saved[1], **parts()) == {"epoch": 2, "note": "ü"}


def test_saving_replaces_a_file_whole_and_makes_folders(saved, tmp_path):
    run, path = saved
    save_checkpoint(path, **run, about={"epoch": 3})
    assert load_checkpoint(path, **parts())["epoch"] == 3
    save_checkpoint(tmp_path / "new" / "folder" / "c", **run, about={})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new", path.name]


def test_tensors_that_share_memory_are_saved(tmp_path):
    """The format refuses them; tied weights are ordinary."""
    run = parts()
    run["model"].again = run["model"].head
    save_checkpoint(tmp_path / "c", **run, about={})
    other = parts()
    other["model"].again = other["model"].head
    assert load_checkpoint(tmp_path / "c", **other) == {}


@pytest.mark.parametrize("length", [0, 4, 8, 60, 500, -1], ids=lambda n: f"{n} bytes")
def test_a_truncated_file_is_named(saved, length):
    path = saved[1]
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(DataError, match=r"run\.safetensors is not a readable checkpoint .* Delete it to start over"):
        load_checkpoint(path, **parts())


def test_a_changed_byte_is_noticed_wherever_it_is(saved):
    """In the header, and in the numbers, where it would be trained on."""
    whole = saved[1].read_bytes()
    for place in range(0, len(whole), 7):
        saved[1].write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DataError, match=r"run\.safetensors"):
            load_checkpoint(saved[1], **parts())
    saved[1].write_bytes(whole)
    load_checkpoint(saved[1], **parts())


@pytest.mark.parametrize("key", ["about", "optimizer"])
@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"state": [], "groups": 3}'])
def test_what_an_earlier_version_wrote_is_looked_at_before_it_is_used(saved, key, text):
    """Its checkpoints have no checksum."""
    path = saved[1]
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() | {"schema": "toporo.checkpoint/1"}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dict
    save_file(tensors, path, metadata=metadata)
    assert load_checkpoint(path, **parts()) == {"epoch": 2, "note": "ü"}
    save_file(tensors, path, metadata=metadata | {key: text})
    if (key, text[:1]) != ("about", "{") or text == "{":
        with pytest.raises(DataError):
            load_checkpoint(path, **parts())


@pytest.mark.parametrize(
    "content", [b"not a checkpoint", b"\x80\x04}.", b"\xff" * 100], ids=["text", "pickle", "noise"]
)
def test_another_kind_of_file_is_refused(tmp_path, content):
    path = tmp_path / "run.safetensors"
    path.write_bytes(content)
    with pytest.raises(DataError, match="is not a readable checkpoint"):
        load_checkpoint(path, **parts())


@pytest.mark.parametrize("metadata", [None, {"schema": "toporo.checkpoint/0"}], ids=["none", "older"])
def test_a_foreign_safetensors_file_is_refused(tmp_path, metadata):
    path = tmp_path / "run.safetensors"
    save_file({"weight": torch.ones(2)}, path, metadata=metadata)
    with pytest.raises(DataError, match=r"has schema .*, expected 'toporo\.checkpoint/2'"):
        load_checkpoint(path, **parts())


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no such checkpoint: .*gone"):
        load_checkpoint(tmp_path / "gone", **parts())


@pytest.mark.parametrize(
    "other",
    [{"hidden": 5}, {"objective": ERM("abc")}, {"objective": IRM("abc")}, {"objective": TRO({**PRIOR, "d": 1.0})}],
    ids=["model", "erm", "irm", "more groups"],
)
def test_a_checkpoint_of_another_make_is_refused(saved, other):
    with pytest.raises(DataError, match="belongs to another model, objective or optimiser"):
        load_checkpoint(saved[1], **parts(**other))


def test_a_refused_checkpoint_changes_nothing(saved):
    """Neither the model, which would fit, when the objective does not."""
    run = parts(objective=ERM("abc"))
    before = {key: value.clone() for key, value in run["model"].state_dict().items()}
    with pytest.raises(DataError, match="belongs to another"):
        load_checkpoint(saved[1], **run)
    for key, value in run["model"].state_dict().items():
        assert torch.equal(value, before[key]), key


def test_a_learning_rate_changed_on_the_way_is_restored(tmp_path):
    """As a scheduler does; the optimiser is built with the first one again before resuming."""
    model, objective = MLP(2, 2, (4,)), ERM(["a", "b"])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5, betas=(0.8, 0.9))
    optimizer.param_groups[0]["lr"] = 0.125
    save_checkpoint(tmp_path / "c", model=model, objective=objective, optimizer=optimizer, about={})
    fresh = torch.optim.Adam(model.parameters(), lr=0.5)
    load_checkpoint(tmp_path / "c", model=model, objective=objective, optimizer=fresh)
    assert fresh.param_groups[0]["lr"] == 0.125
    assert fresh.param_groups[0]["betas"] == (0.8, 0.9)
