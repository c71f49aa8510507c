"""The restricted reader gives exactly the arrays of a pickle of arrays, and runs nothing of any other."""

import os
import pickle
import pickletools
import struct
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from numpy.testing import assert_array_equal

from toporo.bench import safe_pickle
from toporo.bench.safe_pickle import read_arrays
from toporo.errors import UnsafeFileError

ARRAYS = {
    "floats": np.linspace(0, 1, 6).reshape(2, 3),
    "integers": np.arange(5),
    "bytes": np.arange(4, dtype=np.uint8),
    "booleans": np.array([True, False]),
    "single": np.ones((2, 2, 2), dtype=np.float32),
    "big endian": np.arange(3, dtype=">i4"),
    "columns first": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "strided": np.arange(10.0)[::2],
    "one number": np.array(3.5),
}


@pytest.fixture
def written(tmp_path):
    """Writes bytes, or pickles what is not bytes, and returns the path."""

    def write(content, protocol=4):
        path = tmp_path / "data.pkl"
        path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content, protocol=protocol))
        return path

    return write


@pytest.mark.parametrize("protocol", range(6))
def test_reads_what_numpy_writes(written, protocol):
    """... whichever of pickle's protocols was the default when the file was made (5 is, from Python 3.14 on)."""
    read = read_arrays(written(ARRAYS, protocol))
    assert read.keys() == ARRAYS.keys()
    for key, expected in ARRAYS.items():
        assert read[key].dtype == expected.dtype, key
        assert read[key].shape == expected.shape, key
        assert_array_equal(read[key], expected, err_msg=key)
        read[key][...] = 0  # its own memory, not the file's


NUMBERS = st.one_of(
    arrays_of.boolean_dtypes(),
    arrays_of.integer_dtypes(endianness="?"),
    arrays_of.unsigned_integer_dtypes(endianness="?"),
    arrays_of.floating_dtypes(endianness="?"),
)
ARRAY = NUMBERS.flatmap(lambda kind: arrays_of.arrays(kind, arrays_of.array_shapes(min_dims=0, max_dims=4, min_side=0)))


@given(st.dictionaries(st.text(), ARRAY, max_size=4), st.sampled_from("CFS"), st.integers(0, 5), st.booleans())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_reads_whatever_numpy_writes(content, layout, protocol, optimised):
    """Any shape, empty ones and single numbers too, of any number type, in rows or columns or every second entry."""
    laid = {"C": np.ascontiguousarray, "F": np.asfortranarray, "S": lambda array: array[..., ::2]}[layout]
    content = {name: laid(array) if array.ndim else array for name, array in content.items()}
    content |= {f"{name} again": array for name, array in content.items()}
    written = pickle.dumps(content, protocol=protocol)
    with TemporaryDirectory() as folder:
        Path(folder, "data.pkl").write_bytes(pickletools.optimize(written) if optimised else written)
        read = read_arrays(Path(folder, "data.pkl"))
    assert read.keys() == content.keys()
    for key, expected in content.items():
        assert (read[key].dtype, read[key].shape) == (expected.dtype, expected.shape)
        assert read[key].tobytes() == expected.tobytes()


def test_reads_what_older_numpy_wrote(written):
    """numpy 1 pickles name numpy.core, numpy 2 names numpy._core."""
    content = pickle.dumps({"a": np.arange(3)}, protocol=3)
    assert content.count(b"numpy._core.multiarray") == 1
    assert_array_equal(read_arrays(written(content.replace(b"numpy._core", b"numpy.core")))["a"], [0, 1, 2])


