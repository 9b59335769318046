"""Ways to alter files: bytes as they come, and values of the documents and headers inside them."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random
from typing import Any

Mutation = Callable[[bytes, Random], bytes]

WHOLE = [-1, 0, 1, 2, 7, 255, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 10**400]
WILD: list[Any] = [
    *WHOLE, None, True, False, 0.5, -0.0, 1e-320, 1e308, float("nan"), float("inf"), -float("inf"), "", "\0",
    "\x1b[31m\u202e", "é" * 300, "a" * 20_000, "../../x", "label", "release:" + "0" * 64, [], {}, [[]], [None], [1, 2],
    ["a", "a"], {"a": 1}, {"": {}}, {"name": "lorentz", "dim": 4, "curvature": 1e9},
]  # fmt: skip
DIGITS, DEEP = "<digits>", "<deep>"  # written as 5,000 digits and as 20,000 brackets
YAML_WORDS = [
    "&a [*a]", "&a {b: *a}", "*nobody", "2024-02-31", "2024-01-01", "!!bool x", "!!int ''", "!!python/name:os.system",
    "? [1]", "<<: 1", "{a: 1, a: 2}", "[" * 3000, "0x" + "f" * 5000, "9" * 5000, "1:59:59", "- - - -", "\t", "%TAG",
    "---", "|", ">-", "'", '"', "{", "}", "]", ": ", ".nan", ".inf", "~", "=", "!!binary x", "!!set {a, b}",
    "!!omap [a: 1]", "!!pairs [a: 1, a: 2]", "&x a", "*x", "@", "`", "\0", "\ufeff",
]  # fmt: skip


def any_bytes(content: bytes, chance: Random) -> bytes:
    """Flip, cut, overwrite, repeat, move or add bytes."""
    changed, size = bytearray(content), len(content)
    place, length = chance.randrange(size + 1), chance.choice([1, 2, 4, 8, 16, 64, 256])
    match chance.randrange(9):
        case 0 | 1 | 2:
            for _ in range(chance.choice([1, 1, 2, 8])):
                if size:
                    changed[chance.randrange(size)] ^= 1 << chance.randrange(8)
        case 3:
            del changed[place:]
        case 4:
            del changed[place : place + length]
        case 5:
            changed[place:place] = chance.randbytes(length)
        case 6:
            other = chance.randrange(size + 1)
            changed[place : place + length] = content[other : other + length]
        case 7:
            changed[place : place + length] = bytes([chance.choice([0, 255, 32, 127])]) * length
        case 8:
            number, width = chance.choice(WHOLE), chance.choice([4, 8])
            changed[place : place + width] = (number & (256**width - 1)).to_bytes(width, "little")
    return bytes(changed)


def json_values(content: bytes, chance: Random) -> bytes:
    """Replace, remove, repeat or wrap values of a JSON document, some of them JSON within texts."""
    return _written(changed_value(json.loads(content), chance)).encode("utf-8", "surrogatepass")


def changed_value(document: Any, chance: Random) -> Any:
    """Return a document with one to three values changed."""
    holder = [document]
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        places = list(_places(holder))
        parent, key = chance.choice(places)
        value = parent[key]
        if isinstance(value, str) and value[:1] == "{" and chance.random() < 0.8:
            parent[key] = _written(changed_value(json.loads(value), chance)) if _is_json(value) else value
            continue
        match chance.randrange(8):
            case 0 if isinstance(parent, dict) or parent is not holder:
                del parent[key]
            case 1 if isinstance(parent, dict):
                parent[chance.choice(["", "x", "__metadata__", str(key) + "_", "\x1b"])] = deepcopy(value)
            case 2:
                parent[key] = [value]
            case 3:
                other, place = chance.choice(places)
                parent[key] = json.loads(json.dumps(other[place])) if len(json.dumps(other[place])) < 2000 else 0
            case 4 if type(value) in (int, float):
                parent[key] = chance.choice([-value, value + 1, value - 1, value * 1000, 1e300, str(value)[:99]])
            case 5:
                parent[key] = chance.choice([DIGITS, DEEP])
            case _:
                parent[key] = deepcopy(chance.choice(WILD))
    return holder[0]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _written(document: Any) -> str:
    text = json.dumps(document)
    return text.replace(f'"{DIGITS}"', "9" * 5000).replace(f'"{DEEP}"', "[" * 20_000 + "]" * 20_000)


def yaml_words(content: bytes, chance: Random) -> bytes:
    """Put words that mean something in YAML in the place of values, keys and line breaks."""
    lines = content.decode().split("\n")
    for _ in range(chance.choice([1, 1, 2])):
        row, word = chance.randrange(len(lines)), chance.choice([*YAML_WORDS, *map(json.dumps, WILD)])
        key, colon, value = lines[row].partition(": ")
        changes = [f"{key}: {word}", f"{word}: {value}", word, f"{lines[row]}\n{lines[row]}", f"  {lines[row]}"]
        changes += [f"{key}: [{value}, {word}]", f"{key}: {{{word}: {value}}}", f"{key}{colon}{value} {word}"]
        lines[row] = chance.choice(changes)
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def safetensors_header(content: bytes, chance: Random) -> bytes:
    """Change shapes, types, places and metadata in the header of a safetensors file, or numbers behind it."""
    (length,) = struct.unpack_from("<Q", content)
    header, body = json.loads(content[8 : 8 + length]), bytearray(content[8 + length :])
    if chance.random() < 0.3:
        name = chance.choice([name for name in header if name != "__metadata__"])
        begin, end = header[name]["data_offsets"]
        for _ in range(chance.choice([1, 1, 2, 4])):
            place = begin + 8 * chance.randrange(max(1, (end - begin) // 8))
            number = chance.choice([chance.choice(WHOLE), chance.randrange(64), -chance.randrange(64)])
            body[place : place + 8] = (number & (2**64 - 1)).to_bytes(8, "little")[: len(body) - place]
    else:
        header = changed_value(header, chance)
    text = _written(header).encode()
    claimed = chance.choice([0, 1, len(text) + 8, 2**32, 2**63, 2**64 - 1]) if chance.random() < 0.03 else len(text)
    return struct.pack("<Q", claimed) + text + bytes(body)


def npy_header(content: bytes, chance: Random) -> bytes:
    """Change shape, type and order in the header of an .npy file."""
    (length,) = struct.unpack_from("<H", content, 8)
    text, body = content[10 : 10 + length].decode("latin-1"), content[10 + length :]
    shapes = [
        "()", "(0,)", "(-1, 4)", "(4,)", "(2, 2, 3)", "(9999999999, 4)", f"({2**62}, 4)", f"({10**30}, 4)", "(1.5, 4)",
        "(True, 4)", "('a', 4)", "None", "(" * 500, "(3, 0)", "(12, 1)", f"({'9' * 5000},)",
    ]  # fmt: skip
    types = [
        "<f2", "<f4", ">f4", "<f8", "<f16", "<i8", "|O", "|V7", "<U3", "<U99999999", "|S0", "|b1", "<M8[ns]", "<c8",
        "x", "", "<f4,<f4", "|i1", "<u2",
    ]  # fmt: skip
    start = text.index("(")
    match chance.randrange(4):
        case 0:
            text = text[:start] + chance.choice(shapes) + text[text.index(")") + 1 :]
        case 1:
            begin = text.index("descr': ") + 8
            text = text[:begin] + repr(chance.choice(types)) + text[text.index(",", begin) :]
        case 2:
            text = text.replace("False", chance.choice(["True", "0", "None", "x", "[" * 300, "'a'", "False, 'b': 1"]))
        case 3:
            text = any_bytes(text.encode("latin-1"), chance).decode("latin-1")
    header = text.encode("latin-1")[:65535]
    version = bytes([chance.choice([1, 1, 1, 1, 2, 3, 9]), 0])
    return content[:6] + version + struct.pack("<H", len(header)) + header + body


def npz_members(content: bytes, chance: Random) -> bytes:
    """Change the members of an archive, whose checksums are right afterwards."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = chance.choice(list(members))
    match chance.randrange(6):
        case 0:
            del members[name]
        case 1:
            another = chance.choice(["ids.npy", "labels.npy", "vectors", "x.npy", "../x.npy", "\x1b.npy"])
            members[another] = members[name]
        case 2:
            members[name] = any_bytes(members[name], chance)
        case 3:
            members[name] = members[chance.choice(list(members))]
        case _:
            members[name] = npy_header(members[name], chance)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", chance.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        for name, value in members.items():
            archive.writestr(name, value)
    return stream.getvalue()
