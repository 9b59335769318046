"""Maps and encoders as ONNX: plain steps node by node, networks by torch's own exporter (extra ``onnx``)."""

from __future__ import annotations

import json
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from limpet.errors import ConfigError, reason
from limpet.export.exportable import Exportable, Vectors
from limpet.export.formats import NO_STEPS, Format
from limpet.export.record import ExportRecord
from limpet.support.extras import installing
from limpet.support.steps import Affine, ExportStep, Gelu, Lift, Mixture, Normalise, Relu, Scale, Shorten, Sum

_EXTRA = installing("onnx")
OPSET, FORMAT = 18, 9
"""Old enough for the runtimes of the last years."""
SHORTEST = 1e-12


class OnnxModel(Format):
    """``model.onnx``: float32, a batch of any length; fingerprints and what goes in are in its metadata."""

    name = "onnx"
    title = "an ONNX model"
    usage = """
import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
about = session.get_modelmeta().custom_metadata_map
assert about["limpet.searches"] == "..."  # the fingerprint of your gallery
(vectors,) = session.run(None, {session.get_inputs()[0].name: inputs})
"""
    FILE: ClassVar[str] = "model.onnx"
    OUTPUT: ClassVar[str] = "points"

    def refusal(self, model: Exportable) -> str:
        """Refuse what says neither its steps nor its network."""
        return "" if model.steps is not None or model.network is not None else NO_STEPS

    def write(self, model: Exportable, record: ExportRecord, folder: Path) -> ExportRecord:
        """Write the model with its metadata."""
        onnx, runtime = libraries()
        graph = network_model(model, folder / self.FILE) if model.steps is None else steps_model(model)
        onnx.helper.set_model_props(graph, metadata(record))
        onnx.checker.check_model(graph)
        onnx.save(graph, folder / self.FILE)
        versions = {"onnx": onnx.__version__, "onnxruntime": runtime.__version__}
        return record.model_copy(update={"versions": {**record.versions, **versions}})

    def pairs(self, model: Exportable, folder: Path) -> tuple[Vectors, Vectors]:
        """Return what the original makes of the probe, and what ONNX Runtime makes of it, whole and a row at a time."""
        _, runtime = libraries()
        session = runtime.InferenceSession(folder / self.FILE, providers=["CPUExecutionProvider"])

        def run(inputs: NDArray[Any]) -> Vectors:
            (points,) = session.run(None, {model.contract.name: inputs})
            vectors: Vectors = points
            return vectors

        found = np.concatenate([run(model.probe), *(run(row[None]) for row in model.probe[:4])])
        return model.reference(np.concatenate([model.probe, model.probe[:4]])), found


def libraries() -> tuple[Any, Any]:
    """Return the packages onnx and onnxruntime.

    Raises:
        ConfigError: One is not installed.
    """
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise _missing(error) from error
    return onnx, onnxruntime


def _missing(error: ImportError) -> ConfigError:
    return ConfigError(
        f"The format onnx needs the package '{error.name}', which is not installed.",
        to_do=f"{_EXTRA}.",
    )


def metadata(record: ExportRecord) -> dict[str, str]:
    """Return what the model says of itself, as texts; what is not known is an empty one."""
    return {
        "limpet.name": record.name,
        "limpet.source": record.source or "",
        "limpet.fingerprint": record.fingerprint,
        "limpet.searches": record.searches or "",
        "limpet.space": json.dumps(record.space),
        "limpet.metric": record.metric,
        "limpet.input": record.input.model_dump_json(),
        "limpet.version": record.versions["limpet"],
    }


def network_model(model: Exportable, path: Path) -> Any:
    """Return a network as ONNX, traced on two inputs."""
    import onnx
    import torch

    try:
        import onnxscript  # noqa: F401 - asked for by torch's exporter
    except ImportError as error:
        raise _missing(error) from error
    if model.network is None:
        raise ConfigError(f"{model.name} without a network.", expected="one")
    network = model.network.cpu()
    try:
        with _quiet():
            torch.onnx.export(
                network, (torch.from_numpy(model.probe[:2]),), path, dynamo=True, external_data=False, verbose=False,
                input_names=[model.contract.name], output_names=[OnnxModel.OUTPUT], opset_version=OPSET,
                dynamic_shapes=({0: torch.export.Dim("batch")},),
            )  # fmt: skip
    except torch.onnx.OnnxExporterError as error:
        raise ConfigError(
            f"torch cannot write {model.name} as ONNX: {reason(error.__cause__ or error)[:300]}.",
            expected="a network of one trace, for any number of images, of operators that ONNX has",
            to_do="serve it with limpet.",
        ) from error
    return onnx.load(path)


@contextmanager
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)