class Payload:
    """What a hostile file holds: a call, made as soon as a plain reader meets it."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("wrap", [lambda p: p, lambda p: {"data": p}, lambda p: {"data": np.array([p], dtype=object)}])
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_command_is_refused_and_not_run(written, tmp_path, wrap, protocol):
    """The payload would make a folder; the plain reader shows that it does."""
    mark = tmp_path / "executed"
    path = written(wrap(Payload(os.mkdir, str(mark))), protocol)
    with pytest.raises(UnsafeFileError, match="nothing in the file was executed"):
        read_arrays(path)
    assert not mark.exists()
    with path.open("rb") as stream:
        pickle.load(stream)
    assert mark.exists()


@pytest.mark.parametrize(
    ("payload", "named"),
    [
        (Payload(os.system, "true"), r"(posix|nt)\.system"),
        (Payload(eval, "1 + 1"), r"builtins\.eval"),
        (Payload(getattr, "text", "upper"), r"builtins\.getattr"),
        (Payload(np.fromfile, "/etc/hostname"), r"numpy(\._core\.multiarray)?\.fromfile"),
        (Payload(np.ndarray, (2,)), "a direct call of numpy.ndarray"),
    ],
    ids=["system", "eval", "getattr", "another numpy function", "ndarray itself"],
)
def test_a_reference_is_refused_by_its_name(written, payload, named):
    with pytest.raises(UnsafeFileError, match=f"data.pkl holds (a reference to )?{named}"):
        read_arrays(written({"data": payload}))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ([np.ones(2)], "holds the instruction EMPTY_LIST"),
        (np.ones(2), "holds a _?[Aa]rray"),
        ({"a": [1, 2]}, "holds the instruction EMPTY_LIST"),
        ({"a": 3}, "holds int under 'a'"),
        ({"a": 2**4000}, "holds the instruction LONG4"),
        ({"a" * 500: 3}, f"holds int under '{'a' * 80}'"),
        ({"a": {"b": np.ones(2)}}, "holds dict under 'a'"),
        ({1: np.ones(2)}, "under 1"),
        ({"a": np.array([1, "x"], dtype=object)}, "type 'O8', which is not a number type"),
        ({"a": np.array(["text"])}, "type 'U4', which is not a number type"),
        ({"a": np.zeros(2, dtype="f8,i4")}, "type 'V12', which is not a number type"),
        ({"a": np.float64(1.0)}, r"a reference to numpy\._core\.multiarray\.scalar"),
        ({"a": np.ma.masked_array([1.0])}, r"a reference to numpy\.ma"),
    ],
    ids=[
        "list",
        "bare array",
        "list inside",
        "number",
        "large number",
        "long name",
        "nested",
        "key",
        "objects",
        "text",
        "records",
        "scalar",
        "masked",
    ],
)
def test_anything_but_a_dict_of_number_arrays_is_refused(written, content, found):
    with pytest.raises(UnsafeFileError, match=f"{found}.*Expected a pickled dict of numpy arrays"):
        read_arrays(written(content))


@pytest.mark.parametrize("code", ["O", "f8,O", "object", "i4,i4", ""])
def test_a_forged_type_code_gets_no_other_type_in(written, code):
    """The type is text in the file; text that numpy would read as objects or records is refused as well."""
    forged = pickle.dumps({"a": np.zeros(2)}, protocol=3).replace(
        b"X\x02\x00\x00\x00f8", b"X" + len(code).to_bytes(4, "little") + code.encode()
    )
    with pytest.raises(UnsafeFileError):
        read_arrays(written(forged))


@pytest.mark.parametrize("protocol", [3, 4])
def test_a_file_cut_anywhere_is_refused(written, protocol):
    content = pickle.dumps({"a": np.arange(6.0).reshape(2, 3)}, protocol=protocol)
    for length in range(len(content)):
        with pytest.raises(UnsafeFileError, match="nothing in the file was executed"):
            read_arrays(written(content[:length]))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"data,label\n1,2\n",
        b"\x80\x04\x8d" + b"\xff" * 8 + b".",
        b"\x80\x04}\x94Pelsewhere\n.",
        b"\x80\x02\x82\x01.",
        b"\x80\x02c\\R\n\\p\n.",
        pickle.dumps({"a": np.zeros(2)}, protocol=3).replace(b"K\x02\x85", b"K\x03\x85"),
        pickle.dumps({"a": np.zeros(2)}, protocol=3).replace(b"K\x02\x85", b"\x8a\x10" + b"\x7f" * 16 + b"\x85"),
    ],
    ids=[
        "empty",
        "text",
        "impossible length",
        "persistent id",
        "extension",
        "backslashes",
        "wrong shape",
        "huge shape",
    ],
)
def test_a_malformed_file_is_refused(written, content):
    with pytest.raises(UnsafeFileError, match="nothing in the file was executed"):
        read_arrays(written(content))


def test_the_forged_files_are_what_they_claim():
    """Guards the replacements above: the bytes they look for do occur."""
    content = pickle.dumps({"a": np.zeros(2)}, protocol=3)
    assert content.count(b"X\x02\x00\x00\x00f8") == content.count(b"K\x02\x85") == 1
    assert "BUILD" in {opcode.name for opcode, _, _ in pickletools.genops(content)}


# ---------------------------------------------------------------------- files that are after the machine


def text(content, code="X", count="<I"):
    return code.encode() + struct.pack(count, len(content)) + content


def encoded(length):
    """A text of that many signs, and what makes bytes of it: a call is ``h\\0h\\1R``."""
    return b"\x80\x02c_codecs\nencode\nq\0" + text(b"a" * length) + text(b"latin1") + b"\x86q\1"


#: Shared bytes, a type and a blank, from which any number of arrays could be made.
SHARED = (
    b"\x80\x03"
    + text(bytes(2**20), "B")
    + b"q\0cnumpy\ndtype\n"
    + text(b"u1")
    + b"\x85Rq\1cnumpy.core.multiarray\n_reconstruct\nq\2}"
)
ATTACKS = {
    "nested tuples": b"\x80\x02)" + b"\x85" * 300_000 + b".",
    "nested tuples as a name": b"\x80\x02})" + b"\x85" * 300_000 + b"Ns.",
    "nested tuples as a state": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n)R)" + b"\x85" * 300_000 + b"b.",
    "tuples of one tuple": b"\x80\x02" + b"(" + b"N" * 60_000 + b"tq\0" + b"h\0h\0h\0\x87" * 20_000 + b".",
    "nested lists": b"\x80\x02" + b"]" * 300_000 + b"a" * 299_999 + b".",
    "a far place in the memo": b"\x80\x04Nr\0\0\0\x10.",
    "a long number": b"\x80\x02\x8b\xff\xff\xff\x7f.",
    "long bytes": b"\x80\x04\x8e" + struct.pack("<Q", 2**32) + b".",
    "a long bytearray": b"\x80\x05\x96" + struct.pack("<Q", 2**32) + b".",
    "a long text": b"\x80\x02X\xff\xff\xff\xff.",
    "a long frame": b"\x80\x04\x95" + struct.pack("<Q", 2**32) + b".",
    "bytes over and over": encoded(2_000_000) + b"h\0h\1R" * 2_500 + b".",
    "an array over and over": SHARED + (b"X\1\0\0\0ah\2)R(K\1J\0\0\x10\0\x85h\1\x89h\0tbs") * 4_000 + b".",
    "one dict after another": b"\x80\x02" + b"}" * 4_000_000 + b".",
    "one mark after another": b"\x80\x02" + b"(" * 4_000_000 + b".",
    "one memo after another": b"\x80\x04" + b"}\x94" * 2_000_000 + b".",
    "wide text": b"\x80\x02" + text("\U0001f600".encode() + b"a" * 4_000_000) + b".",
    "a long name": b"\x80\x02c" + b"a" * 4_000_000 + b"\nb\n.",
    "a long key": b"\x80\x02}" + text(b"\0" * 4_000_000) + b"Ns.",
}
#: Refuses a file, and says whether that took no more than the module says that it takes.
CHILD = """
import re, resource, sys
from pathlib import Path
from toporo.bench.safe_pickle import read_arrays
from toporo.errors import UnsafeFileError

