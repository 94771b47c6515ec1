"""Metrics of all ranks: their counts are summed before a result is computed.

The results themselves must not be averaged: the AUC of a data set is not the mean of the AUCs of its halves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import MethodType
from typing import Any

import numpy as np

from profiles.ground.errors import RingscopeError

from ..exchange import reduced_on_host
from ..internals.frameworks import hvd, tf
from ..internals.laid_over import STAYS, laid_over


def sum_states(metrics: Sequence[Any]) -> None:
    """Give every rank the sum of all ranks' counts. A variable with another aggregation gets the mean, or stays."""
    found = {id(variable): variable for metric in metrics for variable in metric.variables}
    variables = [variable for variable in found.values() if _aggregation(variable) in ("sum", "mean")]
    if not variables or hvd.size() == 1:
        return
    own = [np.asarray(variable.numpy(), np.float64) for variable in variables]
    for variable, summed in zip(variables, sums(own, "metrics"), strict=True):
        if _aggregation(variable) == "mean":
            summed = summed / hvd.size()
        variable.assign(summed.astype(tf.as_dtype(variable.dtype).as_numpy_dtype))


def sums(own: Sequence[np.ndarray[Any, Any]], name: str) -> list[np.ndarray[Any, Any]]:
    """The sum of each array over all ranks, by one exchange. All arrays must have one type."""
    total = reduced_on_host(np.concatenate([values.ravel() for values in own]), hvd.Sum, name)
    parts = np.split(total, np.cumsum([values.size for values in own])[:-1])
    return [part.reshape(values.shape) for part, values in zip(parts, own, strict=True)]


def _aggregation(variable: Any) -> str:
    return str(getattr(variable, "aggregation", "sum") or "none")


def is_summed(variable: Any) -> bool:
    """True if the variable's values are to be summed over ranks."""
    return _aggregation(variable) == "sum"


def check_summable(metrics: Sequence[Any]) -> None:
    """Raise RingscopeError for a user's metric whose variables do not begin at 0, because a sum over ranks would count
    the initial value once per rank."""
    for metric in metrics:
        if type(metric).__module__.startswith("keras."):
            continue
        metric.reset_state()
        began = [v for v in metric.variables if is_summed(v) and np.any(np.asarray(v.numpy()) != 0)]
        if began:
            raise RingscopeError(
                f"metric {metric.name!r} begins at {np.ravel(began[0].numpy())[0]:g}, so its state cannot be summed"
                " over ranks; begin it at 0, or make its variable with add_variable(..., aggregation='mean' or 'none')"
            )


def flat_metrics(model: Any) -> list[Any]:
    """Each metric that has a name in the logs, including each metric of `compile`. Before the first step Keras has not
    created its own metrics; then only metric objects of the script are found."""
    import keras

    found: list[Any] = []
    for metric in model.metrics:
        inner = getattr(metric, "metrics", None)
        if not inner and hasattr(metric, "_user_metrics"):
            given = keras.tree.flatten([metric._user_metrics, metric._user_weighted_metrics])
            inner = [each for each in given if isinstance(each, keras.metrics.Metric)]
        found.extend(inner if inner else [metric])
    return found


def result_over_ranks(model: Any, logs: Any, otherwise: Any) -> Any:
    """The logs of an epoch or an evaluation, computed from the counts of all ranks. otherwise: a function {name:
    number} -> {name: number} that joins over ranks the logs which the step computed without a metric."""
    sum_states(model.metrics)
    results = model.get_metrics_result()
    if not isinstance(logs, dict) or set(logs) == set(results):
        return results
    logs = _flat(logs)
    by_name = {metric.name: metric for metric in flat_metrics(model)}
    agreed: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for name, value in logs.items():
        if name in results:
            agreed[name] = results[name]
        elif name in by_name:
            agreed[name] = by_name[name].result()
        else:
            own[name] = value
    agreed |= otherwise(own) if own else {}
    return {name: agreed[name] for name in logs}


def _flat(logs: dict[str, Any]) -> dict[str, Any]:
    """Nested logs as one dict, as Keras makes it: a step may return the metrics of `compile` as a dict of their own."""
    found: dict[str, Any] = {}
    for name, value in logs.items():
        found |= _flat(value) if isinstance(value, dict) else {name: value}
    return found


@contextmanager
def batches_count_alike(model: Any) -> Iterator[None]:
    """Within this context, every batch has the same weight in the reported loss of each of several outputs.

    Keras weights this loss by the batch size if that is known when the step is traced, and then it is equal for all
    batches. Ring makes more sizes known, because a rank's share of the data may have batches of one size, and each
    batch size may have a graph of its own. Then the weights would differ from plain Keras's.
    """
    compiled = getattr(model, "_compile_loss", None)
    if compiled is None:
        yield
        return

    own = compiled.build
    with ExitStack() as laid:

        def lay_over() -> None:
            for metric in compiled.metrics:
                update = MethodType(_update_by_batch, metric)
                laid.enter_context(laid_over(metric, STAYS, update_state=update))

        def build(*args: Any, **kwargs: Any) -> None:
            own(*args, **kwargs)
            lay_over()

        laid.enter_context(laid_over(compiled, STAYS, build=build))
        lay_over()
        yield


def _update_by_batch(metric: Any, values: Any, sample_weight: Any = None) -> Any:
    return type(metric).update_state(metric, values)