def steps_model(model: Exportable) -> Any:
    """Return plain steps as ONNX, in float32."""
    from onnx import TensorProto, helper

    graph = OnnxGraph()
    last = graph.run(model.steps or (), model.contract.name)
    graph.nodes.append(helper.make_node("Identity", [last], [OnnxModel.OUTPUT]))
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))]
        for name, shape in ((model.contract.name, model.contract.shape), (OnnxModel.OUTPUT, ("batch", model.space.dim)))
    ]
    made = helper.make_graph(graph.nodes, "map", *ends, initializer=graph.constants)
    return helper.make_model(
        made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=FORMAT, producer_name="limpet"
    )


class OnnxGraph:
    """Nodes and constants of a graph under way."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, values: Any, dtype: type = np.float32) -> str:
        """Put an array into the graph, and return its name."""
        from onnx import numpy_helper

        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values, dtype), name))
        return name

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Put a node into the graph, and return the name of its one output."""
        from onnx import helper

        name = f"value{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def run(self, steps: Sequence[ExportStep], rows: str) -> str:
        """Put steps into the graph, after the value of a name, and return the name of what comes out."""
        for step in steps:
            rows = _NODES[type(step)](self, rows, step)
        return rows

    def lengths(self, rows: str) -> str:
        """Return the name of the lengths (N, 1), at least 10⁻¹²; what is squared is 1 at most."""
        axes = self.constant([1], np.int64)
        largest = self.add("Max", self.add("ReduceMax", self.add("Abs", rows), axes), self.constant(SHORTEST))
        unit = self.add("ReduceL2", self.add("Div", rows, largest), axes)
        return self.add("Max", self.add("Mul", unit, largest), self.constant(SHORTEST))


def _normalise(graph: OnnxGraph, rows: str, step: Normalise) -> str:
    return graph.add("Div", rows, graph.lengths(rows))


def _scale(graph: OnnxGraph, rows: str, step: Scale) -> str:
    return graph.add("Mul", rows, graph.constant(step.factor))


def _affine(graph: OnnxGraph, rows: str, step: Affine) -> str:
    return graph.add("Gemm", rows, graph.constant(step.weights), graph.constant(step.offset))


def _relu(graph: OnnxGraph, rows: str, step: Relu) -> str:
    return graph.add("Relu", rows)


def _gelu(graph: OnnxGraph, rows: str, step: Gelu) -> str:
    error = graph.add("Erf", graph.add("Mul", rows, graph.constant(math.sqrt(0.5))))
    return graph.add("Mul", graph.add("Mul", rows, graph.constant(0.5)), graph.add("Add", error, graph.constant(1.0)))


def _sum(graph: OnnxGraph, rows: str, step: Sum) -> str:
    return graph.add("Sum", *(graph.run(branch, rows) for branch in step.branches))


def _mixture(graph: OnnxGraph, rows: str, step: Mixture) -> str:
    from onnx import TensorProto

    wide = graph.add("Cast", rows, to=TensorProto.DOUBLE)  # a temperature magnifies what float32 rounds
    cosines = graph.add("MatMul", wide, graph.constant(step.centres.T, np.float64))
    if step.temperature is None:
        depth, values = graph.constant(len(step.centres), np.int64), graph.constant([0, 1])
        shares = graph.add("OneHot", graph.add("ArgMax", cosines, axis=1, keepdims=0), depth, values)
    else:
        warmed = graph.add("Div", cosines, graph.constant(step.temperature, np.float64))
        shares = graph.add("Cast", graph.add("Softmax", warmed, axis=1), to=TensorProto.FLOAT)
    columns = graph.add("Unsqueeze", graph.add("Transpose", shares, perm=[1, 0]), graph.constant([2], np.int64))
    products = graph.add("MatMul", rows, graph.constant(step.weights))  # (K, N, T)
    images = graph.add("Add", products, graph.constant(step.offsets[:, None]))
    return graph.add("ReduceSum", graph.add("Mul", columns, images), graph.constant([0], np.int64), keepdims=0)


def _shorten(graph: OnnxGraph, rows: str, step: Shorten) -> str:
    share = graph.add("Div", graph.constant(step.length), graph.lengths(rows))
    return graph.add("Mul", rows, graph.add("Min", share, graph.constant(1.0)))


def _lift(graph: OnnxGraph, rows: str, step: Lift) -> str:
    angles = graph.add("Mul", graph.lengths(rows), graph.constant(math.sqrt(step.curvature)))
    reach = graph.add("Sinh", graph.add("Min", angles, graph.constant(math.asinh(2.0**15))))
    return graph.add("Mul", rows, graph.add("Div", reach, angles))


_NODES: dict[type[ExportStep], Callable[[OnnxGraph, str, Any], str]] = {
    Normalise: _normalise, Scale: _scale, Affine: _affine, Relu: _relu, Gelu: _gelu, Sum: _sum, Mixture: _mixture,
    Shorten: _shorten, Lift: _lift,
}  # fmt: skip
