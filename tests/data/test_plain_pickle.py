"""Plain pickles of every protocol are read; nothing that a pickle names is run."""

import collections
import io
import os
import pickle
import struct
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limpet.data.plain_pickle import plain_value, read_plain_pickle
from limpet.errors import DataError

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
PLAIN = {
    "none": None,
    "truth": [True, False],
    "numbers": [0, -1, 255, 65_536, -(2**31), 2**40, 10**60, 1.5, -0.0, float("inf")],
    "texts": ["", "all_souls_000013", "ä\n'\\", "x" * 70_000],
    "bytes": [b"", b"\x00\xff", b"x" * 300],
    "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
    "sets": [set(), {1, "a"}, {2.5}],
    3: {b"k": {None: []}, 2.5: {}},
}


class Calls:
    """What pickling writes down as a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.function, self.arguments


def test_plain_values_of_every_protocol_come_back_as_python_reads_them() -> None:
    for protocol in PROTOCOLS:
        content = pickle.dumps(PLAIN, protocol)
        read = plain_value(content)
        assert read == PLAIN
        assert list(map(type, read["truth"] + read["numbers"])) == [bool] * 2 + [int] * 7 + [float] * 3


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64", ">i4", "float32", ">f8", "float16"])
def test_numpy_numbers_of_every_protocol_come_back(dtype: str) -> None:
    array = np.arange(12).reshape(3, 4).astype(dtype)
    for protocol in PROTOCOLS:
        for value in (array, np.asfortranarray(array), array[:0], array[1, 2:3].reshape(())):
            read = plain_value(pickle.dumps([value, value], protocol))
            for part in read:
                assert part.dtype == value.dtype and part.shape == value.shape
                np.testing.assert_array_equal(part, value)
                assert not part.flags.writeable
        scalar = plain_value(pickle.dumps(array[2, 3], protocol))
        assert scalar == array[2, 3] and type(scalar) in (bool, int, float)


def test_shared_lists_come_back_equal_and_apart() -> None:
    rows = [1, 2]
    read = plain_value(pickle.dumps([rows, rows]))
    assert read == [[1, 2], [1, 2]] and read[0] is not read[1]


def test_texts_of_python_2_are_latin_1() -> None:
    """The bytes that Python 2 wrote for ['cafe'] with protocol 0, ['caf\\xe9'] with 2, and an array of two numbers."""
    assert plain_value(b"(lp0\nS'cafe'\np1\na.") == ["cafe"]
    assert plain_value(b"\x80\x02]q\x00U\x04caf\xe9q\x01a.") == ["café"]
    array = (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nq\x02K\x00\x85U\x01b\x87Rq\x03"
        b"(K\x01K\x02\x85cnumpy\ndtype\nq\x04U\x02i2K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xff"
        b"K\x00tb\x89U\x04\x01\x00\xff\xfftb."
    )
    read = plain_value(array)
    assert read.dtype == np.int16 and read.tolist() == [1, -1]


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("nested", [False, True])
def test_calls_are_refused_by_name_and_not_run(tmp_path: Path, protocol: int, nested: bool) -> None:
    flag = tmp_path / "ran"
    calls = {
        f"{os.system.__module__}.system": Calls(os.system, f"touch {flag}"),
        "eval": Calls(eval, f"open({str(flag)!r}, 'w')"),
        "getattr": Calls(getattr, [], "append"),
        "open": Calls(open, str(flag), "w"),
        "frombuffer": Calls(np.frombuffer, b"x"),
        "fractions.Fraction": Fraction(1, 3),
        "OrderedDict": collections.OrderedDict(a=1),
        "complex": 1j,
    }
    for name, call in calls.items():
        content = pickle.dumps({"gnd": [{"easy": [call]}]} if nested else call, protocol)
        with pytest.raises(DataError, match=rf"(?s)'[\w.]*{name}'.*Nothing was run"):
            plain_value(content)
    assert not flag.exists()


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"cos\nsystem\n(S'true'\ntR.", "'os.system'"),
        (b"(S'true'\nios\nsystem\n.", "'os.system'"),
        (b"(cos\nsystem\nS'true'\no.", "'os.system'"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93)R.", "'os.system'"),
        (b"\x80\x04\x8c\x05numpy\x8c\x07dtype.x\x93)R.", "'numpy.dtype.x'"),
        (b"\x80\x02\x82\x01.", r"EXT1 \(1\)"),
        (b"\x80\x02\x83\x01\x00.", r"EXT2 \(1\)"),
        (b"\x80\x02\x84\x01\x00\x00\x00.", r"EXT4 \(1\)"),
        (b"Psecret\n.", r"PERSID \('secret'\)"),
        (b"K\x01Q.", "BINPERSID"),
        (b"\x80\x05\x97.", "NEXT_BUFFER"),
        (b"\x80\x02cbuiltins\nset\n.", "'builtins.set' itself"),
        (b"\x80\x02cbuiltins\nset\n)\x81.", "NEWOBJ"),
        (b"]}b.", "a state of a list"),
        (b"})\x85K\x01s.", "a tuple as a key"),
        (b"\x8f()\x90.", "a tuple as a key"),
        (pickle.dumps(np.array(["a"]), 2), "NumPy values of type 'U1'"),
        (pickle.dumps(np.array([None]), 2), "NumPy values of type 'O8'"),
        (pickle.dumps(np.array([1j]), 2), "NumPy values of type 'c16'"),
        (b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n)R.", "an unfinished NumPy value"),
        (b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aU\x03rot\x86R.", "something else than Latin-1"),
    ],
)
def test_instructions_that_could_run_something_are_refused(content: bytes, named: str) -> None:
    with pytest.raises(DataError, match=f"(?s)asks for .*{named}.*Nothing was run"):
        plain_value(content)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b".",
        b"no pickle at all",
        b"\xff\xd8\xff\xe0 a photograph",
        b"]K\x01",
        b"K\x01a.",
        b"}K\x01s.",
        b"K\x01e.",
        b"h\x05.",
        b"2.",
        b"\x80\x02K\x01K\x02R.",
        b"L" + b"9" * 100_000 + b"L\n.",
        b"\x8b\xff\xff\xff\x7f.",
        b"X\xff\xff\xff\x7fa.",
        b"\x8d" + struct.pack("<Q", 2**62) + b"a.",
        b"\x80\x63K\x01",
    ],
)
def test_damage_is_refused(content: bytes) -> None:
    with pytest.raises(DataError, match="is cut off, damaged or no pickle"):
        plain_value(content)


def test_every_way_of_cutting_a_pickle_off_is_refused() -> None:
    for protocol in PROTOCOLS:
        content = pickle.dumps({"a": [1, "b", (2, {3})], "n": np.arange(3)}, protocol)
        for length in range(len(content)):
            with pytest.raises(DataError):
                plain_value(content[:length])


def test_changed_bytes_never_cause_anything_but_a_value_or_a_refusal() -> None:
    content = pickle.dumps({"a": [1, "b", (2, {3})], "n": np.arange(3)}, 2)
    refused = 0
    for place in range(len(content)):
        for change in (0x01, 0x20, 0xFF):
            damaged = bytearray(content)
            damaged[place] ^= change
            try:
                plain_value(bytes(damaged))
            except DataError:
                refused += 1
    assert refused > len(content)


def test_shapes_of_arrays_must_fit_their_bytes() -> None:
    content = pickle.dumps(np.arange(3, dtype=np.int64), 2)
    assert content.count(b"K\x03\x85") == 1
    lengths = "no tuple of lengths"
    for shape, message in (
        (b"K\x04\x85", "with 3 numbers"),
        (b"(K\x03K\x02t", "with 3 numbers"),
        (b"J\xff\xff\xff\xff\x85", lengths),
        (b"]K\x00a\x85", lengths),  # a list times a length is a longer list
        (b"K\x03", lengths),
    ):
        with pytest.raises(DataError, match=f"is cut off, damaged .*{message}"):
            plain_value(content.replace(b"K\x03\x85", shape))


# --- bombs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"]" * 200_000 + b"a" * 199_999 + b".",
        b")" + b"\x85" * 200_000 + b".",
        b"(K\x00" * 200_000 + b"}" + b"d" * 200_000 + b".",
        b"]q\x00h\x00a.",
    ],
)
def test_containers_without_end_are_refused(content: bytes) -> None:
    with pytest.raises(DataError):
        plain_value(content)


def test_shared_parts_cannot_multiply_without_end() -> None:
    value: list[Any] = [1] * 10
    for _ in range(25):
        value = [value] * 10
    content = pickle.dumps(value)
    assert len(content) < 2_000
    with pytest.raises(DataError, match="2000000 values"):
        plain_value(content)


def test_a_memo_place_of_two_billion_takes_no_memory() -> None:
    assert plain_value(b"K\x07r\xff\xff\xff\x7f0j\xff\xff\xff\x7f.") == 7


def test_a_deep_value_does_not_overrun_a_small_stack() -> None:
    outcome: list[str] = []

    def read() -> None:
        try:
            plain_value(b")" + b"\x85" * 300_000 + b"}\x85K\x01" + b"s.")
        except DataError as error:
            outcome.append(str(error))

    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=read)
    finally:
        threading.stack_size(before)
    thread.start()
    thread.join()
    assert len(outcome) == 1


# --- files -----------------------------------------------------------------------------------------------------------


def test_files_are_read_up_to_a_size(tmp_path: Path) -> None:
    path = tmp_path / "x.pkl"
    path.write_bytes(pickle.dumps([1, 2]))
    assert read_plain_pickle(path) == [1, 2]
    size = path.stat().st_size
    assert read_plain_pickle(path, size_limit=size) == [1, 2]
    with pytest.raises(DataError, match=f"has {size} bytes(.|\n)*at most {size - 1}"):
        read_plain_pickle(path, size_limit=size - 1)
    with pytest.raises(DataError, match="There is no file"):
        read_plain_pickle(tmp_path / "y.pkl")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"x\.pkl is cut off"):
        read_plain_pickle(path)


def test_what_python_itself_reads_is_the_same() -> None:
    """The interpreter and Python's own agree on hand-written programs of stack instructions."""
    for content in (
        b"(K\x01.",
        b"(K\x01K\x02l.",
        b"(K\x01K\x020t.",
        b"K\x01K\x020.",
        b"(K\x01(K\x02K\x0310e0.",
        b"(K\x01(K\x02K\x031t.",
        b"]K\x012.",
        b"](K\x01K\x02eK\x03a.",
        b"(K\x01K\x02d.",
        b"}(K\x01K\x02K\x03K\x04u.",
        b"I01\n.",
        b"I5\n.",
        b"F2.5\n.",
        b"L7L\n.",
        b"V\\u00e9\n.",
    ):
        try:
            expected = pickle.load(io.BytesIO(content))  # noqa: S301
        except (pickle.UnpicklingError, AttributeError):
            with pytest.raises(DataError):
                plain_value(content)
        else:
            assert plain_value(content) == expected