def taken():
    return 1024 * int(re.search(r"VmPeak:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

path, before = Path(sys.argv[1]), taken()
resource.setrlimit(resource.RLIMIT_AS, (before + 6 * 2**30,) * 2)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
try:
    read_arrays(path)
except UnsafeFileError as error:
    print(taken() - before < 10 * path.stat().st_size + 2**26, len(str(error)) < 1000, str(error)[-33:])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux for the memory that was taken")
@pytest.mark.parametrize("content", ATTACKS.values(), ids=ATTACKS)
def test_a_file_can_neither_crash_nor_exhaust(written, content):
    done = subprocess.run([sys.executable, "-c", CHILD, written(content)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True True nothing in the file was executed.\n", "")


@pytest.mark.parametrize(
    "name",
    ["numpy\nndarray", "numpy\ndtype", "_codecs\nencode", "__builtin__\nbytes", "numpy.core.numeric\n_frombuffer"],
)
@pytest.mark.parametrize("state", [b"}X\1\0\0\0aNs", b"N}X\1\0\0\0aNs\x86", b"}", b"N}\x86", b"N"])
def test_a_file_leaves_nothing_behind(written, name, state):
    """A stand-in would keep what a file gives it for those that are read later."""
    before = {key: dict(vars(value)) for key, value in vars(safe_pickle).items() if hasattr(value, "__dict__")}
    with pytest.raises(UnsafeFileError):
        read_arrays(written(b"\x80\x02c" + name.encode() + b"\n" + state + b"b."))
    after = {key: dict(vars(value)) for key, value in vars(safe_pickle).items() if hasattr(value, "__dict__")}
    assert before == after


def test_an_array_is_told_its_values_once(written):
    told = b"(K\1K\2\x85cnumpy\ndtype\nX\2\0\0\0u1\x85R\x89C\2abtb"
    start = b"\x80\3}X\1\0\0\0acnumpy.core.multiarray\n_reconstruct\n)R"
    assert_array_equal(read_arrays(written(start + told + b"s."))["a"], [ord("a"), ord("b")])
    for times in (0, 2):
        with pytest.raises(UnsafeFileError):
            read_arrays(written(start + told * times + b"s."))


def test_a_file_that_is_too_long_is_not_read(written, monkeypatch):
    monkeypatch.setattr(safe_pickle, "MOST_BYTES", 2**20)
    content = pickle.dumps({"a": np.zeros(2**17)})
    with pytest.raises(UnsafeFileError, match="has more than the 1 MiB that are read here"):
        read_arrays(written(content))


#: What array pickles are written with, and pieces of them.
PIECES = [bytes([code]) for code in range(256)] + [
    b"cnumpy\ndtype\n", b"cnumpy.core.multiarray\n_reconstruct\n", b"c_codecs\nencode\n", b"c__builtin__\nbytes\n",
    b"cnumpy.core.numeric\n_frombuffer\n", b"cnumpy\nndarray\n", b"K\2", b"J\xff\xff\xff\xff", b"X\2\0\0\0u1",
    b"X\1\0\0\0<", b"X\6\0\0\0latin1", b"X\1\0\0\0F", b"C\2ab", b"K\2\x85", b"q\0", b"h\0", b"\x94", b"I01\n", b"L5L\n",
    b"(K\1", b")R", b"tb", b"c\\R", b"X\2\0\0\0u1\x85R", b"NNNK\0K\0K\0tb", b"\x8a\x0f" + b"\x7f" * 15, b"V\\ud800\n",
    b"}X\1\0\0\0a", b"s.",
]  # fmt: skip


@given(
    st.one_of(
        st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join),
        st.tuples(st.integers(0, 5), st.lists(st.tuples(st.integers(0, 2000), st.sampled_from(PIECES)), max_size=4)),
    )
)
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_a_file_holds_it_is_read_or_refused(content):
    if isinstance(content, tuple):
        protocol, changes = content
        content = pickle.dumps(ARRAYS, protocol=protocol)
        for place, piece in changes:
            content = content[:place] + piece + content[place + len(piece) :]
    with TemporaryDirectory() as folder:
        Path(folder, "data.pkl").write_bytes(content)
        try:
            read = read_arrays(Path(folder, "data.pkl"))
        except UnsafeFileError:
            return
    assert all(isinstance(name, str) and isinstance(array, np.ndarray) for name, array in read.items())
